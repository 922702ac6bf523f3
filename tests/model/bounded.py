"""Functions that are given a limited time: a pass of the model that does not end is told, and waited for no longer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


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
