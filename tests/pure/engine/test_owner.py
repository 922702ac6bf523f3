"""The owner of the state with real threads: what hangs, what cannot be started,
what is raised; and its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from eviction.decision.synchronize import ManagerState
from eviction.engine.effects import (
    Check,
    Event,
    Locate,
    Located,
    LookWanted,
    PassWanted,
    PauseSet,
    Plan,
    Refresh,
    Refreshed,
    Request,
    Sampled,
    Send,
    WriteBack,
    WrittenBack,
)
from eviction.engine.owner import Job, Owner, Performer
from eviction.engine.stages import Stages
from eviction.records.listener import Listener, Listeners
from eviction.records.passes import Pass, Trigger
from eviction.types import EvictionError
from reclaim.types import Reason, ReclaimResult, Result
from reclaim.workers import Workers
from signals.filesystems import Reading
from signals.samplers import Samplers
from signals.types import SignalObservations
from tests.inline import FUNCTION, function_of
from tests.pure.engine.site import Defective, Disk, Site, Store, objects, record_of, results
from tests.pure.values import SteppedClock, on_new_thread, threshold
from tests.reclaimd_process import came_true
from tests.thread_limit import no_thread_starts

LONGEST_SECONDS = 60.0
WORKERS = 8


class RunningClock(SteppedClock):
    """A stepped clock that goes on by itself."""

    def monotonic(self) -> float:
        """The real monotonic time, and what was stepped."""
        return super().monotonic() + time.monotonic()


class Heard(Listener):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.defects: list[Exception] = []
        self.observed_at_all = threading.Event()

    def defect(self, error: Exception) -> None:
        """Kept."""
        self.defects.append(error)

    def observed(self, observations: SignalObservations, decision: object) -> None:
        """Noted."""
        self.observed_at_all.set()


class Calls(Performer):
    """Carries out what stages are asked; `before` stands between an effect and its
    answer, and may hang or raise.
    """

    def __init__(self, stages: Callable[[], Stages]):
        self._stages = stages
        self.jobs: list[Job] = []
        self.before: Callable[[Job], object] = lambda _: None
        self.on_look: Callable[[], object] = lambda: None
        self.forgotten: list[str] = []

    def perform(self, job: Job) -> Event:
        """As the node does."""
        self.jobs.append(job)
        self.before(job)
        match job:
            case Plan():
                return self._stages().plan(job)
            case Check():
                return self._stages().check(job)
            case Send():
                return self._stages().send(job)
            case Locate():
                return Located(None)
            case Refresh():
                return Refreshed()
            case WriteBack(device=device):
                return WrittenBack(device)

    def forget(self, pass_id: str) -> None:
        """Kept."""
        self.forgotten.append(pass_id)


class OnThreads:
    """A site whose effects are carried out on threads."""

    def __init__(self, count: int, wanted_mib: int, *, parallel: int = 1, workers: int = WORKERS):
        self.site = Site(count, wanted_mib, parallel=parallel)
        self.clock = RunningClock()
        self.disk = Disk(self.clock)
        self.store = Store(self.disk, objects(count))
        self.stopping, self.let_go = threading.Event(), threading.Event()
        self.waited_for = False  # whether what hangs had to give up, as the test waited for it
        self.listeners, self.heard = Listeners(), Heard()
        self.listeners.add(self.heard)
        self.samplers = Samplers(self.clock, self._read, on_new_thread)
        self.samplers.prepare(("/node", "/node/images"))
        self.reads: Callable[[str], object] = lambda _: None
        world = self.site.engine.world._replace(
            functions={FUNCTION: function_of(self.store)}, now=self.clock.monotonic()
        )
        self.calls = Calls(lambda: self.stages)
        pool = Workers("work", workers)
        self.owner = Owner(
            world,
            self.calls,
            self.samplers,
            listeners=self.listeners,
            workers=pool,
            clock=self.clock,
            stopping=self.stopping,
        )
        self.stages = Stages(lambda: self.owner.world, self.site.engine.context, self.clock)

    def _read(self, path: str, now: float) -> Reading:
        self.reads(path)
        return self.disk.reading(now)

    def hang(self) -> None:
        """What a call does that is not answered."""
        if not self.let_go.wait(LONGEST_SECONDS):
            self.waited_for = True

    def hang_at(self, kind: type[Job]) -> None:
        """Effects of this kind are not answered before they are let go."""
        self.calls.before = lambda job: self.hang() if isinstance(job, kind) else None

    def look(self) -> None:
        """One observation."""
        before = self.owner.world.looks
        self.owner.post(LookWanted(urgent=True))
        self.owner.until(lambda: self.owner.world.looks > before)

    def want(self, request: Request | None = None) -> PassWanted:
        """Asks for a pass."""
        self.look()
        world = self.owner.world
        asked = request or Request(row=(FUNCTION,), until=(self.site.until,))
        wanted = PassWanted(
            world.observations, world.decision, Trigger.REQUEST, asked, None, self.clock.monotonic()
        )
        self.owner.post(wanted)
        return wanted

    def want_until_sent(self) -> PassWanted:
        """Asks for a pass, and waits until its first removal was sent."""
        wanted = self.want()
        assert came_true(lambda: any(isinstance(job, Send) for job in self.calls.jobs))
        return wanted

    def passed(self) -> Pass:
        """The record of a pass on the caller's thread."""
        wanted = self.want()
        self.owner.until(wanted.record.done)
        return record_of(wanted)

    def relieve(self) -> ReclaimResult:
        """What its function has done."""
        (result,) = self.passed().functions
        return result

    def close(self) -> None:
        """Nothing is left behind, and nobody has waited for what hangs."""
        self.let_go.set()
        self.owner.drained(LONGEST_SECONDS)
        self.owner.workers.close()
        self.samplers.close()
        self.listeners.finish(LONGEST_SECONDS)
        assert not self.waited_for


