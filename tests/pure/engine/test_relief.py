"""One pass: what goes, in which order, and when it ends. `test_story` tells one whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.engine.effects import (
    Check,
    Effect,
    Event,
    PauseSet,
    Plan,
    Progressed,
    Read,
    Reconfigured,
    Send,
    Stopping,
    Tick,
)
from eviction.engine.ended import result_of
from eviction.engine.step import next_deadline
from eviction.engine.world import FIRST_SECONDS, StageRun
from eviction.records.passes import PassResult
from eviction.types import Extent
from reclaim import types
from reclaim.function import Refused, Stage
from reclaim.removals import StageId, sent_claims
from reclaim.types import Action, Amounts, Kind, Reason, ReclaimError, Result, Verdict
from signals.types import Signal
from tests.inline import FUNCTION, configured, function_of
from tests.pure.engine.site import (
    AT_FIRST,
    DEVICE,
    HANGS,
    Defective,
    Disk,
    Site,
    Store,
    objects,
    outcome_of,
    plan_of,
    rates_of,
    reasons,
    record_of,
    results,
    timed,
    verdict_of,
)
from tests.pure.values import MIB, SteppedClock, threshold

SWITCHED_OFF = dict.fromkeys(("nodefs.available", "nodefs.inodesFree", "imagefs.inodesFree"), "0%")
URGENT, WITH_TIME = 10.0, 1000.0  # seconds until the disk is full


# ---- one object after another


def test_nothing_is_removed_if_relieved_before_it_begins() -> None:
    """No object is even checked."""
    site = Site(3, wanted_mib=0)
    executed = site.relieve()
    assert (site.store.sent, site.store.checked) == ([], [])
    assert reasons(executed) == dict.fromkeys("abc", Reason.RELIEVED)


def test_what_is_not_enough_goes_to_the_end() -> None:
    """100 MiB are wanted of 30: everything goes, and it is not relieved."""
    site = Site(3, wanted_mib=100)
    record = site.passed()
    (executed,) = record.functions
    assert set(results(executed).values()) == {Result.REMOVED}
    assert (executed.relieved, executed.kept, record.result) == (False, (), PassResult.NOT_ENOUGH)


def test_with_extent_all_the_row_is_called_to_its_end() -> None:
    """As the kubelet does, whatever the disk says."""
    executed = Site(3, wanted_mib=0).relieve(extent=Extent.ALL)
    assert set(results(executed).values()) == {Result.REMOVED}


def test_what_the_plan_keeps_is_passed_on() -> None:
    """With the reasons of the plan."""
    site = Site(0, wanted_mib=1)
    site.store.planned = types.Plan(
        keep=(Verdict(Kind.IMAGE, "k", "k", Action.KEEP, Reason.PINNED),)
    )
    assert reasons(site.relieve()) == {"k": Reason.PINNED}


def test_an_outcome_keeps_the_verdict_of_the_plan() -> None:
    """What was removed is reported with the name, reason and size it was planned with."""
    site = Site(1, wanted_mib=10)
    (outcome,) = site.relieve().outcomes
    assert outcome == outcome_of(
        "a", Result.REMOVED, freed=Amounts(10 * MIB), duration_seconds=outcome.duration_seconds
    )


def test_what_is_refused_or_fails_is_left_out_and_the_next_one_is_tried() -> None:
    """Of four, one is running, one came into use, one stays whatever the call
    says: the fourth is enough.
    """
    site = Site(4, wanted_mib=10)
    site.store.refused |= {"a": Refused(Reason.RUNNING), "b": Refused(Reason.IN_USE, Result.IN_USE)}
    site.store.stuck.add("c")
    executed = site.relieve()
    assert site.store.sent == ["c", "d"]
    assert results(executed) == {"c": Result.FAILED, "d": Result.REMOVED}
    assert {outcome.verdict.id: outcome.result for outcome in executed.kept} == {
        "a": None,
        "b": Result.IN_USE,
    }
    assert reasons(executed) == {"a": Reason.RUNNING, "b": Reason.IN_USE}
    assert executed.relieved


def test_what_is_gone_already_frees_nothing_of_ours() -> None:
    """An object that another program removed counts 0 bytes."""
    site = Site(2, wanted_mib=10)
    site.store.refused["a"] = Refused(result=Result.ALREADY_GONE)
    executed = site.relieve()
    assert results(executed) == {"a": Result.ALREADY_GONE, "b": Result.REMOVED}
    assert executed.outcomes[0].freed.bytes == 0


@pytest.mark.parametrize("before_the_call", [True, False])
def test_a_runtime_that_does_not_answer_ends_the_stage(before_the_call: bool) -> None:
    """The rest is kept: nothing is removed without a check, and a check needs answers."""
    site = Site(3, wanted_mib=100)
    (site.store.silent_checks if before_the_call else site.store.silent_presence).add("b")
    executed = site.relieve()
    assert results(executed) == {"a": Result.REMOVED, "b": Result.UNANSWERED}
    assert reasons(executed) == {"c": Reason.INCOMPLETE_LISTING}
    assert executed.error.startswith("the runtime ")
    assert site.store.sent == (["a"] if before_the_call else ["a", "b"])


def test_an_answer_that_is_an_error_fails_its_object_alone() -> None:
    """It says nothing about others: they go."""
    site = Site(3, wanted_mib=100)
    site.store.check_errors.add("a")
    executed = site.relieve()
    assert results(executed) == {"a": Result.FAILED, "b": Result.REMOVED, "c": Result.REMOVED}
    assert executed.error == ""


@given(
    st.lists(st.integers(0, 20), max_size=6),
    st.integers(0, 80),
    st.sets(st.integers(0, 5)),
    st.sets(st.integers(0, 5)),
    st.integers(1, 3),
)
def test_every_object_has_one_outcome_and_no_more_is_removed_than_needed(
    sizes: list[int], wanted: int, stuck: set[int], refused: set[int], parallel: int
) -> None:
    """What is absent afterwards is what is called removed; without the last
    removal it was not yet relieved.
    """
    site = Site(0, wanted, parallel=parallel)
    all_sizes = {str(place): size * MIB for place, size in enumerate(sizes)}
    site.store.sizes, site.store.planned = dict(all_sizes), plan_of(all_sizes)
    site.store.stuck = {str(place) for place in stuck}
    site.store.refused = {str(place): Refused(Reason.RUNNING) for place in refused}
    executed = site.relieve()
    reported = [outcome.verdict.id for outcome in executed.outcomes + executed.kept]
    assert sorted(reported) == sorted(all_sizes)
    gone = {name for name, result in results(executed).items() if result is Result.REMOVED}
    assert gone == set(all_sizes) - set(site.store.sizes)
    if parallel == 1 and gone:
        last = max(gone, key=int)
        assert sum(all_sizes[name] for name in gone - {last}) < wanted * MIB
    if sum(all_sizes[name] for name in gone) < wanted * MIB:
        assert gone == set(all_sizes) - site.store.stuck - set(site.store.refused)


def test_what_waits_is_checked_again_and_removed_then() -> None:
    """However often it has to wait: a wait is not a check that was too old."""
    site = Site(1, wanted_mib=10)
    site.store.waits["a"] = [1.0] * 40
    began = site.clock.monotonic()
    assert results(site.relieve()) == {"a": Result.REMOVED}
    assert site.clock.monotonic() - began >= 40
    assert len(site.store.checked) == 41


def test_a_check_that_is_too_old_is_repeated() -> None:
    """Twenty checks of which none is younger than 1 s when the call would be sent: nothing is sent,
    and the others get their turn."""
    site = Site(2, wanted_mib=10)
    site.store.check_seconds = 1.5
    executed = site.relieve()
    assert (site.store.checked, site.store.sent) == (["a"] * 20 + ["b"] * 20, [])
    assert results(executed) == {"a": Result.FAILED, "b": Result.FAILED}
    assert executed.error == ""
    assert (
        executed.outcomes[0].error
        == "none of its 20 checks was fresher than 1 s, and of after the last container began, when"
        " the removal was to be sent"
    )


@pytest.mark.regression
@pytest.mark.parametrize(
    ("fresh_seconds", "look_seconds"), [(0.05, 0.06), (1.0, 1.1)], ids=["container", "image"]
)
def test_slow_looks_at_directories_do_not_keep_everything(
    fresh_seconds: float, look_seconds: float
) -> None:
    """The last look covers what has begun since the check, however long it takes: each
    object goes at its first.
    """
    site = Site(2, wanted_mib=20)
    site.store.fresh_seconds, site.store.look_seconds = fresh_seconds, look_seconds
    executed = site.relieve()
    assert results(executed) == dict.fromkeys("ab", Result.REMOVED)
    assert site.store.checked == ["a", "b"]


# ---- several at once


@pytest.mark.regression
@pytest.mark.parametrize(("seconds", "sent"), [(0.02, "ab"), (1.0, "ba")])
def test_of_two_at_once_the_first_goes_first(seconds: float, sent: str) -> None:
    """Although its check takes a moment longer; one that takes long is not waited for."""
    site = Site(2, wanted_mib=20, parallel=2, sized=False)
    site.engine.takes = lambda effect: (
        seconds if isinstance(effect, Check) and effect.claim.verdict.id == "a" else 0.0
    )
    site.relieve()
    assert site.store.sent == list(sent)


@pytest.mark.parametrize(
    ("seconds_left", "in_flight"), [(URGENT, 16), (WITH_TIME, 2)], ids=["urgent", "with time"]
)
def test_where_it_is_urgent_more_go_side_by_side(seconds_left: float, in_flight: int) -> None:
    """Eight times the configured two; not one more is begun before one has ended."""
    site = Site(20, wanted_mib=300, parallel=2, sized=False)
    most = Counter[str]()

    def removed(_: str) -> None:
        most["at once"] = max(most["at once"], len(site.engine.world.removals))

    site.store.on_remove = removed
    assert set(results(site.relieve(seconds_left=seconds_left)).values()) == {Result.REMOVED}
    assert most["at once"] == in_flight


def test_one_configured_removal_at_a_time_stays_one() -> None:
    """However urgent it is."""
    site, most = Site(4, wanted_mib=300, parallel=1, sized=False), [0]
    site.store.on_remove = lambda _: most.append(len(site.engine.world.removals))
    site.relieve(seconds_left=1.0)
    assert max(most) == 1


def test_nothing_more_is_begun_than_what_is_in_flight_is_expected_to_free() -> None:
    """10 MiB are wanted, and the first image promises them: no other is begun beside
    it, however urgent it is.
    """
    site = Site(5, wanted_mib=10, parallel=4)
    executed = site.relieve(seconds_left=1.0)
    assert site.store.sent == ["a"]
    assert reasons(executed) == dict.fromkeys("bcde", Reason.RELIEVED)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_pass_does_not_count_on_bytes_that_shared_layers_keep(dry_run: bool) -> None:
    """10 MiB are wanted, and each of five objects of 10 MiB frees 4: three go."""
    site = Site(5, wanted_mib=10, parallel=2)
    site.store.sizes = dict.fromkeys(site.store.sizes, 4 * MIB)
    site.store.planned = types.Plan(
        tuple(verdict_of(name, frees_bytes=4 * MIB) for name in site.store.sizes)
    )
    assert len(site.relieve(dry_run=dry_run).outcomes) == 3


def test_a_plan_with_a_target_ends_once_that_much_was_promised() -> None:
    """As the periodic collection of images: 15 MiB of 50 are two images, whatever the disk says."""
    site = Site(5, wanted_mib=500)
    site.store.planned = replace(plan_of(site.store.sizes), target_bytes=15 * MIB)
    assert set(results(site.relieve(extent=Extent.ALL))) == {"a", "b"}


@pytest.mark.regression
def test_what_each_of_two_at_once_has_freed_is_what_was_promised_for_it() -> None:
    """Measured are 42 MiB of both together; the small one of 2 MiB has not freed
    the 40 MiB of its neighbour.
    """
    site = Site(0, wanted_mib=100, parallel=2)
    sizes = {"small": 2 * MIB, "large": 40 * MIB}
    site.store.sizes, site.store.planned = dict(sizes), plan_of(sizes)
    record = site.passed()
    (executed,) = record.functions
    assert {outcome.verdict.id: outcome.freed.bytes for outcome in executed.outcomes} == sizes
    assert record.measured.bytes == 42 * MIB


@pytest.mark.regression
def test_what_a_removal_frees_long_before_it_ends_is_its_own() -> None:
    """A program that frees 10 MiB at once and goes on for 10 s: the disk is read
    meanwhile, and it has freed 10 MiB.
    """
    site = Site(1, wanted_mib=100)
    site.engine.takes = lambda effect: 10.0 if isinstance(effect, Send) else 0.0
    wanted = site.begin()
    site.engine.until_it(Send)
    site.disk.free(10 * MIB)
    site.store.sizes["a"] = 0
    site.engine.until(wanted.record.done)
    (executed,) = record_of(wanted).functions
    assert [outcome.freed.bytes for outcome in executed.outcomes] == [10 * MIB]
    assert len([each for each in site.engine.handed_out if isinstance(each, Read)]) > 10


# ---- space that arrives late


def test_space_that_arrives_late_is_waited_for_before_the_next_object() -> None:
    """The first image promises enough, and its space comes 0.1 s after the
    answer: no second one goes.
    """
    site = Site(2, wanted_mib=10)
    site.store.late_seconds = 0.1
    executed = site.relieve()
    assert ([each.freed.bytes for each in executed.outcomes], reasons(executed)) == (
        [10 * MIB],
        {"b": "relieved"},
    )


def test_a_pass_waits_after_each_image_that_frees_less_than_it_promised() -> None:
    """Images whose layers are shared: a quarter of a second for each of the
    eight, and one at the end.
    """
    site = Site(8, wanted_mib=100)
    site.store.sizes = dict.fromkeys(site.store.sizes, 0)
    began = site.clock.monotonic()
    assert len(site.relieve().outcomes) == 8
    assert 2.25 <= site.clock.monotonic() - began < 2.6


def test_where_it_is_urgent_nobody_waits_for_late_space() -> None:
    """A second object goes at once, and the third is in time for what the first has freed."""
    site = Site(3, wanted_mib=15)
    site.store.late_seconds = 5.0
    executed = site.relieve(seconds_left=URGENT)
    assert set(results(executed)) == {"a", "b", "c"}


def test_a_stage_that_frees_late_is_waited_for_though_it_promises_nothing() -> None:
    """Dead containers whose space comes 0.2 s after the last answer: the
    next function is not called.
    """
    clock = SteppedClock()
    disk = Disk(clock)
    containers, images = Store(disk, objects(2), sized=False), Store(disk, {"image": 10 * MIB})
    containers.frees_late, containers.late_seconds = True, 0.2
    site = _two_functions(clock, disk, containers, images)
    site.until = threshold(Signal.IMAGEFS_AVAILABLE, f"{AT_FIRST // MIB + 20}Mi")
    site.passed(row=("Containers", "Images"))
    assert (containers.sent, images.sent) == (["a", "b"], [])


def test_the_wait_for_late_space_ends_after_five_seconds() -> None:
    """Something else keeps freeing a little: it is not waited for longer."""
    site = Site(1, wanted_mib=400)

    def remove(_: str) -> None:
        for tick in range(100):
            site.disk.free(MIB, tick / 5)

    site.store.on_remove = remove
    began = site.clock.monotonic()
    site.passed()
    assert 5.0 <= site.clock.monotonic() - began < 12.0


def test_a_reading_that_late_space_waits_for_costs_no_turn() -> None:
    """The disk does not answer while it is watched: nothing is due before its reading is late."""
    site = Site(1, wanted_mib=400)
    engine = site.engine
    site.begin()
    engine.until(lambda: any(the.settling is not None for the in engine.world.passes.values()))
    engine.takes = lambda effect: HANGS if isinstance(effect, Read) else 0.0
    engine.until(
        lambda: any(reading.asked_at is not None for reading in engine.world.readings.values())
    )
    site.clock.step(0.5)
    engine.events.append(Tick())
    engine.turn()
    assert next_deadline(engine.world) > engine.world.now


# ---- dry runs


def test_a_dry_run_sends_nothing_and_counts_on_nominal_sizes() -> None:
    """25 MiB are wanted: three objects of 10 MiB would be removed; each was checked."""
    site = Site(5, wanted_mib=25, parallel=4)
    executed = site.relieve(dry_run=True)
    assert (site.store.sent, site.store.checked) == ([], ["a", "b", "c"])
    assert results(executed) == dict.fromkeys("abc", Result.PLANNED)
    assert reasons(executed) == dict.fromkeys("de", Reason.RELIEVED)
    assert site.disk.available == AT_FIRST
    assert all(outcome.freed.bytes == 0 for outcome in executed.outcomes)


def test_the_budget_of_a_dry_run_goes_through_all_functions_of_the_row() -> None:
    """The first would free 20 MiB of the 25 that are wanted: of the second
    one object more is planned.
    """
    clock = SteppedClock()
    disk = Disk(clock)
    containers, images = Store(disk, objects(2)), Store(disk, {"x": 10 * MIB, "y": 10 * MIB})
    site = _two_functions(clock, disk, containers, images)
    site.until = threshold(Signal.IMAGEFS_AVAILABLE, f"{AT_FIRST // MIB + 25}Mi")
    first, second = site.passed(row=("Containers", "Images"), dry_run=True).functions
    assert (set(results(first)), set(results(second))) == ({"a", "b"}, {"x"})


def test_a_stage_of_a_dry_run_knows_what_the_stages_before_would_have_removed() -> None:
    """It counts as gone."""
    site = Site(2, wanted_mib=500)
    known: list[list[str]] = []

    class Second(Store):
        """A stage that notes what is planned."""

        def plan(self) -> types.Plan:
            """Nothing."""
            (running,) = site.engine.world.passes.values()
            known.append([verdict.id for verdict in running.planned])
            return types.Plan()

    site.engine.functions = {FUNCTION: function_of(site.store, Second(site.disk, {}))}
    site.engine.world = site.engine.world._replace(functions=site.engine.functions)
    site.relieve(dry_run=True)
    assert known == [["a", "b"]]


# ---- the row


def _two_functions(
    clock: SteppedClock,
    disk: Disk,
    first: Stage,
    second: Stage,
    *,
    side_by_side: bool = False,
    **fields: object,
) -> Site:
    """A site of the functions Containers and Images."""
    site = Site(0, 0)
    site.clock, site.disk = clock, disk
    functions = (
        function_of(first, name="Containers", side_by_side=side_by_side),
        function_of(second, name="Images", side_by_side=side_by_side),
    )
    site.engine = timed(
        clock, disk, *functions, configuration=configured(**{"parallelRemovals": 1, **fields})
    )
    return site


def row_of_two(
    *, wanted_mib: int = 100, side_by_side: bool = False, count: int = 2, **fields: object
) -> tuple[Site, Store, Store]:
    """Two functions over so many objects each, of which that much is wanted."""
    clock = SteppedClock()
    disk = Disk(clock)
    containers = Store(
        disk, {f"container-{number}": 10 * MIB for number in range(count)}, sized=False
    )
    images = Store(disk, {f"image-{number}": 10 * MIB for number in range(count)})
    site = _two_functions(clock, disk, containers, images, side_by_side=side_by_side, **fields)
    site.until = threshold(Signal.IMAGEFS_AVAILABLE, f"{AT_FIRST // MIB + wanted_mib}Mi")
    return site, containers, images


ROW = ("Containers", "Images")


def test_the_functions_of_a_row_come_in_order() -> None:
    """30 MiB are wanted: both containers, then one image; what the pass did not
    reach is not in its record.
    """
    site, containers, images = row_of_two(wanted_mib=30)
    first, second = site.passed(row=ROW).functions
    assert (containers.sent, images.sent) == (["container-0", "container-1"], ["image-0"])
    assert (first.operation, second.operation) == ROW
    site, containers, images = row_of_two(wanted_mib=10)
    assert [each.operation for each in site.passed(row=ROW).functions] == ["Containers"]


def test_an_error_in_one_function_does_not_stop_the_next_one() -> None:
    """As in the kubelet; each error is told."""
    site, containers, images = row_of_two(wanted_mib=10)
    containers.planned = ReclaimError("the first one failed")
    first, second = site.passed(row=ROW).functions
    assert (first.error, second.error, images.sent) == ("the first one failed", "", ["image-0"])


def test_a_stage_that_cannot_read_does_not_stop_the_next_one() -> None:
    """Of the same function."""
    site = Site(2, wanted_mib=20)
    fails = Store(site.disk, {})
    fails.planned = ReclaimError("the first one failed")
    site.engine.world = site.engine.world._replace(
        functions={FUNCTION: function_of(fails, site.store)}
    )
    result = site.relieve()
    assert (result.error, site.store.sent) == ("the first one failed", ["a", "b"])


def test_a_function_that_is_to_stop_on_failure_ends_after_the_stage_that_failed() -> None:
    """As the age sweep of the periodic collection."""
    site = Site(1, wanted_mib=100)
    second = Store(site.disk, {"later": 10 * MIB})
    site.store.stuck.add("a")
    stops = function_of(site.store, second, stops_on_failure=True)
    site.engine.world = site.engine.world._replace(functions={FUNCTION: stops})
    site.relieve()
    assert (site.store.sent, second.plans) == (["a"], 0)


def test_after_a_call_a_function_cools_down() -> None:
    """A minute: the next pass says so and does not call it; a dry run shows what it
    would do; then it is called.
    """
    site = Site(1, wanted_mib=100)
    functions = {FUNCTION: function_of(site.store, cooldown_seconds=60.0)}
    site.engine.world = site.engine.world._replace(functions=functions)
    site.relieve()
    (again,) = site.passed().functions
    assert again.skipped.startswith("its cooldown lasts another ")
    assert not site.relieve(dry_run=True).skipped
    site.clock.step(60.0)
    assert not site.relieve().skipped


def test_a_function_that_waits_for_a_lower_mark_is_called_only_below_it() -> None:
    """The images' own mark of 300 MiB is not reached: skipped, with the mark; below it they go, up
    to that mark, and the row goes on."""
    rows = {
        "imagefs.available": [
            {"function": "DeleteUnusedImages", "below": "300Mi"},
            "DeleteAllUnusedContainers",
        ]
    }
    clock = SteppedClock()
    disk = Disk(clock)
    containers, images = (
        Store(disk, objects(2), sized=False),
        Store(disk, {"x": 10 * MIB, "y": 10 * MIB}),
    )
    configuration = configured(
        evictionHard={**SWITCHED_OFF, "imagefs.available": "600Mi"},
        reclaimTable=rows,
        parallelRemovals=1,
    )
    row = ("DeleteUnusedImages", "DeleteAllUnusedContainers")
    functions = (function_of(images, name=row[0]), function_of(containers, name=row[1]))
    site = Site(0, 0)
    site.engine = timed(clock, disk, *functions, configuration=configuration)
    site.clock, site.disk = clock, disk
    record = site.passed(row=row, until=None)
    assert record.functions[0].skipped == "imagefs.available is not below 300Mi"
    assert (images.sent, containers.sent) == ([], ["a", "b"])
    containers.sizes.update(objects(2))
    disk.free(295 * MIB - disk.available)
    site.passed(row=row, until=None)
    assert (images.sent, containers.sent) == (["x"], ["a", "b", "a", "b"])


# ---- side by side


def test_where_it_is_urgent_functions_go_side_by_side() -> None:
    """Both plan at once; with time, the second plans when the first is done."""
    for seconds_left, at_once in ((URGENT, 2), (WITH_TIME, 1)):
        site, _, _ = row_of_two(side_by_side=True)
        site.engine.takes = lambda effect: HANGS if isinstance(effect, Plan) else 0.0
        site.begin(row=ROW, seconds_left=seconds_left)
        site.engine.until_it(Plan)
        assert len([each for each in site.engine.handed_out if isinstance(each, Plan)]) == at_once


def test_side_by_side_one_of_eight_is_of_what_promises_nothing() -> None:
    """Sixteen images and sixteen containers, one at a time: the first and every eighth after it."""
    site, containers, images = row_of_two(side_by_side=True, count=16, wanted_mib=500)
    order: list[str] = []
    containers.on_remove = images.on_remove = order.append
    site.passed(row=ROW, seconds_left=URGENT)
    assert [number for number, one in enumerate(order, 1) if one.startswith("container")][:2] == [
        1,
        9,
    ]


def test_a_pass_that_becomes_urgent_goes_on_side_by_side() -> None:
    """It begins with the dead containers alone; then the disk fills fast: an image goes
    before the last container.
    """
    site, containers, images = row_of_two(side_by_side=True, wanted_mib=60, count=8)
    wanted = site.begin(row=ROW)
    site.engine.until(lambda: len(containers.sent) == 1)
    assert images.plans == 0
    world = site.engine.world
    site.engine.world = world._replace(
        fill_rates={**world.fill_rates, **rates_of(site.disk, URGENT)}
    )
    site.engine.until(wanted.record.done)
    assert images.sent
    assert len(containers.sent) < 6
    assert [each.operation for each in record_of(wanted).functions] == list(ROW)


@pytest.mark.regression
def test_a_plan_that_hangs_does_not_keep_the_one_beside_it_from_beginning() -> None:
    """ListImages is not answered: the dead containers go meanwhile, and are enough; with
    the answer the pass ends.
    """
    site, containers, images = row_of_two(side_by_side=True, wanted_mib=20)
    site.engine.takes = lambda each: (
        HANGS if isinstance(each, Plan) and each.stage.function == "Images" else 0.0
    )
    wanted = site.begin(row=ROW, seconds_left=URGENT)
    began = site.clock.monotonic()
    site.engine.until(lambda: len(containers.sent) == 2)
    assert site.clock.monotonic() - began < 1.0
    site.engine.let_go()
    site.engine.until(wanted.record.done)
    assert images.sent == []
    assert reasons(record_of(wanted).functions[1]) == dict.fromkeys(images.sizes, Reason.RELIEVED)


def test_the_first_object_of_the_row_does_not_wait_for_the_plans_after_its_own() -> None:
    """The first dead container does not wait for the list of images; the next ones,
    which may free nothing, do.
    """
    site, _, images = row_of_two(side_by_side=True, wanted_mib=200, parallelRemovals=2)

    def sent() -> list[str]:
        return [claim.stage.function for claim in sent_claims(site.engine.world.removals)]

    def takes(effect: Effect) -> float:
        if isinstance(effect, Plan) and effect.stage.function == "Images":
            return 0.2
        return HANGS if isinstance(effect, Send) else 0.0

    site.engine.takes = takes
    site.begin(row=ROW, seconds_left=URGENT)
    site.engine.until_it(Send)
    site.engine.until(lambda: images.plans == 1)
    assert sent() == ["Containers"]
    site.engine.until(lambda: len(sent()) > 2)
    assert "Images" in sent()


def test_a_plan_that_hangs_is_given_up_after_a_minute_and_not_asked_for_again_before_it_has_ended() -> (
    None
):
    """The pass ends with a sentence, the next one says that the earlier reading is
    not answered; then it plans.
    """
    site = Site(1, wanted_mib=10)
    site.engine.takes = lambda effect: HANGS if isinstance(effect, Plan) else 0.0
    assert site.relieve().error == "Function, stage 1 cannot plan: it did not answer within 60 s"
    site.engine.takes = lambda _: 0.0
    assert (
        site.relieve().error
        == "Function, stage 1 cannot plan: an earlier reading has not been answered yet"
    )
    site.engine.let_go()
    assert site.store.plans == 1
    assert results(site.relieve()) == {"a": Result.REMOVED}


def test_a_long_plan_that_goes_forward_does_not_hang() -> None:
    """As long as the runtime answers one call after the other: here for two minutes."""
    site = Site(1, wanted_mib=10)
    site.engine.takes = lambda effect: 120.0 if isinstance(effect, Plan) else 0.0
    wanted = site.begin()
    site.engine.until_it(Plan)
    (running,) = site.engine.world.passes
    for seconds in range(10, 120, 10):
        event = Progressed(running, StageId(FUNCTION, 1))
        site.engine.coming.append((site.clock.monotonic() + seconds, lambda event=event: [event]))  # type: ignore[misc]
    site.engine.until(wanted.record.done)
    (executed,) = record_of(wanted).functions
    assert (executed.error, results(executed)) == ("", {"a": Result.REMOVED})


@pytest.mark.regression
@pytest.mark.parametrize(
    "event",
    [Stopping(), PauseSet(60.0), Reconfigured(configured())],
    ids=lambda one: type(one).__name__,
)
def test_what_stops_a_pass_while_its_plan_is_awaited_ends_it(event: Event) -> None:
    """Its record is there at once, with nothing removed; the plan that hangs
    changes nothing when it comes.
    """
    site = Site(1, wanted_mib=10)
    site.engine.takes = lambda effect: HANGS if isinstance(effect, Plan) else 0.0
    wanted = site.begin()
    site.engine.until_it(Plan)
    site.engine.events.append(event)
    site.engine.turn()
    (executed,) = record_of(wanted).functions
    assert (executed.outcomes, executed.relieved) == ((), True)
    site.engine.let_go()
    assert site.store.sent == []


# ---- the last resort


class LastResort:
    """Images of which one is held back, and is offered when everything else is gone."""

    def __init__(self) -> None:
        self.site = Site(1, wanted_mib=100)
        held = Verdict(
            Kind.IMAGE, "held", "held", Action.KEEP, Reason.NOT_PULLED, 10 * MIB, last_resort=True
        )
        self.site.store.planned = replace(plan_of(objects(1)), keep=(held,))
        self.last = Store(self.site.disk, {"held": 10 * MIB})
        function = function_of(self.site.store, last_resort=lambda _: (self.last,))
        self.site.engine.world = self.site.engine.world._replace(functions={FUNCTION: function})


def test_what_goes_only_as_a_last_resort_comes_after_everything_else() -> None:
    """Once the row is not enough; and not where it is."""
    story = LastResort()
    assert results(story.site.relieve()) == dict.fromkeys(("a", "held"), Result.REMOVED)
    story = LastResort()
    story.site.until = threshold(Signal.IMAGEFS_AVAILABLE, f"{AT_FIRST // MIB + 10}Mi")
    story.site.relieve()
    assert (story.site.store.sent, story.last.plans) == (["a"], 0)


@pytest.mark.parametrize("what", ["fails", "is silent", "cannot be checked", "is late"])
def test_the_last_resort_does_not_begin_where_something_is_not_settled(what: str) -> None:
    """It is not known then that nothing else is enough."""
    story = LastResort()
    store = story.site.store
    match what:
        case "fails":
            store.stuck.add("a")
        case "is silent":
            store.silent_presence.add("a")
        case "cannot be checked":
            store.silent_checks.add("a")
        case "is late":
            story.site.hang("a")
    story.site.relieve()
    assert story.last.plans == 0


@pytest.mark.parametrize("reason", [Reason.INCOMPLETE_LISTING, Reason.BEING_REMOVED, Reason.IN_USE])
def test_the_last_resort_depends_on_why_the_rest_is_kept(reason: Reason) -> None:
    """What is in use has had its say; what could not be listed, or is under way, has not."""
    story = LastResort()
    plan = story.site.store.plan()
    story.site.store.planned = replace(
        plan, keep=(*plan.keep, Verdict(Kind.IMAGE, "k", "k", Action.KEEP, reason))
    )
    story.site.relieve()
    assert bool(story.last.plans) is (reason is Reason.IN_USE)


def test_the_last_resort_does_not_begin_after_an_error() -> None:
    """Of a function of the row."""
    story = LastResort()
    fails = Store(story.site.disk, {})
    fails.planned = ReclaimError("no list")
    functions = {**story.site.engine.world.functions, "Fails": function_of(fails, name="Fails")}
    story.site.engine.world = story.site.engine.world._replace(functions=functions)
    story.site.passed(row=(FUNCTION, "Fails"))
    assert (story.site.store.sent, story.last.plans) == (["a"], 0)


def test_the_last_resort_does_not_begin_while_a_removal_of_another_pass_is_under_way() -> None:
    """On whatever filesystem: nobody knows yet what it will free."""
    story = LastResort()
    other = Store(story.site.disk, {"other": 10 * MIB})
    functions = {**story.site.engine.world.functions, "Other": function_of(other, name="Other")}
    story.site.engine.world = story.site.engine.world._replace(functions=functions)
    story.site.hang("other")
    story.site.passed(row=("Other",))
    story.site.engine.takes = lambda _: 0.0
    story.site.passed()
    assert story.last.plans == 0
    story.site.engine.let_go()
    story.site.store.sizes["a"] = 0
    story.site.passed()
    assert story.last.plans == 1


# ---- what ends a pass early


def test_a_disk_that_can_no_longer_be_read_ends_the_pass() -> None:
    """After the first removal it does not answer: going on without a
    reading could remove everything.
    """
    site = Site(5, wanted_mib=100)
    site.store.on_remove = lambda _: setattr(
        site.engine, "takes", lambda each: HANGS if isinstance(each, Read) else 0.0
    )
    executed = site.relieve()
    assert site.store.sent == ["a"]
    assert reasons(executed) == dict.fromkeys("bcde", Reason.UNREADABLE)


@pytest.mark.regression
def test_a_pass_to_the_end_of_its_row_ends_though_its_filesystem_hangs() -> None:
    """It answers nothing from the plan on: the objects go all the same, and what
    that has gained is not known.
    """
    site = Site(2, wanted_mib=0)
    site.engine.before = lambda effect: setattr(
        site.engine, "takes", lambda each: HANGS if isinstance(each, Read) else 0.0
    )
    record = site.passed(extent=Extent.ALL)
    assert (site.store.sent, record.measured.bytes) == (["a", "b"], 0)


def test_a_mount_ends_the_pass() -> None:
    """The images are on another device by now: the next pass decides anew."""
    site = Site(5, wanted_mib=100)
    site.store.on_remove = lambda _: setattr(site.disk, "device", DEVICE + 1)
    executed = site.relieve()
    assert site.store.sent == ["a"]
    assert reasons(executed) == dict.fromkeys("bcde", Reason.LAYOUT_CHANGED)


@pytest.mark.regression
def test_a_mount_between_the_look_and_the_pass_is_seen() -> None:
    """A command has looked, and a disk is mounted for the images before its pass begins:
    what was decided is void.
    """
    site = Site(3, wanted_mib=100)
    wanted = site.begin()
    site.disk.device = DEVICE + 1
    site.engine.look()
    site.engine.until(wanted.record.done)
    assert site.store.sent == []


@pytest.mark.regression
@pytest.mark.parametrize("at", [Check, Send])
def test_a_defect_in_a_pass_ends_that_pass_and_nothing_else(at: type[Effect]) -> None:
    """It is raised at the gate, or while a removal is in flight: nothing more is sent, the error is
    in the record, what was sent is waited for, and the next pass runs as usual."""
    site = Site(3, wanted_mib=30, parallel=2)
    defective = Defective(site.until.value.quantity)
    site.hang("a", at)
    wanted = site.begin(until=(replace(site.until, value=defective),))
    site.engine.until_it(at, "a")
    sent = len(site.store.sent)
    defective.raising.append("defect")
    if at is Check:
        site.engine.let_go()
    site.engine.events.append(Tick())
    site.engine.until(wanted.record.done)
    record = record_of(wanted)
    assert (record.result, record.reason) == (PassResult.FAILED, "ZeroDivisionError: defect")
    assert len(site.store.sent) == sent
    site.engine.let_go()
    assert site.engine.world.removals == {}
    assert site.relieve().relieved


# ---- bookings


def two_disks() -> tuple[Site, Disk, Disk]:
    """Images on a disk of their own; the kubelet's on another."""
    clock = SteppedClock()
    images, nodes = Disk(clock), Disk(clock, DEVICE + 1)
    site = Site(0, 20)
    site.store = Store(images, objects(2))
    function = function_of(site.store)
    site.engine = timed(
        clock,
        images,
        function,
        disks={"/node": nodes},
        configuration=configured(parallelRemovals=1),
    )
    site.clock, site.disk = clock, images
    return site, images, nodes


