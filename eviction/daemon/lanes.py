"""Lanes: each runs one task at a time, beside the loop and beside all others. What is slow in one delays no other.

There is one for each filesystem, in which its passes run; it is known by the device. What may not stand before a pass
has lanes of its own: the refresh, and the dry runs of clients. The threads are there from the start, and any lane takes
any of them. Two lanes whose rows name the same function share its objects: what one is removing the other leaves out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from eviction.daemon.row_backoff import RowBackoff
from eviction.node.one_pass import OnePass
from eviction.reporting.log import Log
from eviction.types import Threshold
from reclaim.execution.workers import NoThread, Workers
from signals.clock import Clock
from signals.types import Signal, SignalObservations

LEAVE_SECONDS = 1.5  # the longest wait for a task that removes nothing
NO_DEVICE = -1  # the lane of what is asked for while its filesystem cannot be read


@dataclass(frozen=True, slots=True)
class Task:
    """What a lane is doing, in words; since when (monotonic seconds); `done` is set when it has ended."""

    what: str
    started: float
    done: threading.Event


class Lane:
    """One lane. Only one thread may start tasks; `task` may be read by any.

    `on_done`: called on the lane's thread after each task. `begun`: how many tasks have begun so far. `row`: that of
    the pass that runs, or ran last. `running`: that pass; None: something else, or a request that has not made one yet.
    `another_waits`: whether another row of this filesystem is due meanwhile. `led`: the lead has begun a pass since the
    mark was last reached: one is enough. `backoffs`: the pause of each of its rows.
    """

    def __init__(self, threads: Workers, clock: Clock, log: Log, on_done: Callable[[], None]):
        self._threads = threads
        self._clock = clock
        self._log = log
        self._on_done = on_done
        self.task: Task | None = None
        self.begun = 0
        self.row: tuple[str, ...] = ()
        self.running: OnePass | None = None
        self.another_waits = self.led = False
        self.backoffs: dict[tuple[str, ...], RowBackoff] = {}

    @property
    def free(self) -> bool:
        """Whether nothing runs in it."""
        return self.task is None

    def start(
        self, what: str, do: Callable[[], None], row: tuple[str, ...] = (), running: OnePass | None = None
    ) -> bool:
        """Starts a task; none may be running. An exception in it is logged. Without a thread nothing is started, which
        is logged too: false."""
        task = Task(what, self._clock.monotonic(), threading.Event())
        self.task, self.row, self.running, self.another_waits = task, row, running, False
        self.begun += 1

        def run() -> None:
            try:
                do()
            except Exception as error:  # noqa: BLE001 # a defect in one pass must not end the daemon
                self._log.error(f"{what}: {type(error).__name__}: {error}")

        def announce() -> None:
            self.task = None
            task.done.set()
            self._on_done()

        try:
            self._threads.run(run, announce)
        except NoThread as error:
            self.task = None
            self._log.error(f"{what}: {error}")
            return False
        return True

    def backoff(self, row: tuple[str, ...]) -> RowBackoff:
        """That of one row."""
        return self.backoffs.setdefault(row, RowBackoff())

    def stalled_seconds(self, now: float) -> float:
        """How long its pass has not gone forward: none of its calls was answered, no removal ended or was parked."""
        task, running = self.task, self.running
        if task is None:
            return 0.0
        return max(now - max(task.started, task.started if running is None else running.progress_at), 0.0)

    def leave(self) -> None:
        """Waits until the task has ended, 1.5 s at most; removals that were sent are waited for before."""
        task = self.task
        if task is not None and not task.done.wait(LEAVE_SECONDS):
            self._log.warning(f"leaving while {task.what}: the runtime has not answered")


class Lanes:
    """Those of the filesystems of a node. `of` is for one thread, the rest for any. `make`: makes one."""

    def __init__(self, make: Callable[[], Lane]):
        self._make = make
        self._lanes: dict[int, Lane] = {}

    def of(self, signal: Signal | None, observations: SignalObservations) -> Lane:
        """The lane of the filesystem that this signal is about now."""
        observation = None if signal is None else observations.signals.get(signal)
        where = None if observation is None else observation.filesystem
        device = NO_DEVICE if where is None else where.device_id
        if device not in self._lanes:
            self._lanes = {**self._lanes, device: self._make()}  # read by other threads
        return self._lanes[device]

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What runs, the longest first."""
        running = (lane.task for lane in self)
        return tuple(sorted((task for task in running if task is not None), key=lambda task: task.started))

    def stalled_seconds(self, now: float) -> float:
        """How long the pass that stands longest has not gone forward."""
        return max((lane.stalled_seconds(now) for lane in self), default=0.0)

    def paused_seconds(self, now: float) -> float:
        """Seconds until the last pause of a row ends; 0: there is none."""
        return max([0.0, *(each.until - now for lane in self for each in list(lane.backoffs.values()))])

    def observed(self, met: tuple[Threshold, ...], observations: SignalObservations) -> None:
        """After each observation: once no threshold is met all pauses are forgotten, as what comes next is another
        pressure; where one is, the lead may begin another pass after it."""
        for threshold in met:
            self.of(threshold.signal, observations).led = False
        if not met:
            for lane in self:
                lane.backoffs.clear()
