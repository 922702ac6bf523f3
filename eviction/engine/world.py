"""Everything that is known and under way on one node, as one frozen value.

Only the owner replaces it (`owner`); everybody else reads the last one. What happens is taken in by
`fold`; what follows is decided by `step` and, for a pass, by `relief`. Times are monotonic seconds
of the node's clock, unless a name says `wall`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from eviction.configuration.effective import Configuration, eviction_config
from eviction.decision.headroom import FillRates, Outlook, faster, with_needed
from eviction.decision.synchronize import EvictionConfig, ManagerState
from eviction.decision.thresholds import raise_pressure
from eviction.engine.effects import Effect, PassWanted, Request, Tell
from eviction.records.passes import PeriodicLoop, Trigger
from eviction.types import Decision, Extent, NodeCondition, Row
from reclaim.function import NO_PRESSURE, Pressure
from reclaim.functions.table import FUNCTIONS, FunctionTable
from reclaim.removals import Claim, Claims, StageId
from reclaim.types import NEVER, Outcomes, Plan, Usage, Verdict
from signals.filesystems import FilesystemPaths
from signals.interval import MIN_NOTIFY_SECONDS
from signals.quantity import format_duration
from signals.summary import PublishedReadings
from signals.types import FilesystemRole, SignalObservations

TICK_SECONDS = MIN_NOTIFY_SECONDS  # what runs, or may become urgent, is looked at again so soon
RETRY_SECONDS = 1.0  # what has failed, or is held off, is tried again
SELDOM_SECONDS = 60.0  # what is of no use at present is tried again
URGENT_PATIENCE_SECONDS = 5.0  # how long a removal is waited for if it is urgent
# assumed duration of a removal on a disk under full write load, until one is known
FIRST_SECONDS = 1.0
REMEMBERED = 8  # removals whose durations count
LONGEST_PAUSE_SECONDS = 86_400.0  # a forgotten pause must end by itself

FOREVER_AGO = float("-inf")
NOTHING = Usage()
EMPTY: Mapping[Any, Any] = MappingProxyType({})

LaneName = int | str | None
"""What one pass at a time has: a device; or which dry run or periodic loop it is."""

Loops = Mapping[LaneName, PeriodicLoop]
"""By what they collect."""


# ---- what holds removals back


@dataclass(frozen=True)
class Pause:
    """Nothing is removed until a time that an operator has set, or while it is not
    known whether one was set.
    """

    until: float = FOREVER_AGO
    because_unknown: str = ""
    """Why it is not known whether one is in force, as a clause; empty if it is."""
    count: int = 0
    """How many were begun."""

    def begun(self, now: float, seconds: float, unknown: str = "") -> Pause:
        """The pause that begins now; it replaces an earlier one."""
        return Pause(now + min(seconds, LONGEST_PAUSE_SECONDS), unknown, self.count + 1)

    def ended(self) -> Pause:
        """There is none any more."""
        return replace(self, until=FOREVER_AGO, because_unknown="")


# ---- a pass that runs


class StageRun(NamedTuple):
    """One stage of a function in a pass."""

    id: StageId
    asked_at: float
    """When its plan was asked for."""
    progress_at: float
    """When the runtime last answered a call of its plan."""
    plan: Plan | None = None
    """None: it is not there yet."""
    plan_seconds: float = 0.0
    planned_at: float = NEVER
    fresh_seconds: float = 0.0
    frees_late: bool = False
    patience_seconds: float | None = None
    last: bool = True
    """Whether no stage of its function follows."""
    taken: int = 0
    """How many objects of the plan have been claimed or left out, in its order."""
    begun: int = 0
    """How many of them have been claimed."""
    outcomes: Outcomes = ()
    kept: Outcomes = ()
    error: str = ""
    relieved: bool = False
    """Nothing more was to be removed, by it or what follows."""
    silent: bool = False
    """The runtime did not answer: no more of it, nor of what runs beside it, is begun."""
    ended_at: float = NEVER

    @property
    def next(self) -> Verdict | None:
        """The next object of its plan; None: there is none, or no plan yet."""
        if self.plan is None or self.taken >= len(self.plan.remove):
            return None
        return self.plan.remove[self.taken]


class Settling(NamedTuple):
    """A pass waits for space that the runtime frees after its answer."""

    at_end: bool
    """Whether the pass ends then; else it goes on."""
    began_at: float
    quiet_since: float
    """When the filesystem last gained."""
    best: Usage
    """The most that it had gained by then."""
    read_at: float
    """When it is read next."""


class RunningPass(NamedTuple):
    """A pass that has begun and has not ended."""

    id: str
    trigger: Trigger
    request: Request
    observations: SignalObservations
    """Those that caused it."""
    decision: Decision
    row: Row
    lane: LaneName
    configuration: Configuration
    """By which it removes: once another is in force, it ends."""
    began_at: float
    started_wall: float
    begun_rates: FillRates
    pause_count: int | None
    """A pause that was begun before does not stop it; None: every one does."""
    dry_run: bool
    wanted: PassWanted | None = None
    """Who waits for its record."""
    current: tuple[StageRun, ...] = ()
    """The stages that run now; side by side if there are several."""
    done: tuple[StageRun, ...] = ()
    skipped: Mapping[str, str] = EMPTY
    """Functions that were not called, and why."""
    at: int = 0
    """The place in its row of the function whose stages run, or come next."""
    last_resort: bool = False
    """Whether the row is called for what goes only as a last resort."""
    urgent: bool = False
    """Whether its filesystem is full within a minute, as measured last."""
    assumed: Mapping[FilesystemRole, int] = EMPTY
    """Bytes that a dry run has planned to free, by filesystem."""
    planned: tuple[Verdict, ...] = ()
    """What a dry run has planned to remove, in stages that have ended."""
    pressure: Pressure = NO_PRESSURE
    """What it acts on, as measured last."""
    measure_after: float = FOREVER_AGO
    """Nothing is begun before a reading that began after this."""
    gained: Usage = NOTHING
    """What its filesystems have gained since it began, as far as that is booked to it."""
    measured: Usage = NOTHING
    """The same when a removal of its was last measured."""
    unmeasured: Outcomes = ()
    """Removals that have ended since."""
    settling: Settling | None = None
    progress_at: float = FOREVER_AGO
    """When a call of its was last answered, or a removal of its ended."""
    ended: bool = False

    @property
    def measures(self) -> bool:
        """Whether it reads the disk between its removals: the kubelet's periodic passes do not."""
        return self.trigger is not Trigger.PERIODIC

    @property
    def extent(self) -> Extent:
        """How far it goes."""
        return self.request.extent or self.configuration.extent

    @property
    def function(self) -> str:
        """The function whose stages run, or that comes next; empty after the row."""
        return self.row[self.at] if self.at < len(self.row) else ""

    def stage(self, stage: StageId) -> StageRun | None:
        """One of the stages that run; None if it does not run any more."""
        return next((run for run in self.current if run.id == stage), None)

    def with_stage(self, run: StageRun) -> RunningPass:
        """The same with this stage in place of the one with its id."""
        return self._replace(
            current=tuple(run if other.id == run.id else other for other in self.current)
        )


