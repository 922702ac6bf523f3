"""Time, handed in: so that every edge can be run on a stepped clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings of time, both in seconds."""

    def monotonic(self) -> float:
        """Seconds that only go forward; for intervals and ages."""

    def wall(self) -> float:
        """Seconds since the epoch; for people, and to compare with times that others wrote down."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """`CLOCK_MONOTONIC`."""
        return time.monotonic()

    def wall(self) -> float:
        """`CLOCK_REALTIME`."""
        return time.time()