@contextmanager
def on_threads(
    count: int, wanted_mib: int, *, parallel: int = 1, workers: int = WORKERS
) -> Iterator[OnThreads]:
    """A site that is let go at the end."""
    site = OnThreads(count, wanted_mib, parallel=parallel, workers=workers)
    try:
        yield site
    finally:
        site.close()


@contextmanager
def running(site: OnThreads) -> Iterator[threading.Thread]:
    """Another thread is the owner, as in the daemon, until it is stopped."""
    thread = threading.Thread(target=site.owner.run, daemon=True)
    thread.start()
    assert came_true(lambda: site.owner._thread is thread)  # else the caller would turn
    try:
        yield thread
    finally:
        site.owner.stop()
        thread.join(LONGEST_SECONDS)
        assert not thread.is_alive()


def test_a_command_relieves_on_its_own_thread() -> None:
    """As the story on a stepped clock: two of five objects go, and nothing of the pass is left."""
    with on_threads(5, wanted_mib=20) as site:
        executed = site.relieve()
        assert (site.store.sent, executed.relieved) == (["a", "b"], True)
        assert site.calls.forgotten == ["abcdef000001"]


def test_any_thread_may_ask_while_another_one_is_the_owner() -> None:
    """A pass, and a pause, which is in force once it is answered."""
    with on_threads(5, wanted_mib=20) as site, running(site):
        assert site.relieve().relieved
        pause = PauseSet(60.0)
        assert site.owner.ask(pause, pause.done) == 0
        assert site.owner.world.pause.left_seconds(site.clock.monotonic()) > 0


@pytest.mark.usefixtures("hasty")
def test_of_many_who_wait_each_is_told_and_at_the_end_all_are_refused() -> None:
    """Six threads, each asking a hundred times for a pause, until the owner ends:
    whoever asks then is refused.
    """
    refused = list[str]()
    with on_threads(1, wanted_mib=10) as site:

        def ask() -> None:
            try:
                for _ in range(100):
                    pause = PauseSet(60.0)
                    assert site.owner.ask(pause, pause.done) == 0
                begun.release()
                while True:
                    pause = PauseSet(60.0)
                    site.owner.ask(pause, pause.done)
            except EvictionError as error:
                refused.append(str(error))

        begun, asking = (
            threading.Semaphore(0),
            [threading.Thread(target=ask, daemon=True) for _ in range(6)],
        )
        with running(site):
            for thread in asking:
                thread.start()
            assert all(begun.acquire(timeout=LONGEST_SECONDS) for _ in asking)
        site.owner.refuse_the_rest()
        for thread in asking:
            thread.join(LONGEST_SECONDS)
        assert refused == ["it is stopping"] * len(asking)


# ---- what is raised


def test_a_defect_in_one_removal_is_its_outcome() -> None:
    """Whatever is raised on a worker: the next object is tried."""
    with on_threads(3, wanted_mib=10) as site:
        defects = {"a": ZeroDivisionError("defect"), "b": SystemExit(1)}

        def fail(job: Job) -> None:
            if isinstance(job, Send) and (defect := defects.get(job.claim.verdict.id)):
                raise defect

        site.calls.before = fail
        executed = site.relieve()
        assert results(executed) == {"a": Result.FAILED, "b": Result.FAILED, "c": Result.REMOVED}
        assert [outcome.error for outcome in executed.outcomes[:2]] == [
            "ZeroDivisionError: defect",
            "SystemExit: 1",
        ]


