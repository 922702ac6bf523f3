"""The kubelet's periodic garbage collection: containers every minute, images every 5 minutes.

Off by default: beside a kubelet it is the kubelet's job. The pressure path knows nothing of it: it has its own
collector, and waits for no loop.

* Each loop waits its period after a pass has ended; passes of one loop never overlap; the first comes at once.
* The image loop is not there at all with a high threshold of 100 and no maximum age
  (`StartGarbageCollection` in `pkg/kubelet/kubelet.go`).
* A failure is the next pass's business: there is no retry. Of the container loop every failure is an event
  (`ContainerGCFailed`); of the image loop the first in a row is only said, as statistics may not be there yet, and
  every further one is an event (`ImageGCFailed`).
* Held off after a start like everything that removes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from eviction.configuration.effective import Extent
from eviction.node.node import Node
from eviction.reporting.log import Level, Log
from eviction.telemetry.events import EventSink
from reclaim.execution.executor import Executor
from reclaim.images.lister import Lister
from reclaim.images.periodic_gc import ImageGC
from reclaim.types import EventReason, GCEvent, ReclaimResult, Result
from signals.quantity import format_bytes

CONTAINER_GC_PERIOD_SECONDS = 60.0
IMAGE_GC_PERIOD_SECONDS = 300.0
HELD_OFF_SECONDS = 1.0
TICK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Announcement:
    """What is said after a pass: a line of the log, and the event if there is one."""

    level: Level
    sentence: str
    event: EventReason | None = None


def container_gc_announcement(error: str, *, failed_before: bool) -> Announcement:
    """After a container pass that ended with `error` (empty: with success)."""
    if error:
        return Announcement(
            Level.ERROR, f"container garbage collection failed: {error}", EventReason.CONTAINER_GC_FAILED
        )
    return _success("container", failed_before=failed_before)


def image_gc_announcement(error: str, *, failed_before: bool) -> Announcement:
    """After an image pass that ended with `error` (empty: with success)."""
    if error and failed_before:
        return Announcement(Level.ERROR, f"image garbage collection failed again: {error}", EventReason.IMAGE_GC_FAILED)
    if error:
        sentence = f"image garbage collection failed once; statistics may not be there yet: {error}"
        return Announcement(Level.ERROR, sentence)
    return _success("image", failed_before=failed_before)


def _success(what: str, *, failed_before: bool) -> Announcement:
    level = Level.INFO if failed_before else Level.DEBUG
    return Announcement(level, f"{what} garbage collection succeeded{' again' if failed_before else ''}")


class PeriodicLoop:
    """One loop on a thread of its own.

    `run_pass`: one pass; it answers with the text of its error, empty for success. `announce`: what is said after it.
    `may_act`: asked before each pass; a text says why not.
    """

    def __init__(
        self,
        name: str,
        period_seconds: float,
        run_pass: Callable[[], str],
        announce: Callable[..., Announcement],
        log: Log,
        events: EventSink,
        stopping: threading.Event,
        may_act: Callable[[], str | None] = lambda: None,
    ):
        self.name = name
        self.failed = False
        self.passes = 0
        self._period_seconds = period_seconds
        self._run_pass = run_pass
        self._announce = announce
        self._log = log
        self._events = events
        self._stopping = stopping
        self._may_act = may_act
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    def start(self) -> None:
        """Begins, with a pass at once."""
        self._thread.start()

    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    def run(self) -> None:
        """Passes until it is told to stop. Nothing in a pass ends it."""
        while not self._stopping.is_set():
            if self._may_act() is not None:
                self._stopping.wait(HELD_OFF_SECONDS)
                continue
            try:
                error = self._run_pass()
            except Exception as defect:  # noqa: BLE001 # a defect in one pass must not end the loop
                error = f"{type(defect).__name__}: {defect}"
            self.passes += 1
            if self._stopping.is_set():
                return
            self._say(error)
            self._stopping.wait(self._period_seconds)

    def _say(self, error: str) -> None:
        announcement = self._announce(error, failed_before=self.failed)
        self.failed = bool(error)
        if announcement.event is not None:
            self._events.warn(GCEvent(announcement.event, announcement.sentence))
        else:
            self._log.event(announcement.level, announcement.sentence)


class PeriodicGC:
    """Both loops over one node. They share the node's connection and records, and nothing else with the pressure path.

    `may_act`: asked before each pass; a text says why not.
    """

    def __init__(self, node: Node, log: Log, events: EventSink, may_act: Callable[[], str | None]):
        self._node = node
        self._log = log
        self._events = events
        self._executor = Executor(node.clock, node.stopping, parallel=1)
        self._collector = node.make_collector(self._executor)
        lister = Lister(node.client, node.client, node.clock)
        self._images = ImageGC(node.client, lister, node.records, node.clock, node.stopping, starts=node.pod_starts)
        self._started_at = node.clock.monotonic()
        common = (log, events, node.stopping, may_act)
        self.loops = [
            PeriodicLoop(
                "container GC", CONTAINER_GC_PERIOD_SECONDS, self._container_pass, container_gc_announcement, *common
            )
        ]
        if node.policies().images.has_periodic_work:
            self.loops.append(
                PeriodicLoop("image GC", IMAGE_GC_PERIOD_SECONDS, self._image_pass, image_gc_announcement, *common)
            )

    def start(self) -> None:
        """Begins both loops, each with a pass at once."""
        for loop in self.loops:
            loop.start()

    @property
    def in_flight(self) -> bool:
        """Whether a removal was sent that has not been answered."""
        return bool(self._executor.in_flight) or self._images.in_flight

    def drain(self, limit_seconds: float) -> None:
        """After the stop: waits for a removal that is in flight, at most so long."""
        until = self._node.clock.monotonic() + limit_seconds
        while self.in_flight and self._node.clock.monotonic() < until:
            threading.Event().wait(TICK_SECONDS)

    def _container_pass(self) -> str:
        self._collector.set_policies(self._node.policies())
        self._collector.start_row()
        result = self._collector.garbage_collect_containers()
        self._tell("container", result)
        return result.error

    def _image_pass(self) -> str:
        exact = self._node.configuration.extent is Extent.ALL
        policy = self._node.policies().images
        result = self._images.run(policy, self._started_at, self._node.image_fs_space, exact=exact)
        for event in result.events:
            self._events.warn(event)
        self._tell("image", result.reclaim)
        return result.reclaim.error

    def _tell(self, what: str, result: ReclaimResult) -> None:
        gone = [outcome for outcome in result.outcomes if outcome.result is Result.REMOVED]
        for outcome in result.outcomes:
            if outcome.result is Result.FAILED:
                self._log.error(f"{outcome.verdict.kind} {outcome.verdict.name} could not be removed: {outcome.error}")
        if gone:
            size = f" of nominally {format_bytes(result.nominal_bytes)}" if result.nominal_bytes else ""
            self._log.info(f"{what} garbage collection: removed {len(gone)} objects{size}")
