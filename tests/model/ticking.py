"""Time for the model: it passes when a step says so, and a little with every reading, as on a real machine."""

from __future__ import annotations

import threading
import time

TICK_SECONDS = 1e-4
COARSE_SECONDS = 0.1  # a wait for late space is over after a few of these; here space is never late
AHEAD_SECONDS = 60.0  # files carry the machine's time; this clock is ahead, so that none is from the future


class TickingClock:
    """A clock that is stepped by hand, and by a tick with every reading. Thread-safe. Times are seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._monotonic = 1000.0
        self._wall = time.time() + AHEAD_SECONDS

    def monotonic(self) -> float:
        """The stepped monotonic time, a tick later than before."""
        return self.step(TICK_SECONDS)[0]

    def wall(self) -> float:
        """The stepped wall time, a tick later than before."""
        return self.step(TICK_SECONDS)[1]

    def step(self, seconds: float) -> tuple[float, float]:
        """Advances both times by `seconds`, and returns them."""
        with self._lock:
            self._monotonic += seconds
            self._wall += seconds
            return self._monotonic, self._wall


class CoarseEvent(threading.Event):
    """An event whose waits with a timeout take no real time: they step a clock, by at least 0.1 s."""

    def __init__(self, clock: TickingClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        """Steps the clock unless the event is set."""
        if timeout is None:
            return super().wait()
        if not self.is_set():
            self._clock.step(max(timeout, COARSE_SECONDS))
        return self.is_set()
