"""A removal from its claim to its end: the states, what leads from one to the next, and the
two calls that may block.

Every object is checked once more right before its removal (`function`). Whoever wants to remove an
object claims it first, so that nobody else sends it too. A claim is held until its last call has
ended, whatever has become of the pass that made it.

| State | What it waits for | Then |
|---|---|---|
| CHECKING | its check, on a worker | refused: it ends; not now: WAITING; may go: gate, then SENT |
| | | may go, but too old by now: CHECKING once more |
| | | no end within a minute: ABANDONED |
| WAITING | its time | CHECKING |
| SENT | its call, on a worker | it ends |
| | | no end within the patience of its pass: LATE |
| LATE | its call, for nobody | it ends |
| ABANDONED | its check, for nobody | it ends, and nothing was sent |

While more removals are LATE than may run side by side, the runtime is stuck, and none is
sent until one of them ends.

Covers: one removal. Does not cover: the order of removals, when they stop and how long each is
waited for (`eviction.engine.relief`), what may be sent (`eviction.engine.gate`).
"""

import ctypes
import fcntl
import resource
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

from reclaim.function import Ready, Refused, Stage, Wait
from reclaim.trust import directory_at
from reclaim.types import (
    NEVER,
    AnsweredWithError,
    Outcome,
    ReclaimError,
    Result,
    RuntimeUnavailable,
    Verdict,
)
from signals.clock import Clock

# without an answer: more than the deadline of any call with all its retries and waits
HANGS_SECONDS = 60.0
# where a processor is shared by many, a check takes longer than it may be old every other time
CHECK_ATTEMPTS = 20
URGENT_IN_FLIGHT = 16  # removals on a disk that fills fast
BTRFS_IOC_START_SYNC, BTRFS_IOC_WAIT_SYNC = 0x8008_9418, 0x4008_9416  # <linux/btrfs.h>


class State(StrEnum):
    """Where a removal is."""

    CHECKING = "checking"
    WAITING = "waiting"
    SENT = "sent"
    LATE = "late"
    ABANDONED = "abandoned"


AFTER: Mapping[State, frozenset[State]] = {
    State.CHECKING: frozenset({State.CHECKING, State.WAITING, State.SENT, State.ABANDONED}),
    State.WAITING: frozenset({State.CHECKING, State.ABANDONED}),
    State.SENT: frozenset({State.LATE}),
    State.LATE: frozenset(),
    State.ABANDONED: frozenset(),
}
"""The states that may follow each. From any of them a removal may end."""


class StageId(NamedTuple):
    """One stage of a function in one pass. `number`: from 1 on."""

    function: str
    number: int
    last_resort: bool = False


class ClaimId(NamedTuple):
    """An object that is being removed.

    A dry run claims nothing that stands in a pass's way, so it is told apart.
    """

    object_id: str
    dry_run_of: str
    """The id of its pass, if that is a dry run."""


class Checked(NamedTuple):
    """The answer of a check, on which nothing was decided yet."""

    answer: Ready | Refused | Wait | None
    """None: it is too old already, or the last look has shown that something has begun
    since: it is checked again.
    """
    looked_at: float = float("-inf")
    """When its last look ended, if it may go (monotonic seconds)."""


class Claim(NamedTuple):
    """One removal that has begun and has not ended. Times are monotonic seconds."""

    pass_id: str
    stage: StageId
    verdict: Verdict
    claimed_at: float
    dry_run: bool
    state: State = State.CHECKING
    checked: Checked | None = None
    """While CHECKING: the answer, once it is there."""
    again_at: float = NEVER
    """While WAITING: when it is checked again."""
    ready_since: float = NEVER
    """When a check first said that it may go: where it is removed is read once more after that."""
    sent_at: float | None = None
    attempts: int = 0
    """How many checks were too old when it was to be sent."""

    @property
    def id(self) -> ClaimId:
        """What it is claimed under."""
        return ClaimId(self.verdict.id, self.pass_id if self.dry_run else "")

    @property
    def awaited(self) -> bool:
        """Whether its pass waits for it."""
        return self.state not in (State.LATE, State.ABANDONED)

    def overdue_at(self, patience_seconds: float) -> float:
        """When its pass goes on without it unless it ends first."""
        return (
            self.claimed_at + HANGS_SECONDS
            if self.sent_at is None
            else self.sent_at + patience_seconds
        )


