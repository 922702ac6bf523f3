"""How one object is removed, and which removals of a node have begun but not ended.

A container runtime protects nothing: it removes an image that is in use, kills a running container, and accepts a
prefix of an id. So every object is checked once more right before its removal, and only full ids that a list has named
are sent.

* `check` says that the object may be removed *now*, and on what evidence.
* The last look reads the directories of pods once more, right before the call, for every object: if a pod or a
  container has begun since the evidence was read, it no longer counts and the object is checked again (`pods.starts`:
  how often). Nothing is sent any other way.
* `remove` is the one call. Nothing stops it once it is sent, so what must stop it is asked right before it: a stop, a
  pause, another configuration, a filesystem that is no longer where it was (`Brake`).
* `present` asks whether the object still exists: a call that failed may have removed it, and one that succeeded may not
  have.

A removal is never cancelled. If its call is not answered within the patience of its pass, it is *parked*: its object is
left out, the pass goes on with others, and its thread keeps waiting. While more removals are parked than may run side
by side, the runtime is stuck, and no more are sent until one of them ends.

Covers: the shape of a stage, one removal, threads, the circuit breaker. Does not cover: the order of removals, when
they stop, and how long each is waited for (`executor`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from reclaim.execution.workers import HANGS_SECONDS, ReadingsInTime, Workers
from reclaim.services import Listener
from reclaim.types import (
    NEVER,
    AnsweredWithError,
    Outcome,
    Plan,
    Reason,
    ReclaimError,
    Result,
    RuntimeUnavailable,
    Verdict,
)
from signals.clock import Clock

STATUS_FRESH_SECONDS = 0.05  # how old an object's status may be when its removal is sent
CHECK_ATTEMPTS = 20  # where a processor is shared by many, a check takes longer than it may be old every other time

Brake = Callable[[], Reason | None]
"""Why nothing may be sent now; None if it may."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The object may be removed, as of `checked_at` (monotonic seconds). `holds`: the last look: whether that still
    counts now; False if it is unknown. Always True for an object that no pod can start to use."""

    checked_at: float
    holds: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: check again after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The object is kept, already gone, or could not be checked (`result`; `error` then says why)."""

    reason: str | None = None
    result: Result | None = None
    error: str = ""


GONE = Refused(result=Result.ALREADY_GONE)


class Stage(Protocol):
    """One step of a reclaim function: it offers candidates in order, checks one, removes one. Created for one pass.

    `fresh_seconds`: how old a `Ready` may be when the removal is sent. `frees_late`: whether space may arrive some time
    after the removal was answered, even if no size was promised. `patience_seconds`: how long to wait for one of its
    removals before parking it; None: as configured.
    """

    fresh_seconds: float = STATUS_FRESH_SECONDS
    frees_late: bool = False
    patience_seconds: float | None = None

    def plan(self) -> Plan | None:
        """Reads and plans; removes nothing. None: there is nothing to plan. Raises ReclaimError if it cannot read what
        it needs."""

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """Checks the object once more. Raises RuntimeUnavailable. The sum of all waits it asks for is bounded."""

    def remove(self, verdict: Verdict) -> bool:
        """The one call, after `check` returned Ready. False if the object no longer existed. Raises ReclaimError."""

    def present(self, verdict: Verdict) -> bool:
        """Whether the object still exists. Raises RuntimeUnavailable if that is unknown."""


