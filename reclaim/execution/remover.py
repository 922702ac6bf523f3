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