@pytest.mark.regression
def test_what_another_filesystem_gains_or_loses_meanwhile_is_not_the_pass_s() -> None:
    """20 MiB are freed where the images are, while 300 MiB are written where the kubelet's data is.

    Both are read.
    """
    site, _, nodes = two_disks()
    site.store.on_remove = lambda _: nodes.free(-150 * MIB)
    record = site.passed(until=(site.until, threshold(Signal.NODEFS_AVAILABLE, "1Mi")))
    assert record.after is not None
    assert record.after.signals[Signal.NODEFS_AVAILABLE].available == AT_FIRST - 300 * MIB
    assert (record.measured.bytes, record.written_meanwhile.bytes) == (20 * MIB, 0)


@pytest.mark.regression
def test_what_a_device_gains_is_booked_once_though_it_has_several_roles() -> None:
    """Images and writable layers are on one: 20 MiB, not 40."""
    site, _, _ = two_disks()
    assert site.passed().measured.bytes == 20 * MIB
    assert Site(2, wanted_mib=20).passed().measured.bytes == 20 * MIB  # all three on one


@pytest.mark.regression
def test_two_passes_at_once_on_one_device_book_each_gain_once() -> None:
    """One about the filesystem of the images, one about none, each with an object of its own
    under way: 20 MiB in all."""
    site = Site(2, wanted_mib=300)
    other = Store(site.disk, {"other": 10 * MIB})
    functions = {**site.engine.world.functions, "Other": function_of(other, name="Other")}
    site.engine.world = site.engine.world._replace(functions=functions)
    del site.store.sizes["b"]
    site.store.planned = plan_of(site.store.sizes)
    site.engine.takes = lambda effect: 1.0 if isinstance(effect, Send) else 0.0
    passes = [site.begin(signal=Signal.IMAGEFS_AVAILABLE), site.begin(row=("Other",))]
    site.engine.until(lambda: all(each.record.done() for each in passes))
    assert site.disk.available == AT_FIRST + 20 * MIB
    assert sum(record_of(each).measured.bytes for each in passes) == 20 * MIB
    freed = [outcome.freed.bytes for each in passes for outcome in record_of(each).removals]
    assert freed == [10 * MIB, 10 * MIB]  # what was promised for each, as neither was alone


