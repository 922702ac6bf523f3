"""Everything that is known and under way on one node, as one frozen value, and what happens to it.

Only the owner replaces it (`owner`); everybody else reads the last one. `fold` takes in one event and decides nothing;
what follows is decided by `step`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eviction.configuration.effective import Configuration
from eviction.decision.headroom import FillRates, update_fill_rates
from eviction.decision.synchronize import ManagerState
from eviction.engine.relief import URGENT_PATIENCE_SECONDS, RunningPass
from eviction.types import Decision, Extent
from reclaim.functions import FunctionTable
from reclaim.removals import Claims
from reclaim.types import NEVER
from signals.filesystems import FilesystemPaths
from signals.summary import PublishedReadings
from signals.types import SignalObservations

FIRST_SECONDS = 1.0  # assumed duration of a removal on a disk under full write load, until one is known
REMEMBERED = 8  # removals whose durations count
LONGEST_PAUSE_SECONDS = 86_400.0  # a forgotten pause must end by itself


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is removed until a time that an operator has set, or while it is not known whether one was set."""

    until: float = float("-inf")
    """Monotonic seconds."""
    unknown: str = ""
    """Why it is not known whether one is in force, as a clause; empty if it is."""
    count: int = 0
    """How many were begun."""

    def in_force(self, now: float) -> bool:
        """Whether nothing may be removed now."""
        return now < self.until

    def begun(self, now: float, seconds: float, unknown: str = "") -> Pause:
        """The pause that begins now; it replaces an earlier one."""
        return Pause(now + min(seconds, LONGEST_PAUSE_SECONDS), unknown, self.count + 1)

    def ended(self) -> Pause:
        """There is none any more."""
        return replace(self, until=float("-inf"), unknown="")


@dataclass(frozen=True, slots=True)
class BackOff:
    """The pause of one row of the reclaim table after a pass."""

    until: float = float("-inf")
    """When it ends (monotonic seconds)."""
    seconds: float = 0.0
    """How long it is."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What is remembered of one filesystem between passes. One pass at a time relieves it."""

    back_offs: Mapping[tuple[str, ...], BackOff] = field(default_factory=dict)
    """By row."""
    lead_used: bool = False
    """The lead has begun a pass since the mark was last reached; one is enough."""
    another_waits: bool = False
    """Another row of this filesystem has become due while a pass runs."""
    met_at: float = float("-inf")
    """When one of its thresholds was last met."""


@dataclass(frozen=True, slots=True)
class World:
    """One node as it is known now. Times are monotonic seconds."""

    now: float
    configuration: Configuration
    functions: FunctionTable
    manager: ManagerState
    paths: FilesystemPaths
    imagefs_problem: str
    observations: SignalObservations
    """Of the last readings."""
    decision: Decision
    """Of the last look."""
    readings: PublishedReadings = field(default_factory=dict)
    fill_rates: FillRates = field(default_factory=dict)
    dry_run: bool = False
    stopping: bool = False
    pause: Pause = Pause()
    removals: Claims = field(default_factory=dict)
    removal_ended_at: float = float("-inf")
    durations: tuple[float, ...] = ()
    """How long the last removals have taken, for objects whose size the runtime promises."""
    passes: Mapping[str, RunningPass] = field(default_factory=dict)
    lanes: Mapping[int | None, Lane] = field(default_factory=dict)
    """By device; None: of what cannot be read."""
    cooling_until: Mapping[str, float] = field(default_factory=dict)
    """Until when a function is not called again."""
    look_due: float = float("-inf")
    awaited: frozenset[str] = frozenset()
    """Paths of the present look that have not answered yet."""

    @property
    def removal_seconds(self) -> float:
        """How long removals have lately taken: the slowest of the last few, capped at how long one is waited for."""
        return min(max(self.durations, default=FIRST_SECONDS), URGENT_PATIENCE_SECONDS)

    @property
    def lead_seconds(self) -> float:
        """How long before the kubelet's mark a pass begins at the latest. 0 if the lead is switched off, or if it gains
        nothing because the pass goes to the end of its row."""
        of_use = self.configuration.lead and self.configuration.extent is Extent.ENOUGH
        return self.removal_seconds if of_use else 0.0
