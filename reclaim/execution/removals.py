"""How one object is removed: a check, the last look, one call, and a question whether the object is gone.

A container runtime protects nothing: it removes an image that is in use, kills a running container, and takes the
prefix of an id for the id. So each object is checked once more right before its removal, and only a whole id is sent
that a list has named.

* `check` says that the object may be removed *now*, and by what evidence.
* The last look reads the directories of pods once more, right before the call, for every object: where a pod has begun
  since the evidence was, that counts no longer, and the object is checked again. Nothing is sent by any other way.
* `remove` is the one call.
* `present` asks whether the object is still there: a call that failed may have removed it, and one that succeeded may
  not have.

Covers: the shape of a stage, and one removal. Does not cover: the order of removals and when they stop (`executor`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from reclaim.execution.workers import Workers
from reclaim.services import Listener
from reclaim.types import Outcome, Plan, Reason, RemovalFailed, Result, RuntimeUnavailable, Verdict
from signals.clock import Clock

STATUS_FRESH_SECONDS = 0.05  # how old the status of one object may be when its removal is sent
CHECK_ATTEMPTS = 5


class LastLook(Protocol):
    """What was known of pods right before evidence was begun (`pods.starts.Directories`)."""

    def no_pod_has_begun_since(self) -> bool:
        """Looks once more, right before the removal. False where that cannot be told."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The object may be removed, as of `checked_at` (monotonic seconds). `pods`: whether that still holds; None: of an
    object that no pod can begin to use, or whose evidence was read for it alone."""

    checked_at: float
    pods: LastLook | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: check again after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The object is kept, is gone already, or could not be checked (`result`, and then `error` says why)."""

    reason: str | None = None
    result: Result | None = None
    error: str = ""


GONE = Refused(result=Result.ALREADY_GONE)


class Stage(Protocol):
    """One step of a reclaim function: it offers candidates in order, checks one, removes one. Made for one pass.

    `fresh_seconds`: how old a `Ready` may be when the removal is sent. `frees_late`: whether the space may come some
    time after the removal was answered, although no size was promised. `patience_seconds`: how long one of its removals
    is waited for before it is parked; None: as configured.
    """

    fresh_seconds: float = STATUS_FRESH_SECONDS
    frees_late: bool = False
    patience_seconds: float | None = None

    def plan(self) -> Plan | None:
        """Reads and plans; removes nothing. None: there is nothing to plan. Raises ReclaimError if it cannot read what
        it needs."""

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """Checks the object once more. Raises RuntimeUnavailable. The sum of all waits that it asks for is bounded."""

    def remove(self, verdict: Verdict) -> bool:
        """The one call, after a `check` that returned Ready. False if there was no such object any more.

        Raises RemovalFailed.
        """

    def present(self, verdict: Verdict) -> bool:
        """Whether the object is still there. Raises RuntimeUnavailable when that cannot be told."""


def _always() -> bool:
    return True


def remove_one(
    verdict: Verdict,
    stage: Stage,
    clock: Clock,
    stopping: threading.Event,
    *,
    dry_run: bool,
    may_send: Callable[[], bool] = _always,
) -> Outcome:
    """Removes one object: check, last look, one call, and the question whether it is gone. A dry run leaves out the
    call.

    `may_send`: asked right before the call; False: a stop came, or its pass does not wait for it any longer, and the
    object is kept. Never raises for what the runtime or the filesystem does.
    """
    started = clock.monotonic()
    call_seconds = 0.0

    def outcome(result: Result | None, error: str = "") -> Outcome:
        return Outcome(verdict, result, error, clock.monotonic() - started, call_seconds=call_seconds)

    try:
        refused = _refusal(verdict, stage, clock, stopping)
    except RuntimeUnavailable as error:
        return outcome(Result.UNANSWERED, str(error))
    if refused is not None:
        kept = verdict if refused.reason is None else verdict.kept(refused.reason)
        return replace(outcome(refused.result, refused.error), verdict=kept)
    if dry_run:
        return outcome(Result.PLANNED)
    if not may_send():
        return replace(outcome(None), verdict=verdict.kept(Reason.STOPPING))
    failure, was_there, sent = "", True, clock.monotonic()
    try:
        was_there = stage.remove(verdict)
    except RemovalFailed as error:
        failure = str(error)
    call_seconds = clock.monotonic() - sent
    try:
        if stage.present(verdict):
            failed = outcome(Result.FAILED, failure or "the runtime reported success but still has it")
            return replace(failed, may_have_gone=not failure)
    except RuntimeUnavailable as error:
        return replace(outcome(Result.UNANSWERED, failure or str(error)), may_have_gone=True)
    return outcome(Result.REMOVED if was_there else Result.ALREADY_GONE, failure)


def _refusal(verdict: Verdict, stage: Stage, clock: Clock, stopping: threading.Event) -> Refused | None:
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
                holds = ready.pods is None or ready.pods.no_pod_has_begun_since()
                if holds and clock.monotonic() - ready.checked_at <= stage.fresh_seconds:
                    return None
                attempts += 1
    raise RuntimeUnavailable(
        f"no check of it was fresher than {stage.fresh_seconds:g} s, and of after the last pod began, when the removal "
        "was to be sent"
    )


# ---- the removals of a node that have begun

CHECK_PATIENCE_SECONDS = 60.0  # more than what a check may ask to wait, and the deadlines of its questions
READERS = 8  # threads for stages that read: one for each lane at work, and some that hang in a filesystem
URGENT_IN_FLIGHT = 16  # removals on a disk that fills fast


