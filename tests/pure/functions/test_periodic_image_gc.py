"""One periodic image garbage collection pass: its parts, their order, and what ends it; the rules
are the kubelet's, unless a test says otherwise.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go` (GarbageCollect).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eviction.engine.effects import Stopping
from eviction.engine.periodic import IMAGE, IMAGE_PERIOD_SECONDS
from eviction.engine.world import Asking
from eviction.records.passes import PeriodicLoop
from reclaim.functions.periodic_image_gc import IMAGE_GC, PeriodicImages
from reclaim.functions.table import table_of
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

CAPACITY = 1000  # MiB
NOW, HOUR = 100_000.0, 3600.0
LATELY = ImageRecord(10_000.0, NOW - 60.0)
AGED = {"max_age_seconds": HOUR}
EQUAL = {"high_threshold_percent": 80, "low_threshold_percent": 80}


class Story:
    """A node with a pause image, unused images of 50 MiB each that have been known for a day, last
    used one after the other by number, and a full disk. `broken`: those that cannot be removed;
    `policy`: beside 85 / 80 and 2 minutes."""

    def __init__(
        self,
        numbers: str = "1 2 3 4",
        *,
        available: int | None = 100,
        capacity: int | None = CAPACITY,
        broken: str = "",
        dry_run: bool = False,
        up_for: float = NOW,
        exact: bool = False,
        failure: Exception | None = None,
        **policy: Any,
    ) -> None:
        self.clock = SteppedClock(at=NOW)
        self.runtime = MemoryRuntime(self.clock)
        self.runtime.hold(image(99, "registry.k8s.io/pause:3.9", pinned=True))
        self.records = ImageRecords()
        for number in map(int, numbers.split()):
            self.hold(number, ImageRecord(10_000.0 + number, 20_000.0 + number))
        for number in map(int, broken.split()):
            self.meanwhile(number, self.is_busy)
        self.available, self.capacity, self.failure = available, capacity, failure
        self.dry_run, self.started_at, self.exact = dry_run, NOW - up_for, exact
        self.policy = ImageGCPolicy(pod_start_seconds=0.0, **policy)
        self.readings = 0
        self.on_reading: Callable[[], object] = lambda: None

    def hold(self, number: int, record: ImageRecord | None = None) -> None:
        """One more image, of which this is known."""
        self.runtime.hold(image(number, f"old:{number}", size_bytes=50 * MIB))
        if record:
            self.records.restore(Loaded({**self.records.records, image_id(number): record}))

    def is_busy(self) -> None:
        raise RemovalFailed("device busy")

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
        if self.failure is not None:
            raise self.failure
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
            configuration=configured(dryRun=self.dry_run),
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


TOO_FEW, NO_DISK = "FreeDiskSpaceFailed", "InvalidDiskCapacity"
FAILED = f"wanted to free {100 * MIB} bytes of images and freed {100 * MIB}, with 1 failed removal: old:1: device busy"
MANY = " ".join(map(str, range(1, 41)))
UNREADABLE = "the image filesystem cannot be read: "


@pytest.mark.parametrize(
    ("given", "outcomes", "error", "event"),
    [
        pytest.param({"numbers": "3 1 2 4"}, "1 removed, 2 removed", "", "", id="to the low mark exactly, the least recently used first"),
        pytest.param({"available": 159}, "1 removed", "", "", id="15.9 % available is 85 % used, which acts"),
        pytest.param({"available": 160}, "", "", "", id="below the high mark"),
        pytest.param({"available": 1001, "high_threshold_percent": 1, "low_threshold_percent": 1}, "", "", "", id="more available than capacity is usage 0"),
        pytest.param({"available": 205, **EQUAL}, "1 removed", "", "", id="79.5 % is rounded up: equal marks cost one image"),
        pytest.param({"available": 205, "broken": "1", **EQUAL}, "1 failed, 2 removed", "1 failed removal", "", id="a target below 0 goes on after a failure"),
        pytest.param({"available": 9, "high_threshold_percent": 100, "max_age_seconds": 1e6}, "1 removed, 2 removed, 3 removed, 4 removed", "", "", id="a high mark of 100 with an age"),
        pytest.param({"available": 10, "high_threshold_percent": 100, "max_age_seconds": 1e6}, "", "", "", id="1 % available is 99 % used"),
        pytest.param({"numbers": "1"}, "1 removed", "", TOO_FEW, id="50 of 100 MiB are an event and the same error"),
        pytest.param({"broken": "1"}, "1 failed, 2 removed, 3 removed", FAILED, "", id="one failure fails the pass although the rest reach the target"),
        pytest.param({"numbers": "1 2", "broken": "1"}, "1 failed, 2 removed", "1 failed removal", "", id="failures come before too little freed"),
        pytest.param({"numbers": MANY, "broken": MANY}, None, "40 failed removals: old:1: device busy; old:2: device busy; old:3: device busy; and 37 more", "", id="the first three are named"),
        pytest.param({"broken": "2", **AGED}, "1 removed, 2 failed, 3 removed, 4 removed", "maximum age of images: 1 failed removal: old:2: device busy", "", id="a failed age removal ends the pass before the space part"),
        pytest.param({"capacity": 0}, "", "", NO_DISK, id="capacity 0"),
        pytest.param({"capacity": None}, "", "", NO_DISK, id="an unknown capacity fails as capacity 0"),
        pytest.param({"available": None, "numbers": "1 2 3 4 5"}, "1 removed, 2 removed, 3 removed, 4 removed", "", "", id="an unknown available counts as 0"),
        pytest.param({"failure": OSError(5, "EIO")}, "", f"{UNREADABLE}[Errno 5] EIO", "", id="a disk that cannot be read ends the pass"),
        pytest.param({"failure": RuntimeUnavailable("no answer")}, "", f"{UNREADABLE}no answer", "", id="nor by the runtime"),
        pytest.param({"numbers": "1 2", "keep": parse_keep_list(["old"]), **AGED}, "", "", TOO_FEW, id="the keep list wins over age and space"),
        pytest.param({"keep_newest_per_repository": 3, **AGED}, "1 removed", "", TOO_FEW, id="so do the newest of a repository"),
        pytest.param({"keep_newest_per_repository": 3}, "1 removed", "", TOO_FEW, id="also without an age"),
    ],
)  # fmt: skip
def test_a_pass(given: dict[str, Any], outcomes: str | None, error: str, event: str) -> None:
    """90 % of 1000 MiB are used and 100 MiB wanted, if nothing else is said."""
    reclaim, found = Story(**given).run()
    assert done(reclaim) == outcomes or outcomes is None
    assert reclaim.operation == IMAGE_GC
    assert reclaim.nominal_bytes == done(reclaim).count("removed") * 50 * MIB
    if found is None:
        assert (bool(reclaim.error), event) == (bool(error), "")
        assert reclaim.error.endswith(error) or error in reclaim.error
    else:
        assert (found.reason, found.message) == (event, reclaim.error)


@pytest.mark.parametrize(("available", "readings"), [(500, 1), (170, 1)])
def test_the_maximum_age_is_applied_first_and_the_disk_is_read_after_it(
    available: int, readings: int
) -> None:
    """Old images go for their age though there is room, and what they freed is not credited; where
    the disk is full all the same, one that was used lately goes in the same pass."""
    story = Story("1 2", available=available, high_threshold_percent=83, **AGED)
    story.hold(5, LATELY)
    reclaim, event = story.run()
    reasons = [(number_of(one.verdict.id), one.verdict.reason) for one in reclaim.outcomes]
    for_space = [(5, Reason.UNUSED)] * (available < 200)
    assert reasons == [(1, Reason.MAXIMUM_AGE), (2, Reason.MAXIMUM_AGE), *for_space]
    assert (story.readings, reclaim.error, event) == (readings, "", None)
    assert story.records.records.keys() == {image_id(99), *map(image_id, () if for_space else (5,))}


@pytest.mark.parametrize(
    ("record", "given", "goes"),
    [
        (ImageRecord(NOW - 119.0), {}, False),
        (ImageRecord(NOW - 120.0), {}, True),  # exactly the minimum age
        (None, {}, False),  # after a restart without records every image is new
        # pulled seconds ago, no container yet, uptime beyond the maximum age: a difference
        (None, {"available": 500, **AGED}, False),
        (None, {"available": 500, "exact": True, **AGED}, True),
        # an uptime of exactly the maximum age is not enough
        (ImageRecord(0.0), {"available": 500, "up_for": HOUR, **AGED}, False),
        (ImageRecord(0.0), {"available": 500, "up_for": HOUR + 1.0, **AGED}, True),
    ],
)
def test_an_image_that_is_old_enough_may_go(
    record: ImageRecord | None, given: dict[str, Any], goes: bool
) -> None:
    """By what is known of it, and by how long the loop has run."""
    story = Story("", **given)
    story.hold(1, record)
    story.run()
    assert story.left == ("" if goes else "1")


def test_never_used_goes_first_and_what_an_exited_container_uses_is_kept() -> None:
    """And this pass remembers that it was used."""
    story = Story("1 2 3")
    story.hold(7, ImageRecord(90_000.0))
    story.runtime.hold(container("c", state=ContainerState.EXITED, references=(image_id(1),)))
    reclaim, _ = story.run()
    assert done(reclaim) == "7 removed, 2 removed"
    assert story.records.records[image_id(1)].last_used == NOW
    assert story.records.records.keys() == {image_id(1), image_id(3), image_id(99)}


def test_without_complete_lists_nothing_is_known_and_nothing_changes() -> None:
    """The records stay as they were."""
    story = Story()
    story.runtime.away = True
    before = story.records.records
    reclaim, _ = story.run()
    assert "away" in reclaim.error
    assert (story.records.records, story.readings, reclaim.outcomes) == (before, 0, ())


@pytest.mark.parametrize(("policy", "readings"), [({}, 1), (AGED, 0)])
def test_a_stop_ends_the_pass_between_two_images_and_is_no_failure(
    policy: dict[str, float], readings: int
) -> None:
    """The removal in flight finishes; that the target was not reached is no error, and after the age
    sweep the disk is not even read."""
    story = Story("1 2 3", **policy)
    story.meanwhile(1, story.stop)
    reclaim, event = story.run()
    assert (done(reclaim), reclaim.error, event) == ("1 removed", "", None)
    assert story.readings == readings


def test_a_runtime_that_falls_silent_ends_the_pass() -> None:
    """Each further image would cost another time limit; the one that may have gone has no age any
    more."""
    story = Story("1 2 3")
    story.meanwhile(1, lambda: setattr(story.runtime, "away", True))
    reclaim, _ = story.run()
    assert done(reclaim) == "1 unanswered"
    assert "1 failed removal: old:1: the runtime is away" in reclaim.error
    assert story.records.records.keys() == {image_id(2), image_id(3), image_id(99)}


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
    aged = Story("1 2", **AGED)
    aged.meanwhile(1, lambda: aged.comes_into_use(2))
    assert done(aged.run()[0]) == "1 removed", "nor is it tried again for space"


def test_a_dry_run_is_the_same_pass_without_the_one_call() -> None:
    """What the age sweep would free is credited, so the space part is that of the real pass; records
    stay."""
    found = []
    for dry_run, available in ((True, 30), (False, 130)):  # 130: once the two old images are gone
        story = Story("1 2", dry_run=dry_run, available=available, **AGED)
        for number in (5, 6):
            story.hold(number, replace(LATELY, last_used=NOW - 60.0 + number))
        found.append(story.run()[0])
        calls = [call for call in story.runtime.calls if call.startswith("remove_image")]
        assert (calls == []) is dry_run
        assert (story.left == "1 2 5 6") is dry_run
        assert (image_id(1) in story.records.records) is dry_run
    planned, real = (
        [one.verdict._replace(age_seconds=None) for one in each.outcomes] for each in found
    )
    assert planned == real
    assert done(found[0]) == done(found[1]).replace("removed", "planned")


def test_images_are_listed_before_containers_and_each_removal_looks_again() -> None:
    """The order that loses no container; a removal is sent by whole id. Three lists of 1 s each for
    either part, as the first ones are too old by then; every call of the one removal."""
    story = Story("1", available=150)
    story.runtime.call_seconds = 1.0
    reclaim, _ = story.run()
    calls = story.runtime.calls
    assert calls.index("list_images") < calls.index("list_containers")
    sent = calls.index(f"remove_image {image_id(1)}")
    assert "list_containers" in calls[calls.index("list_pod_sandboxes") : sent]
    assert [reclaim.list_seconds, reclaim.plan_seconds] == pytest.approx([6.0, 0.0])
    assert reclaim.remove_seconds == pytest.approx(len(calls) - 6.0, abs=1e-3)
