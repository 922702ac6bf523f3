"""Retries reads after a refused or lost connection.

A runtime that restarts is back within a moment. A read that was not answered within its deadline is not repeated in the
same pass, and a removal never is: after its error the pass checks whether the object still exists, and the next pass
tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from reclaim.types import RuntimeUnavailable

WAITS_SECONDS = (0.0, 0.05, 0.1, 0.2)
"""Before each further attempt: at once, then with growing waits."""

RETRY_FOR_SECONDS = 0.5
"""After so long since the first failure nothing is tried again: an attempt may take seconds itself."""

Answer = TypeVar("Answer")


def retried(read: Callable[[], Answer], sleep: Callable[[float], None] = time.sleep) -> Answer:
    """The answer of `read`, repeated while it fails with a transient error. Raises the last RuntimeUnavailable."""
    first_failure = 0.0
    for wait in WAITS_SECONDS:
        try:
            return read()
        except RuntimeUnavailable as error:
            now = time.monotonic()
            first_failure = first_failure or now
            if not error.transient or now - first_failure > RETRY_FOR_SECONDS:
                raise
        sleep(wait)
    return read()
