"""A task on a thread of its own that is waited for no longer than a limit: what it reads may never answer."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BoundedThread:
    """One task at a time. A task that is stuck in the kernel keeps its thread; until it ends, no other one is begun.

    `not_started`: how many starts of a thread have failed.
    """

    def __init__(self, name: str):
        self._name = name
        self._running: threading.Thread | None = None
        self.not_started = 0

    def run(self, task: Callable[[], object], seconds: float) -> bool:
        """Has the task done, and waits for its end for at most so long. False if it was not begun."""
        if self._running is not None and self._running.is_alive():
            return False
        thread = threading.Thread(target=task, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self.not_started += 1
            return False
        self._running = thread
        thread.join(seconds)
        return True
