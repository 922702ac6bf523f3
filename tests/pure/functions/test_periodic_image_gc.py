"""One periodic image garbage collection pass: its parts, their order, and what ends it; the rules
are the kubelet's, unless a test says otherwise.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go` (GarbageCollect).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from eviction.engine.effects import Stopping
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
    ContainerState,
    GCEvent,
    ImageRecord,
    Reason,
    ReclaimResult,
    RemovalFailed,
    RuntimeUnavailable,
)
from tests.inline import Inline, configured, disk_with
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import MIB, SteppedClock, container, image, image_id
from tests.rows import rows

CAPACITY = 1000  # MiB
NOW = 100_000.0
LATELY = ImageRecord(10_000.0, NOW - 60.0)
USUAL = yaml.safe_load("""
    {images: 1 2 3 4, broken: "", available: 100, capacity: 1000, up for: 100000, exact: false,
    age: 0, high: 85, low: 80, keep: [], newest: 0}
""")


class Story:
    """A node with a pause image, unused images of 50 MiB each that have been known for a day, last
    used one after the other by number, and a full disk. `broken`: those that cannot be removed."""

    def __init__(self, told: str = "") -> None:
        given = USUAL | yaml.safe_load(f"{{{told}}}")
        self.clock = SteppedClock(at=NOW)
        self.runtime = MemoryRuntime(self.clock)
        self.runtime.hold(image(99, "registry.k8s.io/pause:3.9", pinned=True))
        self.records = ImageRecords()
        for number in map(int, str(given["images"]).split()):
            self.hold(number, ImageRecord(10_000.0 + number, 20_000.0 + number))
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
        self.on_reading: Callable[[], object] = lambda: None

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

    def stop(self) -> None:
        """The daemon is told to stop."""
        self.engine.events.append(Stopping())

    def comes_into_use(self, number: int) -> None:
        """A container of this image starts."""
        self.clock.step(1.0)
        self.runtime.hold(
            container("late", state=ContainerState.RUNNING, references=(image_id(number),))
        )

    def stats(self) -> tuple[int | None, int | None]:
        """The image filesystem as it is now."""
        self.readings += 1
        self.on_reading()
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

    @property
    def left(self) -> str:
        """The numbers of the images that are still there, but for the pause image."""
        return " ".join(
            sorted(str(number_of(one)) for one in self.runtime.images if number_of(one) != 99)
        )


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
    images: 1 2, keep: [old], age: 3600          |                                            | volumes, or other data.                        | FreeDiskSpaceFailed |
    newest: 3, age: 3600                         | 1 removed                                  | volumes, or other data.                        | FreeDiskSpaceFailed |
    newest: 3                                    | 1 removed                                  | volumes, or other data.                        | FreeDiskSpaceFailed |
""")
def test_a_pass(given: str, outcomes: str, error: str, event: str) -> None:
    """90 % of 1000 MiB are used and 100 MiB wanted, if nothing else is said."""
    reclaim, found = Story(given).run()
    assert (done(reclaim), reclaim.operation) == (outcomes, IMAGE_GC)
    assert reclaim.nominal_bytes == outcomes.count("removed") * 50 * MIB
    assert reclaim.error.endswith(error)
    assert (reclaim.error != "") is (error != "")
    assert (found and (found.reason, found.message)) == ((event, reclaim.error) if event else None)


@pytest.mark.parametrize(
    "failure", [OSError(5, "EIO"), RuntimeUnavailable("no answer"), ValueError("x")]
)
def test_a_disk_that_cannot_be_read_ends_the_pass(failure: Exception) -> None:
    """With that error and without an event; nothing goes blind."""
    story = Story()
    story.on_reading = lambda: story.fail(failure)
    reclaim, event = story.run()
    assert reclaim.error == f"the image filesystem cannot be read: {failure}"
    assert (reclaim.outcomes, event) == ((), None)


