"""A worker of the daemon: runs what asks the runtime, one task at a time, on a thread of its own.

The loop keeps observing while a task waits for the runtime. The thread is there from the start. Passes have one, and
what may not stand before a pass has others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from eviction.reporting.log import Log
from reclaim.execution.workers import NoThread, Workers
from signals.clock import Clock

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

    `name`: of its thread. `on_failed`: called on the worker's thread after a task that raised an exception; `on_done`:
    after every task. `threads`: shared with other workers; None: it has one of its own. `begun`: how many tasks have
    begun so far.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        log: Log,
        on_failed: Callable[[], None],
        on_done: Callable[[], None],
        threads: Workers | None = None,
    ):
        self._clock = clock
        self._log = log
        self._on_failed = on_failed
        self._on_done = on_done
        self._task: Task | None = None
        self._workers = threads or Workers(name, 1)
        self.begun = 0

    def prepare(self) -> None:
        """Starts its thread. Raises NoThread."""
        self._workers.prepare(1)

    @property
    def task(self) -> Task | None:
        """The task that runs now."""
        return self._task

    def start(self, what: str, do: Callable[[], None]) -> None:
        """Starts a task; none may be running. An exception in it is logged. Without a thread nothing is started, which
        is logged too."""
        task = Task(what, self._clock.monotonic(), threading.Event())
        self._task = task
        self.begun += 1

        def run() -> None:
            try:
                do()
            except Exception as error:  # noqa: BLE001 # a defect in one pass must not end the daemon
                self._log.error(f"{what}: {type(error).__name__}: {error}")
                self._on_failed()

        def announce() -> None:
            self._task = None
            task.done.set()
            self._on_done()

        try:
            self._workers.run(run, announce)
        except NoThread as error:
            self._task = None
            self._log.error(f"{what}: {error}")
            self._on_failed()

    def leave(self) -> None:
        """Waits until the task has ended, 1.5 s at most; removals that were sent are waited for before."""
        task = self._task
        if task is not None and not task.done.wait(LEAVE_SECONDS):
            self._log.warning(f"leaving while {task.what}: the runtime has not answered")

    def leave_at_once(self) -> None:
        """Waits for nothing: what it does removes nothing, and may go on until the process ends."""
        self._workers.close()
