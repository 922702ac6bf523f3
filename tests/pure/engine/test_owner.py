"""The owner of the state with real threads: what hangs, what cannot be started, what is raised; and
its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from eviction.decision.synchronize import ManagerState
from eviction.engine.effects import (
    Event,
    LookWanted,
    PassWanted,
    PauseSet,
    Plan,
    Request,
    Sampled,
    Send,
)
from eviction.engine.owner import Job, Owner, Performer
from eviction.engine.stages import Stages
from eviction.records.listener import Listeners
from eviction.records.passes import Pass, Trigger
from eviction.types import EvictionError
from reclaim.types import Reason, Result
from reclaim.workers import Workers
from signals.samplers import Samplers
from signals.types import Signal
from tests.pure.engine.site import IMAGES, Defective, Site, record_of, told
from tests.pure.values import SteppedClock, on_new_thread, threshold
from tests.reclaimd_process import came_true
from tests.rows import rows
from tests.thread_limit import no_thread_starts

LONGEST_SECONDS = 60.0


class RunningClock(SteppedClock):
    """A stepped clock that goes on by itself."""

    def monotonic(self) -> float:
        """The real monotonic time, and what was stepped."""
        return super().monotonic() + time.monotonic()


class Heard:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.defects: list[Exception] = []

    def defect(self, error: Exception) -> None:
        """Kept."""
        self.defects.append(error)


class OnThreads(Performer):
    """A site whose effects are carried out on threads. `before` stands between an effect and its
    answer, and may hang or raise."""

    def __init__(self, names: str, *, workers: int = 8, **fields: Any):
        clock = RunningClock()
        self.site = Site(names, clock=clock, **fields)
        self.clock, self.store, self.disk = clock, self.site.images, self.site.disk
        self.jobs: list[Job] = []
        self.before: Callable[[Job], object] = lambda _: None
        self.on_look: Callable[[], object] = lambda: None
        self.forgotten: list[str] = []
        self.stopping, self.let_go = threading.Event(), threading.Event()
        self.waited_for = False  # whether what hangs had to give up, as the test waited for it
        self.listeners, self.heard = Listeners(), Heard()
        self.listeners.add(self.heard)
        self.samplers = Samplers(clock, lambda _, now: self.disk.reading(now), on_new_thread)
        self.samplers.prepare(("/node", "/node/images"))
        self.owner = Owner(
            self.site.engine.world,
            self,
            self.samplers,
            listeners=self.listeners,
            workers=Workers("work", workers),
            clock=clock,
            stopping=self.stopping,
        )
        self.stages = Stages(lambda: self.owner.world, self.site.engine.context, clock)

    def perform(self, job: Job) -> Event:
        """As the node does."""
        self.jobs.append(job)
        self.before(job)
        answer: Event = getattr(self.stages, type(job).__name__.lower())(job)
        return answer

    def forget(self, pass_id: str) -> None:
        """Kept."""
        self.forgotten.append(pass_id)

    def hang(self) -> None:
        """What a call does that is not answered."""
        if not self.let_go.wait(LONGEST_SECONDS):
            self.waited_for = True

    def hang_at(self, kind: type[Job]) -> None:
        """Effects of this kind are not answered before they are let go."""
        self.before = lambda job: self.hang() if isinstance(job, kind) else None

    def raise_at(self, **defects: BaseException) -> None:
        """What is raised at effects of this kind, or at the removal of this object."""

        def fail(job: Job) -> None:
            about = job.claim.verdict.id if isinstance(job, Send) else type(job).__name__
            if about in defects:
                raise defects[about]

        self.before = fail

    def look(self) -> None:
        """One observation."""
        before = self.owner.world.looks
        self.owner.post(LookWanted(urgent=True))
        self.owner.until(lambda: self.owner.world.looks > before)

    def want(self, mib: int, **request: Any) -> PassWanted:
        """Asks for a pass, until so much more is available."""
        self.look()
        world, until = self.owner.world, threshold(Signal.IMAGEFS_AVAILABLE, f"{500 + mib}Mi")
        asked = Request(row=(IMAGES,), until=(until,), **request)
        wanted = PassWanted(
            world.observations, world.decision, Trigger.REQUEST, asked, None, self.clock.monotonic()
        )
        self.owner.post(wanted)
        return wanted

    def want_until(self, kind: type[Job], mib: int = 100) -> PassWanted:
        """Asks for a pass, and waits until such an effect has begun."""
        wanted = self.want(mib)
        assert came_true(lambda: any(isinstance(job, kind) for job in self.jobs))
        return wanted

    def passed(self, mib: int) -> Pass:
        """The record of a pass."""
        wanted = self.want(mib)
        self.owner.until(wanted.record.done)
        return record_of(wanted)

    def relieves(self) -> bool:
        """Whether a pass for 20 MiB relieves."""
        return self.passed(20).functions[0].relieved

    def close(self) -> None:
        """Nothing is left behind, and nobody has waited for what hangs."""
        self.let_go.set()
        self.owner.drained(LONGEST_SECONDS)
        self.owner.workers.close()
        self.samplers.close()
        self.listeners.finish(LONGEST_SECONDS)
        assert not self.waited_for


@contextmanager
def on_threads(names: str, **options: Any) -> Iterator[OnThreads]:
    """A site that is let go at the end."""
    site = OnThreads(names, **options)
    try:
        yield site
    finally:
        site.close()


@contextmanager
def running(site: OnThreads) -> Iterator[None]:
    """Another thread is the owner, as in the daemon, until it is stopped."""
    thread = threading.Thread(target=site.owner.run, daemon=True)
    thread.start()
    assert came_true(lambda: site.owner._thread is thread)  # else the caller would turn
    try:
        yield
    finally:
        site.owner.stop()
        thread.join(LONGEST_SECONDS)
        assert not thread.is_alive()


@pytest.mark.usefixtures("hasty")
def test_of_many_who_wait_each_is_told_and_at_the_end_all_are_refused() -> None:
    """Six threads ask six hundred times for a pause, until the owner ends: whoever asks then
    is refused."""
    refused, begun = list[str](), threading.Semaphore(0)
    with on_threads("A") as site:

        def ask() -> None:
            try:
                while True:
                    pause = PauseSet(60.0)
                    assert site.owner.ask(pause, pause.done) == 0
                    assert site.owner.world.pause.left_seconds(site.clock.monotonic()) > 0
                    begun.release()
            except EvictionError as error:
                refused.append(str(error))

        asking = [threading.Thread(target=ask, daemon=True) for _ in range(6)]
        with running(site):
            for thread in asking:
                thread.start()
            assert all(begun.acquire(timeout=LONGEST_SECONDS) for _ in range(600))
        site.owner.refuse_the_rest()
        for thread in asking:
            thread.join(LONGEST_SECONDS)
        assert refused == ["it is stopping"] * len(asking)


# ---- what is raised


@pytest.mark.parametrize(
    ("defects", "becomes"),
    [
        (
            {"A": ZeroDivisionError("defect"), "B": SystemExit(1)},
            "satisfied: A failed ZeroDivisionError: defect, B failed SystemExit: 1, C removed 10",
        ),
        ({"Plan": KeyError("defect")}, "failed: KeyError: 'defect'"),
        (
            {"Check": KeyError("defect")},
            "not_enough: " + ", ".join(f"{name} failed KeyError: 'defect'" for name in "ABC"),
        ),
    ],
)
def test_a_defect_on_a_worker_is_the_outcome_of_what_it_did(
    defects: dict[str, BaseException], becomes: str
) -> None:
    """Of one removal, of a plan, or of a check; the next object is tried, and nothing of the pass is
    left."""
    with on_threads("ABC") as site:
        site.raise_at(**defects)
        assert told(site.passed(10)) == becomes
        assert site.forgotten == ["abcdef000001"]


@pytest.mark.regression
def test_a_defect_in_what_has_happened_or_is_handed_out_is_told_and_the_rest_goes_on() -> None:
    """Something that cannot be folded comes between two requests: both are answered. What else
    follows from a turn is handed out."""

    def looked() -> None:
        raise ZeroDivisionError("of no use")

    with on_threads("A") as site:
        first, second = PauseSet(60.0), PauseSet(0.0)
        for event in (first, Sampled(None), second):  # type: ignore[arg-type] # that is the point
            site.owner.post(event)
        site.owner.until(second.done.done)
        assert first.done.done()
        site.on_look = looked
        assert told(site.passed(10)) == "satisfied: A removed 10"
        assert site.listeners.done(LONGEST_SECONDS)
        assert [type(each) for each in site.heard.defects[:2]] == [
            AttributeError,
            ZeroDivisionError,
        ]


@pytest.mark.regression
def test_a_defect_while_deciding_does_not_end_the_owner() -> None:
    """A threshold that raises at each look: it is told once a second; once it does not any more,
    relief goes on."""
    with on_threads("AB") as site:
        mark = threshold(Signal.IMAGEFS_AVAILABLE, "1Mi")
        defective = Defective(mark.value.quantity)
        defective.raising.append("defect")
        config = site.owner.world.manager.config
        config = config._replace(thresholds=(replace(mark, value=defective),))
        site.owner.world = site.owner.world._replace(manager=ManagerState(config))
        with running(site):
            site.owner.post(LookWanted(urgent=True))
            assert came_true(lambda: len(site.heard.defects) >= 2)
            assert site.owner.world.looks == 0
            defective.raising.clear()
            assert site.relieves()


# ---- threads


@pytest.mark.regression
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("parallel", [1, 3])
def test_removals_need_no_more_threads_than_there_are(parallel: int) -> None:
    """On one thread, however many may go side by side: what finds it at work waits."""
    names = "ABCDEFGHIJKL"
    for _ in range(5):
        with on_threads(names, workers=1, parallelRemovals=parallel) as site:
            (result,) = site.passed(400).functions
            gone = [each.verdict.id for each in result.outcomes if each.result is Result.REMOVED]
            assert (result.error, "".join(gone)) == ("", names)


@pytest.mark.regression
def test_while_every_worker_hangs_it_is_said_and_what_is_next_waits() -> None:
    """A plan hangs on the only thread, and another pass is asked for: after 10 s, and no more once
    the plan ends."""
    with on_threads("AB", workers=1) as site:
        site.hang_at(Plan)
        with running(site):
            site.want_until(Plan)
            dry_run = site.want(20, dry_run=True)
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
    """The pass ends with the sentence, and nothing counts as being removed. Threads that were
    prepared relieve: what pressure needs was there before it."""
    with on_threads("AB") as site:
        site.look()
        with no_thread_starts():
            record = site.passed(20)
        assert told(record) == "failed: no thread can be started for work: can't start new thread"
        assert (site.store.sent, site.owner.world.removals) == ([], {})
        site.owner.workers.prepare(2)
        with no_thread_starts():
            assert site.relieves()


# ---- the end


@pytest.mark.regression
@rows("""
    names | result
    AB    | REMOVED
    A     | PARKED
