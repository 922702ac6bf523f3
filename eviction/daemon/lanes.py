"""Lanes: one for each filesystem, in which one pass runs at a time. What is slow in one delays no other.

A lane is known by the device of its filesystem. The threads are there from the start, and any lane takes any of them.
Two lanes whose rows name the same function share its objects: what one is removing the other leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from eviction.daemon.row_backoff import RowBackoff
from eviction.daemon.worker import Task, Worker
from eviction.node.one_pass import OnePass
from eviction.reporting.log import Log
from eviction.types import Threshold
from reclaim.execution.workers import Workers
from signals.clock import Clock
from signals.types import Signal, SignalObservations

NO_DEVICE = -1  # the lane of what is asked for while its filesystem cannot be read


@dataclass(slots=True)
class Lane:
    """One filesystem.

    `row`: that of the pass that runs, or ran last. `running`: that pass; None: a request that has not made one yet.
    `another_waits`: whether another row of this filesystem is due meanwhile. `led`: the lead has begun a pass since the
    mark was last reached: one is enough. `backoffs`: the pause of each of its rows.
    """

    worker: Worker
    row: tuple[str, ...] = ()
    running: OnePass | None = None
    another_waits: bool = False
    led: bool = False
    backoffs: dict[tuple[str, ...], RowBackoff] = field(default_factory=dict)

    def backoff(self, row: tuple[str, ...]) -> RowBackoff:
        """That of one row."""
        return self.backoffs.setdefault(row, RowBackoff())

    def is_due(self, row: tuple[str, ...], now: float) -> bool:
        """Whether a pass over this row may begin, if nothing else runs."""
        return bool(row) and now >= self.backoff(row).until

    @property
    def free(self) -> bool:
        """Whether nothing runs in it."""
        return self.worker.task is None

    def stalled_seconds(self, now: float) -> float:
        """How long its pass has not gone forward: none of its calls was answered, no removal ended or was parked."""
        task, running = self.worker.task, self.running
        if task is None:
            return 0.0
        return max(now - max(task.started, task.started if running is None else running.progress_at), 0.0)


class Lanes:
    """All lanes of a node. `of` is for one thread, the rest for any. `most`: so many at a time."""

    def __init__(self, most: int, clock: Clock, log: Log, on_failed: Callable[[], None], on_done: Callable[[], None]):
        self._threads = Workers("passes", most)
        self._most = most
        self._clock, self._log = clock, log
        self._on_failed, self._on_done = on_failed, on_done
        self._lanes: dict[int, Lane] = {}

    def prepare(self) -> None:
        """Starts the threads. Raises NoThread."""
        self._threads.prepare(self._most)

    def of(self, signal: Signal | None, observations: SignalObservations) -> Lane:
        """The lane of the filesystem that this signal is about now."""
        observation = None if signal is None else observations.signals.get(signal)
        where = None if observation is None else observation.filesystem
        device = NO_DEVICE if where is None else where.device_id
        if device not in self._lanes:
            worker = Worker("passes", self._clock, self._log, self._on_failed, self._on_done, self._threads)
            self._lanes = {**self._lanes, device: Lane(worker)}  # read by other threads
        return self._lanes[device]

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What runs, the longest first."""
        running = (lane.worker.task for lane in self)
        return tuple(sorted((task for task in running if task is not None), key=lambda task: task.started))

    @property
    def begun(self) -> int:
        """How many passes have begun so far."""
        return sum(lane.worker.begun for lane in self)

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

    def leave(self) -> None:
        """Waits for what runs, a moment at most; removals that were sent are waited for before."""
        for lane in self:
            lane.worker.leave()
        self._threads.close()