def remove_one(
    verdict: Verdict,
    stage: Stage,
    clock: Clock,
    stopping: threading.Event,
    *,
    dry_run: bool,
    brake: Brake,
    moved: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Removes one object: check, last look, one call, and the question whether it is gone. A dry run leaves out the
    call.

    `moved`: whether a filesystem is no longer where it was. `brake`: asked right before the call. An answer that is an
    error fails this object alone; only a silent runtime leaves it UNANSWERED. Never raises because of what the runtime
    or the filesystem does.
    """
    started = clock.monotonic()

    def outcome(result: Result | None, error: str = "") -> Outcome:
        return Outcome(verdict, result, error, clock.monotonic() - started)

    try:
        refused = _refusal(verdict, stage, clock, stopping, moved)
    except AnsweredWithError as error:
        return outcome(Result.FAILED, str(error))
    except RuntimeUnavailable as error:
        return outcome(Result.UNANSWERED, str(error))
    if refused is not None:
        kept = verdict if refused.reason is None else verdict.kept(refused.reason)
        return replace(outcome(refused.result, refused.error), verdict=kept)
    if dry_run:
        return outcome(Result.PLANNED)
    if (why_not := brake()) is not None:
        return replace(outcome(None), verdict=verdict.kept(why_not))
    failure, was_there = "", True
    try:
        was_there = stage.remove(verdict)
    except ReclaimError as error:
        failure = str(error)
    try:
        if stage.present(verdict):
            return outcome(Result.FAILED, failure or "the runtime reported success but still has it")
    except AnsweredWithError as error:
        return outcome(Result.FAILED, failure or f"whether it is gone is not known: {error}")
    except RuntimeUnavailable as error:
        return outcome(Result.UNANSWERED, failure or str(error))
    return outcome(Result.REMOVED if was_there else Result.ALREADY_GONE, failure)


def _refusal(
    verdict: Verdict, stage: Stage, clock: Clock, stopping: threading.Event, moved: Callable[[], bool]
) -> Refused | None:
    """None if the object may be removed now. Raises RuntimeUnavailable."""
    attempts = 0
    while attempts < CHECK_ATTEMPTS:
        match stage.check(verdict):
            case Refused() as refused:
                return refused
            case Wait(seconds):
                if stopping.wait(seconds):
                    return Refused(Reason.STOPPING)
            case Ready() as ready:
                if moved():  # this may take a while, so it comes before the look at how fresh the check is
                    return Refused(Reason.LAYOUT_CHANGED)
                if ready.holds() and clock.monotonic() - ready.checked_at <= stage.fresh_seconds:
                    return None
                attempts += 1
    error = (
        f"none of its {CHECK_ATTEMPTS} checks was fresher than {stage.fresh_seconds:g} s, and of after the last "
        "container began, when the removal was to be sent"
    )
    return Refused(result=Result.FAILED, error=error)


# ---- the removals of a node that have begun

CHECK_PATIENCE_SECONDS = 60.0  # more than the waits a check may ask for plus the deadlines of its calls
READERS = 8  # threads for stages that read: one for each busy lane, and some that hang in a filesystem
URGENT_IN_FLIGHT = 16  # removals on a disk that fills fast


def most_in_flight(parallel: int) -> int:
    """How many removals may be in flight on a disk that fills fast, if `parallel` are configured; 1 stays 1.

    A runtime that collects garbage before it answers does so once for all removals that arrive in the meantime
    (containerd, `metadata/gc.go`). With 300 images of 5 MiB, two at a time free 230 MiB/s of a disk that fills at 400
    MiB/s, while eight free about as much as it fills. Without urgency, two are enough: twelve images of 20 MiB took 146
    ms one by one, 107 ms two at a time, 96 ms four or eight at a time, and more in flight removes more than needed.
    """
    return 1 if parallel == 1 else max(parallel, URGENT_IN_FLIGHT)


@dataclass(slots=True, eq=False)
class Removal:
    """One removal; times are monotonic seconds. `sent`: when its call was sent; None while the object is being
    checked."""

    verdict: Verdict
    started: float
    sent: float | None = None
    parked: bool = False

    def overdue_at(self, patience_seconds: float) -> float:
        """When it is parked unless it ends first."""
        return self.started + CHECK_PATIENCE_SECONDS if self.sent is None else self.sent + patience_seconds


class Removals:
    """All removals of one node, in any lane. Thread-safe.

    `stopping`: set when nothing new may start. `parallel`: how many may run side by side when it is not urgent.
    `ended_at`: when a removal last ended, in monotonic seconds: an older list may name objects that are gone.
    `hangs_seconds`: when a stage that reads without any answer of the runtime is abandoned.
    """

    def __init__(self, clock: Clock, stopping: threading.Event, parallel: int, listener: Listener | None = None):
        self.clock = clock
        self.stopping = stopping
        self._condition = threading.Condition()
        self._begun: set[Removal] = set()
        self.workers = Workers("removals", 0)
        self.hangs_seconds = HANGS_SECONDS
        self._readings: dict[str, ReadingsInTime] = {}
        self.set_parallel(parallel)
        self._listener = listener or Listener()
        self.ended_at = float("-inf")

    def set_parallel(self, parallel: int) -> None:
        """Changes the number. There may be as many threads as urgent removals, parked ones, and stages that read."""
        self.parallel = parallel
        self.workers.most = most_in_flight(parallel) + parallel + 1 + READERS

    def prepare(self) -> None:
        """Starts every thread. Raises NoThread."""
        self.workers.prepare(self.workers.most)

    def readings_of(self, what: str) -> ReadingsInTime:
        """Those of one stage of a function, by any pass."""
        return self._readings.setdefault(what, ReadingsInTime(self.workers, self.hangs_seconds))

    def begin(
        self,
        verdict: Verdict,
        remove: Callable[[Brake], Outcome],
        ended: Callable[[Removal, Outcome], None],
        brake: Brake = lambda: None,
    ) -> Removal:
        """Calls `remove` on a thread, passing it what it has to ask right before its call. Once the thread is free
        again, it calls `ended`, unless the removal was parked in the meantime. Raises NoThread, and then nothing has
        begun.

        `brake`: of its pass. It is asked under the lock that marks the removal as sent, so it does not wait: what it
        reads is in force for every removal that is not `sent` yet.
        """
        removal = Removal(verdict, self.clock.monotonic())
        awaited: list[Outcome] = []

        def run() -> None:
            outcome = remove(lambda: self._why_not_send(removal, brake))
            if self.end(removal, outcome):
                awaited.append(outcome)

        def announce() -> None:
            for outcome in awaited:
                ended(removal, outcome)

        with self._condition:
            self._begun.add(removal)
        try:
            self.workers.run(run, announce)
        except BaseException:
            self._forget(removal)
            raise
        return removal

    def _why_not_send(self, removal: Removal, brake: Brake) -> Reason | None:
        """Right before its call: why it must not be sent; None marks it as sent."""
        with self._condition:
            if removal.parked or self.stopping.is_set():
                return Reason.STOPPING
            why_not = brake()
            if why_not is None:
                removal.sent = self.clock.monotonic()
            return why_not

    def end(self, removal: Removal, outcome: Outcome) -> bool:
        """The removal has ended. Returns whether its pass still waits for it; if not, the listener is notified.

        It counts as parked until the listener returns, so that no pass begins with outdated information.
        """
        with self._condition:
            if not removal.parked:
                self._forget(removal)  # from here on it cannot be parked
                return True
        try:
            self._listener.parked_ended(outcome)
        finally:  # even if the listener fails, a removal that has ended is not waited for
            self._forget(removal)
        return False

    def park(self, removal: Removal) -> Outcome | None:
        """Its pass no longer waits for it. Returns its outcome for that pass; None if it has just ended."""
        with self._condition:
            if removal not in self._begun:
                return None
            removal.parked = True
            seconds = self.clock.monotonic() - (removal.started if removal.sent is None else removal.sent)
        if removal.sent is None:  # no call went out, and none will
            error = f"the check before its removal has not ended for {seconds:.0f} s"
        else:
            error = f"its removal was sent {seconds:.0f} s ago and is not answered; it is waited for"
        outcome = Outcome(removal.verdict, Result.PARKED, error, seconds)
        self._listener.parked(outcome)
        return outcome

    @property
    def begun(self) -> tuple[Removal, ...]:
        """Removals that have not ended, oldest first."""
        with self._condition:
            return tuple(sorted(self._begun, key=lambda removal: removal.started))

    @property
    def ids(self) -> frozenset[str]:
        """The objects being removed, by any pass, parked or not."""
        with self._condition:
            return frozenset(removal.verdict.id for removal in self._begun)

    @property
    def parked(self) -> dict[str, Removal]:
        """Parked removals, by the id of the object."""
        with self._condition:
            return {removal.verdict.id: removal for removal in self._begun if removal.parked}

    @property
    def stuck(self) -> bool:
        """Whether more are parked than may run side by side, so that none may be sent."""
        return len(self.parked) > self.parallel

    @property
    def stuck_sentence(self) -> str:
        """Why none may be sent while the runtime is stuck."""
        return (
            f"the runtime is stuck: {len(self.parked)} removals are not answered, "
            f"the oldest for {self.oldest_seconds:.0f} s; no more is sent until one of them ends"
        )

    @property
    def sent_at(self) -> list[float]:
        """When each unanswered call was sent (monotonic seconds). None is sent later that a brake of now stops."""
        return [removal.sent for removal in self.begun if removal.sent is not None]

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest unanswered call has been waiting; 0 if there is none."""
        return max(self.clock.monotonic() - min(self.sent_at, default=NEVER), 0.0)

    def wait(self, seconds: float) -> bool:
        """After a stop: waits up to `seconds` until every call that was sent is answered; returns whether that is
        so."""
        with self._condition:
            return self._condition.wait_for(lambda: all(removal.sent is None for removal in self._begun), seconds)

    def _forget(self, removal: Removal) -> None:
        with self._condition:
            self.ended_at = self.clock.monotonic()
            self._begun.discard(removal)
            self._condition.notify_all()
