"""How long a row of the reclaim table is left alone after a pass."""

from __future__ import annotations

from dataclasses import dataclass

from eviction.reporting.pass_record import Pass, PassResult
from reclaim.types import Result

RETRY_SECONDS = 1.0  # while the runtime is away, and after a pass that freed something and not enough
LONGEST_PAUSE_SECONDS = 60.0


@dataclass(slots=True)
class Pause:
    """How long a row is left alone. `until`: monotonic seconds."""

    until: float = float("-inf")
    seconds: float = 0.0

    def after(self, record: Pass, now: float) -> None:
        """None after success, a second while the runtime is away; else growing while nothing is freed."""
        if record.result is PassResult.SATISFIED:
            self.seconds = 0.0
        elif record.result is PassResult.FAILED or any(f.count(Result.REMOVED) for f in record.functions):
            self.seconds = RETRY_SECONDS
        else:
            self.seconds = min(max(self.seconds * 2, RETRY_SECONDS), LONGEST_PAUSE_SECONDS)
        waits = [max(f.eligible_in_seconds, 0.0) for f in record.functions if f.eligible_in_seconds is not None]
        self.until = now + min([self.seconds, *waits])