# ---- what is remembered between passes


class LookWhy(StrEnum):
    """Why the next look is due when it is: for people."""

    WANTED = "it was asked for"
    RELIEVING = "a pass runs"
    TO_RELIEVE = "a pass is due"
    HELD_OFF = "a pass is due, but held off"
    BACKS_OFF = "the row pauses after a pass that was not enough"
    EMPTY_ROW = "the row names no function"
    NOT_YET = "a threshold is met, but not to be acted on yet"
    POLLED = "a mark is near, and polls look in between"
    NOTHING_FILLS = "a mark is near, but nothing fills"
    HALFWAY = "halfway to the next mark"
    NO_MARK_NEAR = "no mark can be reached sooner"


class BackOff(NamedTuple):
    """The pause of one row of the reclaim table after a pass."""

    until: float = FOREVER_AGO
    seconds: float = 0.0
    """How long it is."""


class Lane(NamedTuple):
    """What is remembered of one filesystem between its passes."""

    back_offs: Mapping[Row, BackOff] = EMPTY
    """By row."""
    another_waits: bool = False
    """Another row of this filesystem, or a command, has become due while a pass runs."""
    met_at: float = FOREVER_AGO
    """When one of its thresholds was last met."""
    ended_at: float = FOREVER_AGO
    """When a pass of it last ended."""

    def back_off(self, row: Row) -> BackOff:
        """The pause of a row."""
        return self.back_offs.get(row, BackOff())


class Writeback(NamedTuple):
    """The early writeback of one filesystem. `since`: of the one that is under way, if any."""

    since: float | None = None
    ended_at: float = 0.0


class Look(NamedTuple):
    """An observation that has begun. `awaited`: paths that have not answered."""

    began_at: float
    awaited: frozenset[str]


class Asking(NamedTuple):
    """When the runtime is asked where its images are, and who uses them."""

    locate_due: float = FOREVER_AGO
    locating_since: float | None = None
    """Since when an answer is awaited."""
    overdue_told: bool = False
    refresh_due: float = FOREVER_AGO
    refreshing_since: float | None = None
    problem: str = ""
    """Why the runtime did not answer last."""


