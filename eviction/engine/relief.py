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
    configuration: object = None  # TO DO: Configuration
    parallel: int | None = None
    """Removals side by side; None: as configured."""
    assumed_bytes: int = 0
    """What a dry run has planned to free."""
    measure_after: float = float("-inf")
    """Nothing is begun before a reading that began after this."""
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Goal:
    """What one function of the row has to clear, as the world is now."""

    thresholds: tuple[Threshold, ...]
    waits: bool
    """It is called only below a mark of its own, which is lower."""
    stops: bool
    """Whether it may stop early at all."""


def goal_of(the: RunningPass, function: str, world: World) -> Goal:
    """The thresholds that the function can relieve; or what was asked for in their place."""
    config, observations = world.manager.config, world.observations
    waits = not the.request.every_function and config.waits(function, observations)
    thresholds = config.goal(function, observations)
    if the.request.until is not None and not waits:
        thresholds = the.request.until
    enough = (the.request.extent or world.configuration.extent) is Extent.ENOUGH
    return Goal(thresholds, waits, waits or (enough and bool(thresholds)))


@dataclass(frozen=True, slots=True)
class Disk:
    """The filesystem of a goal as it is now."""

    stop: Reason | None = None
    """Why nothing more is removed: RELIEVED, UNREADABLE or LAYOUT_CHANGED; None: removals go on."""
    seconds_left: float = NEVER
    """The urgency."""
    crossed: bool = True
    """Whether the mark that began the pass is reached."""
    unread: frozenset[str] = frozenset()
    """Paths of which there is no reading yet that began after the last removal."""


def disk_of(the: RunningPass, function: str, world: World, promised_bytes: int = 0) -> Disk:
    """The disk, as if this many more bytes were available where the function frees space."""
    goal, seen = goal_of(the, function, world), world.observations
    of_goal = [seen.signals[one.signal] for one in goal.thresholds if one.signal in seen.signals]
    unread = frozenset(
        each.filesystem.path
        for each in of_goal
        if each.filesystem is not None and not each.stale and each.time <= the.measure_after
    )
    if unread:
        return Disk(unread=unread)
    rates, kubelets = faster(the.begun_rates, world.fill_rates), world.manager.config.kubelets_in_layout(seen.layout)
    seconds_left = urgency(goal.thresholds, seen, rates, kubelets)
    if (the.request.extent or world.configuration.extent) is Extent.ALL:
        seconds_left = NEVER  # then nothing is urgent
    began_it = () if the.decision.acted_on is None else (the.decision.acted_on,)
    crossed = the.crossed or bool(thresholds_met(began_it, seen.signals, enforce_min_reclaim=False))
    relieved = seconds_left >= world.lead_seconds
    if crossed:
        promised = with_promised(seen, world.functions[function].frees, promised_bytes)
        relieved = not thresholds_met(goal.thresholds, promised.signals, enforce_min_reclaim=True)
    stop = None
    if moved(the.observations, seen):
        stop = Reason.LAYOUT_CHANGED
    elif goal.stops and any(each.stale for each in of_goal):
        stop = Reason.UNREADABLE  # going on without a reading could remove everything
    elif goal.stops and relieved:
        stop = Reason.RELIEVED
    return Disk(stop, seconds_left, crossed)


def advance(the: RunningPass, world: World) -> tuple[RunningPass, tuple[Effect, ...]]:
    """What follows for a pass now. Called after everything that happens; nothing is asked for twice."""
    function = function_now(the)
    if function is None:
        return after_the_row(the, world)
    disk = disk_of(the, function, world)
    if disk.unread:
        return the, (Read(disk.unread),)
    the = replace(the, crossed=disk.crossed)
    in_flight = claims_of(the, world)

    # what must stop it: nothing more is begun, and what is under way is waited for
    why = why_not(the, world) or disk.stop
    if why is not None:
        return (the, ()) if in_flight else stopped(the, why, world)

    # the next function, and its plans; side by side if it is urgent
    if not the.current:
        return begin(the, function, disk, world)
    if any(stage.plan is None for stage in the.current):
        return the, ()

    # the next candidates, as long as what is in flight is not enough
    effects: list[Effect] = []
    while (stage := stage_with_room(the, in_flight, disk, world)) is not None:
        the, claim = taken(the, stage, world)
        in_flight = (*in_flight, claim)
        effects.append(Check(claim))
    return (the, tuple(effects)) if in_flight else next_stage(the, world)


# ---- what each line of it means


def function_now(the: RunningPass) -> str | None:
    """The function whose stages run, or that comes next; None after the row."""
    if the.current:
        return the.current[0].id.function
    return the.row[the.at] if the.at < len(the.row) else None


def claims_of(the: RunningPass, world: World) -> tuple[Claim, ...]:
    """The removals that the pass waits for: being checked, or sent and not answered."""
    return tuple(claim for claim in world.removals.values() if claim.pass_id == the.id and claim.awaited)


