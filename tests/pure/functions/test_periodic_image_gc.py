"""One periodic image garbage collection pass: its parts, their order, and what ends it.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go` (GarbageCollect).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from eviction.engine.effects import Stopping
from eviction.engine.periodic import IMAGE, IMAGE_PERIOD_SECONDS
from eviction.engine.world import Asking
from eviction.records.passes import PeriodicLoop
from reclaim.functions.periodic_image_gc import IMAGE_GC, ImageFsStats, PeriodicImages
from reclaim.functions.table import table_of
from reclaim.images.keep_list import parse_keep_list
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords, Loaded
from reclaim.types import (
    NEVER,
    ContainerState,
    EventReason,
    GCEvent,
    ImageRecord,
    Outcome,
    Reason,
    ReclaimResult,
    RemovalFailed,
    Result,
    RuntimeUnavailable,
    Verdict,
)
from tests.inline import Inline, configured, disk_with
from tests.pure.contexts import context_of
from tests.pure.memory_runtime import MemoryRuntime
from tests.pure.values import MIB, SteppedClock, container, image, image_id

CAPACITY = 1000 * MIB
POLICY = ImageGCPolicy()  # 85 / 80, 2 minutes
HOUR = 3600.0


class ImageRuntime(MemoryRuntime):
    """A runtime that fails to remove some images, goes silent after one, and
    lets things happen meanwhile.
    """

    def __init__(self, clock: SteppedClock) -> None:
        super().__init__(clock)
        self.broken: set[str] = set()
        self.silent_after: str = ""
        # what happens while an image is being removed
        self.meanwhile: dict[str, Callable[[], None]] = {}

    def held_bytes(self) -> int:
        """The size of its images."""
        return sum(each.size_bytes for each in self.images.values())

    def remove_image(self, image_id: str) -> bool:
        """Removes it, unless it is broken."""
        if image_id in self.meanwhile:
            self.meanwhile[image_id]()
        if image_id in self.broken:
            self._called(f"remove_image {image_id}")
            raise RemovalFailed("device busy")
        removed = super().remove_image(image_id)
        self.away = self.away or image_id == self.silent_after
        return removed


class Done(NamedTuple):
    """What a pass did."""

    reclaim: ReclaimResult
    event: GCEvent | None


class Story:
    """A node with a pause image, unused images of 50 MiB each that have been known
    for a day, and a full disk.
    """

    def __init__(self, *numbers: int, dry_run: bool = False) -> None:
        self.clock = SteppedClock(at=100_000.0)
        self.runtime = ImageRuntime(self.clock)
        self.runtime.hold(image(99, "registry.k8s.io/pause:3.9", pinned=True))
        self.runtime.hold(
            *(image(number, f"old:{number}", size_bytes=50 * MIB) for number in numbers)
        )
        # last used one after the other, by number
        seed = {image_id(n): ImageRecord(10_000.0 + n, 20_000.0 + n) for n in numbers}
        self.records = ImageRecords(seed=seed)
        self.started_at = 0.0
        self.readings = 0
        self.available: int | None = 100 * MIB
        self.capacity: int | None = CAPACITY
        self.failure: Exception | None = None
        self.dry_run = dry_run

    def stats(self) -> tuple[int | None, int | None]:
        """The image filesystem as it is now."""
        self.readings += 1
        if self.failure is not None:
            raise self.failure
        return self.capacity, self.available

    def run(
        self,
        policy: ImageGCPolicy = POLICY,
        *,
        exact: bool = False,
        stats: ImageFsStats | None = None,
    ) -> Done:
        """One pass."""
        policy = replace(policy, pod_start_seconds=0.0)
        function = PeriodicImages(self.started_at, stats or self.stats, lambda: exact).function()
        self.engine = Inline(
            self.clock,
            table_of(function),
            lambda facts: context_of(
                self.runtime, self.clock, records=self.records, images=policy, facts=facts
            ),
            read=disk_with(lambda: CAPACITY - self.runtime.held_bytes()),
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
        (reclaim,) = record.functions
        return Done(reclaim, event)

    def stop(self) -> None:
        """The daemon is told to stop."""
        self.engine.events.append(Stopping())

    def left(self) -> set[int]:
        """The numbers of the images that are still there, but for the pause image."""
        return {
            int(one.id.removeprefix("sha256:")[:8], 16) for one in self.runtime.images.values()
        } - {99}

    def removal_calls(self) -> list[str]:
        """Which removals were sent, in order."""
        return [
            call.partition(" ")[2] for call in self.runtime.calls if call.startswith("remove_image")
        ]


def results(result: Done) -> dict[int, Result | None]:
    """What became of each image that was tried."""
    return {
        int(o.verdict.id.removeprefix("sha256:")[:8], 16): o.result for o in result.reclaim.outcomes
    }


def test_a_pass_frees_down_to_the_low_mark_least_recently_used_first() -> None:
    """90 % used, 100 MiB of 200 MiB wanted: two images of 50 MiB go, exactly
    reaching the target.
    """
    story = Story(3, 1, 2, 4)
    result = story.run()
    assert results(result) == {1: Result.REMOVED, 2: Result.REMOVED}
    assert story.removal_calls() == [image_id(1), image_id(2)]
    assert (result.reclaim.error, result.event) == ("", None)
    assert (result.reclaim.operation, result.reclaim.nominal_bytes) == (IMAGE_GC, 100 * MIB)
    assert {outcome.verdict.reason for outcome in result.reclaim.outcomes} == {Reason.UNUSED}


def test_a_pass_tells_what_took_how_long() -> None:
    """Three lists of 1 s each for either part, as the first ones are too old by then;
    every call of the one removal.
    """
    story = Story(1)
    story.available = 200 * MIB - 50 * MIB
    story.runtime.call_seconds = 1.0
    reclaim = story.run().reclaim
    assert [reclaim.list_seconds, reclaim.plan_seconds] == pytest.approx([6.0, 0.0])
    assert reclaim.remove_seconds == pytest.approx(len(story.runtime.calls) - 6.0, abs=1e-3)


def test_records_of_removed_images_are_dropped() -> None:
    """Those of the others stay, with what this pass detected."""
    story = Story(1, 2, 3)
    story.run()
    assert story.records.records.keys() == {image_id(3), image_id(99)}


@pytest.mark.parametrize(("available", "acts"), [(150, True), (159, True), (160, False)])
def test_usage_exactly_at_the_high_mark_acts(available: int, acts: bool) -> None:
    """As the kubelet; usage is rounded up, so 15.9 % available is 85 % used."""
    story = Story(1, 2, 3)
    story.available = available * MIB
    result = story.run()
    assert (story.removal_calls() != []) is acts
    assert result.reclaim.error == ""


def test_more_available_than_capacity_is_usage_0() -> None:
    """As the kubelet, which takes all of it for available."""
    story = Story(1)
    story.available = CAPACITY + 1
    story.run(ImageGCPolicy(high_threshold_percent=1, low_threshold_percent=1))
    assert story.left() == {1}


def test_equal_marks_with_a_target_below_0_still_cost_one_image() -> None:
    """As the kubelet: 79.5 % used is 80 % rounded up, and the low mark is reached already."""
    story = Story(1, 2)
    story.available = 205 * MIB
    result = story.run(ImageGCPolicy(high_threshold_percent=80, low_threshold_percent=80))
    assert (story.left(), result.reclaim.error) == ({2}, "")


def test_a_target_below_0_goes_on_after_a_failed_removal() -> None:
    """The sum is compared after a removal that succeeded."""
    story = Story(1, 2, 3)
    story.available = 205 * MIB
    story.runtime.broken = {image_id(1)}
    result = story.run(ImageGCPolicy(high_threshold_percent=80, low_threshold_percent=80))
    assert story.left() == {1, 3}
    assert "1 failed removal" in result.reclaim.error


@pytest.mark.parametrize(("available", "acts"), [(9, True), (10, False)])
def test_a_high_mark_of_100_acts_below_1_percent_available(available: int, acts: bool) -> None:
    """As the kubelet: with a maximum age the pass runs, and its space part is not off."""
    story = Story(*range(1, 6))
    story.available = available * MIB
    policy = ImageGCPolicy(max_age_seconds=1e6, high_threshold_percent=100)
    story.run(policy)
    assert len(story.removal_calls()) == (4 if acts else 0)


@pytest.mark.parametrize(("known_seconds", "goes"), [(119.0, False), (120.0, True)])
def test_an_image_exactly_at_the_minimum_age_may_go(known_seconds: float, goes: bool) -> None:
    """As the kubelet: equal is old enough."""
    story = Story()
    story.runtime.hold(image(1, "young:1"))
    story.records.restore(
        Loaded({image_id(1): ImageRecord(story.clock.monotonic() - known_seconds)})
    )
    story.run()
    assert (story.left() == set()) is goes


def test_after_a_restart_without_records_nothing_is_removed_for_space() -> None:
    """As the kubelet: every image is new, and has to be known for the minimum age first."""
    story = Story()
    story.runtime.hold(*(image(number, size_bytes=MIB) for number in (1, 2)))
    result = story.run()
    assert story.left() == {1, 2}
    assert result.event is not None
    assert result.event.reason is EventReason.FREE_DISK_SPACE_FAILED
    story.clock.step(120.0)
    assert results(story.run()) == {1: Result.REMOVED, 2: Result.REMOVED}


def test_never_used_is_removed_before_least_recently_used() -> None:
    """As the kubelet: a time of last use that is not set comes first."""
    story = Story(1, 2)
    story.runtime.hold(image(7, size_bytes=50 * MIB))
    story.records.restore(Loaded({image_id(7): ImageRecord(90_000.0)}))
    story.run()
    assert story.removal_calls() == [image_id(7), image_id(1)]


def test_the_image_of_an_exited_container_is_kept() -> None:
    """As the kubelet; and this pass remembers that it was used."""
    story = Story(1, 2, 3)
    story.runtime.hold(container("c", state=ContainerState.EXITED, references=(image_id(1),)))
    story.run()
    assert story.left() == {1}
    assert story.records.records[image_id(1)].last_used == 100_000.0


def test_freeing_less_than_the_target_is_an_event_and_the_same_error() -> None:
    """50 of 100 MiB."""
    story = Story(1)
    result = story.run()
    assert result.event is not None
    assert result.event.reason is EventReason.FREE_DISK_SPACE_FAILED
    assert result.reclaim.error == result.event.message
    assert result.reclaim.nominal_bytes == 50 * MIB


def test_one_failed_removal_fails_the_pass_although_the_rest_reach_the_target() -> None:
    """As the kubelet: no FreeDiskSpaceFailed, and the record of what failed stays."""
    story = Story(1, 2, 3, 4)
    story.runtime.broken = {image_id(1)}
    result = story.run()
    assert results(result) == {1: Result.FAILED, 2: Result.REMOVED, 3: Result.REMOVED}
    assert (result.reclaim.nominal_bytes, result.event) == (100 * MIB, None)
    assert (
        result.reclaim.error
        == f"wanted to free {100 * MIB} bytes of images and freed {100 * MIB}, with 1 failed"
        " removal: old:1: device busy"
    )
    assert story.records.records[image_id(1)] == ImageRecord(10_001.0, 20_001.0, tag="old:1")


def test_many_failures_are_counted_and_the_first_three_named() -> None:
    """The sentence stays a sentence."""
    story = Story(*range(1, 41))
    story.runtime.broken = {image_id(number) for number in range(1, 41)}
    assert story.run().reclaim.error.endswith(
        "40 failed removals: old:1: device busy; old:2: device busy; old:3: device busy; and 37"
        " more"
    )


def test_a_failed_removal_and_too_little_freed_is_an_error_without_an_event() -> None:
    """Failures come first."""
    story = Story(1, 2)
    story.runtime.broken = {image_id(1)}
    result = story.run()
    assert result.event is None
    assert "1 failed removal" in result.reclaim.error


AGED = ImageGCPolicy(max_age_seconds=HOUR)


def test_the_maximum_age_is_applied_first_and_the_disk_is_read_after_it() -> None:
    """Both old images go for their age though there is room; what they freed is not
    credited to the space part.
    """
    story = Story(1, 2)
    story.available = 500 * MIB
    result = story.run(AGED)
    assert results(result) == {1: Result.REMOVED, 2: Result.REMOVED}
    assert {outcome.verdict.reason for outcome in result.reclaim.outcomes} == {Reason.MAXIMUM_AGE}
    assert (story.readings, result.reclaim.nominal_bytes) == (1, 100 * MIB)
    assert result.reclaim.error == ""


def test_a_full_disk_after_the_age_sweep_is_freed_in_the_same_pass() -> None:
    """One image is too old; then one that was used lately goes for space."""
    story = Story(1)
    story.available = 170 * MIB
    lately = ImageRecord(10_000.0, story.clock.monotonic() - 60.0)
    story.runtime.hold(image(5, size_bytes=50 * MIB))
    story.records.restore(Loaded({image_id(5): lately}))
    policy = ImageGCPolicy(
        max_age_seconds=HOUR, high_threshold_percent=83, low_threshold_percent=80
    )
    result = story.run(policy)
    assert [(o.verdict.id, o.verdict.reason) for o in result.reclaim.outcomes] == [
        (image_id(1), Reason.MAXIMUM_AGE),
        (image_id(5), Reason.UNUSED),
    ]
    assert result.reclaim.nominal_bytes == 100 * MIB


def test_a_failed_age_removal_ends_the_pass_before_the_space_part() -> None:
    """As the kubelet: the other old images are tried, then the pass ends with an
    error; the disk is not read.
    """
    story = Story(1, 2, 3)
    story.runtime.broken = {image_id(2)}
    result = story.run(AGED)
    assert results(result) == {1: Result.REMOVED, 2: Result.FAILED, 3: Result.REMOVED}
    assert "maximum age of images: 1 failed removal: old:2: device busy" in result.reclaim.error
    assert (story.readings, result.event) == (0, None)
    assert story.records.records.keys() == {image_id(2), image_id(99)}


def test_exactly_as_the_kubelet_a_fresh_pull_is_removed_and_by_default_it_is_kept() -> None:
    """As the kubelet: pulled seconds ago, no container yet, uptime beyond the maximum age."""
    for exact, left in ((False, {1}), (True, set[int]())):
        story = Story()
        story.available = 500 * MIB
        story.runtime.hold(image(1, "just-pulled:1"))
        story.run(AGED, exact=exact)
        assert story.left() == left


def test_there_is_no_age_sweep_until_the_loop_has_run_for_the_maximum_age() -> None:
    """As the kubelet: an uptime of exactly the maximum age is not enough."""
    for uptime, left in ((HOUR, {1}), (HOUR + 1.0, set[int]())):
        story = Story(1)
        story.available = 500 * MIB
        story.started_at = story.clock.monotonic() - uptime
        story.run(AGED)
        assert story.left() == left


@pytest.mark.parametrize("capacity", [0, None])
def test_an_unknown_capacity_fails_as_capacity_0(capacity: int | None) -> None:
    """As the kubelet: an event of its own, in the first failing pass too,
    which has no ImageGCFailed.
    """
    story = Story(1)
    story.capacity = capacity
    result = story.run()
    assert result.event is not None
    assert result.event.reason is EventReason.INVALID_DISK_CAPACITY
    assert (result.reclaim.error, story.left()) == (result.event.message, {1})


def test_an_unknown_available_counts_as_0() -> None:
    """The disk is full then."""
    story = Story(1, 2, 3, 4, 5)
    story.available = None
    story.run()
    assert story.left() == {5}


@pytest.mark.parametrize(
    "failure", [OSError(5, "Input/output error"), RuntimeUnavailable("no answer"), ValueError("x")]
)
def test_a_disk_that_cannot_be_read_ends_the_pass(failure: Exception) -> None:
    """With that error and without an event; nothing goes blind."""
    story = Story(1)
    story.failure = failure
    result = story.run()
    assert result.reclaim.error == f"the image filesystem cannot be read: {failure}"
    assert (result.event, story.left()) == (None, {1})


def test_without_complete_lists_nothing_is_known_and_nothing_changes() -> None:
    """The records stay as they were."""
    story = Story(1)
    story.runtime.away = True
    before = story.records.records
    result = story.run()
    assert "away" in result.reclaim.error
    assert (story.records.records, story.readings, result.reclaim.outcomes) == (before, 0, ())


def test_a_stop_ends_the_pass_between_two_images_and_is_no_failure() -> None:
    """The removal in flight finishes; that the target was not reached is no error."""
    story = Story(1, 2, 3)
    story.runtime.meanwhile[image_id(1)] = story.stop
    result = story.run()
    assert results(result) == {1: Result.REMOVED}
    assert (result.reclaim.error, result.event) == ("", None)


def test_a_stop_in_the_age_sweep_leaves_the_space_part_out() -> None:
    """The disk is not even read."""
    story = Story(1, 2)
    story.runtime.meanwhile[image_id(1)] = story.stop
    result = story.run(AGED)
    assert (story.readings, story.left(), result.reclaim.error) == (0, {2}, "")


def test_a_runtime_that_falls_silent_ends_the_pass() -> None:
    """Each further image would cost another time limit; the one that may have
    gone has no age any more.
    """
    story = Story(1, 2, 3)
    story.runtime.silent_after = image_id(1)
    result = story.run()
    assert results(result) == {1: Result.UNANSWERED}
    assert "1 failed removal: old:1: the runtime is away" in result.reclaim.error
    assert image_id(1) not in story.records.records
    assert image_id(2) in story.records.records


def test_an_image_that_came_into_use_meanwhile_is_kept_by_a_guard() -> None:
    """The containers are listed again right before the removal."""
    story = Story(1, 2, 3)
    original = story.stats

    def stats() -> tuple[int | None, int | None]:
        story.clock.step(0.3)
        story.runtime.hold(
            container("late", state=ContainerState.RUNNING, references=(image_id(1),))
        )
        return original()

    result = story.run(stats=stats)
    assert results(result) == {2: Result.REMOVED, 3: Result.REMOVED}
    assert story.left() == {1}


def test_what_another_pass_removed_meanwhile_is_no_failure_and_frees_nothing() -> None:
    """Pressure took one while this pass read the disk."""
    story = Story(1, 2, 3)
    original = story.stats

    def stats() -> tuple[int | None, int | None]:
        del story.runtime.images[image_id(1)]
        return original()

    result = story.run(stats=stats)
    assert results(result) == {1: Result.ALREADY_GONE, 2: Result.REMOVED, 3: Result.REMOVED}
    assert (result.reclaim.nominal_bytes, result.reclaim.error) == (100 * MIB, "")


def test_what_the_age_sweep_found_in_use_is_not_tried_again_for_space() -> None:
    """While the first image is removed a container of the second starts."""
    story = Story(1, 2)
    late = container("late", state=ContainerState.RUNNING, references=(image_id(2),))

    def a_second_passes() -> None:
        story.clock.step(1.0)
        story.runtime.hold(late)

    story.runtime.meanwhile[image_id(1)] = a_second_passes
    result = story.run(AGED)
    assert results(result) == {1: Result.REMOVED}
    assert story.left() == {2}


def verdict_of(outcome: Outcome) -> Verdict:
    """What was decided, with the age in whole seconds: a removal takes a moment."""
    return outcome.verdict._replace(age_seconds=round(outcome.verdict.age_seconds or 0.0))


def test_a_dry_run_is_the_same_pass_without_the_one_call() -> None:
    """What the age sweep would free is credited, so the space part is that of
    the real pass; records stay.
    """
    policy = ImageGCPolicy(max_age_seconds=HOUR)

    def story(*, dry_run: bool) -> Story:
        made = Story(1, 2, dry_run=dry_run)
        made.runtime.hold(*(image(n, f"recent:{n}", size_bytes=50 * MIB) for n in (5, 6)))
        recent = made.clock.monotonic() - 60.0
        made.records.restore(
            Loaded({image_id(n): ImageRecord(10_000.0, recent + n) for n in (5, 6)})
        )
        made.available = 30 * MIB
        return made

    dry = story(dry_run=True)
    planned = dry.run(policy)
    assert dry.removal_calls() == []
    assert dry.left() == {1, 2, 5, 6}
    assert dry.records.records.keys() >= {image_id(1), image_id(5)}

    real = story(dry_run=False)
    real.available = 130 * MIB  # as it is once the two old images are gone
    done = real.run(policy)
    assert list(map(verdict_of, planned.reclaim.outcomes)) == list(
        map(verdict_of, done.reclaim.outcomes)
    )
    assert {o.result for o in planned.reclaim.outcomes} == {Result.PLANNED}
    assert planned.reclaim.nominal_bytes == done.reclaim.nominal_bytes


def test_the_keep_list_wins_over_age_and_space() -> None:
    """`old` keeps every tag of docker.io/library/old."""
    story = Story(1, 2)
    story.run(ImageGCPolicy(max_age_seconds=HOUR, keep=parse_keep_list(["old"])))
    assert story.left() == {1, 2}


@pytest.mark.parametrize("max_age_seconds", [0.0, HOUR])
def test_the_newest_of_a_repository_win_over_age_and_space(max_age_seconds: float) -> None:
    """All are tags of docker.io/library/old; the later ones were detected later."""
    story = Story(1, 2, 3, 4)
    story.run(ImageGCPolicy(max_age_seconds=max_age_seconds, keep_newest_per_repository=3))
    assert story.left() == {2, 3, 4}


def test_images_are_listed_before_containers_and_each_removal_looks_again() -> None:
    """The order that loses no container; a removal is sent by whole id."""
    story = Story(1)
    story.run()
    calls = story.runtime.calls
    assert calls.index("list_images") < calls.index("list_containers")
    sent = calls.index(f"remove_image {image_id(1)}")
    assert "list_containers" in calls[calls.index("list_pod_sandboxes") : sent]
