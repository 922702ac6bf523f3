"""The clock as a protocol, so that tests can run on a stepped one."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Two readings of time, both in seconds."""

    def monotonic(self) -> float:
        """Seconds that only go forward; for intervals and ages."""

    def wall(self) -> float:
        """Seconds since the epoch; compared with times that the runtime reports."""
