"""Everything that happened in one pass, as one value.

It is the log line, the metrics, the event, the answer on the control socket, and the timeline of a drill
(`eviction.reporting.pass_record` has its JSON form).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from eviction.types import Decision, Threshold
from reclaim.types import Outcome, ReclaimResult
from signals.types import SignalObservations

if TYPE_CHECKING:
    from eviction.reporting.attribution import Attribution


class Trigger(StrEnum):
    """What started the pass: the polling interval, inotify, a command, or the lead, before the mark was reached."""

    INTERVAL = "interval"
    WATCH = "watch"
    REQUEST = "request"
    LEAD = "lead"


class PassResult(StrEnum):
    """How a pass ended."""

    IDLE = "idle"
    SATISFIED = "satisfied"
    NOT_ENOUGH = "not_enough"
    DRY_RUN = "dry_run"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds. `detect_seconds`: from the observation that met the threshold to the start of the pass."""

    detect_seconds: float = 0.0
    list_seconds: float = 0.0
    plan_seconds: float = 0.0
    remove_seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Pass:
    """Everything that happened in one pass.

    `measured_*`: the gain that the filesystems report, 0 if they have less than before; then `written_*` is how much
    less. `nominal_bytes`: the sizes that the runtime reported for the removed objects. `after`: the observations at the
    end. `started_wall`: seconds since the epoch. `attributions`: what the bytes are used for, one for each filesystem;
    measured when reclaim was not enough.
    """

    id: str
    started_wall: float
    trigger: Trigger
    observations: SignalObservations
    decision: Decision
    row: tuple[str, ...] = ()
    functions: tuple[ReclaimResult, ...] = ()
    measured_bytes: int = 0
    measured_inodes: int = 0
    written_bytes: int = 0
    written_inodes: int = 0
    result: PassResult = PassResult.IDLE
    reason: str = ""
    timings: Timings = Timings()
    after: SignalObservations | None = None
    still_met: tuple[Threshold, ...] = ()
    attributions: tuple[Attribution, ...] = ()

    @property
    def removals(self) -> tuple[Outcome, ...]:
        """The objects that were to be removed, function by function, in the order of the plans."""
        return tuple(outcome for function in self.functions for outcome in function.outcomes)

    @property
    def kept(self) -> tuple[Outcome, ...]:
        """The objects that were kept."""
        return tuple(outcome for function in self.functions for outcome in function.kept)

    @property
    def nominal_bytes(self) -> int:
        """Sum of the sizes that the runtime reported for the removed objects."""
        return sum(function.nominal_bytes for function in self.functions)

    @property
    def errors(self) -> tuple[str, ...]:
        """Why functions failed, each sentence once."""
        return tuple(dict.fromkeys(function.error for function in self.functions if function.error))
