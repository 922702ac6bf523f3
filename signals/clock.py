"""A clock that is passed in, so that tests can step it."""

import time
from typing import Protocol

# what has not answered a single look for so long, a filesystem or a file, does not answer now
LATE_SECONDS = 2.0


class Clock(Protocol):
    """The current time, in seconds."""

    def monotonic(self) -> float:
        """Time that never goes backwards, from an arbitrary zero. For intervals and ages."""

    def wall(self) -> float:
        """Seconds since the Unix epoch. May jump.

        For people, and to compare with other programs' timestamps.
        """


class SystemClock:
    """The system's clocks (clock_gettime(2))."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
