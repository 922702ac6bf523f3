"""One periodic image garbage collection pass: its parts, their order, and what ends it; the rules
are the kubelet's, unless a test says otherwise.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go` (GarbageCollect).
"""

from __future__ import annotations

from typing import Any

import yaml

from eviction.engine.periodic import IMAGE, IMAGE_PERIOD_SECONDS
from eviction.engine.world import Asking
from eviction.records.passes import PeriodicLoop
from reclaim.functions.table import table_of
from reclaim.functions.unused_images import IMAGE_GC, PeriodicImages
from reclaim.images.keep_list import parse_keep_list
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords
from reclaim.types import (
    NEVER,
    GCEvent,
    ImageRecord,
    ReclaimResult,
    RemovalFailed,
)
from tests.inline import Inline, disk_with
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


def numbers(given: object) -> list[int]:
    """Images, by their numbers."""
    return [int(number) for number in str(given).split()]


def passed(told: str) -> tuple[ReclaimResult, GCEvent | None, int]:
    """One pass, its event, and how often it has read the disk, which is full, on a node with a pause
    image and unused images of 50 MiB each that have been known for a day, last used one after the
    other by number. `lately`: images that were used a minute ago; `new`: that nobody has seen
    before; `broken`: those that cannot be removed."""
    given = USUAL | yaml.safe_load(f"{{{told}}}")
    clock, records = SteppedClock(at=NOW), dict.fromkeys(numbers(given["lately"]), LATELY)
    records |= {
        number: ImageRecord(10_000.0 + number, 20_000.0 + number)
        for number in numbers(given["images"])
    }
    runtime, read = MemoryRuntime(clock), list[float]()
    runtime.hold(image(99, "registry.k8s.io/pause:3.9", pinned=True))
    for number in (*records, *numbers(given["new"])):
        runtime.hold(image(number, f"old:{number}", size_bytes=50 * MIB))

    def fail() -> None:
        raise RemovalFailed("device busy")

    for number in numbers(given["broken"]):
        runtime.on_call[f"remove_image {image_id(number)}"] = fail

    def stats() -> tuple[int | None, int | None]:
        read.append(clock.monotonic())
        if given["unreadable"]:
            raise OSError(given["unreadable"])
        capacity, available = (
            None if given[name] is None else given[name] * MIB for name in ("capacity", "available")
        )
        return capacity, available

    policy = ImageGCPolicy(
        max_age_seconds=given["age"],
        high_threshold_percent=given["high"],
        low_threshold_percent=given["low"],
        keep=parse_keep_list(given["keep"]),
        keep_newest_per_repository=given["newest"],
        pod_start_seconds=0.0,
    )
    known = ImageRecords(seed={image_id(number): record for number, record in records.items()})
    function = PeriodicImages(NOW - given["up for"], stats, lambda: given["exact"]).function()
    engine = Inline(
        clock,
        table_of(function),
        lambda facts: context_of(runtime, clock, records=known, images=policy, facts=facts),
        read=disk_with(lambda: (CAPACITY - 50 * len(runtime.images)) * MIB),
    )
    engine.look()
    engine.world = engine.world._replace(
        on_its_own=True,
        periodic=(PeriodicLoop(IMAGE, IMAGE_PERIOD_SECONDS, clock.monotonic()),),
        asking=Asking(locate_due=NEVER, refresh_due=NEVER),
    )
    engine.until(lambda: engine.world.passes_begun > 0 and not engine.world.passes)
    told_of: dict[str, Any] = {each.what: each.about for each in engine.told}
    (record,) = told_of["collected"]
    _, _, event = told_of.get("collection_ended", (None, None, None))
    return record.functions[0], event, len(read)


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
    reclaim, found, readings = passed(given)
    assert readings <= ("maximum age" not in error), "the disk is read after that, if at all"
    assert (done(reclaim), reclaim.operation) == (outcomes, IMAGE_GC)
    assert reclaim.nominal_bytes == outcomes.count("removed") * 50 * MIB
    assert reclaim.error.endswith(error)
    assert (reclaim.error != "") is (error != "")
    assert (found and (found.reason, found.message)) == ((event, reclaim.error) if event else None)