@pytest.mark.parametrize("kind", [Plan, Check])
def test_a_defect_in_a_plan_or_a_check_is_an_error_of_its_function(kind: type[Job]) -> None:
    """Nothing is sent for it, and the pass ends."""
    with on_threads(1, wanted_mib=10) as site:

        def fail(job: Job) -> None:
            if isinstance(job, kind):
                raise ZeroDivisionError("defect")

        site.calls.before = fail
        executed = site.relieve()
        errors = [executed.error, *(outcome.error for outcome in executed.outcomes)]
        assert "ZeroDivisionError: defect" in errors
        assert site.store.sent == []


@pytest.mark.regression
def test_a_defect_in_what_has_happened_is_told_and_the_rest_is_taken_in() -> None:
    """Something that cannot be folded comes between two requests: both are answered."""
    with on_threads(1, wanted_mib=10) as site:
        first, second = PauseSet(60.0), PauseSet(0.0)
        for event in (first, Sampled(None), second):  # type: ignore[arg-type]
            site.owner.post(event)
        site.owner.until(second.done.done)
        assert first.done.done()
        assert site.listeners.done(LONGEST_SECONDS)
        assert [type(defect) for defect in site.heard.defects] == [AttributeError]


@pytest.mark.regression
def test_a_defect_while_deciding_does_not_end_the_owner() -> None:
    """A threshold that raises at each look: it is told once a second; once it does not
    any more, relief goes on.
    """
    with on_threads(2, wanted_mib=20) as site:
        mark = threshold(site.site.until.signal, "1Mi")
        defective = Defective(mark.value.quantity)
        defective.raising.append("defect")
        thresholds = (replace(mark, value=defective),)
        config = replace(site.owner.world.manager.config, thresholds=thresholds)
        site.owner.world = site.owner.world._replace(manager=ManagerState(config))
        with running(site):
            site.owner.post(LookWanted(urgent=True))
            assert came_true(lambda: len(site.heard.defects) >= 2)
            assert site.owner.world.looks == 0
            defective.raising.clear()
            assert site.relieve().relieved


@pytest.mark.regression
@pytest.mark.regression
def test_a_defect_in_what_is_handed_out_ends_neither_the_owner_nor_a_pass() -> None:
    """What else follows from the turn is handed out."""

    def looked() -> None:
        raise ZeroDivisionError("of no use")

    with on_threads(1, wanted_mib=10) as site:
        site.calls.on_look = looked
        assert [each.result for each in site.relieve().outcomes] == [Result.REMOVED]
        assert site.listeners.done(LONGEST_SECONDS)
        assert {type(error) for error in site.heard.defects} == {ZeroDivisionError}


def test_a_listener_that_raises_or_hangs_does_not_stand_before_relief() -> None:
    """One raises at each observation, one hangs in its first: the disk is relieved."""
    with on_threads(2, wanted_mib=20) as site:
        hung = threading.Event()

        class Raises(Listener):
            """Fails."""

            def observed(self, observations: SignalObservations, decision: object) -> None:
                """Never returns."""
                raise KeyError("defect")

        class Hangs(Listener):
            """Waits."""

            def observed(self, observations: SignalObservations, decision: object) -> None:
                """Until it is let go."""
                hung.set()
                site.hang()

        site.listeners.add(Raises())
        site.listeners.add(Hangs())
        with running(site):
            site.look()
            assert hung.wait(LONGEST_SECONDS)
            assert site.relieve().relieved


# ---- threads


@pytest.mark.regression
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("parallel", [1, 3])
def test_removals_need_no_more_threads_than_there_are(parallel: int) -> None:
    """On one thread, however many may go side by side: what finds it at work
    waits, and nothing fails.
    """
    for _ in range(5):
        with on_threads(20, wanted_mib=400, parallel=parallel, workers=1) as site:
            executed = site.relieve()
            assert (executed.error, set(results(executed).values())) == ("", {Result.REMOVED})
            assert len(executed.outcomes) == 20


@pytest.mark.regression
def test_while_every_worker_hangs_it_is_said_and_what_is_next_waits() -> None:
    """A plan hangs on the only thread, and another pass is asked for: after 10 s, and
    no more once the plan ends.
    """
    with on_threads(2, wanted_mib=20, workers=1) as site:
        site.hang_at(Plan)
        with running(site):
            site.want()
            assert came_true(lambda: bool(site.calls.jobs))
            dry_run = site.want(Request(row=(FUNCTION,), until=(site.site.until,), dry_run=True))
            site.look()
            assert site.owner.occupied() == ""
            site.clock.step(12.0)
            assert site.owner.occupied().startswith(
                "all 1 threads for calls of the runtime are at work, and what is next has waited"
                " for 1"
            )
            site.let_go.set()
            assert came_true(dry_run.record.done)
            assert site.owner.occupied() == ""


@pytest.mark.regression
def test_where_no_thread_starts_nothing_is_sent_and_the_next_pass_tries_again() -> None:
    """The pass ends with the sentence, and nothing counts as being removed."""
    with on_threads(2, wanted_mib=20) as site:
        site.look()
        with no_thread_starts():
            executed = site.relieve()
        assert executed.error == "no thread can be started for work: can't start new thread"
        assert (site.store.sent, site.owner.world.removals) == ([], {})
        assert site.relieve().relieved