@pytest.mark.regression
def test_a_mount_is_no_gain() -> None:
    """An empty disk is mounted over the images in the middle: what it has available was not
    freed, nor the rest written."""
    site = Site(3, wanted_mib=300)

    def mounted(_: str) -> None:
        site.disk.device = DEVICE + 1
        site.disk.free(400 * MIB)

    site.store.on_remove = mounted
    record = site.passed()
    assert (record.measured.bytes, record.written_meanwhile.bytes) == (0, 0)


# ---- the lead, and urgency


def test_what_removals_have_lately_taken_is_the_slowest_of_the_last_eight() -> None:
    """A second before one is known; never more than one is waited for where it is urgent."""
    site = Site(1, 0)
    assert site.engine.world.lead_seconds() == FIRST_SECONDS == 1.0
    seconds = iter((90.0, *[0.1] * 6, 0.3, 0.2))
    site.engine.takes = lambda effect: next(seconds) if isinstance(effect, Send) else 0.0
    found = []
    for _ in range(9):
        site.store.sizes["a"] = 10 * MIB
        site.relieve(extent=Extent.ALL)
        site.engine.passes_until(100.0)
        found.append(round(site.engine.world.lead_seconds(), 3))
    assert (found[0], found[-2], found[-1]) == (5.0, 5.0, 0.301)


