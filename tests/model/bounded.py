"""Thread starts that fail for real, and functions that are given a limited time.

A stack so large that no mapping of it fits in the address space makes `Thread.start()` fail as at the limit of
processes (`pids.max`): RuntimeError "can't start new thread". Threads that run already are not concerned.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

NO_SUCH_STACK_BYTES = 1 << 46  # half of the 47 bits of a process


class ThreadStarts:
    """Whether a new thread can start in this process."""

    def __init__(self) -> None:
        self._stack_bytes = 0
        self._fail = False

    @property
    def fail(self) -> bool:
        """Whether they fail now."""
        return self._fail

    @fail.setter
    def fail(self, fail: bool) -> None:
        if fail and not self._fail:
            self._stack_bytes = threading.stack_size(NO_SUCH_STACK_BYTES)
        elif self._fail and not fail:
            threading.stack_size(self._stack_bytes)
        self._fail = fail


class Bounded:
    """Runs functions on a thread of its own, which is there before the first one."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="model pass", daemon=True).start()

    def run(self, task: Callable[[], object], seconds: float) -> bool:
        """Whether it has ended within so many seconds; if not, `wait` waits on. Raises what it raises."""
        self._tasks.put(task)
        return self.wait(seconds)

    def wait(self, seconds: float) -> bool:
        """As `run`, for the one that has not ended."""
        try:
            error = self._ends.get(timeout=seconds)
        except queue.Empty:
            return False
        if error is not None:
            raise error
        return True

    def _serve(self) -> None:
        while True:
            task = self._tasks.get()
            try:
                task()
            except BaseException as error:  # noqa: BLE001 # the caller raises it
                self._ends.put(error)
            else:
                self._ends.put(None)
