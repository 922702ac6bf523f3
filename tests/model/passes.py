"""The passes of one node of the model: each in a limited time, in the middle of which other steps happen.

Checked after each: it has ended without an exception, what it reports is what has happened, and that no new thread can
be started has not kept it from its work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from eviction.node.one_pass import PassScope, Request
from eviction.record import Pass, Trigger
from eviction.types import Extent
from reclaim.functions import FUNCTIONS, garbage_collect_containers
from reclaim.periodic_image_gc import garbage_collect_images
from reclaim.types import DELETE_UNUSED_IMAGES, Outcome, ReclaimResult, Result
from signals.types import Signal
from tests.model.reports import answered_wrongly, unreported, wrong_nominal, wrong_outcomes
from tests.pure.values import threshold

if TYPE_CHECKING:
    from tests.model.world import World

ROW = tuple(FUNCTIONS)
PAGE_BYTES = 4096
ENDS_WITHIN_SECONDS = 30.0  # far more than any pass takes: the deadlines and the patience in it are short
THREAD_WORDS = ("thread",)


class Passes:
    """Runs passes of a world's product. `count`: how many so far; `threadless`: those while no thread could start.
    `wrong`: what was wrong with them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.count = 0
        self.threadless = 0
        self.wrong: list[str] = []
        self.at_work = False
        self._removals_before = 0

    def relieve(self, above_bytes: int, extent: Extent) -> None:
        """A pass until so many more bytes are available than now, or (`extent: all`) to the end of the row."""
        world = self._world
        until = (threshold(Signal.NODEFS_AVAILABLE, str(self._free()[0] + above_bytes)),)
        self._begin()
        changes = world.root.changes
        befores: list[tuple[int, int]] = []
        records: list[Pass] = []

        def reclaim() -> None:
            world.product.locate()
            befores.append(self._free())
            observations, decision = world.product.responder.synchronize()
            request = Request(ROW, until, extent)
            records.append(world.product.responder.reclaim(observations, decision, Trigger.REQUEST, request))

        if not self._runs(reclaim):
            return
        record, before, after = records[0], befores[0], self._free()
        measured = (record.measured_bytes - record.written_bytes, record.measured_inodes - record.written_inodes)
        true = (after[0] - before[0], after[1] - before[1])
        same_disk = world.root.changes == changes and not world.root.is_another
        if same_disk and (abs(measured[0] - true[0]) >= PAGE_BYTES or measured[1] != true[1]):
            self.wrong.append(f"{measured} bytes and inodes are reported, and the filesystem has {true} more")
        if min(record.measured_bytes, record.measured_inodes) < 0:
            self.wrong.append(f"{record.measured_bytes} bytes and {record.measured_inodes} inodes count as freed")
        listed = any(each.operation == DELETE_UNUSED_IMAGES and not each.error for each in record.functions)
        self._end(record.removals, record.kept, record.errors, listed_images=listed)
        self.wrong += wrong_nominal(record)

    def collect(self, *, images: bool) -> None:
        """A pass of a periodic loop: of containers, or of images."""
        world = self._world
        node = world.product
        self._begin()
        results: list[ReclaimResult] = []

        def collect() -> None:
            context = node.context(PassScope(parallel=1))
            if images:
                exact = world.extent is Extent.ALL
                results.append(garbage_collect_images(context, 0.0, node.image_fs_space, exact=exact)[0])
            else:
                results.append(garbage_collect_containers(context))

        if self._runs(collect):
            result = results[0]
            listed = images and not result.error
            self._end(result.outcomes, result.kept, (result.error,), listed_images=listed)

    def interrupt(self, steps: dict[int, Callable[[], object]]) -> None:
        """Sets what happens before the nth call (from 1 on) of the next pass; removals are then not parallel."""
        world = self._world
        first = world.runtime.calls
        product = world.product
        product.configuration = product.configuration.model_copy(update={"parallel_removals": 1 if steps else 2})

        def before_call(number: int) -> None:
            step = steps.pop(number - first, None)
            if step is not None:
                step()

        world.failpoints.before_call = before_call

    def _runs(self, task: Callable[[], None]) -> bool:
        """Runs a pass, without new threads if none can start now. Whether it has ended in time; if not, that is
        wrong, and nothing of it counts."""
        world, shared = self._world, self._world.shared
        shared.thread_starts.fail = world.no_threads
        self.at_work = True
        try:
            if shared.bounded.run(task, ENDS_WITHIN_SECONDS):
                return True
            self.wrong.append(f"a pass did not end within {ENDS_WITHIN_SECONDS:g} s")
        except Exception as error:  # noqa: BLE001 # a pass never raises
            self.wrong.append(f"a pass ended with {type(error).__name__}: {error}")
        finally:
            self.at_work = False
            shared.thread_starts.fail = False
            world.failpoints.before_call = lambda _: None
        if world.end_hung_calls(lambda _: True, lost=True):
            self.wrong.append("it waited for a call that hung")
        shared.renew_bounded()
        return False

    def _begin(self) -> None:
        self.count += 1
        self._world.runtime.pass_began = self._world.runtime.now()
        self.threadless += self._world.no_threads
        self._removals_before = len(self._world.runtime.ledger)
        self._world.failpoints.triggered.clear()

    def _end(
        self, removals: Iterable[Outcome], kept: Iterable[Outcome], errors: Iterable[str], *, listed_images: bool
    ) -> None:
        runtime = self._world.runtime
        if listed_images:
            runtime.listed_images = runtime.answered_calls.get("ListImages", 0)
        removed = {entry.id for entry in runtime.ledger[self._removals_before :] if entry.by_reclaimd}
        if not answered_wrongly(self._world.failpoints.triggered):
            self.wrong += wrong_outcomes(runtime, removals, removed)
        # what hung is reported when it is parked, and is removed at some time
        runtime.held.ids.update(outcome.verdict.id for outcome in removals if outcome.result is Result.PARKED)
        self.wrong += unreported(removals, kept, removed - runtime.held.ids)
        self.wrong += [
            f"work was not done for want of a thread: {error}"
            for error in (*errors, *(outcome.error for outcome in removals))
            if any(word in error for word in THREAD_WORDS)
        ]

    def _free(self) -> tuple[int, int]:
        found = os.statvfs(self._world.directory)
        return found.f_bavail * found.f_frsize, found.f_ffree
