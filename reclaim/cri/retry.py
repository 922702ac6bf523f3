"""Retries reads after a refused or lost connection. The only module that uses tenacity.

A runtime that restarts is back within a moment. A read that was not answered within its deadline is not repeated in the
same pass, and a removal never is: after its error the pass checks whether the object still exists, and the next pass
tries again.

tenacity is imported only after a first attempt has failed, which keeps the start of the commands fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from reclaim.types import RuntimeUnavailable

RETRY_FOR_SECONDS = 0.5
FIRST_WAIT_SECONDS = 0.05

Answer = TypeVar("Answer")


def retried(read: Callable[[], Answer], sleep: Callable[[float], None] = time.sleep) -> Answer:
    """The answer of `read`, repeated for up to half a second while it fails with a transient error.

    Raises the last RuntimeUnavailable.
    """
    try:
        return read()
    except RuntimeUnavailable as first:
        if not first.transient:
            raise
        import tenacity

        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, RuntimeUnavailable) and error.transient),
            stop=tenacity.stop_before_delay(RETRY_FOR_SECONDS),
            wait=tenacity.wait_exponential(multiplier=FIRST_WAIT_SECONDS, max=RETRY_FOR_SECONDS / 2),
            sleep=sleep,
            reraise=True,
        )
        return attempts(read)