Claims = Mapping[ClaimId, Claim]
"""The oldest first."""


def moved_to(claim: Claim, state: State) -> Claim:
    """The claim in its next state. Raises ValueError where the table has none such."""
    if state not in AFTER[claim.state]:
        raise ValueError(f"a removal that is {claim.state} cannot become {state}")
    return claim._replace(state=state, checked=None)


def waiting(claim: Claim, until: float) -> Claim:
    """It is checked again at this time."""
    return moved_to(claim, State.WAITING)._replace(again_at=until)


def checked_again(claim: Claim) -> Claim:
    """Its check begins once more: the last one was too old, or its time has come."""
    again = moved_to(claim, State.CHECKING)
    return again if claim.state is State.WAITING else again._replace(attempts=claim.attempts + 1)


def sent(claim: Claim, now: float) -> Claim:
    """Its call goes out."""
    return moved_to(claim, State.SENT)._replace(sent_at=now)


def left(claim: Claim, now: float) -> tuple[Claim, Outcome]:
    """The removal goes on for nobody; and its outcome for its pass. What was sent is never
    cancelled: an interrupted RemoveImage can leave a record behind that pins its bytes forever."""
    if claim.sent_at is None:  # no call went out, and none will
        state = State.ABANDONED
        seconds = now - claim.claimed_at
        error = f"the check before its removal has not ended for {seconds:.0f} s"
    else:
        state = State.LATE
        seconds = now - claim.sent_at
        error = f"its removal was sent {seconds:.0f} s ago and is not answered; it is waited for"
    return moved_to(claim, state), Outcome(
        claim.verdict, Result.PARKED, error, duration_seconds=seconds
    )


# ---- how it ends without a call


def refused(claim: Claim, answer: Refused, now: float) -> Outcome:
    """Its object stays, as the check or the gate says, is gone, or could not be checked."""
    verdict = claim.verdict if answer.reason is None else claim.verdict.kept(answer.reason)
    return Outcome(verdict, answer.result, answer.error, duration_seconds=now - claim.claimed_at)


def never_fresh(claim: Claim, fresh_seconds: float, now: float) -> Outcome:
    """All its checks were too old when it was to be sent."""
    return Outcome(
        claim.verdict,
        Result.FAILED,
        f"none of its {CHECK_ATTEMPTS} checks was fresher than {fresh_seconds:g} s, and of after"
        " the last container began, when the removal was to be sent",
        duration_seconds=now - claim.claimed_at,
    )


# ---- all of a node


def late(claims: Claims) -> list[Claim]:
    """Those that nobody waits for any more, the oldest first."""
    return [claim for claim in claims.values() if not claim.awaited]


def stuck(claims: Claims, parallel: int, now: float) -> str:
    """Why none may be sent: more are late than may run side by side. Empty if one may."""
    unanswered = late(claims)
    if len(unanswered) <= parallel:
        return ""
    return (
        f"the runtime is stuck: {len(unanswered)} removals are not answered, the oldest for "
        f"{oldest_seconds(claims.values(), now):.0f} s; no more is sent until one of them ends"
    )


def sent_claims(claims: Claims) -> tuple[Claim, ...]:
    """Those whose call went out, the oldest first."""
    return tuple(claim for claim in claims.values() if claim.sent_at is not None)


def oldest_seconds(claims: Iterable[Claim], now: float) -> float:
    """How long the oldest unanswered call has been waiting; 0 if there is none."""
    return max((now - claim.sent_at for claim in claims if claim.sent_at is not None), default=0.0)


