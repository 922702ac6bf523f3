"""A clock that is ahead, for nodes on which something must have settled."""

from __future__ import annotations

from reclaim.containers import SETTLE_SECONDS
from signals.clock import SystemClock


class Later(SystemClock):
    """The system's clock, so far ahead that the parts of a pod that has gone just now count as settled."""

    def wall(self) -> float:
        """Seconds since the epoch."""
        return super().wall() + SETTLE_SECONDS + 0.1
