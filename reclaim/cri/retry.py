"""Which failures are retried, and how long. The one home of tenacity.

Only reads are retried, and only when the connection was refused or lost: a runtime that restarts is back within a
moment. What did not answer in time is not asked again in the same pass, and a removal never is: after an error the
question is whether the object is still there, and the next pass is the retry.

tenacity is imported when a first attempt has failed: the emergency hook does not pay for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from reclaim.types import RuntimeUnavailable

PATIENCE_SECONDS = 0.5
WAIT_SECONDS = 0.05

Answer = TypeVar("Answer")


def retried(
    read: Callable[[], Answer],
    patience_seconds: float = PATIENCE_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer:
    """The answer of `read`, asked again for up to `patience_seconds` while the runtime is briefly away.

    Raises RuntimeUnavailable: the last one.
    """
    try:
        return read()
    except RuntimeUnavailable as first:
        if not first.transient:
            raise
        import tenacity

        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: isinstance(error, RuntimeUnavailable) and error.transient),
            stop=tenacity.stop_before_delay(patience_seconds),
            wait=tenacity.wait_exponential(multiplier=WAIT_SECONDS, max=patience_seconds / 2),
            sleep=sleep,
            reraise=True,
        )
        return attempts(read)