class World(NamedTuple):  # of which a changed copy costs a tenth of a dataclass's
    """One node as it is known now."""

    now: float
    wall: float
    configuration: Configuration
    functions: FunctionTable
    config: EvictionConfig
    """The part of the configuration that decisions use."""
    manager: ManagerState
    paths: FilesystemPaths
    observations: SignalObservations
    """Of the last readings."""
    decision: Decision
    """Of the last look."""
    imagefs_problem: str = ""
    """Why it is not known where images are."""
    on_its_own: bool = False
    """Whether it looks and relieves by itself, as the daemon does; else only
    what is asked for is done.
    """
    dry_run: bool = False
    """Whether the command line says that nothing is removed."""
    stopping: bool = False
    hold_off_until: float = FOREVER_AGO
    """After a start nothing is removed until then, or until the kubelet is healthy."""
    pause: Pause = Pause()
    readings: PublishedReadings = EMPTY
    fill_rates: FillRates = EMPTY
    removals: Claims = EMPTY
    removal_ended_at: float = FOREVER_AGO
    writebacks: Mapping[int, Writeback] = EMPTY
    """By device."""
    durations: tuple[float, ...] = ()
    """How long the last removals have taken, for objects whose size the runtime promises."""
    passes: Mapping[str, RunningPass] = EMPTY
    booked_to: Mapping[int, str] = EMPTY
    """By device: the pass to which its gains are booked."""
    wanted: tuple[PassWanted, ...] = ()
    """Passes that commands wait for."""
    lanes: Mapping[LaneName, Lane] = EMPTY
    hanging: frozenset[StageId] = frozenset()
    """Stages whose plan did not end in time; nothing asks for it again before it has ended."""
    cooling_until: Mapping[str, float] = EMPTY
    """Until when a function is not called again."""
    look: Look | None = None
    look_due: float = FOREVER_AGO
    look_why: LookWhy = LookWhy.WANTED
    """Why it is due then."""
    look_floor: float = FOREVER_AGO
    """An earlier look that is wanted, but not urgent, does not begin before."""
    looked_at: float = FOREVER_AGO
    looks: int = 0
    """How many have ended."""
    look_is_wanted: bool = False
    """Whether the next look was asked for, and not due by itself."""
    asking: Asking = Asking()
    periodic: Loops = EMPTY
    effects: tuple[Effect, ...] = ()
    """What follows, and was not handed out yet."""
    ids_begin: str = ""
    """How the ids of its passes begin, in hexadecimal digits."""
    passes_begun: int = 0
    empty_row_due: float = FOREVER_AGO
    """When it is told again that the row of a threshold has no function to call."""

    @property
    def removes_nothing(self) -> bool:
        """Whether nothing is removed, only reported."""
        return self.dry_run or self.configuration.dry_run

    @property
    def lead_seconds(self) -> float:
        """How long before the kubelet's mark a pass begins at the latest: as long as removals have
        lately taken, at most as long as one is waited for; 0 if the lead is switched off, or gains
        nothing because a pass goes to the end of its row."""
        if not self.configuration.lead or self.configuration.extent is not Extent.ENOUGH:
            return 0.0
        return min(max(self.durations, default=FIRST_SECONDS), URGENT_PATIENCE_SECONDS)

    @property
    def outlook(self) -> Outlook:
        """How soon a mark could be reached."""
        configuration = self.configuration
        return Outlook(
            self.observations,
            self.fill_rates,
            configuration.poll_floor_seconds,
            ceiling_seconds=configuration.poll_ceiling_seconds,
            assumed_fill_rate=configuration.assumed_fill_rate,
        )

    def ahead(self, observations: SignalObservations) -> SignalObservations:
        """The observations with what is needed for what is coming, as it fills now, and no slower
        than when the pass began that removes there: what it frees hides what is written."""
        begun = {
            amount: rate
            for device, pass_id in self.booked_to.items()
            # a periodic pass may last longer than a fill
            if (running := self.passes.get(pass_id)) is not None and running.measures
            for amount, rate in running.begun_rates.items()
            if amount == (device, False)
        }
        return with_needed(
            observations,
            faster(begun, self.fill_rates),
            kubelets=self.config.kubelets_in_layout(observations.layout),
            lead_seconds=self.lead_seconds,
        )

    @property
    def under_pressure(self) -> bool:
        """Whether ReclaimPressure is reported."""
        return NodeCondition.RECLAIM_PRESSURE in self.decision.conditions

    @property
    def pressed(self) -> bool:
        """Whether a threshold is met because of which it is; it is reported for
        some minutes after.
        """
        return raise_pressure(self.decision.thresholds_met)

    def pause_left_seconds(self) -> float:
        """How much longer an operator's pause lasts; 0 without one."""
        return max(self.pause.until - self.now, 0.0)

    def pause_is_unknown(self) -> bool:
        """Whether it lasts only because it is not known whether one is in force."""
        return bool(self.pause.because_unknown) and self.now < self.pause.until

    def pause_ends(self) -> str:
        """When it ends, as a time of day; empty without one."""
        left = self.pause_left_seconds()
        if left <= 0:
            return ""
        return datetime.fromtimestamp(self.wall + left, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def paused(self) -> str:
        """Why nothing may be removed because of an operator, in a sentence; empty if it may."""
        until = self.pause_ends()
        unknown = self.pause.because_unknown
        because = f", as whether a pause is in force is not known: {unknown}" if unknown else ""
        return f"paused until {until}{because} (reclaimd resume ends it)" if until else ""

    def held_off(self) -> str:
        """Why no pass may begin by itself, in a sentence; empty if one may."""
        if paused := self.paused():
            return paused
        left = self.hold_off_until - self.now
        if left <= 0:
            return ""
        return held_off_sentence(left, asked=self.configuration.kubelet_healthz is not None)

    def lane(self, name: LaneName) -> Lane:
        """What is remembered of a filesystem."""
        return self.lanes.get(name, Lane())

    def with_lane(self, name: LaneName, **changed: Any) -> World:
        """The same with these fields of a lane."""
        return self._replace(lanes={**self.lanes, name: self.lane(name)._replace(**changed)})

    def with_back_off(self, name: LaneName, row: Row, back_off: BackOff) -> World:
        """The same with this pause of a row."""
        return self.with_lane(name, back_offs={**self.lane(name).back_offs, row: back_off})

    def with_claim(self, claim: Claim) -> World:
        """The same with this claim."""
        return self._replace(removals={**self.removals, claim.id: claim})

    def with_pass(self, running: RunningPass) -> World:
        """The same with this pass."""
        return self._replace(passes={**self.passes, running.id: running})

    def emitting(self, *effects: Effect) -> World:
        """The same, with more that is to be done."""
        return self._replace(effects=(*self.effects, *effects))

    def telling(self, what: str, *about: object) -> World:
        """The same with one more piece of news."""
        return self.emitting(Tell(what, about))

    def without(self, wanted: PassWanted) -> World:
        """The same, in which nobody waits for this pass to begin."""
        return self._replace(wanted=tuple(other for other in self.wanted if other is not wanted))

    def claims_of(self, running: RunningPass) -> tuple[Claim, ...]:
        """The removals that a pass waits for: being checked, or sent and not answered."""
        return tuple(
            claim
            for claim in self.removals.values()
            if claim.pass_id == running.id and claim.awaited
        )

    def under_way(self) -> Iterator[Claim]:
        """The removals of all passes but dry runs, whoever waits for them."""
        return (claim for claim in self.removals.values() if not claim.dry_run)

    def removing(self) -> Iterator[RunningPass]:
        """The passes that may remove something."""
        return (running for running in self.passes.values() if not running.dry_run)

    def asks_the_runtime(self) -> bool:
        """Whether a pass runs that asks the runtime for its lists, and that
        nothing else may hold up.
        """
        return any(FUNCTIONS.keys() & set(running.row) for running in self.removing())

    def functions_here(self) -> Row:
        """All functions that rows name and that free space on a filesystem of this node."""
        return tuple(
            name
            for name in self.functions
            if name in self.config.functions
            and self.functions[name].frees in self.observations.filesystems
        )


def first_world(
    configuration: Configuration,
    functions: FunctionTable,
    paths: FilesystemPaths,
    *,
    now: float,
    wall: float,
) -> World:
    """A node that nothing is known of yet: nothing is due, and nothing begins by itself."""
    return World(
        now=now,
        wall=wall,
        configuration=configuration,
        functions=functions,
        config=eviction_config(configuration),
        manager=ManagerState(),
        paths=paths,
        observations=SignalObservations({}, None, now, wall_time=wall),
        decision=Decision(frozenset()),
        look_due=NEVER,
    )


def held_off_sentence(left_seconds: float, *, asked: bool) -> str:
    """Why nothing is removed yet after a start. `asked`: whether the kubelet is."""
    unless = ", unless the kubelet answers on /healthz before" if asked else ""
    return (
        f"nothing is removed for {format_duration(round(left_seconds))}{unless}: after a boot all"
        " pods look dead until the kubelet has started them"
    )
