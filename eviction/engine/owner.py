"""The owner of the state: takes what has happened from one queue, folds it into the
world, hands out what follows.

It waits for nothing else: what may block runs on workers, each filesystem is read by its
sampler, listeners have a thread of their own. Everybody may read the last world; only the owner
replaces it. In the daemon `run` is its thread; a command lets it run on its own thread until its
pass has ended (`until`).
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from eviction.engine.effects import (
    Check,
    CheckEnded,
    Effect,
    Ended,
    Event,
    Forget,
    Locate,
    Located,
    Looked,
    LookWanted,
    Plan,
    Planned,
    Read,
    Refresh,
    Refreshed,
    Resolve,
    Send,
    Tell,
    Tick,
    Watch,
    WriteBack,
    WrittenBack,
)
from eviction.engine.fold import after_defect, fold
from eviction.engine.step import SLOW_SECONDS, next_deadline, step
from eviction.engine.world import FOREVER_AGO, RETRY_SECONDS, World
from eviction.records.listener import Listeners
from eviction.types import EvictionError
from reclaim.function import Refused
from reclaim.removals import Checked, sent_claims
from reclaim.types import NEVER, Outcome, Result
from reclaim.workers import NoThread, Workers
from signals.clock import Clock
from signals.samplers import Sample, Samplers

MOST_EVENTS = 4096  # that wait: whoever posts another one waits for room
LONGEST_WAIT_SECONDS = 60.0
LAST_SECONDS = 3.0  # at the end, for the last reading of a pass
STOP_SECONDS = 0.25  # a stop of a command is noticed so soon

Job = Plan | Check | Send | Locate | Refresh | WriteBack

Answered = TypeVar("Answered")


class Answer(NamedTuple):
    """What a worker has found: it is free again."""

    event: Event


class Performer(Protocol):
    """What carries out effects on workers: it may block, and only answers."""

    def perform(self, job: Job) -> Event:
        """Carries out one effect. Never raises because of what the runtime or a filesystem does."""

    def forget(self, pass_id: str) -> None:
        """A pass has ended: its stages are not needed any more."""

    def on_look(self) -> object:
        """The node was observed. Called on the owner's thread; must return at once."""


