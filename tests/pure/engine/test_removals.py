"""One removal: its states, its check, its call; and what becomes of one that hangs."""

from __future__ import annotations

from itertools import product

import pytest

from eviction.engine.effects import Check, Send, Stopping
from eviction.engine.step import stalled_seconds
from reclaim.function import Ready, Refused, Wait
from reclaim.removals import (
    AFTER,
    Checked,
    Claim,
    StageId,
    State,
    check,
    late,
    left,
    limit_in_flight,
    moved_to,
    oldest_seconds,
    refused,
    send,
    sent,
    sent_claims,
    stuck,
)
from reclaim.types import Reason, Result
from signals.types import Signal
from tests.inline import FUNCTION
from tests.pure.engine.site import (
    CALL_SECONDS,
    HANGS,
    Disk,
    Site,
    Store,
    objects,
    reasons,
    record_of,
    results,
    verdict_of,
)
from tests.pure.values import MIB, SteppedClock

STAGE = StageId(FUNCTION, 1)


def claim_of(name: str, state: State = State.CHECKING, at: float = 1000.0) -> Claim:
    """A claim in this state; it was sent when it was claimed, if its call has gone out."""
    claim = Claim("pass", STAGE, verdict_of(name), at)
    if state in (State.SENT, State.LATE):
        claim = sent(claim, at)
    return claim if claim.state is state else moved_to(claim, state)


def store_of(count: int = 2) -> Store:
    """A stage over so many objects."""
    return Store(Disk(SteppedClock()), objects(count))


# ---- the table of states


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_a_removal_takes_no_way_that_the_table_does_not_have(before: State, after: State) -> None:
    """Nothing leads back from a call that went out, and nothing is sent that was given up."""
    if before not in (State.CHECKING, State.SENT):
        claim = moved_to(
            claim_of("a", State.SENT if before is State.LATE else State.CHECKING), before
        )
    else:
        claim = claim_of("a", before)
    if after in AFTER[before]:
        assert moved_to(claim, after).state is after
    else:
        with pytest.raises(ValueError, match=f"a removal that is {before} cannot become {after}"):
            moved_to(claim, after)


def test_what_was_sent_stays_claimed_as_late_and_what_was_not_is_abandoned() -> None:
    """Its pass gives it up; whether its call has gone out decides what is said."""
    claim, outcome = left(claim_of("a", State.SENT), 1030.0)
    assert (claim.state, outcome.result) == (State.LATE, Result.PARKED)
    assert outcome.error == "its removal was sent 30 s ago and is not answered; it is waited for"
    claim, outcome = left(claim_of("a"), 1060.0)
    assert (claim.state, outcome.result) == (State.ABANDONED, Result.PARKED)
    assert outcome.error == "the check before its removal has not ended for 60 s"


def test_how_long_the_oldest_call_is_not_answered() -> None:
    """0 while none was sent: a check is no call."""
    assert oldest_seconds([claim_of("a")], 1100.0) == 0.0
    claims = {
        claim.id: claim
        for claim in (claim_of("a", State.LATE), claim_of("b", State.SENT, 1050.0), claim_of("c"))
    }
    assert oldest_seconds(claims.values(), 1100.0) == 100.0
    assert [claim.verdict.id for claim in sent_claims(claims)] == ["a", "b"]
    assert [claim.verdict.id for claim in late(claims)] == ["a"]


@pytest.mark.parametrize("parallel", [1, 2, 3])
def test_while_more_are_late_than_may_go_side_by_side_the_runtime_is_stuck(parallel: int) -> None:
    """Not sooner."""
    claims = {
        claim.id: claim
        for claim in (claim_of(str(number), State.LATE) for number in range(parallel))
    }
    assert stuck(claims, parallel, 1030.0) == ""
    one_more = claim_of("more", State.LATE)
    assert (
        stuck({**claims, one_more.id: one_more}, parallel, 1030.0)
        == f"the runtime is stuck: {parallel + 1} removals are not answered, the oldest for 30 s;"
        " no more is sent until one of them ends"
    )


def test_how_many_are_in_flight_where_a_disk_fills_fast() -> None:
    """Sixteen, or what is configured if that is more; one stays one."""
    assert [limit_in_flight(parallel) for parallel in (1, 2, 16, 64)] == [1, 16, 16, 64]


# ---- its check


def checked(store: Store, name: str = "a") -> Checked:
    """What the check of an object says."""
    return check(verdict_of(name), store, store.clock)


