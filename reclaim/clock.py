"""Time, handed in: so that every edge can be run on a stepped clock."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Two readings of time, both in seconds."""

    def monotonic(self) -> float:
        """Seconds that only go forward; for intervals and ages."""

    def wall(self) -> float:
        """Seconds since the epoch; compared with the times that the runtime wrote down."""
