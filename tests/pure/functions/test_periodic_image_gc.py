"""One periodic image garbage collection pass: its parts, their order, and what ends it; the rules
are the kubelet's, unless a test says otherwise.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go` (GarbageCollect).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from eviction.engine.periodic import IMAGE, IMAGE_PERIOD_SECONDS
from eviction.engine.world import Asking
from eviction.records.passes import PeriodicLoop
from reclaim.functions.table import table_of
from reclaim.functions.unused_images import IMAGE_GC, PeriodicImages
from reclaim.images.keep_list import parse_keep_list
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords, Loaded
from reclaim.types import (
    NEVER,
    GCEvent,
    ImageRecord,
    ReclaimResult,
    RemovalFailed,
)
from tests.inline import Inline, configured, disk_with
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import MIB, SteppedClock, image, image_id
from tests.rows import rows

CAPACITY = 1000  # MiB
NOW = 100_000.0
LATELY = ImageRecord(10_000.0, NOW - 60.0)
USUAL = yaml.safe_load("""
    {images: 1 2 3 4, unreadable: "", lately: "", new: "", broken: "", available: 100, capacity: 1000, up for: 100000, exact: false,
    age: 0, high: 85, low: 80, keep: [], newest: 0}
""")


class Story:
    """A node with a pause image, unused images of 50 MiB each that have been known for a day, last
    used one after the other by number, and a full disk. `lately`: images that were used a minute
    ago; `new`: that nobody has seen before; `broken`: those that cannot be removed."""

    def __init__(self, told: str = "") -> None:
        given = USUAL | yaml.safe_load(f"{{{told}}}")
        self.clock = SteppedClock(at=NOW)
        self.runtime = MemoryRuntime(self.clock)
        self.runtime.hold(image(99, "registry.k8s.io/pause:3.9", pinned=True))
        self.records = ImageRecords()
        for number in map(int, str(given["images"]).split()):
            self.hold(number, ImageRecord(10_000.0 + number, 20_000.0 + number))
        for number in map(int, str(given["lately"]).split()):
            self.hold(number, LATELY)
        for number in map(int, str(given["new"]).split()):
            self.hold(number)
        for number in map(int, str(given["broken"]).split()):
            self.meanwhile(number, lambda: self.fail(RemovalFailed("device busy")))
        self.available, self.capacity = given["available"], given["capacity"]
        self.started_at, self.exact = NOW - given["up for"], given["exact"]
        self.policy = ImageGCPolicy(
            max_age_seconds=given["age"],
            high_threshold_percent=given["high"],
            low_threshold_percent=given["low"],
            keep=parse_keep_list(given["keep"]),
            keep_newest_per_repository=given["newest"],
            pod_start_seconds=0.0,
        )
        self.readings = 0
        self.unreadable = given["unreadable"]

    def hold(self, number: int, record: ImageRecord | None = None) -> None:
        """One more image, of which this is known."""
        self.runtime.hold(image(number, f"old:{number}", size_bytes=50 * MIB))
        if record:
            self.records.restore(Loaded({**self.records.records, image_id(number): record}))

    def fail(self, error: Exception) -> None:
        raise error

    def meanwhile(self, number: int, happens: Callable[[], object]) -> None:
        """While this image is being removed."""
        self.runtime.on_call[f"remove_image {image_id(number)}"] = happens

    def stats(self) -> tuple[int | None, int | None]:
        """The image filesystem as it is now."""
        self.readings += 1
        if self.unreadable:
            raise OSError(self.unreadable)
        return tuple(
            None if each is None else each * MIB for each in (self.capacity, self.available)
        )  # type: ignore[return-value] # two of them

    def run(self) -> tuple[ReclaimResult, GCEvent | None]:
        """One pass, and its event."""
        function = PeriodicImages(self.started_at, self.stats, lambda: self.exact).function()
        self.engine = Inline(
            self.clock,
            table_of(function),
            lambda facts: context_of(
                self.runtime, self.clock, records=self.records, images=self.policy, facts=facts
            ),
            read=disk_with(lambda: (CAPACITY - 50 * len(self.runtime.images)) * MIB),
            configuration=configured(),
        )
        self.engine.look()
        due = (PeriodicLoop(IMAGE, IMAGE_PERIOD_SECONDS, self.clock.monotonic()),)
        nothing_asked = Asking(locate_due=NEVER, refresh_due=NEVER)
        self.engine.world = self.engine.world._replace(
            on_its_own=True, periodic=due, asking=nothing_asked
        )
        self.engine.until(
            lambda: self.engine.world.passes_begun > 0 and not self.engine.world.passes
        )
        told: dict[str, Any] = {each.what: each.about for each in self.engine.told}
        (record,) = told["collected"]
        _, _, event = told.get("collection_ended", (None, None, None))
        return record.functions[0], event


def number_of(identity: str) -> int:
    """The number of an image by its id."""
    return int(identity.removeprefix("sha256:")[:8], 16)


def done(reclaim: ReclaimResult) -> str:
    """What became of each image that was tried, in order."""
    return ", ".join(f"{number_of(one.verdict.id)} {one.result}" for one in reclaim.outcomes)


@rows("""
    given                                        | outcomes                                   | error                                          | event               | what
    images: 3 1 2 4                              | 1 removed, 2 removed                       |                                                |                     | to the low mark exactly, the least recently used first
    available: 159                               | 1 removed                                  |                                                |                     | 15.9 % available is 85 % used, which acts
    available: 160                               |                                            |                                                |                     |
    available: 1001, high: 1, low: 1             |                                            |                                                |                     | more available than capacity is usage 0
    available: 205, high: 80, low: 80            | 1 removed                                  |                                                |                     | 79.5 % is rounded up: equal marks cost one image
    available: 205, high: 80, low: 80, broken: 1 | 1 failed, 2 removed                        | 1 failed removal: old:1: device busy           |                     | a target below 0 goes on after a failure
    available: 9, high: 100, age: 1000000        | 1 removed, 2 removed, 3 removed, 4 removed |                                                |                     | a high mark of 100 acts below 1 %
    available: 10, high: 100, age: 1000000       |                                            |                                                |                     |
    images: 1                                    | 1 removed                                  | volumes, or other data.                        | FreeDiskSpaceFailed |
    broken: 1                                    | 1 failed, 2 removed, 3 removed             | wanted to free 104857600 bytes of images and freed 104857600, with 1 failed removal: old:1: device busy |                     |
    images: 1 2, broken: 1                       | 1 failed, 2 removed                        | 1 failed removal: old:1: device busy           |                     | failures come before too little freed
    broken: 1 2 3 4                              | 1 failed, 2 failed, 3 failed, 4 failed     | old:1: device busy; old:2: device busy; old:3: device busy; and 1 more |                     |
    broken: 2, age: 3600                         | 1 removed, 2 failed, 3 removed, 4 removed  | maximum age of images: 1 failed removal: old:2: device busy |                     | and the disk is not read
    capacity: 0                                  |                                            | has no valid capacity (0 bytes)                | InvalidDiskCapacity |
    capacity: null                               |                                            | has no valid capacity (0 bytes)                | InvalidDiskCapacity |
    available: null, images: 1 2 3 4 5           | 1 removed, 2 removed, 3 removed, 4 removed |                                                |                     | unknown counts as 0
    available: 500, age: 3600, up for: 3600      |                                            |                                                |                     | an uptime of exactly the maximum age is not enough
    images: 1, available: 500, age: 3600, up for: 3601 | 1 removed                            |                                                |                     | a second more is
    images: 1 2, lately: 5, available: 500, high: 83, age: 3600 | 1 removed, 2 removed                |                                                |                     | old images go though there is room
    images: 1 2, lately: 5, available: 170, high: 83, age: 3600 | 1 removed, 2 removed, 5 removed     |                                                |                     | before one that was used lately, and are not credited
    images: '', new: 5, available: 500, age: 3600 |                                           |                                                |                     | pulled seconds ago, no container yet: a difference
    images: '', new: 5, available: 500, age: 3600, exact: true | 5 removed                    |                                                |                     | as the kubelet does it
    unreadable: EIO                              |                                            | the image filesystem cannot be read: EIO       |                     | nothing goes blind
    images: 1 2, keep: [old], age: 3600          |                                            | volumes, or other data.                        | FreeDiskSpaceFailed |
    newest: 3, age: 3600                         | 1 removed                                  | volumes, or other data.                        | FreeDiskSpaceFailed |
    newest: 3                                    | 1 removed                                  | volumes, or other data.                        | FreeDiskSpaceFailed |
""")
def test_a_pass(given: str, outcomes: str, error: str, event: str) -> None:
    """90 % of 1000 MiB are used and 100 MiB wanted, if nothing else is said."""
    story = Story(given)
    reclaim, found = story.run()
    assert story.readings <= ("maximum age" not in error), "the disk is read after that, if at all"
    assert (done(reclaim), reclaim.operation) == (outcomes, IMAGE_GC)
    assert reclaim.nominal_bytes == outcomes.count("removed") * 50 * MIB
    assert reclaim.error.endswith(error)
    assert (reclaim.error != "") is (error != "")
    assert (found and (found.reason, found.message)) == ((event, reclaim.error) if event else None)
