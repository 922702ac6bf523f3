"""Clocks that are ahead, for nodes on which something must have settled, or grown old."""

from reclaim.evidence.states import SETTLE_SECONDS
from signals.clock import SystemClock


class Later(SystemClock):
    """The system's clock, so far ahead that the parts of a pod that has gone
    just now count as settled.
    """

    def wall(self) -> float:
        """Seconds since the epoch."""
        return super().wall() + SETTLE_SECONDS + 0.1


class Ahead(SystemClock):
    """The system's clock, which a test sets forward."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return super().monotonic() + self._seconds

    def wall(self) -> float:
        """Seconds since the epoch."""
        return super().wall() + self._seconds

    def step(self, seconds: float) -> None:
        """Lets so much more time pass."""
        self._seconds += seconds