def why_not(the: RunningPass, world: World) -> Reason | None:
    """Why nothing more is begun, whatever the disk says; None if it may go on."""
    if world.stopping:
        return Reason.STOPPING
    if the.request.dry_run or world.dry_run:
        return None
    if the.configuration is not world.configuration:
        return Reason.RECONFIGURED
    paused = world.pause.in_force(world.now) and world.pause.count != the.pause_count
    return Reason.PAUSED if paused else None


def stage_with_room(
    the: RunningPass, in_flight: tuple[Claim, ...], disk: Disk, world: World
) -> StageRun | None:
    """The stage whose next object is claimed now; None: none, or none before something has ended.

    Among several, those whose objects promise a size get most of the turns: an object that promises nothing may free
    nothing, or much.
    """
    limit = None if the.crossed else 1
    left = [stage for stage in the.current if stage.next is not None and (limit is None or stage.begun < limit)]
    if not left or any(stage.error for stage in the.current):
        return None
    if in_flight and not has_room(the, in_flight, disk, world):
        return None
    promising = [stage for stage in left if stage.next is not None and stage.next.size_bytes]
    others = [stage for stage in left if stage not in promising]
    taken_so_far = sum(stage.begun for stage in the.current)
    take_others = not promising or (others and taken_so_far % TURNS == 0)
    return min(others if take_others else promising, key=lambda stage: stage.begun)


def has_room(the: RunningPass, in_flight: tuple[Claim, ...], disk: Disk, world: World) -> bool:
    """Whether another removal is worth it: what those in flight promise is not enough, and there are not too many of
    them. Late removals are still in flight and count."""
    parallel = 1 if the.request.dry_run or world.dry_run else the.parallel or world.configuration.parallel_removals
    bound = limit_in_flight(parallel) if disk.seconds_left < URGENT_SECONDS else parallel
    late = sum(not claim.awaited for claim in world.removals.values())
    promised = the.assumed_bytes + sum(claim.verdict.promised_bytes for claim in in_flight)
    function = in_flight[0].stage.function
    return len(in_flight) < bound - late and disk_of(the, function, world, promised).stop is None


def taken(the: RunningPass, stage: StageRun, world: World) -> tuple[RunningPass, Claim]:
    """The next object of a stage is claimed."""
    verdict = stage.next
    assert verdict is not None
    after = replace(stage, begun=stage.begun + 1)
    current = tuple(after if each.id == stage.id else each for each in the.current)
    return replace(the, current=current), Claim(the.id, stage.id, verdict, world.now)


def begin(the: RunningPass, function: str, disk: Disk, world: World) -> tuple[RunningPass, tuple[Effect, ...]]:
    """The next function of the row, or the first ones side by side, if it is urgent."""
    together = side_by_side(the, world) if disk.seconds_left < URGENT_SECONDS else ()
    if not together:
        skipped = why_not_called(the, function, world)
        if skipped:
            return advance(replace(the, at=the.at + 1, skipped={**the.skipped, function: skipped}), world)
    stages = [StageId(name, 1, the.last_resort) for name in together or (function,)]
    the = replace(the, current=tuple(StageRun(stage, world.now) for stage in stages), side_by_side=bool(together))
    return the, tuple(Plan(the.id, stage) for stage in stages)


def side_by_side(the: RunningPass, world: World) -> tuple[str, ...]:
    """The functions at the start of the row whose objects do not depend on each other, provided that they have the same
    thresholds to clear; none if the pass has begun already, or if there is only one."""
    if the.done or the.skipped or the.at > 0 or the.last_resort:
        return ()
    first = tuple(takewhile(lambda name: world.functions[name].side_by_side and not goal_of(the, name, world).waits, the.row))
    goals = {goal_of(the, name, world).thresholds for name in first}
    return first if len(first) > 1 and len(goals) == 1 else ()


def next_stage(the: RunningPass, world: World) -> tuple[RunningPass, tuple[Effect, ...]]:
    """Nothing of the current stages is left or under way: the next stage of the function, or the next function."""
    ended = tuple(replace(stage, ended_at=world.now) for stage in the.current)
    last = ended[-1].id
    the = replace(the, current=(), done=(*the.done, *ended), side_by_side=False)
    if len(ended) > 1:  # the row follows from its beginning, all stages of each function
        return advance(the, world)
    failed = world.functions[last.function].stops_on_failure and any(stage_failed(stage) for stage in ended)
    if ended[-1].last_of_function or failed:
        return advance(replace(the, at=the.at + 1), world)
    following = StageId(last.function, last.number + 1, the.last_resort)
    return replace(the, current=(StageRun(following, world.now),)), (Plan(the.id, following),)


def stopped(the: RunningPass, why: Reason, world: World) -> tuple[RunningPass, tuple[Effect, ...]]:
    """Nothing more is removed: what is left of the plans is kept for this reason. A function that waits for a lower
    mark of its own is relieved there, while the thresholds may not be: then the row goes on."""
    current = tuple(stage_stopped(stage, why, world.now) for stage in the.current)
    goes_on = why is Reason.RELIEVED and current and goal_of(the, current[0].id.function, world).waits
    the = replace(the, current=(), done=(*the.done, *current))
    return advance(replace(the, at=the.at + 1), world) if goes_on else settle(the, world)
