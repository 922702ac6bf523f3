"""The worker of the daemon: runs whatever asks the runtime, one task at a time, on a thread of its own.

The loop keeps observing while a task waits for the runtime.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from eviction.reporting.log import Log
from signals.clock import Clock

DRAIN_SECONDS = 30.0  # the longest wait for a removal that was sent
LEAVE_SECONDS = 1.5  # the longest wait for a task that removes nothing
TICK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Task:
    """What the worker is doing, in words; since when (monotonic seconds); `done` is set when it has ended."""

    what: str
    started: float
    done: threading.Event


class Worker:
    """Runs one task at a time. Only one thread may start tasks; `task` may be read by any.

    `on_failed`: called on the worker's thread after a task that raised an exception; `on_done`: after every task.
    """

    def __init__(self, clock: Clock, log: Log, on_failed: Callable[[], None], on_done: Callable[[], None]):
        self._clock = clock
        self._log = log
        self._on_failed = on_failed
        self._on_done = on_done
        self._task: Task | None = None

    @property
    def task(self) -> Task | None:
        """The task that runs now."""
        return self._task

    def start(self, what: str, do: Callable[[], None]) -> None:
        """Starts a task; none may be running. An exception in it is logged."""
        task = Task(what, self._clock.monotonic(), threading.Event())
        self._task = task

        def run() -> None:
            try:
                do()
            except Exception as error:  # noqa: BLE001 # a defect in one pass must not end the daemon
                self._log.error(f"{what}: {type(error).__name__}: {error}")
                self._on_failed()
            finally:
                self._task = None
                task.done.set()
                self._on_done()

        threading.Thread(target=run, name="runtime", daemon=True).start()

    def drain(self, removal_in_flight: Callable[[], bool]) -> None:
        """Waits until the task has ended: 30 s while a removal is in flight, else 1.5 s."""
        began = self._clock.monotonic()
        while (task := self._task) is not None:
            limit = DRAIN_SECONDS if removal_in_flight() else LEAVE_SECONDS
            if self._clock.monotonic() - began >= limit:
                self._log.warning(f"leaving while {task.what}: the runtime has not answered")
                return
            task.done.wait(TICK_SECONDS)
