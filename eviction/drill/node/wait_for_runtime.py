"""Repeats a call until the runtime answers: it may have just started, on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from reclaim.types import RuntimeUnavailable

DEADLINE_SECONDS = 10.0
PAUSE_SECONDS = 0.05

_Answer = TypeVar("_Answer")


def until_answered(ask: Callable[[], _Answer]) -> _Answer:
    """The answer to a call that changes nothing. Repeats the call for up to 10 s, then raises RuntimeUnavailable."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            return ask()
        except RuntimeUnavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_SECONDS)
