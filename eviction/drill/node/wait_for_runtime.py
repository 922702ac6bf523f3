"""Asking a runtime that is there but may not answer yet: it has just started, on a machine that is busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from reclaim.types import RuntimeUnavailable

PATIENCE_SECONDS = 10.0
PAUSE_SECONDS = 0.05

_Answer = TypeVar("_Answer")


def answered(ask: Callable[[], _Answer]) -> _Answer:
    """The answer of a question that changes nothing, asked again for up to 10 s. Raises RuntimeUnavailable after it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except RuntimeUnavailable:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_SECONDS)
