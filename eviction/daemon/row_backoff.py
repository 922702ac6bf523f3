"""How long a row of the reclaim table is not called again after a pass."""

from __future__ import annotations

from dataclasses import dataclass

from eviction.record import Pass, PassResult
from reclaim.types import Result

RETRY_SECONDS = 1.0  # while the runtime does not answer, and after a pass that freed something but not enough
LONGEST_PAUSE_SECONDS = 60.0


@dataclass(slots=True)
class RowBackoff:
    """The pause of one row. `until`: its end in monotonic seconds; `seconds`: its length."""

    until: float = float("-inf")
    seconds: float = 0.0

    def record(self, record: Pass, now: float) -> None:
        """Sets the pause after a pass: none after success, 1 s after a failure and after any gain, else doubled up to
        60 s; never longer than until the next object is old enough. `now`: monotonic seconds."""
        if record.result is PassResult.SATISFIED:
            self.seconds = 0.0
        elif record.result is PassResult.FAILED or _freed_something(record):
            self.seconds = RETRY_SECONDS
        else:
            self.seconds = min(max(self.seconds * 2, RETRY_SECONDS), LONGEST_PAUSE_SECONDS)
        waits = [max(f.eligible_in_seconds, 0.0) for f in record.functions if f.eligible_in_seconds is not None]
        self.until = now + min([self.seconds, *waits])


def _freed_something(record: Pass) -> bool:
    return any(function.count(Result.REMOVED) for function in record.functions)
