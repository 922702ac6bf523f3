"""The clock as a parameter, so that tests can step it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time in two ways, both in seconds."""

    def monotonic(self) -> float:
        """Seconds that never go back, from an arbitrary zero; for intervals and ages."""

    def wall(self) -> float:
        """Seconds since the Unix epoch; for people, and to compare with timestamps of others. May jump."""


class SystemClock:
    """The clocks of the machine (clock_gettime(2))."""

    def monotonic(self) -> float:
        """`CLOCK_MONOTONIC`."""
        return time.monotonic()

    def wall(self) -> float:
        """`CLOCK_REALTIME`."""
        return time.time()