@dataclass(eq=False)
class Owner:
    """Any thread may call, but for `turn`, `run`, and `until` in a process
    where nothing else runs it.
    """

    world: World
    """As it is now."""
    performer: Performer
    samplers: Samplers
    listeners: Listeners
    workers: Workers
    clock: Clock
    stopping: threading.Event
    """Set when nothing new may begin."""

    def __post_init__(self) -> None:
        self._events: queue.Queue[Event | Answer] = queue.Queue(MOST_EVENTS)
        # for a worker: one a claim, one a stage that plans, Locate and Refresh
        self._waiting: deque[Job] = deque()
        self._at_work = 0
        self._waiting_since: float | None = None  # since when something has found no worker
        self._failed: list[Event] = []  # of what could not be begun
        # what other threads wait for, one each
        self._until: list[tuple[Callable[[], bool], Future[None]]] = []
        self._thread: threading.Thread | None = None
        self._over = False  # whether nobody turns any more
        # one object, by which a sampler knows equal levels
        self._crossed = lambda: self.post(LookWanted(urgent=True))
        self.began_at = self.due_at = self.clock.monotonic()
        """When its next turn is due at the latest; while it turns, since when (monotonic seconds).
        """

    def post(self, event: Event) -> None:
        """Something has happened."""
        self._events.put(event)

    def stop(self) -> None:
        """Nothing new begins from now on."""
        self.stopping.set()
        self.post(Tick())  # which takes that in

    def ask(self, event: Event, answer: Future[Answered]) -> Answered:
        """Posts an event and waits for its answer. Raises what the answer raises."""
        self.post(event)
        self.until(answer.done)
        return answer.result()

    def until(self, holds: Callable[[], bool]) -> None:
        """Waits until something holds, which from then on does: turns meanwhile, unless another
        thread is the owner. Raises EvictionError if nobody turns any more."""
        turns = self._thread is None or self._thread is threading.current_thread()
        reached: Future[None] = Future()
        if not turns:
            # before it is asked: the next turn tells whoever is here
            self._until.append((holds, reached))
        while not holds():
            if self._over:
                raise EvictionError("it is stopping")
            if turns:
                self.turn()
            else:
                reached.result()

    def occupied(self) -> str:
        """What follows from workers that hang, in a sentence; empty unless
        something has waited long for one.
        """
        since = self._waiting_since
        if since is None or (seconds := self.clock.monotonic() - since) < SLOW_SECONDS:
            return ""
        return (
            f"all {self._at_work} threads for calls of the runtime are at work, and what is next"
            f" has waited for {seconds:.0f} s; one that hangs is left behind, and nothing begins"
            " until one of them ends"
        )

    def drained(self, seconds: float) -> bool:
        """Waits up to `seconds` until every removal that was sent has ended; returns whether that
        is so. If it is, and nothing new may begin, it waits a moment until the passes have ended,
        too, so that they are told."""
        now = self.clock.monotonic
        ends = now() + seconds
        while sent_claims(self.world.removals):
            if now() >= ends:
                return False
            self.turn(ends)
        ends = min(ends, now() + LAST_SECONDS)
        while self.stopping.is_set() and self.world.passes and now() < ends:
            self.turn(ends)
        return True

    def own(self) -> None:
        """From now on this thread is the owner, and whoever else asks waits
        for it, even before it runs.
        """
        self._thread = threading.current_thread()

    def run(self) -> None:
        """Is the owner until `stop`. A defect does not end it: it is told, and it goes on, after
        one in fold or step a second later."""
        self.own()
        while not self.stopping.is_set():
            self.turn()

    def refuse_the_rest(self) -> None:
        """At the end: whoever still waits is told that nothing will come."""
        self._over = True  # first: whoever has not seen it yet is answered below
        while not self._events.empty():
            self.turn(FOREVER_AGO)
        self._tell_reached()
        while self._until:
            _, reached = self._until.pop()
            reached.set_exception(EvictionError("it is stopping"))

    def turn(self, until: float = NEVER) -> None:
        """Waits for what happens next, at most until this time, takes it in,
        and hands out what follows.
        """
        events = self._next_events(until)
        self.due_at = now = self.clock.monotonic()
        world = self.world._replace(
            now=now, wall=self.clock.wall(), stopping=self.world.stopping or self.stopping.is_set()
        )
        effects: tuple[Effect, ...] = ()
        defect: Exception | None = None
        for event in events:
            try:
                world = fold(world, event)
            except Exception as error:  # noqa: BLE001 # a defect in one turn must not end the daemon
                defect = error
                world = after_defect(world, event)
        try:
            world, effects = step(world)
        except Exception as error:  # noqa: BLE001 # nor must one here
            defect = error
            world = world._replace(look=None, look_due=world.now)  # by other readings it may go on
        if defect is not None:
            self.listeners.tell("defect", defect)
            self.stopping.wait(RETRY_SECONDS)
        self.world = world
        for effect in effects:
            try:
                self._hand_out(effect)
            except Exception as error:  # noqa: BLE001 # what it was to lead to is waited for to its deadline
                self.listeners.tell("defect", error)
        self._begin_waiting()
        self._tell_reached()

    def _tell_reached(self) -> None:
        for holds, reached in tuple(self._until):
            if holds():
                self._until.remove((holds, reached))
                reached.set_result(None)

    def _next_events(self, until: float) -> Iterable[Event]:
        """What has happened, as soon as anything has; a tick if the world has
        named a time that has come.
        """
        if self._failed:
            failed = self._failed
            self._failed = []
            return failed
        due = min(next_deadline(self.world), until)
        now = self.clock.monotonic()
        seconds = min(max(due - now, 0.0), LONGEST_WAIT_SECONDS)
        if self.world.passes and not self.world.stopping:
            seconds = min(seconds, STOP_SECONDS)
        self.due_at = now + seconds
        try:
            taken = [self._events.get(block=seconds > 0, timeout=seconds)]
        except queue.Empty:
            return (Tick(),)
        with suppress(queue.Empty):
            while True:
                taken.append(self._events.get_nowait())
        self._at_work -= sum(isinstance(event, Answer) for event in taken)
        return [event.event if isinstance(event, Answer) else event for event in taken]

    def _sampled(self, sample: Sample) -> None:
        try:
            self._events.put_nowait(sample)
        except queue.Full:  # this may be the owner's own thread, which nobody else makes room for
            self._failed.append(sample)

    # ---- what follows is handed out

    def _hand_out(self, effect: Effect) -> None:
        match effect:
            case Read(paths):
                self.samplers.ask(paths, self._sampled)
            case Watch(path, levels):
                self.samplers.watch(path, levels, self._crossed)
            case Tell(what, about):
                self.listeners.tell(what, *about)
            case Resolve(waiting, answer):
                if waiting.set_running_or_notify_cancel():
                    waiting.set_result(answer)
            case Forget(pass_id):
                self.performer.forget(pass_id)
            case Looked():
                self.performer.on_look()
            case _:
                self._waiting.append(effect)

    def _begin_waiting(self) -> None:
        """Begins what waits for a worker. What finds none waits until one is free; if none is at
        work either, it has failed."""
        while self._waiting:
            job = self._waiting[0]
            try:
                self._begin(job)
            except NoThread as error:
                if self._at_work:
                    if self._waiting_since is None:
                        self._waiting_since = self.clock.monotonic()
                    return
                self._failed.append(not_begun(job, str(error)))
            self._waiting.popleft()
            self._waiting_since = None

    def _begin(self, job: Job) -> None:
        """Raises NoThread, and then nothing has begun."""
        answers: list[Event] = []

        def work() -> None:
            try:
                answers.append(self.performer.perform(job))
            except BaseException as defect:  # noqa: BLE001 # whatever is raised, who waits gets an answer
                answers.append(not_begun(job, f"{type(defect).__name__}: {defect}"))

        self.workers.run(work, lambda: self._events.put(Answer(answers[0])))
        self._at_work += 1


def not_begun(job: Job, problem: str) -> Event:
    """What has happened if an effect could not be carried out, with the reason in a sentence."""
    match job:
        case Plan(pass_id, stage):
            return Planned(pass_id, stage, error=problem)
        case Check(claim):
            return CheckEnded(claim.id, Checked(Refused(result=Result.FAILED, error=problem)))
        case Send(claim):
            return Ended(claim.id, Outcome(claim.verdict, Result.FAILED, problem))
        case Locate():
            return Located(None, problem)
        case Refresh():
            return Refreshed(problem)
        case WriteBack(device=device):
            return WrittenBack(device)