def most_in_flight(parallel: int) -> int:
    """How many removals may be in flight on a disk that fills fast, where `parallel` are configured; 1 stays 1.

    A runtime that collects garbage before it answers does so once for all removals that came meanwhile (containerd,
    `metadata/gc.go`): with 300 images of 5 MiB two side by side free 230 MiB/s of a disk that fills by 400 MiB/s, and
    eight about as much as it fills. With time two are enough: twelve images of 20 MiB took 146 ms one by one, 107 by
    two, 96 by four or eight, and more in flight remove more than is needed.
    """
    return 1 if parallel == 1 else max(parallel, URGENT_IN_FLIGHT)


@dataclass(slots=True, eq=False)
class Removal:
    """One removal; times are monotonic seconds. `sent`: when its call was sent, None while the object is checked."""

    verdict: Verdict
    started: float
    sent: float | None = None
    parked: bool = False
    ended: bool = False

    def overdue_at(self, patience_seconds: float) -> float:
        """When it is parked, unless it ends before."""
        return self.started + CHECK_PATIENCE_SECONDS if self.sent is None else self.sent + patience_seconds


class Removals:
    """All removals of one node, of whatever lane. Any thread may call.

    `stopping`: set when nothing new may start. `parallel`: how many may go side by side without a hurry. `ended_at`:
    when one last ended, monotonic seconds: an older list may name what is gone.
    """

    def __init__(self, clock: Clock, stopping: threading.Event, parallel: int, listener: Listener | None = None):
        self._clock = clock
        self._stopping = stopping
        self._condition = threading.Condition()
        self._begun: set[Removal] = set()
        self.workers = Workers("removals", 0)
        self.set_parallel(parallel)
        self._listener = listener or Listener()
        self.ended_at = float("-inf")

    def set_parallel(self, parallel: int) -> None:
        """Another number. There may be as many threads as removals in a hurry, parked ones, and stages that read."""
        self.parallel = parallel
        self.workers.most = most_in_flight(parallel) + parallel + 1 + READERS

    def prepare(self) -> None:
        """Starts every thread. Raises NoThread."""
        self.workers.prepare(self.workers.most)

    def begin(
        self,
        verdict: Verdict,
        remove: Callable[[Callable[[], bool]], Outcome],
        ended: Callable[[Removal, Outcome], None],
    ) -> Removal:
        """Has a thread call `remove` with the question whether its call may be sent; and then, free for another one,
        `ended`, unless it was parked meanwhile. Raises NoThread, and then nothing has begun."""
        removal = Removal(verdict, self._clock.monotonic())
        awaited: list[Outcome] = []

        def run() -> None:
            outcome = remove(lambda: self._may_send(removal))
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

    def _may_send(self, removal: Removal) -> bool:
        """Right before its call: False if it was parked or a stop came meanwhile, so that it must not be sent."""
        with self._condition:
            if removal.parked or self._stopping.is_set():
                return False
            removal.sent = self._clock.monotonic()
            return True

    def end(self, removal: Removal, outcome: Outcome) -> bool:
        """It has ended. Whether its pass still waits for it; if not, the listener hears of it.

        It counts as parked until that has been told, so that no pass begins with what is out of date.
        """
        told = removal.parked
        try:
            if told:
                self._listener.parked_ended(outcome)
        finally:  # whatever a listener does, what has ended is not waited for
            self._forget(removal)
        if removal.parked and not told:  # parked in this moment
            self._listener.parked_ended(outcome)
        return not removal.parked

    def park(self, removal: Removal) -> Outcome | None:
        """Its pass does not wait for it any longer: its outcome for that pass. None if it has just ended."""
        with self._condition:
            if removal.ended:
                return None
            removal.parked = True
            seconds = self._clock.monotonic() - (removal.started if removal.sent is None else removal.sent)
        if removal.sent is None:  # no call went out, and none will
            error = f"the check before its removal has not ended for {seconds:.0f} s"
        else:
            error = f"its removal was sent {seconds:.0f} s ago and is not answered; it is waited for"
        outcome = Outcome(removal.verdict, Result.PARKED, error, seconds, may_have_gone=removal.sent is not None)
        self._listener.parked(outcome)
        return outcome

    @property
    def begun(self) -> tuple[Removal, ...]:
        """Those that have not ended, the oldest first."""
        with self._condition:
            return tuple(sorted(self._begun, key=lambda removal: removal.started))

    @property
    def ids(self) -> frozenset[str]:
        """The objects that are being removed, by whatever pass, parked or not."""
        with self._condition:
            return frozenset(removal.verdict.id for removal in self._begun)

    @property
    def parked(self) -> dict[str, Removal]:
        """Those that are parked, by the id of the object."""
        with self._condition:
            return {removal.verdict.id: removal for removal in self._begun if removal.parked}

    @property
    def stuck(self) -> bool:
        """Whether more are parked than may go side by side, so that none may be sent."""
        return len(self.parked) > self.parallel

    @property
    def stuck_sentence(self) -> str:
        """Why none may be sent while the runtime is stuck."""
        return (
            f"the runtime is stuck: {len(self.parked)} removals are not answered, "
            f"the oldest for {self.oldest_seconds:.0f} s; no more is sent until one of them ends"
        )

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest call that was sent is not answered; 0 if there is none."""
        sent = [removal.sent for removal in self.begun if removal.sent is not None]
        return max(self._clock.monotonic() - min(sent), 0.0) if sent else 0.0

    def wait(self, seconds: float) -> bool:
        """After a stop: waits until every call that was sent is answered, so many seconds at most; whether it is so."""
        with self._condition:
            return self._condition.wait_for(lambda: all(removal.sent is None for removal in self._begun), seconds)

    def _forget(self, removal: Removal) -> None:
        with self._condition:
            removal.ended = True
            self.ended_at = self._clock.monotonic()
            self._begun.discard(removal)
            self._condition.notify_all()