""")
def test_a_stop_waits_for_what_its_pass_has_given_up(names: str, result: Result) -> None:
    """Or what it still waits for. It is not over before the runtime has answered, and nothing else
    is sent. Who pauses meanwhile learns that one removal is under way."""
    with on_threads(names) as site:
        site.hang_at(Send)
        with running(site):
            wanted, pause = site.want_until(Send), PauseSet(60.0)
            assert site.owner.ask(pause, pause.done) == 1
            if result is Result.PARKED:
                site.clock.step(site.owner.world.configuration.removal_patience_seconds)
                site.look()
                assert came_true(wanted.record.done)
        assert not site.owner.drained(0.01)
        site.let_go.set()
        assert site.owner.drained(LONGEST_SECONDS)
        assert (site.store.sent, site.owner.world.removals) == (["A"], {})
        (function,) = record_of(wanted).functions
        assert [(each.verdict.id, each.result) for each in function.outcomes] == [("A", result)]
        assert [each.verdict.reason for each in function.kept] == [Reason.STOPPING] * names.count(
            "B"
        )


def test_whoever_still_waits_at_the_end_is_answered_and_nothing_is_sent() -> None:
    """A pass that plans, one that waits for its turn, and one that is asked for after the stop."""
    with on_threads("A") as site:
        site.hang_at(Plan)
        with running(site):
            wanted = [site.want_until(Plan), site.want(10)]
        wanted.append(replace(wanted[0], record=Future()))
        site.owner.post(wanted[-1])
        site.owner.refuse_the_rest()
        assert all(each.record.done() for each in wanted)
        assert site.store.sent == []
