"""A removal that hangs: its object is left out, the others go on, and it is waited for all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reclaim.execution.executor import Executor, Work
from reclaim.execution.removals import Brake, Removal, Removals
from reclaim.services import Listener
from reclaim.types import Action, Kind, Outcome, Reason, Result, Verdict
from tests.pure.interrupted import InterruptedClock, Interruption
from tests.pure.store import Site, plan_of, reasons, results
from tests.pure.values import SteppedClock
from tests.reclaimd_process import came_true

PATIENCE_SECONDS = 0.05


class RunningClock(SteppedClock):
    """A stepped clock that goes on by itself."""

    def monotonic(self) -> float:
        """The real monotonic time, and what was stepped."""
        return super().monotonic() + time.monotonic()


class Heard(Listener):
    """Keeps what it hears of parked removals."""

    def __init__(self) -> None:
        self.was_parked: list[Outcome] = []
        self.has_ended: list[Outcome] = []

    def parked(self, outcome: Outcome) -> None:
        """Kept."""
        self.was_parked.append(outcome)

    def parked_ended(self, outcome: Outcome) -> None:
        """Kept."""
        self.has_ended.append(outcome)


class HangingSite(Site):
    """A site where the removals of some objects hang until `let_go`."""

    def __init__(self, count: int, wanted_mib: int, hanging: str, *, parallel: int = 2):
        super().__init__(count, wanted_mib, parallel=parallel)
        self.clock = self.store.clock = RunningClock()
        listener = Heard()
        removals = Removals(self.clock, self.stopping, parallel, listener)
        self.executor = Executor(removals, parallel=parallel, patience_seconds=PATIENCE_SECONDS)
        self.let_go = threading.Event()
        self.parked, self.ended = listener.was_parked, listener.has_ended
        self.store.on_remove = lambda name: self.hang() if name in hanging else None

    def hang(self) -> None:
        """What a call does that is not answered."""
        assert self.let_go.wait(60.0)

    def end(self) -> None:
        """The runtime answers again, and every removal ends."""
        self.let_go.set()
        assert self.executor.removals.wait(60.0)
        while len(self.ended) < len(self.parked):
            time.sleep(0.001)


@contextmanager
def hanging(count: int, wanted_mib: int, names: str, *, parallel: int = 2) -> Iterator[HangingSite]:
    """A site that is let go at the end."""
    site = HangingSite(count, wanted_mib, names, parallel=parallel)
    try:
        yield site
    finally:
        site.end()
        site.executor.removals.workers.close()


@pytest.mark.regression
def test_a_removal_that_hangs_is_parked_and_the_others_go_on() -> None:
    """The first one goes alone and hangs: the second and third relieve the disk."""
    with hanging(5, 20, "a", parallel=1) as site:
        executed = site.execute()
        assert site.store.sent == ["a", "b", "c"]
        assert results(executed) == {"a": Result.PARKED, "b": Result.REMOVED, "c": Result.REMOVED}
        assert reasons(executed) == dict.fromkeys("de", Reason.RELIEVED)
        assert executed.relieved
        assert [outcome.verdict.id for outcome in site.parked] == ["a"]
        assert "is not answered; it is waited for" in site.parked[0].error


@pytest.mark.regression
def test_a_removal_within_its_own_patience_is_progress_until_it_is_parked() -> None:
    """A program of ten minutes: in its third, its pass is not stuck; after its time it is parked."""
    with hanging(1, 100, "a", parallel=1) as site:
        site.store.patience_seconds = 600.0
        ended: list[Work] = []
        executing = threading.Thread(target=lambda: ended.append(site.execute()), daemon=True)
        executing.start()
        assert came_true(lambda: site.store.sent == ["a"])
        site.clock.step(180.0)
        assert came_true(lambda: site.executor.progress.age() < 90.0)
        site.clock.step(600.0)
        executing.join(60.0)
        assert results(ended[0]) == {"a": Result.PARKED}


def test_what_is_parked_is_left_out_of_the_next_plans_until_it_ends() -> None:
    """While it hangs it is `being_removed`; afterwards, if it is still listed, it is an object like any other."""
    with hanging(2, 100, "a", parallel=1) as site:
        site.execute()
        again = site.execute()
        assert reasons(again)["a"] is Reason.BEING_REMOVED
        assert site.store.sent.count("a") == 1
        site.end()
        assert "a" not in reasons(site.execute())
        assert site.store.sent.count("a") == 2


def test_a_parked_removal_that_ends_is_told_with_how_it_ended() -> None:
    """Removed after all."""
    with hanging(2, 100, "a") as site:
        site.execute()
        assert site.ended == []
        site.end()
        assert [(outcome.verdict.id, outcome.result) for outcome in site.ended] == [("a", Result.REMOVED)]
        assert site.executor.removals.begun == ()


@pytest.mark.parametrize(("parallel", "sent"), [(1, 2), (2, 3), (3, 4)])
def test_while_more_are_parked_than_may_go_side_by_side_no_more_is_sent(parallel: int, sent: int) -> None:
    """Every removal hangs: after one more than `parallelRemovals` the runtime counts as stuck, and the rest is kept."""
    with hanging(8, 1000, "abcdefgh", parallel=parallel) as site:
        executed = site.execute()
        assert len(site.store.sent) == sent
        assert set(reasons(executed).values()) == {Reason.RUNTIME_STUCK}
        assert executed.error.startswith(f"the runtime is stuck: {sent} removals are not answered, the oldest for ")
        again = site.execute()
        assert len(site.store.sent) == sent
        assert set(reasons(again).values()) == {Reason.RUNTIME_STUCK, Reason.BEING_REMOVED}


def test_when_a_parked_removal_ends_more_are_sent_again() -> None:
    """One of two ends: the breaker closes, and the next pass goes on."""
    with hanging(6, 30, "ab", parallel=1) as site:
        assert site.execute().error
        site.end()
        assert site.execute().relieved
        assert "c" in site.store.sent


def test_a_dry_run_is_not_stuck_but_leaves_out_what_is_parked() -> None:
    """It sends nothing, so it may say what would go."""
    with hanging(6, 1000, "abcdef", parallel=1) as site:
        site.execute()
        dry = Executor(site.executor.removals, dry_run=True)
        executed = Work(site.store, plan_of(site.sizes))
        dry.execute([executed], site.disk.measure)
        assert set(results(executed).values()) == {Result.PLANNED}
        assert reasons(executed) == dict.fromkeys("ab", Reason.BEING_REMOVED)


def test_a_stop_waits_for_what_is_parked() -> None:
    """`wait` after a stop: not before the runtime has answered."""
    with hanging(2, 100, "a", parallel=1) as site:
        site.execute()
        site.stopping.set()
        assert not site.executor.removals.wait(0.01)
        site.let_go.set()
        assert site.executor.removals.wait(60.0)


def test_after_a_stop_nothing_is_sent_that_was_being_checked() -> None:
    """The stop comes between the check and the call: the object is kept, and nothing is left to wait for."""
    with hanging(1, 100, "", parallel=1) as site:
        site.store.on_check = lambda _: site.stopping.set()
        executed = site.execute()
        assert site.store.sent == []
        assert reasons(executed) == {"a": Reason.STOPPING}


@pytest.mark.parametrize(
    ("configured", "seconds_left", "patience"), [(30.0, 10.0, 5.0), (30.0, 1000.0, 30.0), (1.0, 10.0, 1.0)]
)
def test_where_it_is_urgent_the_patience_is_shorter(configured: float, seconds_left: float, patience: float) -> None:
    """5 s, and never longer than what is configured."""
    site = Site(0, 0)
    site.executor.patience_seconds = configured
    site.disk.seconds_left = seconds_left
    assert site.executor.patience([], site.disk.measure(0)) == patience


@pytest.mark.regression
def test_a_disk_that_begins_to_fill_behind_a_removal_that_hangs_is_seen() -> None:
    """There was time when it was sent; then the disk is full within a minute, and 6 s later the next ones go."""
    with hanging(3, 20, "a", parallel=1) as site:
        site.executor.patience_seconds = 30.0
        sent = threading.Event()

        def remove(name: str) -> None:
            if name == "a":
                sent.set()
                site.hang()

        site.store.on_remove = remove
        done: list[Work] = []
        thread = threading.Thread(target=lambda: done.append(site.execute()))
        thread.start()
        assert sent.wait(60.0)
        site.disk.seconds_left = 1.0
        site.clock.step(6.0)
        thread.join(20.0)
        assert done, "it waits on"
        assert results(done[0]) == {"a": Result.PARKED, "b": Result.REMOVED, "c": Result.REMOVED}


def test_a_check_that_hangs_is_given_up_and_its_removal_is_never_sent() -> None:
    """A directory on a filesystem that does not answer: a minute later the next object is checked; when the check ends
    at last no call goes out, as nobody knows any more whether it may."""
    with hanging(2, 10, "", parallel=1) as site:
        in_check = threading.Event()

        def check(name: str) -> None:
            if name == "a":
                in_check.set()
                site.hang()

        site.store.on_check = check
        done: list[Work] = []
        thread = threading.Thread(target=lambda: done.append(site.execute()))
        thread.start()
        assert in_check.wait(60.0)
        site.clock.step(61.0)
        thread.join(60.0)
        assert results(done[0]) == {"a": Result.PARKED, "b": Result.REMOVED}
        site.let_go.set()
        while site.executor.removals.begun:
            time.sleep(0.001)
        assert site.store.sent == ["b"]


def test_one_removal_alone_is_parked_too() -> None:
    """As the periodic collection removes them: the outcome says it, the next one of it is `being_removed`, and while
    the runtime is stuck nothing is sent."""
    with hanging(4, 100, "abc", parallel=1) as site:
        verdicts = plan_of(site.sizes).remove
        outcomes = [site.executor.remove(verdict, site.store) for verdict in (*verdicts[:2], verdicts[0], verdicts[2])]
        assert [outcome.result for outcome in outcomes] == [Result.PARKED, Result.PARKED, None, Result.UNANSWERED]
        assert outcomes[2].verdict.reason == Reason.BEING_REMOVED
        assert site.store.sent == ["a", "b"]


def test_how_long_the_oldest_call_is_not_answered() -> None:
    """0 while none was sent: a check is no call."""
    with hanging(1, 100, "a", parallel=1) as site:
        removals = site.executor.removals
        assert removals.oldest_seconds == 0.0
        site.execute()
        site.clock.step(100.0)
        assert removals.oldest_seconds >= 100.0
        site.end()
        assert removals.oldest_seconds == 0.0


def test_what_has_just_ended_is_not_parked() -> None:
    """Its outcome counts."""
    site = Site(1, 10)
    removal = Removal(Verdict(Kind.IMAGE, "a", "a", plan_of(site.sizes).remove[0].action, Reason.UNUSED), 0.0, 0.0)
    site.executor.removals.end(removal, Outcome(removal.verdict, Result.REMOVED))
    assert site.executor.removals.park(removal) is None


def test_what_is_sent_is_not_parked_as_unsent() -> None:
    """Its pass gives it up at the moment at which its call goes out: then it was sent, and it is waited for."""
    clock, done = InterruptedClock(), threading.Event()
    removals, given_up = Removals(clock, threading.Event(), 2), list[Outcome | None]()
    verdict = Verdict(Kind.IMAGE, "a", "a", Action.REMOVE, Reason.UNUSED)
    stopped_by: list[Reason | None] = []

    def remove(brake: Brake) -> Outcome:
        parking = clock.interruption = Interruption(lambda: given_up.append(removals.park(removals.begun[0])))
        stopped_by.append(brake())
        parking.join()
        done.set()
        return Outcome(verdict, Result.REMOVED)

    removals.begin(verdict, remove, lambda *_: None)
    assert done.wait(60.0)
    removals.workers.close()
    assert stopped_by == [None]
    assert given_up[0] is not None
    assert given_up[0].error == "its removal was sent 0 s ago and is not answered; it is waited for"