def test_a_check_says_that_it_may_go_now() -> None:
    """With the time at which its last look has ended."""
    store = store_of()
    store.look_seconds = 0.25
    answer = checked(store)
    assert isinstance(answer.answer, Ready)
    assert answer.looked_at == store.clock.monotonic() == 1000.0 + CALL_SECONDS + 0.25


@pytest.mark.parametrize(
    "answer", [Refused(Reason.RUNNING), Refused(Reason.IN_USE, Result.IN_USE), Wait(1.0)]
)
def test_what_a_check_refuses_or_puts_off_is_passed_on(answer: Refused | Wait) -> None:
    """As it is."""
    store = store_of()
    if isinstance(answer, Wait):
        store.waits["a"] = [answer.seconds]
    else:
        store.refused["a"] = answer
    assert checked(store).answer == answer


def test_a_check_is_void_if_it_is_too_old_or_if_something_has_begun_since() -> None:
    """The age counts when the last look begins; that it does not hold is what it says."""
    store = store_of()
    store.check_seconds = 1.001
    assert checked(store).answer is None
    store.check_seconds, store.fresh_seconds = 1.0, 1.0
    assert isinstance(checked(store).answer, Ready)
    store.refused["a"] = Ready(store.clock.monotonic(), lambda: False)  # type: ignore[assignment]
    store.check_seconds = 0.0
    assert checked(store).answer is None


def test_an_answer_that_is_an_error_fails_its_object_and_silence_leaves_it_unanswered() -> None:
    """Only silence says something about others."""
    store = store_of()
    store.check_errors.add("a")
    store.silent_checks.add("b")
    assert checked(store, "a").answer == Refused(
        result=Result.FAILED, error="the runtime does not like it"
    )
    assert checked(store, "b").answer == Refused(
        result=Result.UNANSWERED, error="the runtime does not answer"
    )


def test_what_is_refused_is_kept_with_its_reason() -> None:
    """Of the check, not of the plan."""
    outcome = refused(claim_of("a"), Refused(Reason.POD_ALIVE), 1002.0)
    assert (outcome.result, outcome.verdict.reason, outcome.duration_seconds) == (
        None,
        Reason.POD_ALIVE,
        2.0,
    )


# ---- its call


def sent_by(store: Store, name: str = "a") -> tuple[Result | None, str]:
    """How the removal of an object ended, and its error."""
    outcome = send(verdict_of(name), store, store.clock, sent_at=store.clock.monotonic())
    return outcome.result, outcome.error


def test_an_error_whose_object_is_gone_counts_as_removed() -> None:
    """A call that timed out may have removed it nevertheless; the error is kept for people."""
    store = store_of()
    store.errors["a"] = "deadline exceeded"
    assert sent_by(store) == (Result.REMOVED, "deadline exceeded")


@pytest.mark.parametrize(
    ("error", "said"), [("busy", "busy"), ("", "the runtime reported success but still has it")]
)
def test_an_object_that_is_still_there_counts_as_failed(error: str, said: str) -> None:
    """Whatever the call answered."""
    store = store_of()
    store.stuck.add("a")
    if error:
        store.errors["a"] = error
    assert sent_by(store) == (Result.FAILED, said)


def test_whether_it_is_gone_is_not_known_where_the_runtime_is_silent() -> None:
    """After the call."""
    store = store_of()
    store.silent_presence.add("a")
    assert sent_by(store) == (Result.UNANSWERED, "the runtime has gone away")


def test_what_somebody_else_has_removed_was_gone_already() -> None:
    """There was no such object when it was to be removed."""
    store = store_of()
    del store.sizes["a"]
    assert sent_by(store) == (Result.ALREADY_GONE, "")


# ---- one that hangs


@pytest.mark.regression
def test_a_removal_that_hangs_is_left_and_the_others_go_on() -> None:
    """The first one goes alone and hangs for half a minute: the second and
    third relieve the disk.
    """
    site = Site(5, wanted_mib=20)
    site.hang("a")
    executed = site.relieve()
    assert (site.store.sent, site.store.checked) == (["b", "c"], ["a", "b", "c"])
    assert results(executed) == {"a": Result.PARKED, "b": Result.REMOVED, "c": Result.REMOVED}
    assert reasons(executed) == dict.fromkeys("de", Reason.RELIEVED)
    (parked,) = site.engine.said("parked")
    assert parked.error == "its removal was sent 30 s ago and is not answered; it is waited for"