@pytest.mark.regression
def test_threads_that_were_prepared_relieve_when_none_can_be_started() -> None:
    """What pressure needs was there before it."""
    with on_threads(2, wanted_mib=20) as site:
        site.look()
        site.owner.workers.prepare(2)
        with no_thread_starts():
            assert site.relieve().relieved


def test_a_filesystem_that_hangs_keeps_nobody_from_looking() -> None:
    """A look ends without it, within a moment, and the owner goes on."""
    with on_threads(1, wanted_mib=10) as site:
        site.reads = lambda path: site.hang() if path == "/node" else None
        for _ in range(5):
            site.look()
        assert site.owner.world.readings["/node"].asked_at is not None
        assert site.owner.world.readings["/node/images"].last is not None


# ---- the end


def test_a_stop_is_noticed_while_a_plan_hangs() -> None:
    """Whoever sets it: a signal handler may not take a lock.

    The pass ends, and its caller goes on.
    """
    with on_threads(1, wanted_mib=10) as site:
        planning = threading.Event()

        def hang(job: Job) -> None:
            if isinstance(job, Plan):
                planning.set()
                site.hang()

        site.calls.before = hang

        def stop() -> None:
            planning.wait(LONGEST_SECONDS)
            site.stopping.set()

        threading.Thread(target=stop, daemon=True).start()
        record = site.passed()
        assert record.functions[0].outcomes == ()


@pytest.mark.regression
def test_a_stop_waits_for_what_was_sent() -> None:
    """Not before the runtime has answered; then its outcome is in the record,
    and nothing else was sent.
    """
    with on_threads(3, wanted_mib=100) as site:
        site.hang_at(Send)
        with running(site):
            wanted = site.want_until_sent()
        assert not site.owner.drained(0.01)
        site.let_go.set()
        assert site.owner.drained(LONGEST_SECONDS)
        assert site.owner.world.removals == {}
        (executed,) = record_of(wanted).functions
        assert results(executed) == {"a": Result.REMOVED}
        assert {outcome.verdict.reason for outcome in executed.kept} == {Reason.STOPPING}


def test_a_stop_waits_for_what_its_pass_has_given_up() -> None:
    """A removal that hangs: its pass has ended long ago."""
    with on_threads(1, wanted_mib=100) as site:
        site.hang_at(Send)
        with running(site):
            wanted = site.want_until_sent()
            site.clock.step(site.owner.world.configuration.removal_patience_seconds)
            site.look()
            assert came_true(wanted.record.done)
        assert results(record_of(wanted).functions[0]) == {"a": Result.PARKED}
        assert not site.owner.drained(0.01)
        site.let_go.set()
        assert site.owner.drained(LONGEST_SECONDS)
        assert (site.store.sent, site.owner.world.removals) == (["a"], {})


def test_whoever_still_waits_at_the_end_is_answered_and_nothing_is_sent() -> None:
    """A pass that plans, one that waits for its turn, and one that is asked for after the stop."""
    with on_threads(1, wanted_mib=10) as site:
        site.hang_at(Plan)
        with running(site):
            wanted = [site.want()]
            assert came_true(lambda: bool(site.calls.jobs))
            wanted.append(site.want())
        wanted.append(site.site.begin())
        site.owner.post(wanted[-1])
        site.owner.refuse_the_rest()
        assert all(each.record.done() for each in wanted)
        assert site.store.sent == []


def test_commands_that_wait_while_a_removal_hangs_are_told_of_the_end() -> None:
    """One whose removal is not answered in time for the end, and one that waits for its
    turn behind it: neither has a record, and each learns why. What was sent stays claimed,
    and nothing else is sent."""
    with on_threads(2, wanted_mib=20) as site:
        site.hang_at(Send)
        told: list[str] = []
        with running(site):
            wanted = [site.want_until_sent()]
            wanted.append(site.want())
            assert came_true(lambda: site.owner.world.wanted == (wanted[1],))

            def wait(each: PassWanted) -> None:
                try:
                    site.owner.until(each.record.done)
                    each.record.result()
                except EvictionError as error:
                    told.append(str(error))

            waiting = [threading.Thread(target=wait, args=(each,)) for each in wanted]
            for thread in waiting:
                thread.start()
        assert not site.owner.drained(0.01)
        site.owner.refuse_the_rest()
        for thread in waiting:
            thread.join(LONGEST_SECONDS)
        assert told == ["it is stopping"] * 2
        assert [job.claim.verdict.id for job in site.calls.jobs if isinstance(job, Send)] == ["a"]
        assert len(site.owner.world.removals) == 1
