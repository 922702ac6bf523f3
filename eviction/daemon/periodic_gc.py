"""The kubelet's periodic garbage collection: containers every minute, images every 5 minutes.

Off by default, because on most nodes the kubelet does it. Independent of the manager: neither waits for the other.

* Each loop starts with a pass at once, and waits its period after each pass; passes of one loop never overlap.
* With a high threshold of 100 and no maximum age there is no image loop (`StartGarbageCollection` in
  `pkg/kubelet/kubelet.go`).
* A failed pass is not retried before the next period. In the container loop every failure is an event
  (`ContainerGCFailed`); in the image loop the first of several is only logged, because statistics may not be available
  yet, and every further one is an event (`ImageGCFailed`).
* No pass runs during the hold-off after a start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from eviction.node.node import Node
from eviction.reporting.explain import names_of_removed
from eviction.reporting.log import Level, Log
from eviction.telemetry.events import EventSink
from eviction.types import Extent
from reclaim.events import EventReason, GCEvent
from reclaim.execution.workers import NoThread
from reclaim.function import ReclaimContext
from reclaim.functions import garbage_collect_containers
from reclaim.periodic_image_gc import ImageGC
from reclaim.types import ReclaimResult, Result
from signals.quantity import counted, format_bytes

CONTAINER_GC_PERIOD_SECONDS = 60.0
IMAGE_GC_PERIOD_SECONDS = 300.0
HELD_OFF_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Announcement:
    """What is announced after a pass: a log line, or an event if there is one."""

    level: Level
    sentence: str
    event: EventReason | None = None


def container_gc_announcement(error: str, *, failed_before: bool) -> Announcement:
    """The announcement after a container pass that ended with `error` (empty: with success)."""
    if error:
        return Announcement(
            Level.ERROR, f"container garbage collection failed: {error}", EventReason.CONTAINER_GC_FAILED
        )
    return _success("container", failed_before=failed_before)


def image_gc_announcement(error: str, *, failed_before: bool) -> Announcement:
    """The announcement after an image pass that ended with `error` (empty: with success)."""
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

    `run_pass`: runs a pass and returns its error, empty for success. `announce`: makes the announcement after it.
    `may_act`: called before each pass; returns why no pass may run now, or None.
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
        """Starts the thread."""
        self._thread.start()

    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def run(self) -> None:
        """Runs passes until `stopping` is set. No exception in a pass ends the loop."""
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
            self._announce_result(error)
            self._stopping.wait(self._period_seconds)

    def _announce_result(self, error: str) -> None:
        announcement = self._announce(error, failed_before=self.failed)
        self.failed = bool(error)
        if announcement.event is not None:
            self._events.warn(GCEvent(announcement.event, announcement.sentence))
        else:
            self._log.event(announcement.level, announcement.sentence)


class PeriodicGC:
    """Both loops over one node. With the manager they share only the node's connection and image records.

    `may_act`: called before each pass; returns why no pass may run now, or None.
    """

    def __init__(
        self,
        node: Node,
        log: Log,
        events: EventSink,
        may_act: Callable[[], str | None],
    ):
        self._node = node
        self._log = log
        self._events = events
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
        """Starts both loops. Raises NoThread."""
        try:
            for loop in self.loops:
                loop.start()
        except RuntimeError as error:
            raise NoThread(f"no thread can be started for the periodic loops: {error}") from error

    def _container_pass(self) -> str:
        result = garbage_collect_containers(self._context())
        self._log_removals("container", result)
        return result.error

    def _image_pass(self) -> str:
        exact = self._node.configuration.extent is Extent.ALL
        result = ImageGC(self._context()).run(self._started_at, self._node.image_fs_space, exact=exact)
        for event in result.events:
            self._events.warn(event)
        self._log_removals("image", result.reclaim)
        return result.reclaim.error

    def _context(self) -> ReclaimContext:
        """Of one pass, whose removals go one after another."""
        return self._node.context(self._node.make_executor(parallel=1))

    def _log_removals(self, what: str, result: ReclaimResult) -> None:
        self._node.listeners.collected(result)
        removed = [outcome for outcome in result.outcomes if outcome.result is Result.REMOVED]
        for outcome in result.outcomes:
            if outcome.result is Result.FAILED:
                self._log.error(f"{outcome.verdict.kind} {outcome.verdict.name} could not be removed: {outcome.error}")
        if removed:
            size = f" of nominally {format_bytes(result.nominal_bytes)}" if result.nominal_bytes else ""
            names = names_of_removed(removed)
            self._log.info(f"{what} garbage collection: removed {counted(len(removed), 'object')}{size}: {names}")
