"""The kubelet's periodic garbage collection: containers every minute, images every 5 minutes.

Off by default, because on most nodes the kubelet does it. Independent of the manager: neither waits for the other.

* Each loop begins with a pass at once, and waits its period after each pass; passes of one loop never overlap.
* With a high threshold of 100 and no maximum age there is no image loop (`StartGarbageCollection` in
  `pkg/kubelet/kubelet.go`).
* A failed pass is not retried before the next period. In the container loop every failure is an event
  (`ContainerGCFailed`). In the image loop the first failure in a row is only logged, because statistics may not be
  available yet, and every further one is an event (`ImageGCFailed`).
* No pass runs during the hold-off after a start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from eviction.node.node import Node
from eviction.node.one_pass import PassScope
from eviction.reporting.explain import names_of_removed
from eviction.reporting.log import Level, Log
from eviction.types import Extent
from reclaim.execution.workers import NoThread
from reclaim.function import ReclaimContext
from reclaim.functions import garbage_collect_containers
from reclaim.periodic_image_gc import garbage_collect_images
from reclaim.types import EventReason, GCEvent, ReclaimResult, Result
from signals.quantity import counted, format_bytes

CONTAINER_GC_PERIOD_SECONDS = 60.0
IMAGE_GC_PERIOD_SECONDS = 300.0
HELD_OFF_SECONDS = 1.0
CONTAINER, IMAGE = "container", "image"


@dataclass(slots=True, eq=False)
class PeriodicLoop:
    """One loop on a thread of its own. `what` it collects: `container` or `image`. `run_pass`: runs a pass and returns
    its error, empty on success. `may_act`: called before each pass; returns why no pass may run now, or None. `failed`:
    whether the last pass did."""

    what: str
    period_seconds: float
    run_pass: Callable[[], str]
    log: Log
    event: Callable[[GCEvent], None]
    stopping: threading.Event
    may_act: Callable[[], str | None]
    failed: bool = False

    def run(self) -> None:
        """Runs passes until `stopping` is set. No exception ends the loop, in a pass or beside it."""
        while not self.stopping.is_set():
            seconds = self.period_seconds
            try:
                if self.may_act() is None:
                    self._turn()
                else:
                    seconds = HELD_OFF_SECONDS
            except BaseException as defect:  # noqa: BLE001 # the thread must survive whatever is raised
                self.log.error(f"{self.what} garbage collection: {type(defect).__name__}: {defect}")
            self.stopping.wait(seconds)

    def _turn(self) -> None:
        """One pass, and what is announced of it."""
        try:
            error = self.run_pass()
        except Exception as defect:  # noqa: BLE001 # a defect in a pass is a failure like any other
            error = f"{type(defect).__name__}: {defect}"
        if not self.stopping.is_set():
            try:
                self._announce(error)
            finally:
                self.failed = bool(error)

    def _announce(self, error: str) -> None:
        """How a pass is reported depends on whether the previous one failed."""
        collection = f"{self.what} garbage collection"
        if not error:
            level = Level.INFO if self.failed else Level.DEBUG
            self.log.event(level, f"{collection} succeeded{' again' if self.failed else ''}")
        elif self.what == CONTAINER:
            self.event(GCEvent(EventReason.CONTAINER_GC_FAILED, f"{collection} failed: {error}"))
        elif self.failed:
            self.event(GCEvent(EventReason.IMAGE_GC_FAILED, f"{collection} failed again: {error}"))
        else:
            self.log.error(f"{collection} failed once; statistics may not be there yet: {error}")


class PeriodicGC:
    """Both loops on one node. They share only the node's connection and image records with the manager.

    `may_act`: called before each pass; returns why no pass may run now, or None.
    """

    def __init__(self, node: Node, log: Log, event: Callable[[GCEvent], None], may_act: Callable[[], str | None]):
        self._node = node
        self._log = log
        self._event = event
        self._started_at = node.clock.monotonic()
        common = (log, event, node.stopping, may_act)
        self._loops = [PeriodicLoop(CONTAINER, CONTAINER_GC_PERIOD_SECONDS, self._container_pass, *common)]
        if node.policies().images.has_periodic_work:
            self._loops.append(PeriodicLoop(IMAGE, IMAGE_GC_PERIOD_SECONDS, self._image_pass, *common))

    def start(self) -> tuple[threading.Thread, ...]:
        """Starts both loops; returns their threads, which end when the node stops. Raises NoThread."""
        threads = [threading.Thread(target=each.run, name=f"{each.what} GC", daemon=True) for each in self._loops]
        try:
            for thread in threads:
                thread.start()
        except RuntimeError as error:
            raise NoThread(f"no thread can be started for the periodic loops: {error}") from error
        return tuple(threads)

    def _container_pass(self) -> str:
        result = garbage_collect_containers(self._context())
        self._log_removals(CONTAINER, result)
        return result.error

    def _image_pass(self) -> str:
        exact = self._node.configuration.extent is Extent.ALL
        result, event = garbage_collect_images(
            self._context(), self._started_at, self._node.image_fs_space, exact=exact
        )
        if event is not None:
            self._event(event)
        self._log_removals(IMAGE, result)
        return result.error

    def _context(self) -> ReclaimContext:
        """For one pass, whose removals run one after another."""
        return self._node.context(PassScope(parallel=1))

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