@pytest.mark.regression
def test_an_object_is_sent_once_until_its_removal_has_ended() -> None:
    """Until then it is `being_removed`; afterwards, if it is still listed,
    it is one like any other.
    """
    site = Site(2, wanted_mib=100)
    site.hang("a")
    site.relieve()
    site.store.sizes["b"] = 10 * MIB
    again = site.relieve()
    assert reasons(again)["a"] is Reason.BEING_REMOVED
    assert [
        effect.claim.verdict.id for effect in site.engine.handed_out if isinstance(effect, Send)
    ].count("a") == 1
    site.engine.let_go()
    assert "a" not in reasons(site.relieve())
    assert site.store.sent.count("a") == 2


@pytest.mark.regression
def test_two_passes_at_once_do_not_send_one_object_twice() -> None:
    """One about the filesystem of the images, one about none: what the one has
    claimed the other leaves out.
    """
    site = Site(2, wanted_mib=100, parallel=2)
    site.engine.takes = lambda effect: 1.0 if isinstance(effect, Check) else 0.0
    first = site.begin(signal=Signal.IMAGEFS_AVAILABLE)
    site.engine.until_it(Check)
    second = site.begin()
    site.engine.until(second.record.done)
    site.engine.until(first.record.done)
    assert sorted(site.store.sent) == ["a", "b"]
    assert reasons(record_of(second).functions[0]) == dict.fromkeys("ab", Reason.BEING_REMOVED)


def test_a_late_removal_that_ends_is_told_with_how_it_ended() -> None:
    """Removed after all; and nothing is under way any more."""
    site = Site(2, wanted_mib=100)
    site.hang("a")
    site.relieve()
    assert site.engine.said("parked_ended") == []
    site.engine.let_go()
    assert [(each.verdict.id, each.result) for each in site.engine.said("parked_ended")] == [
        ("a", Result.REMOVED)
    ]
    assert site.engine.world.removals == {}


@pytest.mark.parametrize(("parallel", "sent"), [(1, 2), (2, 3), (3, 4)])
def test_a_stuck_runtime_is_sent_nothing_more(parallel: int, sent: int) -> None:
    """Every removal hangs: after one more than `parallelRemovals` the rest is kept,
    in this pass and the next.
    """
    site = Site(8, wanted_mib=300, parallel=parallel)
    site.hang("abcdefgh")
    executed = site.relieve()

    def calls() -> int:
        return len([effect for effect in site.engine.handed_out if isinstance(effect, Send)])

    assert calls() == sent
    assert set(reasons(executed).values()) == {Reason.RUNTIME_STUCK}
    assert executed.error.startswith(
        f"the runtime is stuck: {sent} removals are not answered, the oldest for "
    )
    again = site.relieve()
    assert calls() == sent
    assert Reason.RUNTIME_STUCK in reasons(again).values()


def test_when_a_late_removal_ends_more_are_sent_again() -> None:
    """The next pass goes on."""
    site = Site(6, wanted_mib=30)
    site.hang("ab")
    assert site.relieve().error
    site.engine.let_go()
    assert site.relieve().relieved
    assert "c" in site.store.sent


def test_a_dry_run_is_not_stuck_but_leaves_out_what_is_under_way() -> None:
    """It sends nothing, so it may say what would go."""
    site = Site(6, wanted_mib=300)
    site.hang("ab")
    site.relieve()
    executed = site.relieve(dry_run=True)
    assert results(executed) == dict.fromkeys("cdef", Result.PLANNED)
    assert reasons(executed) == dict.fromkeys("ab", Reason.BEING_REMOVED)


def test_what_a_dry_run_checks_stands_in_no_other_pass_s_way() -> None:
    """The object that it has just claimed is removed meanwhile."""
    site = Site(1, wanted_mib=100)
    site.engine.takes = lambda effect: (
        HANGS if isinstance(effect, Check) and effect.claim.dry_run else 0.0
    )
    site.begin(dry_run=True)
    site.engine.until_it(Check, "a")
    assert results(site.relieve()) == {"a": Result.REMOVED}


@pytest.mark.parametrize(
    ("configured", "seconds_left", "patience"),
    [("30s", 10.0, 5.0), ("30s", 1000.0, 30.0), ("1s", 10.0, 1.0)],
)
def test_where_it_is_urgent_the_patience_is_shorter(
    configured: str, seconds_left: float, patience: float
) -> None:
    """5 s, and never longer than what is configured."""
    site = Site(1, wanted_mib=10, removalPatience=configured)
    site.hang("a")
    executed = site.relieve(seconds_left=seconds_left)
    assert [outcome.duration_seconds for outcome in executed.outcomes] == [
        pytest.approx(patience, abs=0.01)
    ]


