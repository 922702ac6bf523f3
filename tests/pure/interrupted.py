"""Something that another thread does in the middle of something else: at a
given step, without chance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.pure.values import SteppedClock

MOMENT_SECONDS = 0.1


class Interruption:
    """Calls `do` once, on a thread of its own, at the step at which `come` is called. What is going
    on there continues when that has ended, or, if it holds a lock that keeps the other thread out,
    after a moment; `join` waits for it."""

    def __init__(self, do: Callable[[], object]):
        self._thread: threading.Thread | None = None
        self._do = do

    def come(self) -> None:
        """It is that step."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._do, daemon=True)
            self._thread.start()
            self._thread.join(MOMENT_SECONDS)

    def join(self) -> None:
        """It must have come; waits for its end."""
        assert self._thread is not None
        self._thread.join(60.0)
        assert not self._thread.is_alive()


class InterruptedClock(SteppedClock):
    """A clock whose next reader is interrupted by `interruption`."""

    interruption: Interruption | None = None

    def monotonic(self) -> float:
        """The stepped time, after the interruption."""
        if self.interruption is not None:
            self.interruption.come()
        return super().monotonic()
