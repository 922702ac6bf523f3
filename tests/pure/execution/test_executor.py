"""A plan is executed one careful step after another, and no further than needed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.execution.executor import Executor, Experience, Work, result_of
from reclaim.execution.removals import Refused, Removals
from reclaim.execution.workers import ReadingHangs
from reclaim.types import Action, DiskState, Kind, Plan, Reason, Result, Verdict
from tests.pure.execution.test_parked import RunningClock
from tests.pure.store import Disk, Site, Store, plan_of, reasons, results
from tests.pure.values import MIB


def test_it_stops_when_relieved() -> None:
    """20 MiB are wanted: of five objects of 10 MiB two go, in order, and three stay."""
    site = Site(5, wanted_mib=20)
    executed = site.execute()
    assert site.store.sent == ["a", "b"]
    assert results(executed) == {"a": Result.REMOVED, "b": Result.REMOVED}
    assert reasons(executed) == dict.fromkeys("cde", Reason.RELIEVED)
    assert [outcome.freed_bytes for outcome in executed.outcomes] == [10 * MIB, 10 * MIB]
    assert (executed.relieved, executed.error) == (True, "")


def test_nothing_is_removed_if_relieved_before_it_begins() -> None:
    """No object is even checked."""
    site = Site(3, wanted_mib=0)
    executed = site.execute()
    assert (site.store.sent, site.store.checked) == ([], [])
    assert reasons(executed) == dict.fromkeys("abc", Reason.RELIEVED)


def test_what_is_not_enough_goes_to_the_end() -> None:
    """100 MiB are wanted of 30: everything goes, and it is not relieved."""
    executed = Site(3, wanted_mib=100).execute()
    assert set(results(executed).values()) == {Result.REMOVED}
    assert (executed.relieved, executed.kept) == (False, [])


def test_what_the_plan_keeps_is_passed_on() -> None:
    """With the reasons of the plan."""
    site = Site(0, wanted_mib=1)
    keep = Verdict(Kind.IMAGE, "k", "k", Action.KEEP, Reason.PINNED)
    executed = site.execute(Plan(keep=(keep,)))
    assert reasons(executed) == {"k": Reason.PINNED}


class Hanging(Store):
    """A stage whose plan hangs until it is let go."""

    begun = 0

    def __init__(self, site: Site):
        super().__init__(site.disk, site.clock, site.sizes)
        self.let_go = threading.Event()

    def plan(self) -> Plan:
        """It names nothing."""
        self.begun += 1
        assert self.let_go.wait(60.0)
        return Plan()


def test_a_plan_that_hangs_is_left_behind_and_the_next_stage_plans() -> None:
    """No later pass begins it again before it has ended."""
    site = Site(1, wanted_mib=10)
    removals = Removals(RunningClock(), threading.Event(), 1)
    removals.hangs_seconds = 0.05
    executor, hanging, other = Executor(removals), Hanging(site), Hanging(site)
    for why in ("it did not answer within 0.05 s", "an earlier reading has not been answered yet"):
        with pytest.raises(ReadingHangs, match=f"^Hangs, stage 1 cannot plan: {why}$"):
            executor.plan("Hangs, stage 1", hanging)
    assert hanging.begun == 1
    removals.hangs_seconds = 60.0
    other.let_go.set()
    assert executor.plan("Another, stage 1", other) is not None
    hanging.let_go.set()
    removals.workers.close()


def test_a_defect_in_one_removal_is_an_outcome() -> None:
    """It does not hang, and the next object is tried."""
    site = Site(2, wanted_mib=10)

    def fail(name: str) -> None:
        if name == "a":
            raise ZeroDivisionError("defect")

    site.store.on_remove = fail
    executed = site.execute()
    assert results(executed) == {"a": Result.FAILED, "b": Result.REMOVED}
    assert executed.outcomes[0].error == "ZeroDivisionError: defect"


def test_a_dry_run_sends_nothing_and_credits_nominal_sizes() -> None:
    """25 MiB are wanted: three objects of 10 MiB would be removed; each was checked."""
    site = Site(5, wanted_mib=25, dry_run=True, parallel=4)
    executed = site.execute()
    assert (site.store.sent, site.store.checked) == ([], ["a", "b", "c"])
    assert results(executed) == dict.fromkeys("abc", Result.PLANNED)
    assert reasons(executed) == dict.fromkeys("de", Reason.RELIEVED)
    assert site.disk.freed_bytes == 0
    assert site.disk.credits[-1] == 30 * MIB
    assert all(outcome.freed_bytes == 0 for outcome in executed.outcomes)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_pass_does_not_count_on_bytes_that_shared_layers_keep(dry_run: bool) -> None:
    """10 MiB are wanted, and each of five objects of 10 MiB frees 4: three go."""
    site = Site(5, wanted_mib=10, dry_run=dry_run, parallel=2)
    site.store.sizes.update(dict.fromkeys(site.sizes, 4 * MIB))
    plan = Plan(tuple(verdict._replace(frees_bytes=4 * MIB) for verdict in plan_of(site.sizes).remove))
    executed = site.execute(plan)
    assert len(executed.outcomes) == 3
    assert 4 * MIB in site.disk.credits
    assert 10 * MIB not in site.disk.credits


def test_stopping_lets_the_removal_in_flight_finish() -> None:
    """The stop comes while the first is being removed: it is removed and accounted for, no second one starts."""
    site = Site(3, wanted_mib=100)
    site.store.on_remove = lambda _: site.stopping.set()
    executed = site.execute()
    assert results(executed) == {"a": Result.REMOVED}
    assert executed.outcomes[0].freed_bytes == 10 * MIB
    assert reasons(executed) == dict.fromkeys("bc", Reason.STOPPING)


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
    """What is absent afterwards is what is called removed; without the last removal it was not yet relieved."""
    site = Site(0, wanted, parallel=parallel)
    site.sizes = {str(place): size for place, size in enumerate(sizes)}
    site.store.sizes = dict(site.sizes)
    site.disk = site.store.disk = Disk(site.clock, wanted)
    site.store.stuck = {str(place) for place in stuck}
    site.store.refused = {str(place): Refused(Reason.RUNNING) for place in refused}
    executed = site.execute()
    reported = [outcome.verdict.id for outcome in executed.outcomes + executed.kept]
    assert sorted(reported) == sorted(site.sizes)
    gone = {name for name, result in results(executed).items() if result is Result.REMOVED}
    assert gone == set(site.sizes) - set(site.store.sizes)
    assert executed.relieved is (sum(site.sizes[name] for name in gone) >= wanted)
    if parallel == 1 and gone:
        last = max(gone, key=int)
        assert sum(site.sizes[name] for name in gone - {last}) < wanted


def test_an_outcome_keeps_the_verdict_of_the_plan() -> None:
    """What was removed is reported with the name, reason and size it was planned with."""
    site = Site(1, wanted_mib=10)
    plan = plan_of(site.sizes)
    (outcome,) = site.execute(plan).outcomes
    assert outcome.verdict == plan.remove[0]
    assert outcome == replace(outcome, duration_seconds=0.0)


def test_a_defect_in_a_measurement_leaves_nothing_in_flight() -> None:
    """The error comes out, what was sent is waited for, and the next plan is executed out as usual."""
    site = Site(3, wanted_mib=30, parallel=2)
    states = iter((site.disk.measure(0), site.disk.measure(0)))

    def failing(credit_bytes: int) -> DiskState:
        state = next(states, None)
        if state is None:
            raise ZeroDivisionError
        return state

    with pytest.raises(ZeroDivisionError):
        site.executor.execute([Work(site.store, plan_of(site.sizes))], failing)
    assert site.executor.removals.begun == ()
    assert site.execute().relieved


@pytest.mark.parametrize(("seconds_left", "in_flight"), [(10.0, 16), (1000.0, 2)], ids=["urgent", "with time"])
def test_where_it_is_urgent_more_go_side_by_side(seconds_left: float, in_flight: int) -> None:
    """Eight times the configured two; not one more is begun before one has ended."""
    site = Site(20, wanted_mib=1000, parallel=2)
    site.disk.seconds_left = seconds_left
    lock, full, at_once, most = threading.Lock(), threading.Event(), 0, 0

    def remove(_: str) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
            if at_once == in_flight:
                full.set()
        assert full.wait(60.0), f"only {most} side by side"
        with lock:
            at_once -= 1

    site.store.on_remove = remove
    assert set(results(site.execute(sized=False)).values()) == {Result.REMOVED}
    assert most == in_flight


def test_nothing_more_is_started_than_what_is_in_flight_is_expected_to_free() -> None:
    """10 MiB are wanted, and the first image promises them: no other is begun beside it, however urgent it is."""
    site = Site(5, wanted_mib=10, parallel=4)
    site.disk.seconds_left = 1.0
    executed = site.execute()
    assert site.store.sent == ["a"]
    assert reasons(executed) == dict.fromkeys("bcde", Reason.RELIEVED)


@pytest.mark.regression
def test_what_a_removal_frees_long_before_it_ends_is_its_own() -> None:
    """A program that frees 10 MiB at once and goes on: the disk is measured meanwhile, and it has freed 10 MiB."""
    site = Site(1, wanted_mib=10)

    def remove(name: str) -> None:
        site.disk.free(site.store.sizes[name])
        site.store.sizes[name] = 0
        measured = len(site.disk.credits)
        while len(site.disk.credits) < measured + 2:
            time.sleep(0.001)

    site.store.on_remove = remove
    assert [outcome.freed_bytes for outcome in site.execute().outcomes] == [10 * MIB]


def test_what_removals_have_lately_taken_is_the_slowest_of_the_last_eight() -> None:
    """A second before one is known; never more than one is waited for where it is urgent."""
    experience = Experience()
    assert experience.seconds == 1.0
    for seconds in (90.0, *[0.1] * 6, 0.3):
        experience.removed(seconds)
    assert experience.seconds == 5.0
    experience.removed(0.2)
    assert experience.seconds == 0.3


def test_two_images_that_free_nothing_do_not_end_the_waiting_for_late_space_in_the_next_pass() -> None:
    """Their layers were shared. In the next pass the space of the first image comes 0.1 s late, and is enough."""
    site = Site(4, wanted_mib=10)
    site.store.sizes |= {"a": 0, "b": 0}
    first = site.execute(plan_of({"a": 10 * MIB, "b": 10 * MIB}))
    assert [outcome.freed_bytes for outcome in first.outcomes] == [0, 0]
    executor = site.executor
    site.executor = Executor(executor.removals, parallel=1, experience=executor.experience)
    site.store.late_seconds = 0.1
    second = site.execute(plan_of({"c": 10 * MIB, "d": 10 * MIB}))
    assert ([outcome.freed_bytes for outcome in second.outcomes], reasons(second)) == ([10 * MIB], {"d": "relieved"})


def test_side_by_side_one_of_eight_is_of_what_promises_nothing() -> None:
    """Sixteen images and sixteen containers, one at a time: the first and every eighth after it."""
    site = Site(0, wanted_mib=1000)
    images = {f"image-{number}": MIB for number in range(16)}
    containers = {f"container-{number}": MIB for number in range(16)}
    site.store.sizes = {**images, **containers}
    works = [Work(site.store, plan_of(containers, sized=False)), Work(site.store, plan_of(images))]
    site.executor.execute(works, site.disk.measure)
    assert [number for number, one in enumerate(site.store.sent, 1) if one.startswith("container")][:2] == [1, 9]


def test_stages_wait_for_the_next_object_of_any_of_them() -> None:
    """In 30 s one of the first stage is old enough, in 90 s one of the second; of the third none ever."""
    site = Site(0, wanted_mib=1)
    young = Verdict(Kind.IMAGE, "y", "y", Action.KEEP, Reason.TOO_YOUNG)
    plans = [Plan(keep=(young._replace(eligible_in_seconds=wait),)) for wait in (30.0, 90.0, None)]
    assert result_of("all", [Work(site.store, each) for each in plans]).eligible_in_seconds == 30.0