@pytest.mark.regression
def test_a_disk_that_begins_to_fill_behind_a_removal_that_hangs_is_seen() -> None:
    """There was time when it was sent; then 20 MiB a second are written, and after 5 s
    of that the next ones go.
    """
    site = Site(3, wanted_mib=20)
    site.hang("a")
    wanted = site.begin()
    site.engine.until_it(Send, "a")
    began, site.disk.fills_by = site.clock.monotonic(), 20.0 * MIB
    site.engine.until_it(Send, "b")
    assert 4.0 < site.clock.monotonic() - began < 8.0
    site.engine.until(wanted.record.done)
    (executed,) = record_of(wanted).functions
    assert results(executed)["a"] is Result.PARKED


def test_a_check_that_hangs_is_given_up_and_its_removal_is_never_sent() -> None:
    """A directory on a filesystem that does not answer: a minute later the next object is checked;
    when the check ends at last no call goes out, as nobody knows any more whether it may."""
    site = Site(2, wanted_mib=10)
    site.hang("a", Check)
    began = site.clock.monotonic()
    executed = site.relieve()
    assert 60.0 <= site.clock.monotonic() - began < 62.0
    assert results(executed) == {"a": Result.PARKED, "b": Result.REMOVED}
    site.engine.let_go()
    assert (site.engine.world.removals, site.store.sent) == ({}, ["b"])


def test_a_check_that_was_given_up_sends_nothing_though_its_pass_goes_on() -> None:
    """It ends 10 s later, while the next object is being removed: nothing comes of it."""
    site = Site(2, wanted_mib=100)
    takes = {("Check", "a"): 70.0, ("Send", "b"): 20.0}
    site.engine.takes = lambda effect: (
        takes.get((type(effect).__name__, effect.claim.verdict.id), 0.0)
        if isinstance(effect, Check | Send)
        else 0.0
    )
    site.relieve()
    assert [
        (each.verdict.id, each.verdict.reason) for each in site.engine.said("parked_ended")
    ] == [("a", Reason.STOPPING)]
    assert site.store.sent == ["b"]


# ---- a patience of its own


def test_a_removal_within_its_own_patience_is_progress_until_it_is_left() -> None:
    """A program of two minutes: after 100 s its pass is not stuck; after its time it is left."""
    site = Site(1, wanted_mib=100)
    site.store.patience_seconds = 120.0
    site.hang("a")
    wanted = site.begin()
    site.engine.until_it(Send, "a")
    site.engine.passes_until(100.0)
    world = site.engine.world
    (running,) = world.passes.values()
    assert stalled_seconds(running, world, world.now) == 0.0
    site.engine.passes_until(30.0)
    assert results(record_of(wanted).functions[0]) == {"a": Result.PARKED}


def test_without_one_a_removal_that_hangs_is_no_progress() -> None:
    """The pass has been stuck for 20 s, within the 30 s that it waits."""
    site = Site(1, wanted_mib=100)
    site.hang("a")
    site.begin()
    site.engine.until_it(Send, "a")
    site.engine.passes_until(20.0)
    world = site.engine.world
    (running,) = world.passes.values()
    assert stalled_seconds(running, world, world.now) == pytest.approx(20.0, abs=0.5)


# ---- a stop


def test_stopping_lets_the_removal_in_flight_finish() -> None:
    """The stop comes while the first is being removed: it is removed and accounted
    for, no second one starts.
    """
    site = Site(3, wanted_mib=100)
    site.store.on_remove = lambda _: site.engine.events.append(Stopping())
    executed = site.relieve()
    assert results(executed) == {"a": Result.REMOVED}
    assert reasons(executed) == dict.fromkeys("bc", Reason.STOPPING)


def test_a_stop_ends_the_wait_of_an_object_and_it_is_kept() -> None:
    """SIGTERM does not wait for a pod that is being made."""
    site = Site(2, wanted_mib=20)
    site.store.waits["a"] = [1.0]
    site.store.on_check = lambda _: site.engine.events.append(Stopping())
    executed = site.relieve()
    assert site.store.sent == []
    assert reasons(executed) == {"a": Reason.STOPPING, "b": Reason.STOPPING}


@pytest.mark.parametrize(("kind", "btrfs"), [("btrfs", ("/node/images",)), ("ext4", ())])
def test_a_removal_commits_each_btrfs_of_the_node(kind: str, btrfs: tuple[str, ...]) -> None:
    """By itself it does so every 30 s, and shows until then that nothing was freed."""
    site = Site(1, wanted_mib=10)
    site.engine.filesystem_type = kind
    site.relieve()
    assert [effect.btrfs for effect in site.engine.handed_out if isinstance(effect, Send)] == [
        btrfs
    ]