@rows("""
    available | readings
    500       | 1
    170       | 1
""")
def test_the_maximum_age_is_applied_first_and_the_disk_is_read_after_it(
    available: int, readings: int
) -> None:
    """Old images go for their age though there is room, and what they freed is not credited; where
    the disk is full all the same, one that was used lately goes in the same pass."""
    story = Story(f"images: 1 2, available: {available}, high: 83, age: 3600")
    story.hold(5, LATELY)
    reclaim, event = story.run()
    reasons = [(number_of(one.verdict.id), one.verdict.reason) for one in reclaim.outcomes]
    for_space = [(5, Reason.UNUSED)] * (available < 200)
    assert reasons == [(1, Reason.MAXIMUM_AGE), (2, Reason.MAXIMUM_AGE), *for_space]
    assert (story.readings, reclaim.error, event) == (readings, "", None)
    assert story.records.records.keys() == {image_id(99), *map(image_id, () if for_space else (5,))}


@rows("""
    known  | given                                          | goes | what
    119    |                                                |      | a second is missing
    120    |                                                | yes  | exactly the minimum age
           |                                                |      | after a restart without records every image is new
           | available: 500, age: 3600                      |      | pulled seconds ago, no container yet: a difference
           | available: 500, age: 3600, exact: true         | yes  | as the kubelet does it
    100000 | available: 500, age: 3600, up for: 3600        |      | an uptime of exactly the maximum age is not enough
    100000 | available: 500, age: 3600, up for: 3601        | yes  | a second more is
""")
def test_an_image_that_is_old_enough_may_go(known: float | None, given: str, goes: bool) -> None:
    """By what is known of it, and by how long the loop has run."""
    story = Story(f"images: '', {given}")
    story.hold(1, None if known is None else ImageRecord(NOW - known))
    story.run()
    assert story.left == ("" if goes else "1")


def test_without_complete_lists_nothing_is_known_and_nothing_changes() -> None:
    """The records stay as they were."""
    story = Story()
    story.runtime.away = True
    before = story.records.records
    reclaim, _ = story.run()
    assert "away" in reclaim.error
    assert (story.records.records, story.readings, reclaim.outcomes) == (before, 0, ())


@pytest.mark.parametrize("age", [0, 3600])
def test_a_stop_ends_the_pass_between_two_images_and_is_no_failure(age: int) -> None:
    """The removal in flight finishes; that the target was not reached is no error, and after the age
    sweep the disk is not even read."""
    story = Story(f"images: 1 2 3, age: {age}")
    story.meanwhile(1, story.stop)
    reclaim, event = story.run()
    assert (done(reclaim), reclaim.error, event) == ("1 removed", "", None)
    assert story.readings == (0 if age else 1)


def test_what_came_into_use_or_has_gone_meanwhile_costs_nothing() -> None:
    """The containers are listed again right before each removal; what another pass removed while
    this one read the disk frees nothing."""
    story = Story()

    def while_the_disk_is_read() -> None:
        story.comes_into_use(1)
        del story.runtime.images[image_id(2)]

    story.on_reading = while_the_disk_is_read
    reclaim, event = story.run()
    assert done(reclaim) == "2 already_gone, 3 removed, 4 removed"
    assert (reclaim.nominal_bytes, reclaim.error, event) == (100 * MIB, "", None)
    aged = Story("images: 1 2, age: 3600")
    aged.meanwhile(1, lambda: aged.comes_into_use(2))
    assert done(aged.run()[0]) == "1 removed", "nor is it tried again for space"


def test_images_are_listed_before_containers_and_each_removal_looks_again() -> None:
    """The order that loses no container; a removal is sent by whole id. Three lists of 1 s each for
    either part, as the first ones are too old by then; every call of the one removal."""
    story = Story("images: 1, available: 150")
    story.runtime.call_seconds = 1.0
    reclaim, _ = story.run()
    calls = story.runtime.calls
    assert calls.index("list_images") < calls.index("list_containers")
    sent = calls.index(f"remove_image {image_id(1)}")
    assert "list_containers" in calls[calls.index("list_pod_sandboxes") : sent]
    assert [reclaim.list_seconds, reclaim.plan_seconds] == pytest.approx([6.0, 0.0])
    assert reclaim.remove_seconds == pytest.approx(len(calls) - 6.0, abs=1e-3)