# ---- records


def test_stages_wait_for_the_next_object_of_any_of_them() -> None:
    """In 30 s one of the first stage is old enough, in 90 s one of the
    second; of the third none ever.
    """
    young = Verdict(Kind.IMAGE, "y", "y", Action.KEEP, Reason.TOO_YOUNG)
    plans = [
        types.Plan(keep=(young._replace(eligible_in_seconds=wait),)) for wait in (30.0, 90.0, None)
    ]
    stages = [
        StageRun(StageId("all", number), 0.0, 0.0, plan) for number, plan in enumerate(plans, 1)
    ]
    assert result_of("all", stages).eligible_in_seconds == 30.0


def test_outcomes_are_in_the_order_of_the_plan_and_an_object_that_was_tried_again_counts_once() -> (
    None
):
    """With its last outcome: it failed side by side, and went in its turn."""
    site = Site(2, wanted_mib=100, parallel=2)
    takes = {"a": 2.0, "b": 1.0}
    site.engine.takes = lambda effect: (
        takes[effect.claim.verdict.id] if isinstance(effect, Send) else 0.0
    )
    assert list(results(site.relieve())) == ["a", "b"]
    site, containers, _ = row_of_two(side_by_side=True, count=1)
    containers.stuck.add("container-0")
    containers.on_check = lambda _: containers.stuck.clear() if containers.sent else None
    first, _ = site.passed(row=ROW, seconds_left=URGENT).functions
    assert containers.sent == ["container-0"] * 2
    assert [(each.verdict.id, each.result) for each in first.outcomes] == [
        ("container-0", Result.REMOVED)
    ]
