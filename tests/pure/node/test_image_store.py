"""A pass about the image store: brought below its limit and not further, by counts newer than the last removal."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from eviction.control.reclaim import ReclaimOptions, request_of
from eviction.decision.synchronize import EvictionConfig, ManagerState, synchronize
from eviction.node.node import Responder
from eviction.engine.world import Request
from eviction.record import Pass, PassResult, Trigger
from eviction.types import Extent, Threshold
from reclaim.execution.executor import Executor
from reclaim.execution.removals import Removals
from reclaim.function import ReclaimFunction
from reclaim.functions import table_of
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from signals.types import FilesystemRole, FsLayout, Signal, SignalObservations
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.store import Disk, Store, objects
from tests.pure.values import MIB, SteppedClock, SteppedEvent, observation, seen_filesystems, stats, threshold

STORE = Signal.IMAGESTORE_AVAILABLE
LIMIT = 100 * MIB
EVERY_SECONDS = 10.0  # containerd's own period
OVER = threshold(STORE, "0")
LOW = threshold(Signal.NODEFS_AVAILABLE, "1Gi")


@dataclass
class Shop:
    """A node whose runtime has images of 10 MiB and counts them every ten seconds; removals take a tenth of a second.

    `shows`: whether the disk shows at once what a removal frees. `counts`: whether the runtime goes on counting.
    `beside`: bytes of the store that no removal frees.
    """

    images: int
    beside: int = 0
    containers: int = 0
    shows: bool = True
    counts: bool = True
    disk_bytes: int = 10 << 30
    dry_run: bool = False
    extent: Extent = Extent.ENOUGH
    thresholds: tuple[Threshold, ...] = (OVER,)
    clock: SteppedClock = field(default_factory=SteppedClock)

    def __post_init__(self) -> None:
        self.disk = Disk(self.clock, 0)
        self.store = Store(self.disk, self.clock, objects(self.images))
        self.dead = Store(self.disk, self.clock, {f"c{number}": 0 for number in range(self.containers)})
        for each in (self.store, self.dead):
            each.on_remove = lambda _: self.clock.step(0.1)
            each.late_seconds = 0.0 if self.shows else 1e9
        self.counted_at, self.counted = self.clock.monotonic() - 3.0, self._used()
        self.asked = 0
        self.config = EvictionConfig(self.thresholds)

    def _used(self) -> int:
        return sum(self.store.sizes.values()) + self.beside

    def count(self) -> str | None:
        """ImageFsInfo: the runtime counts anew once ten seconds have passed."""
        self.asked += 1
        if self.counts and self.clock.monotonic() - self.counted_at >= EVERY_SECONDS:
            self.counted_at, self.counted = self.clock.monotonic(), self._used()
        return None

    def observe(self) -> SignalObservations:
        """The disk now, and the store as it was last counted."""
        freed = self.disk.measure(0).usage
        assert freed is not None
        available = self.disk_bytes + freed.available_bytes
        signals = {
            STORE: observation(STORE, LIMIT - self.counted, LIMIT, time=self.counted_at),
            LOW.signal: observation(LOW.signal, available, time=self.clock.monotonic()),
        }
        found = seen_filesystems(
            {role: (1, stats(available)) for role in (FilesystemRole.NODEFS, FilesystemRole.IMAGEFS)}
        )
        return SignalObservations(signals, FsLayout.SINGLE, self.clock.monotonic(), filesystems=found)

    def run(self, request: Request | None = None) -> Pass:
        """One pass as the daemon makes it, or on request."""
        stopping = SteppedEvent(self.clock)
        removals = Removals(self.clock, stopping, 2)
        functions = table_of(
            ReclaimFunction(
                DELETE_ALL_UNUSED_CONTAINERS, FilesystemRole.CONTAINERFS, ("container",), lambda _: (self.dead,)
            ),
            ReclaimFunction(DELETE_UNUSED_IMAGES, FilesystemRole.IMAGEFS, ("image",), lambda _: (self.store,)),
        )
        runtime = MemoryRuntime(self.clock)
        responder = Responder(
            self.observe,
            self.count,
            functions,
            self.clock,
            lambda scope: context_of(
                runtime,
                self.clock,
                executor=Executor(
                    removals,
                    parallel=scope.parallel or 2,
                    dry_run=self.dry_run,
                    btrfs=scope.btrfs,
                    gives_way=scope.gives_way,
                    most=scope.most,
                ),
            ),
            lambda: 0.0,
            ManagerState(self.config),
            self.extent,
        )
        return responder.reclaim(*responder.synchronize(), Trigger.INTERVAL, request)


@pytest.mark.parametrize("over", [1, 5 * MIB, 10 * MIB, 11 * MIB, 35 * MIB])
def test_a_store_over_its_limit_is_brought_below_it_and_not_further(over: int) -> None:
    """As many images of 10 MiB as are over, whatever the count said in between."""
    shop = Shop(images=8, beside=20 * MIB + over)
    record = shop.run()
    assert len(shop.store.sent) == -(-over // (10 * MIB))
    assert (record.result, record.still_met) == (PassResult.SATISFIED, ())


def test_where_the_disk_shows_no_gain_each_image_waits_for_the_next_count() -> None:
    """btrfs frees with a commit: two images are enough, and two go, ten seconds apart."""
    shop = Shop(images=8, beside=35 * MIB, shows=False)
    began = shop.clock.monotonic()
    shop.run()
    assert len(shop.store.sent) == 2
    assert EVERY_SECONDS < shop.clock.monotonic() - began < 6 * EVERY_SECONDS


def test_what_holds_nothing_is_not_waited_for() -> None:
    """Fifty dead containers free nothing: no count is waited for between them."""
    shop = Shop(images=8, beside=25 * MIB, containers=50)
    began = shop.clock.monotonic()
    shop.run()
    assert (len(shop.dead.sent), len(shop.store.sent)) == (50, 1)
    assert shop.clock.monotonic() - began < 4 * EVERY_SECONDS


def test_without_a_newer_count_the_pass_ends_after_the_first_removal_that_could_be_enough() -> None:
    """A runtime that no longer counts: what was removed may be enough, and nobody knows."""
    shop = Shop(images=8, beside=25 * MIB, counts=False)
    began = shop.clock.monotonic()
    record = shop.run()
    assert len(shop.store.sent) == 1
    assert 30.0 <= shop.clock.monotonic() - began < 32.0
    assert record.result is PassResult.NOT_ENOUGH
    assert record.reason.endswith("still under pressure: imagestore.available; everything else is in use or protected")


def test_a_pass_about_a_disk_does_not_look_at_the_store() -> None:
    """The store is far over its limit; the disk wants one image, and one goes, without a question."""
    shop = Shop(images=8, beside=500 * MIB, thresholds=(LOW, OVER), disk_bytes=(1 << 30) - MIB)
    record = shop.run()
    assert record.decision.acted_on == LOW
    assert (len(shop.store.sent), shop.asked, record.result) == (1, 0, PassResult.SATISFIED)


def test_a_pass_about_the_store_does_not_look_at_the_disks() -> None:
    """The disk is below its mark all the time, in a lane of its own; the store wants one image."""
    shop = Shop(images=8, beside=25 * MIB, thresholds=(LOW, OVER), disk_bytes=0)
    seen = shop.observe()
    _, decision = synchronize(ManagerState(shop.config), seen, seen.time)
    options = ReclaimOptions(signal=STORE)
    record = shop.run(request_of(options, seen, decision, shop.config))
    assert (len(shop.store.sent), record.result) == (1, PassResult.SATISFIED)


def test_a_dry_run_counts_the_promised_sizes() -> None:
    """15 MiB over: two images would go, and none does."""
    shop = Shop(images=8, beside=35 * MIB, dry_run=True)
    record = shop.run()
    assert (shop.store.sent, record.result) == ([], PassResult.DRY_RUN)
    assert len(record.removals) == 2


def test_with_the_extent_all_the_row_goes_to_its_end() -> None:
    """As for any signal."""
    shop = Shop(images=4, beside=65 * MIB, extent=Extent.ALL)
    shop.run()
    assert len(shop.store.sent) == 4