def limit_in_flight(parallel: int) -> int:
    """How many removals may be in flight on a disk that fills fast; 1 stays 1.

    `parallel`: as configured. A runtime that collects garbage before it answers does so once for
    all removals that arrive in the meantime (containerd, `metadata/gc.go`). With 300 images of 5
    MiB, two at a time free 230 MiB/s of a disk that fills at 400 MiB/s, while eight free about as
    much as it fills. Without urgency, two are enough: twelve images of 20 MiB took 146 ms one by
    one, 107 ms two at a time, 96 ms four or eight at a time, and more in flight removes more than
    needed.
    """
    return 1 if parallel == 1 else max(parallel, URGENT_IN_FLIGHT)


# ---- the two calls, on a worker


def check(verdict: Verdict, stage: Stage, clock: Clock) -> Checked:
    """Checks one object, and takes the last look. Never raises because of what the runtime or
    the filesystem does: an answer that is an error fails this object alone; only a silent
    runtime leaves it UNANSWERED."""
    try:
        answer = stage.check(verdict)
    except AnsweredWithError as error:
        return Checked(Refused(result=Result.FAILED, error=str(error)))
    except RuntimeUnavailable as error:
        return Checked(Refused(result=Result.UNANSWERED, error=str(error)))
    if not isinstance(answer, Ready):
        return Checked(answer)
    # the last look covers what has begun since, however long it takes: so the
    # age counts when it begins
    in_time = clock.monotonic() - answer.checked_at <= stage.fresh_seconds
    if not in_time or not answer.holds():
        return Checked(None)
    return Checked(answer, clock.monotonic())


def send(
    verdict: Verdict, stage: Stage, clock: Clock, *, sent_at: float, btrfs: Sequence[str] = ()
) -> Outcome:
    """The one call, and the question whether the object is gone: it counts as removed if it is
    absent when asked afterwards, whatever the call answered. `btrfs`: a path on each btrfs of the
    node, which commits what was removed: by itself it does so every 30 s, and shows until then that
    nothing was freed. Never raises ReclaimError."""

    def outcome(result: Result, error: str = "") -> Outcome:
        return Outcome(verdict, result, error, duration_seconds=clock.monotonic() - sent_at)

    failure = ""
    was_there = True
    try:
        was_there = stage.remove(verdict)
    except ReclaimError as error:
        failure = str(error)
    try:
        if stage.present(verdict):
            return outcome(
                Result.FAILED, failure or "the runtime reported success but still has it"
            )
    except AnsweredWithError as error:
        return outcome(Result.FAILED, failure or f"whether it is gone is not known: {error}")
    except RuntimeUnavailable as error:
        return outcome(Result.UNANSWERED, failure or str(error))
    if not was_there:
        return outcome(Result.ALREADY_GONE, failure)
    for path in btrfs:
        commit_btrfs(path)
    return outcome(Result.REMOVED, failure)


def write_back(path: str, coming_bytes: int, vmstat: str = "/proc/vmstat") -> None:
    """Writes what waits to be written to the filesystem of a path (syncfs(2)), if so many bytes
    more would make the kernel write it back. Else a removal's fsync does not wait for it: ext4
    has not allocated it yet. May take long; what cannot be written is left as it is."""
    with suppress(OSError):
        with open(vmstat, encoding="ascii") as file:
            pages = {name: int(value) for name, value in map(str.split, file)}
        waiting = pages["nr_dirty"] + coming_bytes // resource.getpagesize()
        if waiting < pages["nr_dirty_background_threshold"]:
            return
        with directory_at(path) as directory:
            ctypes.CDLL(None).syncfs(directory)


def commit_btrfs(path: str) -> None:
    """Has the btrfs that a path is on commit its transaction, without data that is still to be
    written: some 5 ms. If it cannot, it commits as it would by itself."""
    with suppress(OSError), directory_at(path) as directory:
        transaction = fcntl.ioctl(directory, BTRFS_IOC_START_SYNC, bytes(8))
        fcntl.ioctl(directory, BTRFS_IOC_WAIT_SYNC, transaction)
