"""A plan is carried out one careful step after another, and no further than needed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.containers.removers import Refused
from reclaim.disk_need import Need
from reclaim.execution.executor import (
    CHECK_ATTEMPTS,
    LATE_LIMIT_SECONDS,
    LATE_QUIET_SECONDS,
    STILL_SECONDS,
    Carried,
    Executor,
)
from reclaim.images.removal_order import Experience, YieldOrder
from reclaim.types import Action, Kind, Look, Plan, Reason, Result, Verdict
from tests.pure.store import Disk, Store, objects, plan_of
from tests.pure.values import MIB, SteppedClock, SteppedEvent


class Site:
    """An executor with its clock, disk and objects."""

    def __init__(self, count: int, wanted_mib: int, *, size_mib: int = 10, parallel: int = 1, dry_run: bool = False):
        self.clock = SteppedClock()
        self.stopping = SteppedEvent(self.clock)
        self.disk = Disk(self.clock, wanted_mib * MIB)
        self.sizes = objects(count, size_mib * MIB)
        self.store = Store(self.disk, self.clock, self.sizes)
        self.executor = Executor(self.clock, self.stopping, parallel=parallel, dry_run=dry_run)

    def carry_out(self, *, sized: bool = True) -> Carried:
        """The plan to remove everything, carried out as far as needed."""
        carried = self.executor.carry_out(plan_of(self.sizes, sized=sized), self.store, self.disk.look)
        assert self.executor.in_flight == {}
        return carried


def results(carried: Carried) -> dict[str, Result | None]:
    """What became of what was tried."""
    return {outcome.verdict.id: outcome.result for outcome in carried.outcomes}


def reasons(carried: Carried) -> dict[str, Reason]:
    """Why the rest was kept."""
    assert all(outcome.verdict.action is Action.KEEP for outcome in carried.kept)
    return {outcome.verdict.id: outcome.verdict.reason for outcome in carried.kept}


def test_it_stops_when_relieved() -> None:
    """20 MiB are wanted: of five objects of 10 MiB two go, in order, and three stay."""
    site = Site(5, wanted_mib=20)
    carried = site.carry_out()
    assert site.store.sent == ["a", "b"]
    assert results(carried) == {"a": Result.REMOVED, "b": Result.REMOVED}
    assert reasons(carried) == dict.fromkeys("cde", Reason.RELIEVED)
    assert [outcome.freed_bytes for outcome in carried.outcomes] == [10 * MIB, 10 * MIB]
    assert (carried.relieved, carried.error) == (True, "")


def test_where_there_is_no_time_the_largest_goes_next_and_what_stays_is_told_as_ever() -> None:
    """1, 2 and 40 MiB; the disk is full in 0.1 s, and a removal takes 0.2 s: the last one goes, and is enough."""
    site = Site(3, wanted_mib=30)
    site.sizes |= {"a": MIB, "b": 2 * MIB, "c": 40 * MIB}
    site.store.sizes = dict(site.sizes)
    site.disk.need = Need(missing=30 * MIB, left=10 * MIB, fill_per_second=100.0 * MIB)
    order = YieldOrder(Experience(seconds=0.2), 1)
    carried = site.executor.carry_out(plan_of(site.sizes), site.store, site.disk.look, order)
    assert site.store.sent == ["c"]
    assert reasons(carried) == dict.fromkeys("ab", Reason.RELIEVED)
    assert order.chosen is not None
    assert order.chosen.by_yield
    assert order.experience.by_repository == {"name of c": (1.0, 0.0)}


def test_outcomes_are_told_in_the_order_in_which_they_went() -> None:
    """The largest of three first, then, with time again, the one whose last use is longest ago."""
    site = Site(3, wanted_mib=45)
    site.sizes |= {"a": 5 * MIB, "b": 10 * MIB, "c": 40 * MIB}
    site.store.sizes = dict(site.sizes)
    site.disk.need = Need(missing=45 * MIB, left=10 * MIB, fill_per_second=100.0 * MIB)

    def time_again(_: str) -> None:
        site.disk.need = None

    site.store.on_remove = time_again
    carried = site.executor.carry_out(
        plan_of(site.sizes), site.store, site.disk.look, YieldOrder(Experience(seconds=0.2), 1)
    )
    assert [outcome.verdict.id for outcome in carried.outcomes] == site.store.sent == ["c", "a"]


@pytest.mark.parametrize("parallel", [2, 4, 8])
def test_what_was_freed_together_side_by_side_is_not_waited_for_again(parallel: int) -> None:
    """containerd frees what several calls removed in one pass: all of it is there with the first answer. That nothing
    comes with the others is no late space: twelve images of 20 MiB took 2.7 s by two and 0.3 s one after another."""
    site = Site(1 + parallel, wanted_mib=1000, parallel=parallel)
    together = list(site.sizes)[1:]  # the first goes alone
    freed = threading.Event()

    def remove(name: str) -> None:
        if name == together[0]:
            for other in together[1:]:
                site.disk.free(site.store.sizes[other])
                site.store.sizes[other] = 0
            freed.set()
        elif name in together:
            assert freed.wait(60.0)
            time.sleep(0.3)  # its answer comes after the first one

    site.store.on_remove = remove
    began = site.clock.monotonic()
    carried = site.carry_out()
    freed_mib = [outcome.freed_bytes // MIB for outcome in carried.outcomes]
    assert freed_mib == [10, 10 * parallel, *[0] * (parallel - 1)]
    assert site.clock.monotonic() == began, "not a moment was waited"


def test_relieved_before_it_begins_nothing_goes() -> None:
    """Not even a look at an object is taken."""
    site = Site(3, wanted_mib=0)
    carried = site.carry_out()
    assert (site.store.sent, site.store.checked) == ([], [])
    assert reasons(carried) == dict.fromkeys("abc", Reason.RELIEVED)


def test_what_is_not_enough_goes_to_the_end() -> None:
    """100 MiB are wanted of 30: everything goes, and it is not relieved."""
    carried = Site(3, wanted_mib=100).carry_out()
    assert set(results(carried).values()) == {Result.REMOVED}
    assert (carried.relieved, carried.kept) == (False, ())


def test_what_the_plan_keeps_is_passed_on() -> None:
    """With the reasons of the plan."""
    site = Site(0, wanted_mib=1)
    keep = Verdict(Kind.IMAGE, "k", "k", Action.KEEP, Reason.PINNED)
    carried = site.executor.carry_out(Plan(keep=(keep,)), site.store, site.disk.look)
    assert reasons(carried) == {"k": Reason.PINNED}


def test_an_error_whose_object_is_gone_counts_as_removed() -> None:
    """A call that timed out may have removed it nevertheless; the error is kept for people."""
    site = Site(1, wanted_mib=10)
    site.store.errors["a"] = "deadline exceeded"
    (outcome,) = site.carry_out().outcomes
    assert (outcome.result, outcome.error, outcome.freed_bytes) == (Result.REMOVED, "deadline exceeded", 10 * MIB)


@pytest.mark.parametrize(("error", "said"), [("busy", "busy"), ("", "the runtime reported success but still has it")])
def test_an_object_that_is_still_there_counts_as_failed(error: str, said: str) -> None:
    """Whatever the call answered; the next object is tried."""
    site = Site(2, wanted_mib=10)
    site.store.stuck.add("a")
    if error:
        site.store.errors["a"] = error
    carried = site.carry_out()
    assert results(carried) == {"a": Result.FAILED, "b": Result.REMOVED}
    assert carried.outcomes[0].error == said
    assert carried.relieved


@pytest.mark.parametrize("before_the_call", [True, False])
def test_a_runtime_that_does_not_answer_ends_the_plan(before_the_call: bool) -> None:
    """The rest is kept: nothing goes that was not looked at, and nobody can look."""
    site = Site(3, wanted_mib=100)
    (site.store.silent_checks if before_the_call else site.store.silent_presence).add("b")
    carried = site.carry_out()
    assert results(carried) == {"a": Result.REMOVED, "b": Result.UNANSWERED}
    assert reasons(carried) == {"c": Reason.INCOMPLETE_LISTING}
    assert carried.error.startswith("the runtime ")
    assert site.store.sent == (["a"] if before_the_call else ["a", "b"])


@pytest.mark.parametrize(
    ("refused", "result", "reason"),
    [
        (Refused(Reason.RUNNING), None, Reason.RUNNING),
        (Refused(Reason.POD_ALIVE), None, Reason.POD_ALIVE),
        (Refused(Reason.IN_USE, Result.IN_USE), Result.IN_USE, Reason.IN_USE),
    ],
)
def test_what_is_refused_at_the_last_look_stays_with_its_reason(
    refused: Refused, result: Result | None, reason: Reason
) -> None:
    """Nothing is sent for it, and the next object is tried."""
    site = Site(2, wanted_mib=10)
    site.store.refused["a"] = refused
    carried = site.carry_out()
    assert site.store.sent == ["b"]
    assert reasons(carried) == {"a": reason}
    assert [outcome.result for outcome in carried.kept] == [result]


def test_what_is_gone_already_frees_nothing_of_ours() -> None:
    """Somebody else removed it."""
    site = Site(2, wanted_mib=10)
    site.store.refused["a"] = Refused(result=Result.ALREADY_GONE)
    carried = site.carry_out()
    assert results(carried) == {"a": Result.ALREADY_GONE, "b": Result.REMOVED}
    assert carried.outcomes[0].freed_bytes == 0


def test_a_look_that_is_too_old_is_taken_again() -> None:
    """Three looks of which none is younger than 1 s when the call would be sent: nothing is sent."""
    site = Site(1, wanted_mib=10)
    site.store.check_seconds = 1.5
    carried = site.carry_out()
    assert (site.store.checked, site.store.sent) == (["a"] * CHECK_ATTEMPTS, [])
    assert results(carried) == {"a": Result.UNANSWERED}
    assert carried.error == "no look at it was fresher than 1 s when the removal was to be sent"


def test_a_defect_in_one_removal_is_an_outcome() -> None:
    """It does not hang, and the next object is tried."""
    site = Site(2, wanted_mib=10)

    def fail(name: str) -> None:
        if name == "a":
            raise ZeroDivisionError("defect")

    site.store.on_remove = fail
    carried = site.carry_out()
    assert results(carried) == {"a": Result.FAILED, "b": Result.REMOVED}
    assert carried.outcomes[0].error == "ZeroDivisionError: defect"


def test_a_dry_run_sends_nothing_and_credits_nominal_sizes() -> None:
    """25 MiB are wanted: three objects of 10 MiB would go; each was looked at."""
    site = Site(5, wanted_mib=25, dry_run=True, parallel=4)
    carried = site.carry_out()
    assert (site.store.sent, site.store.checked) == ([], ["a", "b", "c"])
    assert results(carried) == dict.fromkeys("abc", Result.PLANNED)
    assert reasons(carried) == dict.fromkeys("de", Reason.RELIEVED)
    assert site.disk.freed_bytes == 0
    assert site.disk.credits[-1] == 30 * MIB
    assert all(outcome.freed_bytes == 0 for outcome in carried.outcomes)


def test_stopping_lets_the_removal_in_flight_finish() -> None:
    """The stop comes while the first is being removed: it is removed and accounted for, no second one starts."""
    site = Site(3, wanted_mib=100)
    site.store.on_remove = lambda _: site.stopping.set()
    carried = site.carry_out()
    assert results(carried) == {"a": Result.REMOVED}
    assert carried.outcomes[0].freed_bytes == 10 * MIB
    assert reasons(carried) == dict.fromkeys("bc", Reason.STOPPING)


def test_after_a_removal_that_took_far_longer_than_usual_nothing_is_sent_for_a_while() -> None:
    """Four take no time, the fifth 8 s: the sixth is sent 8 s after its end, the others at once."""
    site = Site(7, wanted_mib=100)
    sent: list[float] = []

    def remove(object_id: str) -> None:
        sent.append(site.clock.monotonic())
        if object_id == "e":
            site.clock.step(8.0)

    site.store.on_remove = remove
    site.carry_out()
    pauses = [round(later - earlier) for earlier, later in pairwise(sent)]
    assert pauses == [0, 0, 0, 0, 16, 0]


@pytest.mark.parametrize(("count", "wanted_mib"), [(1, 100), (3, 10)])
def test_no_rest_is_taken_when_nothing_is_left_to_do(count: int, wanted_mib: int) -> None:
    """The last object, and the one that relieved the disk, are followed by none."""
    site = Site(count, wanted_mib=wanted_mib)
    site.store.on_remove = lambda _: site.clock.step(8.0)
    began = site.clock.monotonic()
    site.carry_out()
    assert 8.0 <= site.clock.monotonic() - began < 8.0 + STILL_SECONDS + LATE_LIMIT_SECONDS


def test_late_space_is_waited_for() -> None:
    """10 MiB that come 15 ms after the answer are counted, and no second object goes."""
    site = Site(2, wanted_mib=10)
    site.store.late_seconds = 0.015
    carried = site.carry_out()
    assert results(carried) == {"a": Result.REMOVED}
    assert carried.outcomes[0].freed_bytes == 10 * MIB


def test_fruitless_waits_are_given_up() -> None:
    """Of 10 objects that free nothing the first two are waited for 0.25 s each, the others not at all."""
    site = Site(10, wanted_mib=100)
    site.store.late_seconds = 1e9
    began = site.clock.monotonic()
    carried = site.carry_out()
    assert len(carried.outcomes) == 10
    assert site.clock.monotonic() - began == pytest.approx(2 * STILL_SECONDS, abs=0.01)


def test_a_wait_ends_after_half_a_second_even_while_space_arrives() -> None:
    """A byte every 10 ms is no reason to wait for ever."""
    site = Site(1, wanted_mib=100)
    for drop in range(1000):
        site.disk.free(1, after_seconds=0.01 * drop)
    began = site.clock.monotonic()
    site.executor.settle(site.disk.look, LATE_QUIET_SECONDS, LATE_LIMIT_SECONDS)
    assert site.clock.monotonic() - began == pytest.approx(LATE_LIMIT_SECONDS, abs=0.01)


def test_what_promises_nothing_goes_side_by_side_from_the_start() -> None:
    """Two containers are removed at the same time: each waits for the other."""
    site, together = Site(2, wanted_mib=20, parallel=2), threading.Barrier(2)

    def remove(_: str) -> None:
        together.wait(60.0)

    site.store.on_remove = remove
    assert results(site.carry_out(sized=False)) == dict.fromkeys("ab", Result.REMOVED)


@pytest.mark.parametrize("hurry", [False, True])
@pytest.mark.parametrize("wanted_mib", [40, 41])
def test_in_a_hurry_a_promised_byte_is_taken_to_free_four_until_one_removal_has_shown_it(
    wanted_mib: int, hurry: bool
) -> None:
    """Objects of 10 MiB, of which each might free 40: the second waits for the first where that would be enough, and
    always where there is time."""
    site, second = Site(6, wanted_mib=wanted_mib, parallel=2), threading.Event()
    site.disk.need = HURRY if hurry else None
    alone = not hurry or wanted_mib == 40

    def remove(name: str) -> None:
        if name == "b":
            second.set()
        if name == "a":
            assert second.wait(0.1 if alone else 10.0) is not alone

    site.store.on_remove = remove
    assert len(results(site.carry_out())) == 4 + (wanted_mib == 41)


@pytest.mark.parametrize(("seconds_each", "expected"), [(0.0, 2), (0.05, 3), (0.25, 4)])
def test_in_a_hurry_what_earlier_plans_freed_counts_and_what_is_written_meanwhile(
    seconds_each: float, expected: int
) -> None:
    """Objects of 10 MiB that freed 20 each before, and 40 MiB are wanted: two at once, and as many more as make up for
    100 MiB a second while one removal goes on."""
    site, together = Site(6, wanted_mib=40, parallel=2), threading.Barrier(expected)
    site.disk.need = HURRY
    in_flight: list[int] = []

    def remove(name: str) -> None:
        in_flight.append(len(site.executor.in_flight))
        if name in "abcd"[:expected]:
            together.wait(60.0)

    site.store.on_remove = remove
    before = Experience(10.0 * MIB, 20.0 * MIB, 64.0, 1.0, seconds_each, {"app": (2.0, 0.0)})
    site.executor.carry_out(plan_of(site.sizes), site.store, site.disk.look, YieldOrder(before, 2))
    assert max(in_flight[:expected]) == expected


def test_where_inodes_are_short_the_first_goes_alone() -> None:
    """No runtime promises any: it shows what the images bring."""
    site = Site(3, wanted_mib=1000, parallel=2)
    site.disk.need = Need(missing=1000, left=1000, fill_per_second=0.0, inodes=True)
    in_flight: list[set[str]] = []
    site.store.on_remove = lambda _: in_flight.append(set(site.executor.in_flight))
    site.carry_out()
    assert in_flight[0] == {"a"}


def test_nothing_is_started_that_what_is_in_flight_may_make_needless() -> None:
    """20 MiB are wanted; with 10 freed and 10 in flight the third object waits, and then stays."""
    site = Site(4, wanted_mib=20, parallel=4)
    in_flight: list[int] = []
    site.store.on_remove = lambda _: in_flight.append(len(site.executor.in_flight))
    carried = site.carry_out()
    assert (results(carried), in_flight) == (dict.fromkeys("ab", Result.REMOVED), [1, 1])
    assert reasons(carried) == dict.fromkeys("cd", Reason.RELIEVED)


HURRY = Need(missing=1000 * MIB, left=100 * MIB, fill_per_second=100.0 * MIB)  # full in a second


def test_on_a_disk_that_is_full_within_a_minute_eight_times_as_many_go_side_by_side_from_the_start() -> None:
    """Sixteen of 18 for a bound of 2, as even at four bytes for each that is promised all of them are not enough."""
    site, together = Site(18, wanted_mib=1000, parallel=2), threading.Barrier(16)
    site.disk.need = HURRY

    def remove(name: str) -> None:
        if name <= "p":
            together.wait(60.0)

    site.store.on_remove = remove
    assert results(site.carry_out()) == dict.fromkeys("abcdefghijklmnopqr", Result.REMOVED)


def test_of_inodes_no_more_are_started_than_those_in_flight_are_expected_to_bring() -> None:
    """An image brings 474 inodes, by what is known after the first, which goes alone and brings none; 1300 are missing:
    three go side by side, and the fourth is not started with them."""
    site, together = Site(8, wanted_mib=1000, parallel=8), threading.Barrier(3)
    site.disk.need = Need(missing=1300, left=10_000, fill_per_second=0.0, inodes=True)
    in_flight: list[set[str]] = []

    def remove(name: str) -> None:
        in_flight.append(set(site.executor.in_flight))
        if name in "bcd":
            together.wait(60.0)

    site.store.on_remove = remove
    known = Experience(promised_bytes=10.0 * MIB, freed_bytes=0.0, freed_inodes=1000.0)
    site.executor.carry_out(plan_of(site.sizes), site.store, site.disk.look, YieldOrder(known, 8))
    assert in_flight[0] == {"a"}
    assert max(map(len, in_flight[:4])) == 3  # of those that bring less than was expected more are needed later


@pytest.mark.parametrize(
    ("seconds", "parallel", "expected"), [(59.0, 2, 16), (61.0, 2, 2), (59.0, 1, 1), (59.0, 8, 32), (59.0, 64, 64)]
)
def test_how_many_go_side_by_side_in_a_hurry(seconds: float, parallel: int, expected: int) -> None:
    """Eight times as many, up to 32; one stays one."""
    need = Need(missing=1, left=int(seconds * MIB), fill_per_second=MIB)
    assert need.side_by_side(parallel) == expected
    assert replace(need, inodes=True).side_by_side(parallel) == parallel


def test_what_brought_little_so_far_may_bring_all_that_it_promises() -> None:
    """Three of 10 MiB that shared all but 1 KiB are gone, and 15 MiB are missing: two more side by side, and no third,
    though by what was seen a hundred would not be enough."""
    site = Site(8, wanted_mib=15, parallel=8)
    site.disk.need = HURRY
    site.store.sizes |= dict.fromkeys("abc", 1024)
    site.store.on_remove = lambda name: time.sleep(0.5 if name > "c" else 0.0)
    assert set(results(site.carry_out())) <= set("abcde")


def test_never_more_than_the_bound_go_side_by_side() -> None:
    """With a bound of 3 and 20 objects."""
    site = Site(20, wanted_mib=10_000, parallel=3)
    in_flight: list[int] = []
    site.store.on_remove = lambda _: in_flight.append(len(site.executor.in_flight))
    assert len(site.carry_out(sized=False).outcomes) == 20
    assert max(in_flight) <= 3


@given(
    st.lists(st.integers(0, 20), max_size=6),
    st.integers(0, 80),
    st.sets(st.integers(0, 5)),
    st.sets(st.integers(0, 5)),
    st.integers(1, 3),
)
def test_every_object_has_one_outcome_and_no_more_goes_than_needed(
    sizes: list[int], wanted: int, stuck: set[int], refused: set[int], parallel: int
) -> None:
    """What is absent afterwards is what is called removed; without the last removal it was not yet relieved."""
    site = Site(0, wanted, parallel=parallel)
    site.sizes = {str(place): size for place, size in enumerate(sizes)}
    site.store.sizes = dict(site.sizes)
    site.disk = site.store.disk = Disk(site.clock, wanted)
    site.store.stuck = {str(place) for place in stuck}
    site.store.refused = {str(place): Refused(Reason.RUNNING) for place in refused}
    carried = site.carry_out()
    told = [outcome.verdict.id for outcome in carried.outcomes + carried.kept]
    assert sorted(told) == sorted(site.sizes)
    gone = {name for name, result in results(carried).items() if result is Result.REMOVED}
    assert gone == set(site.sizes) - set(site.store.sizes)
    assert carried.relieved is (sum(site.sizes[name] for name in gone) >= wanted)
    if parallel == 1 and gone:
        last = max(gone, key=int)
        assert sum(site.sizes[name] for name in gone - {last}) < wanted


def test_an_outcome_keeps_the_verdict_of_the_plan() -> None:
    """What was removed is reported with the name, reason and size it was planned with."""
    site = Site(1, wanted_mib=10)
    plan = plan_of(site.sizes)
    (outcome,) = site.executor.carry_out(plan, site.store, site.disk.look).outcomes
    assert outcome.verdict == plan.remove[0]
    assert outcome == replace(outcome, duration_seconds=0.0)


def test_a_defect_in_a_look_leaves_nothing_in_flight() -> None:
    """The error comes out, what was sent is waited for, and the next plan is carried out as usual."""
    site = Site(3, wanted_mib=30, parallel=2)
    looks = iter((site.disk.look(0), site.disk.look(0)))

    def failing(credit_bytes: int) -> Look:
        look = next(looks, None)
        if look is None:
            raise ZeroDivisionError
        return look

    with pytest.raises(ZeroDivisionError):
        site.executor.carry_out(plan_of(site.sizes), site.store, failing)
    assert site.executor.in_flight == {}
    assert site.carry_out().relieved


def test_an_object_that_is_to_wait_is_looked_at_again_and_goes_then() -> None:
    """However often it is told to wait: that is no look that was too old."""
    site = Site(1, wanted_mib=10)
    site.store.waits["a"] = [1.0] * (2 * CHECK_ATTEMPTS)
    began = site.clock.monotonic()
    assert results(site.carry_out()) == {"a": Result.REMOVED}
    assert site.clock.monotonic() - began >= 2 * CHECK_ATTEMPTS
    assert len(site.store.checked) == 2 * CHECK_ATTEMPTS + 1


def test_a_stop_ends_the_wait_and_the_object_stays() -> None:
    """SIGTERM is not kept waiting for somebody else's pod."""
    site = Site(2, wanted_mib=20)
    site.store.waits["a"] = [1.0]
    site.store.on_check = lambda _: site.stopping.set()
    carried = site.carry_out()
    assert site.store.sent == []
    assert reasons(carried) == {"a": Reason.STOPPING, "b": Reason.STOPPING}
