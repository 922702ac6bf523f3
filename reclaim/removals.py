"""A removal from its claim to its end, as values: the states, what leads from one to the next, and how it ended.

Whoever wants to remove an object claims it first, so that nobody else sends it too. A claim is held until its last call
has ended, whatever has become of the pass that made it: a removal that was sent is never cancelled, because an
interrupted RemoveImage can leave a record behind that pins its bytes forever.

| State | What it waits for | Then |
|---|---|---|
| CHECKING | its check, on a worker | refused: it ends; not now: WAITING; may go: the gate, then SENT |
| | | may go, but too old by now: CHECKING once more |
| | | no end within a minute: ABANDONED |
| WAITING | its time | CHECKING |
| SENT | its call, on a worker | it ends |
| | | no end within the patience of its pass: LATE |
| LATE | its call, for nobody | it ends |
| ABANDONED | its check, for nobody | it ends, and nothing was sent |

While more removals are LATE than may run side by side, the runtime is stuck, and none is sent until one of them ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from reclaim.function import Ready, Refused, Wait
from reclaim.types import NEVER, Outcome, Reason, Result, Verdict

CHECK_PATIENCE_SECONDS = 60.0  # more than the waits a check may ask for plus the deadlines of its calls
CHECK_ATTEMPTS = 20  # where a processor is shared by many, a check takes longer than it may be old every other time
LOOK_FRESH_SECONDS = 0.05  # how long ago the last look may have ended when the removal is sent
URGENT_IN_FLIGHT = 16  # removals on a disk that fills fast


class State(StrEnum):
    """Where a removal is."""

    CHECKING = "checking"
    WAITING = "waiting"
    SENT = "sent"
    LATE = "late"
    ABANDONED = "abandoned"


AFTER: Final[Mapping[State, frozenset[State]]] = {
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


@dataclass(frozen=True, slots=True)
class Claim:
    """One removal that has begun and has not ended. Times are monotonic seconds."""

    pass_id: str
    stage: StageId
    verdict: Verdict
    claimed_at: float
    state: State = State.CHECKING
    again_at: float = NEVER
    """When it is checked again, while it waits."""
    sent_at: float | None = None
    attempts: int = 0
    """How many checks were too old when it was to be sent."""

    def to(self, state: State, **changes: object) -> Claim:
        """The same in its next state. Raises ValueError where the table has none such."""
        if state not in AFTER[self.state]:
            raise ValueError(f"a removal that is {self.state} cannot become {state}")
        return replace(self, state=state, **changes)  # type: ignore[arg-type] # fields of this class, by name

    @property
    def awaited(self) -> bool:
        """Whether its pass waits for it."""
        return self.state not in (State.LATE, State.ABANDONED)

    def overdue_at(self, patience_seconds: float) -> float:
        """When its pass goes on without it unless it ends first."""
        return self.claimed_at + CHECK_PATIENCE_SECONDS if self.sent_at is None else self.sent_at + patience_seconds


Claims = Mapping[str, Claim]
"""By the id of the object."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The answer of a check. `looked_at`: when its last look ended, if it may go (monotonic seconds)."""

    answer: Ready | Refused | Wait | None
    """None: the last look has shown that something has begun since, or could not be read: it is checked again."""
    looked_at: float = float("-inf")


def too_old(checked: Checked, fresh_seconds: float, now: float) -> bool:
    """Whether an answer says nothing about now any more, so that the object is checked again."""
    ready = checked.answer
    if ready is None:
        return True
    # what the last look covers is as old as its beginning, however long it took
    return isinstance(ready, Ready) and now - checked.looked_at > min(LOOK_FRESH_SECONDS, fresh_seconds)


def refused(claim: Claim, answer: Refused, now: float) -> Outcome:
    """The end of a removal whose object stays, is gone, or could not be checked."""
    verdict = claim.verdict if answer.reason is None else claim.verdict.kept(answer.reason)
    return Outcome(verdict, answer.result, answer.error, now - claim.claimed_at)


def kept(claim: Claim, reason: Reason, now: float) -> Outcome:
    """The end of a removal that the gate did not let pass."""
    return Outcome(claim.verdict.kept(reason), None, "", now - claim.claimed_at)


def never_fresh(claim: Claim, fresh_seconds: float, now: float) -> Outcome:
    """The end of a removal whose checks were all too old when it was to be sent."""
    error = (
        f"none of its {CHECK_ATTEMPTS} checks was fresher than {fresh_seconds:g} s, and of after the last "
        "container began, when the removal was to be sent"
    )
    return Outcome(claim.verdict, Result.FAILED, error, now - claim.claimed_at)


def left(claim: Claim, now: float) -> tuple[Claim, Outcome]:
    """The removal goes on for nobody; and its outcome for its pass."""
    if claim.sent_at is None:  # no call went out, and none will
        seconds = now - claim.claimed_at
        error = f"the check before its removal has not ended for {seconds:.0f} s"
        return claim.to(State.ABANDONED), Outcome(claim.verdict, Result.PARKED, error, seconds)
    seconds = now - claim.sent_at
    error = f"its removal was sent {seconds:.0f} s ago and is not answered; it is waited for"
    return claim.to(State.LATE), Outcome(claim.verdict, Result.PARKED, error, seconds)


def late(claims: Claims) -> list[Claim]:
    """Those that nobody waits for any more, the oldest first."""
    return sorted((claim for claim in claims.values() if not claim.awaited), key=lambda claim: claim.claimed_at)


def stuck(claims: Claims, parallel: int, now: float) -> str:
    """Why none may be sent, in a sentence, if more are late than may run side by side; else empty."""
    unanswered = late(claims)
    if len(unanswered) <= parallel:
        return ""
    return (
        f"the runtime is stuck: {len(unanswered)} removals are not answered, the oldest for "
        f"{oldest_seconds(claims.values(), now):.0f} s; no more is sent until one of them ends"
    )


def oldest_seconds(claims: Iterable[Claim], now: float) -> float:
    """How long the oldest unanswered call has been waiting; 0 if there is none."""
    return max((now - claim.sent_at for claim in claims if claim.sent_at is not None), default=0.0)


def limit_in_flight(parallel: int) -> int:
    """How many removals may be in flight on a disk that fills fast, if `parallel` are configured; 1 stays 1.

    A runtime that collects garbage before it answers does so once for all removals that arrive in the meantime
    (containerd, `metadata/gc.go`). With 300 images of 5 MiB, two at a time free 230 MiB/s of a disk that fills at 400
    MiB/s, while eight free about as much as it fills. Without urgency, two are enough: twelve images of 20 MiB took 146
    ms one by one, 107 ms two at a time, 96 ms four or eight at a time, and more in flight removes more than needed.
    """
    return 1 if parallel == 1 else max(parallel, URGENT_IN_FLIGHT)
