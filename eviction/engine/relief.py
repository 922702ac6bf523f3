"""One pass over a row of the reclaim table: relieved? next candidate; check; send; measure.

A pass is a value. `advance` says what follows for it now: it is called after everything that happens, and looks up what
is in force in the world, never what was when the pass began. It reads nothing and waits for nothing: what it needs is
asked for, as an effect, and the answer is the next thing that happens.

* The functions of the row come in order, as in the kubelet; an error in one does not stop the next. With `extent:
  enough` the pass ends once every threshold that the function can relieve is clear, minimum reclaim included.
* After every removal the filesystem of its goal is read anew, and nothing is begun before that reading.
* Urgency is one number: the seconds until the filesystem reaches the level it must not reach. It decides how many
  removals are in flight, how long each is waited for, and whether space that arrives late is waited for; nothing else.
* While removals are in flight, another one is begun only if what they promise is not enough.
* If it is urgent, the pass begins with the functions whose objects do not depend on each other, side by side.
* What goes only as a last resort comes after the row, and only if everything else is gone or must stay: after an error,
  or while a removal is not answered, it is not known that nothing else is enough.
* A pass by another configuration than the one in force, or in another layout, ends; the next one decides anew.
* A pass that the lead began (`eviction.decision.headroom`) removes one object of each function while its mark is not
  reached, and ends when it is no longer urgent.
* A dry run takes the same path minus the one call: promised sizes of what would be removed count as free instead.

Covers: which object is next, when a pass ends, what it waits for. Does not cover: whether an object may go (the stages
and `gate`), which removals have begun (`reclaim.removals`), how the record reads (`eviction.record`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eviction.decision.headroom import FillRates, faster, urgency
from eviction.decision.thresholds import thresholds_met
from eviction.engine.effects import Check, Effect, Plan, Read
from eviction.record import Trigger
from eviction.types import Decision, Extent, Threshold
from reclaim import types
from reclaim.removals import Claim, StageId, limit_in_flight, stuck
from reclaim.types import NEVER, Outcome, Reason, Result, Usage, Verdict
from signals.types import SignalObservations

if TYPE_CHECKING:
    from eviction.engine.world import World

URGENT_SECONDS = 60.0  # a minute: some hundred removals one after another, or ten that wait for a busy disk
URGENT_PATIENCE_SECONDS = 5.0  # how long a removal is waited for if it is urgent
TURNS = 8  # side by side, one removal in this many promises no size: 500 dead containers may hold nothing


@dataclass(frozen=True, slots=True)
class Request:
    """What a command asks for in place of the configured behaviour; None: as configured."""

    row: tuple[str, ...] | None = None
    """Call these functions whatever the pressure."""
    until: tuple[Threshold, ...] | None = None
    """Thresholds to reach in place of the configured ones."""
    extent: Extent | None = None
    every_function: bool = False
    """Include those that wait for a lower mark, to show what they would remove."""
    now: bool = False
    """A pause that was begun before does not count."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class StageRun:
    """One stage of a function in a pass."""

    id: StageId
    asked_at: float
    """When its plan was asked for (monotonic seconds)."""
    plan: types.Plan | None = None
    """None: it is not there yet."""
    plan_seconds: float = 0.0
    begun: int = 0
    """How many objects of the plan have been taken, in its order."""
    outcomes: tuple[Outcome, ...] = ()
    kept: tuple[Outcome, ...] = ()
    error: str = ""
    relieved: bool = False
    ended_at: float | None = None

    @property
    def next(self) -> Verdict | None:
        """The next object of its plan; None: there is none, or no plan yet."""
        if self.plan is None or self.begun >= len(self.plan.remove):
            return None
        return self.plan.remove[self.begun]


@dataclass(frozen=True, slots=True)
class RunningPass:
    """A pass that has begun. Times are monotonic seconds."""

    id: str
    trigger: Trigger
    request: Request
    observations: SignalObservations
    """Those that caused it."""
    decision: Decision
    row: tuple[str, ...]
    began_at: float
    started_wall: float
    begun_rates: FillRates = field(default_factory=dict)
    pause_count: int | None = None
    """A pause that was begun before does not stop it; None: every one does."""
    current: tuple[StageRun, ...] = ()
    """The stages that run now, side by side if there are several."""
    done: tuple[StageRun, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Functions that were not called, and why."""
    at: int = 0
    """The function of the row that comes after the current stages."""
    last_resort: bool = False
    crossed: bool = True
    """Whether its mark was reached: until then, a pass of the lead removes one object of each function."""
    measure_after: float = float("-inf")
    """Nothing is begun before a reading that began after this."""
    ended: bool = False
