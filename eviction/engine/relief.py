"""One pass over a row of the reclaim table: relieved? next candidate; check; send; measure.

A pass is a value. `advance` says what follows for it now: it is called after everything that
happens, and looks up what is in force in the world, never what was when the pass began. It
reads nothing and waits for nothing: what it needs is asked for, as an effect, and the answer is
the next thing that happens.

* The functions of the row come in order, as in the kubelet; an error in one does not stop the next.
  With `extent: enough` the pass ends once every threshold that the function can relieve is clear,
  minimum reclaim included.
* After every removal the filesystem of its goal is read anew, and nothing is
  begun before that reading.
* Urgency is one number: the seconds until the filesystem reaches the level it must not reach. It
  decides how many removals are in flight, how long each is waited for, and whether space that
  arrives late is waited for; nothing else.
* While removals are in flight, another one is begun only if what they promise is not enough.
* If it is urgent, or becomes so in its first stage, the functions whose objects do not depend on
  each other go side by side.
* What goes only as a last resort comes after the row, and only if everything else is
  gone or must stay: after an error, or while a removal is not answered, it is not known
  that nothing else is enough.
* A pass by another configuration than the one in force, or in another layout, ends;
  the next one decides anew.
* A pass that the lead began (`eviction.decision.headroom`) removes one object of each stage while
  its mark is not reached, and ends when it is no longer urgent.
* A dry run takes the same path minus the one call: promised sizes of what would be
  removed count as free instead.

Covers: which object is next, when a pass ends, what it waits for. Does not cover: whether an object
may go (the stages and `gate`), which removals have begun (`reclaim.removals`), how the record reads
(`eviction.records.passes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from eviction.decision.headroom import faster, urgency
from eviction.decision.thresholds import thresholds_met
from eviction.engine.effects import Check, Effect, Plan, Read
from eviction.engine.world import (
    TICK_SECONDS,
    URGENT_PATIENCE_SECONDS,
    RunningPass,
    Settling,
    StageRun,
    World,
)
from eviction.types import Extent, Threshold
from reclaim import types
from reclaim.function import NO_PRESSURE, PassFacts, Pressure
from reclaim.removals import Claim, StageId, late, limit_in_flight, stuck
from reclaim.types import BRAKES, NEVER, OPEN, UNSETTLED, Fate, Outcome, Reason, Result
from signals.types import FilesystemRole, SignalObservations

# a minute: some hundred removals one after another, or ten that wait for a busy disk
URGENT_SECONDS = 60.0
# how long a program is assumed to run: what is written meanwhile has to be freed as well
RUN_SECONDS = 1.0
# side by side, one removal in this many promises no size: 500 dead containers may hold nothing
TURNS = 8

NO_PLAN = types.Plan()

Advanced = tuple[RunningPass, tuple[Effect, ...]]


def advance(the: RunningPass, world: World) -> Advanced:
    """What follows for a pass now.

    Called after everything that happens; nothing is asked for twice.
    """
    if the.settling is not None:
        return settle(the, the.settling, world)
    function = function_now(the)
    if function is None:
        return after_the_row(the, world)
    in_flight = world.claims_of(the)

    # a stop, a pause, another configuration: nothing more is begun, and what
    # is under way is waited for
    braked = brake(the, world)
    if braked is not None:
        return (the, ()) if in_flight else stopped(the, braked, world)

    # the disk as it is after the last removal
    disk = disk_of(the, function, world)
    if disk.unread:
        return the, (Read(disk.unread),)
    the = the._replace(crossed=disk.crossed, urgent=disk.urgent, pressure=pressure_of(the, world))
    if waits_for_late_space(the, disk):
        return begin_settling(the, world, at_end=False)
    the = measured(the, world)

    # the next function, and its plans
    if not the.current:
        return begin(the, function, disk, world=world)
    planning = any(stage.plan is None for stage in the.current)

    # relieved, or nothing is known of the disk any more
    if disk.stop is not None:
        return (the, ()) if in_flight or planning else stopped(the, disk.stop, world)

    # it has become urgent meanwhile: what else may run side by side
    if beside := beside_those(the, disk, world):
        return ask_plans(the, beside, world)

    # the next candidates, as long as what is in flight is not enough
    effects: list[Effect] = []
    while (stage := stage_with_room(the, in_flight, disk, world=world)) is not None:
        the, claim = claimed(the, stage, world)
        if claim is not None:
            in_flight = (*in_flight, claim)
            effects.append(Check(claim))
    if in_flight or planning:
        return the, (*effects, *look_meanwhile(the, function, world))
    return next_stage(the, world)


# ---- what each line of it means: the disk


@dataclass(frozen=True, slots=True)
class Goal:
    """What one function of the row has to clear, as the world is now."""

    thresholds: tuple[Threshold, ...]
    waits: bool
    """It is called only below a mark of its own, which is lower."""
    stops: bool
    """Whether it may stop early at all."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The filesystem of a goal as it is now."""

    stop: Reason | None = None
    """Why nothing more is removed: RELIEVED, UNREADABLE or LAYOUT_CHANGED; None: removals go on."""
    urgent: bool = False
    crossed: bool = True
    """Whether the mark that began the pass is reached."""
    unread: tuple[str, ...] = ()
    """Paths of which there is no reading yet that began after the last removal."""


def function_now(the: RunningPass) -> str | None:
    """The function whose stages run, or that comes next; None after the row."""
    return the.row[the.at] if the.at < len(the.row) else None


def goal_of(the: RunningPass, function: str, world: World) -> Goal:
    """The thresholds that the function can relieve; or what was asked for in their place."""
    thresholds, waits = world.manager.config.goal(function, world.observations)
    waits = waits and not the.request.every_function
    if the.request.until is not None and not waits:
        thresholds = the.request.until
    return Goal(thresholds, waits, waits or (the.extent() is Extent.ENOUGH and bool(thresholds)))


def disk_of(the: RunningPass, function: str, world: World, *, promised_bytes: int = 0) -> Disk:
    """The disk, as if this many more bytes were available where the function frees space."""
    goal, seen, frees = (
        goal_of(the, function, world),
        world.observations,
        world.functions[function].frees,
    )
    unread = unread_since(the, function, world, since=the.measure_after)
    if unread:
        return Disk(unread=unread)
    seconds_left = NEVER  # with `extent: all` nothing is urgent
    if the.extent() is Extent.ENOUGH:
        # by the present fill rate or the one at the beginning, whichever is faster,
        # because freed bytes hide a fill
        rates, kubelets = (
            faster(the.begun_rates, world.fill_rates),
            world.manager.config.kubelets_in_layout(seen.layout),
        )
        seconds_left = urgency(goal.thresholds, seen, rates, kubelets=kubelets)
    began_it = () if the.decision.acted_on is None else (the.decision.acted_on,)
    crossed = the.crossed or bool(thresholds_met(began_it, seen.signals, enforce_min_reclaim=False))
    relieved = seconds_left >= world.lead_seconds
    if crossed:
        promised = with_promised(
            seen, {**the.assumed, frees: the.assumed.get(frees, 0) + promised_bytes}
        )
        relieved = not thresholds_met(goal.thresholds, promised.signals, enforce_min_reclaim=True)
    of_goal = [seen.signals[one.signal] for one in goal.thresholds if one.signal in seen.signals]
    stop = None
    if moved(the.observations, seen):
        stop = Reason.LAYOUT_CHANGED
    elif goal.stops and any(each.stale for each in of_goal):
        stop = Reason.UNREADABLE  # going on without a reading could remove everything
    elif goal.stops and relieved:
        stop = Reason.RELIEVED
    return Disk(stop, seconds_left < URGENT_SECONDS, crossed)


def paths_of(the: RunningPass, function: str, world: World) -> dict[str, float]:
    """What is read for a function, and when it was read last: where its goal is, and where it
    frees space, even if that is one filesystem: another may be mounted over one of the two. What
    cannot be read is left out."""
    if not the.measures:
        return {}
    seen = world.observations
    found = [
        seen.signals.get(threshold.signal) for threshold in goal_of(the, function, world).thresholds
    ]
    paths = {
        each.filesystem.path for each in found if each is not None and each.filesystem is not None
    }
    frees = seen.filesystems.get(world.functions[function].frees)
    if frees is not None:
        paths.add(frees[0].path)
    times = {}
    for path in sorted(paths):
        published = world.readings[path]
        if published.last is not None and not published.problem and not published.late(world.now):
            times[path] = published.last.begun_at
    return times


def unread_since(the: RunningPass, function: str, world: World, *, since: float) -> tuple[str, ...]:
    """Those of which there is no reading yet that began after this time."""
    return tuple(path for path, time in paths_of(the, function, world).items() if time < since)


def look_meanwhile(the: RunningPass, function: str, world: World) -> tuple[Effect, ...]:
    """Another reading while removals are waited for, if the last one is too old by now."""
    old = world.now - TICK_SECONDS
    paths = tuple(path for path, time in paths_of(the, function, world).items() if time <= old)
    return (Read(paths),) if paths else ()


def moved(before: SignalObservations, now: SignalObservations) -> bool:
    """Whether the layout, or the device of a filesystem, is another one.

    What cannot be read has not moved.
    """
    if None not in (before.layout, now.layout) and before.layout is not now.layout:
        return True
    both = before.filesystems.keys() & now.filesystems.keys()
    return any(
        before.filesystems[role][0].device_id != now.filesystems[role][0].device_id for role in both
    )


def with_promised(
    observations: SignalObservations, promised: Mapping[FilesystemRole, int]
) -> SignalObservations:
    """The observations as if so many more bytes were available on the
    filesystems of these roles.
    """
    if not any(promised.values()):
        return observations
    by_device = Counter[int]()
    for role, promised_bytes in promised.items():
        if role in observations.filesystems:
            by_device[observations.filesystems[role][0].device_id] += promised_bytes
    signals = dict(observations.signals)
    for signal, seen in signals.items():
        if seen.filesystem is not None and not signal.counts_inodes:
            signals[signal] = replace(
                seen, available=seen.available + by_device[seen.filesystem.device_id]
            )
    return replace(observations, signals=signals)


def pressure_of(the: RunningPass, world: World) -> Pressure:
    """What the pass acts on, and how much is missing for it now, including the minimum reclaim and
    what is written while a program runs."""
    acted_on = the.decision.acted_on if the.request.row is None else None
    if acted_on is None:
        goals = (goal_of(the, function, world).thresholds for function in the.row)
        acted_on = next((threshold for goal in goals for threshold in goal), None)
    if acted_on is None:
        return replace(NO_PRESSURE, pass_id=the.id)
    observation = world.observations.signals.get(acted_on.signal)
    if observation is None:
        return Pressure(signal=str(acted_on.signal), pass_id=the.id)
    missing = max(acted_on.mark_with_min_reclaim(observation.capacity) - observation.available, 0)
    inodes, filesystem = acted_on.signal.counts_inodes, observation.filesystem
    fill = None if filesystem is None else world.fill_rates.get((filesystem.device_id, inodes))
    if missing and fill is not None:
        missing += int(fill.steady_rate * RUN_SECONDS)
    return Pressure(
        signal=str(acted_on.signal),
        filesystem="" if filesystem is None else filesystem.mount_point or filesystem.path,
        available=observation.available,
        mark=acted_on.mark(observation.capacity),
        missing_bytes=0 if inodes else missing,
        missing_inodes=missing if inodes else 0,
        pass_id=the.id,
    )


# ---- what must stop it


def brake(the: RunningPass, world: World) -> Reason | None:
    """Why nothing more is begun, whatever the disk says; None if it may go on. A pause and another
    configuration do not stop a dry run."""
    if world.stopping:
        return Reason.STOPPING
    if the.dry_run:
        return None
    if the.configuration is not world.configuration:
        return Reason.RECONFIGURED
    paused = world.pause.left_seconds(world.now) > 0 and world.pause.count != the.pause_count
    return Reason.PAUSED if paused else None


def stopped(the: RunningPass, why: Reason, world: World) -> Advanced:
    """Nothing more is removed: what is left of the plans is kept for this reason. A function
    that waits for a lower mark of its own is relieved there, while the thresholds may not
    be: then the row goes on."""
    function = function_now(the)
    current = tuple(
        replace(left_over(stage, why), relieved=True, ended_at=world.now) for stage in the.current
    )
    alone = function is not None and len(the.current) == 1 and goal_of(the, function, world).waits
    the = the._replace(current=(), done=(*the.done, *current), planned=planned_by(the, current))
    if alone and why not in BRAKES:
        return advance(the._replace(at=the.at + 1), world)
    return finish(the, world)


def left_over(stage: StageRun, why: Reason) -> StageRun:
    """A stage whose objects that are left are kept for this reason."""
    if stage.plan is None:
        return stage
    rest = tuple(Outcome(verdict.kept(why)) for verdict in stage.plan.remove[stage.taken :])
    return replace(stage, kept=(*stage.kept, *rest), taken=len(stage.plan.remove))


def planned_by(the: RunningPass, ended: Sequence[StageRun]) -> tuple[types.Verdict, ...]:
    """What a dry run has planned to remove so far, with these stages."""
    planned = [
        each.verdict for stage in ended for each in stage.outcomes if each.fate is Fate.PLANNED
    ]
    return (*the.planned, *planned)


# ---- the next candidates


def stage_with_room(
    the: RunningPass, in_flight: tuple[Claim, ...], disk: Disk, *, world: World
) -> StageRun | None:
    """The stage whose next object is claimed now; None: none, or none before something has ended.

    Among several, those whose objects promise a size get most of the turns: an object that promises
    nothing may free nothing, or much.
    """
    limit = None if the.crossed else 1
    left = [
        stage
        for stage in the.current
        if stage.next is not None and (limit is None or stage.begun < limit)
    ]
    if not left or any(stage.silent for stage in the.current) or enough_by_plan(the):
        return None
    # what may free nothing must not go because it was planned a moment sooner, but for the first
    # object of the row; and a plan that hangs holds nothing up
    awaited = [
        stage
        for stage in the.current
        if stage.plan is None and world.now < stage.asked_at + TICK_SECONDS
    ]
    if awaited and (the.current[0] in awaited or any(stage.begun for stage in the.current)):
        return None
    if not the.dry_run and stuck(world.removals, parallel_of(the, world), world.now):
        return None
    if in_flight and not has_room(the, in_flight, disk, world=world):
        return None
    promising = [stage for stage in left if stage.next is not None and stage.next.size_bytes]
    others = [stage for stage in left if stage not in promising]
    begun_so_far = sum(stage.begun for stage in the.current)
    take_others = not promising or (others and begun_so_far % TURNS == 0)
    return min(others if take_others else promising, key=lambda stage: stage.begun)


def parallel_of(the: RunningPass, world: World) -> int:
    """How many removals may run side by side if it is not urgent."""
    return 1 if the.dry_run else max(the.parallel or world.configuration.parallel_removals, 1)


def has_room(the: RunningPass, in_flight: tuple[Claim, ...], disk: Disk, *, world: World) -> bool:
    """Whether another removal is worth it: what those in flight promise is not enough, and there
    are not too many of them. Late removals are still in flight and count."""
    parallel = parallel_of(the, world)
    bound = limit_in_flight(parallel) if disk.urgent else parallel
    bound -= 0 if the.dry_run else len(late(world.removals))
    promised = sum(claim.verdict.promised_bytes for claim in in_flight)
    return (
        len(in_flight) < bound
        and disk_of(the, the.row[the.at], world, promised_bytes=promised).stop is None
    )


def enough_by_plan(the: RunningPass) -> bool:
    """Whether what was removed promises as much as a plan with a target of its own wants; with a
    target of 0, one removal does."""
    for stage in the.current:
        wanted = None if stage.plan is None else stage.plan.target_bytes
        ended = any(each.fate in (Fate.GONE, Fate.PLANNED) for each in stage.outcomes)
        if wanted is not None and ended and promised_bytes(stage.outcomes) >= wanted:
            return True
    return False


def promised_bytes(outcomes: Sequence[Outcome]) -> int:
    """What the removals among these promise."""
    gone = (Result.REMOVED, Result.PLANNED)
    return sum(each.verdict.promised_bytes for each in outcomes if each.result in gone)


def claimed(the: RunningPass, stage: StageRun, world: World) -> tuple[RunningPass, Claim | None]:
    """The next object of a stage is claimed; or left out, as it is being removed already."""
    verdict = stage.next
    assert verdict is not None
    if any(
        claim.verdict.id == verdict.id and not claim.dry_run for claim in world.removals.values()
    ):
        kept = (*stage.kept, Outcome(verdict.kept(Reason.BEING_REMOVED)))
        return the.with_stage(replace(stage, taken=stage.taken + 1, kept=kept)), None
    after = replace(stage, taken=stage.taken + 1, begun=stage.begun + 1)
    return the.with_stage(after), Claim(the.id, stage.id, verdict, world.now, the.dry_run)


def patience_of(the: RunningPass, stage: StageRun, world: World) -> float:
    """How long to wait for a removal that was sent, in seconds. A stage's own patience ends at once
    if something else waits for this filesystem."""
    if stage.patience_seconds is not None:
        return 0.0 if world.lane(the.lane).another_waits else stage.patience_seconds
    usual = world.configuration.removal_patience_seconds
    return min(usual, URGENT_PATIENCE_SECONDS) if the.urgent else usual


# ---- the next stage, the next function


def begin(the: RunningPass, function: str, disk: Disk, *, world: World) -> Advanced:
    """The next function of the row, or the first ones side by side, if it is urgent."""
    if together := beside_those(the, disk, world):
        return ask_plans(the, together, world)
    if the.last_resort and not held_something_back(the, function):
        return advance(the._replace(at=the.at + 1), world)
    why_not = "" if the.last_resort else why_not_called(the, function, world)
    if why_not:
        return advance(
            the._replace(at=the.at + 1, skipped={**the.skipped, function: why_not}), world
        )
    return ask_plans(the, (StageId(function, 1, the.last_resort),), world)


def ask_plans(the: RunningPass, stages: tuple[StageId, ...], world: World) -> Advanced:
    """Has these stages plan, beside those that run. A plan that is still awaited from an earlier
    pass, because it hangs, is not asked for again."""
    runs = []
    for stage in stages:
        run = StageRun(stage, world.now, world.now)
        if stage in world.hanging:
            what = f"{stage.function}, stage {stage.number}"
            error = f"{what} cannot plan: an earlier reading has not been answered yet"
            run = replace(run, plan=NO_PLAN, error=error)
        runs.append(run)
    the = the._replace(current=(*the.current, *runs))
    plans = tuple(Plan(the.id, run.id) for run in runs if run.plan is None)
    return (the, plans) if plans else advance(the, world)


def beside_those(the: RunningPass, disk: Disk, world: World) -> tuple[StageId, ...]:
    """The first stages of the functions that are to run side by side if it is urgent, without the
    one that runs; none if they run already."""
    if not disk.urgent or len(the.current) > 1:
        return ()
    running = {stage.id.function for stage in the.current}
    return tuple(StageId(name, 1) for name in side_by_side(the, world) if name not in running)


def side_by_side(the: RunningPass, world: World) -> tuple[str, ...]:
    """The functions at the start of the row whose objects do not depend on each other,
    provided that they have the same thresholds to clear; none if the pass has begun already,
    or if there is only one."""
    if the.done or the.skipped or the.at > 0 or the.last_resort or the.extent() is Extent.ALL:
        return ()
    goals = {name: goal_of(the, name, world) for name in the.row}
    first = tuple(
        takewhile(
            lambda name: world.functions[name].side_by_side and not goals[name].waits, the.row
        )
    )
    same = len({goals[name].thresholds for name in first}) == 1
    return first if len(first) > 1 and same else ()


def why_not_called(the: RunningPass, function: str, world: World) -> str:
    """Why a function is not called; empty if it is."""
    goal = goal_of(the, function, world)
    if goal.waits and not thresholds_met(
        goal.thresholds, world.observations.signals, enforce_min_reclaim=True
    ):
        return ", ".join(f"{one.signal} is not below {one.value}" for one in goal.thresholds)
    left = world.cooling_until.get(function, 0.0) - world.now
    return f"its cooldown lasts another {left:.0f} s" if left > 0 and not the.dry_run else ""


def next_stage(the: RunningPass, world: World) -> Advanced:
    """Nothing of the current stages is left or under way: the next stage of the
    function, or the next function.
    """
    ended = tuple(ended_stage(stage, the, world) for stage in the.current)
    if late_space_of_stages(the, ended):
        the = the._replace(current=tuple(replace(stage, frees_late=False) for stage in the.current))
        return begin_settling(the, world, at_end=False)
    the = the._replace(current=(), done=(*the.done, *ended), planned=planned_by(the, ended))
    if len(ended) > 1:  # the row follows from its beginning, all stages of each function
        return advance(the, world) if the.crossed else finish(the, world)
    (last,) = ended
    if last.last or (world.functions[last.id.function].stops_on_failure and failed(last)):
        return advance(the._replace(at=the.at + 1), world)
    return ask_plans(the, (last.id._replace(number=last.id.number + 1),), world)


def ended_stage(stage: StageRun, the: RunningPass, world: World) -> StageRun:
    """A stage of which nothing more is begun although the disk is not relieved: the runtime is
    silent or stuck, or it has done what it was to do."""
    is_stuck = (
        ""
        if the.dry_run or stage.next is None
        else stuck(world.removals, parallel_of(the, world), world.now)
    )
    silent = any(each.silent for each in the.current)
    why = (
        Reason.RUNTIME_STUCK
        if is_stuck
        else Reason.INCOMPLETE_LISTING
        if silent
        else Reason.RELIEVED
    )
    return replace(left_over(stage, why), error=stage.error or is_stuck, ended_at=world.now)


def failed(stage: StageRun) -> bool:
    """Whether it could not do what it planned."""
    return bool(stage.error) or any(
        each.fate in (Fate.FAILED, Fate.LATE) for each in stage.outcomes
    )


# ---- after the row


def after_the_row(the: RunningPass, world: World) -> Advanced:
    """What goes only as a last resort, if nothing else is left that could
    still be enough; else the end.
    """
    # the kubelet's periodic passes have no last resort
    something = the.measures and any(held_something_back(the, function) for function in the.row)
    under_way = any(not claim.dry_run for claim in world.removals.values())  # by whomever
    if something and the.crossed and not the.last_resort and not under_way and settled(the):
        return advance(the._replace(at=0, last_resort=True), world)
    return finish(the, world)


def settled(the: RunningPass) -> bool:
    """Whether every object is gone, planned or kept for a reason of its
    own, and no stage has failed.
    """
    return not any(
        stage.error
        or any(each.fate in OPEN for each in stage.outcomes)
        or any(each.verdict.reason in UNSETTLED for each in stage.kept)
        for stage in the.done
    )


def held_something_back(the: RunningPass, function: str) -> bool:
    """Whether a function that was called keeps something that may go as a last resort."""
    stages = (
        stage for stage in the.done if stage.id.function == function and not stage.id.last_resort
    )
    return any(each.verdict.last_resort for stage in stages for each in stage.kept)


def finish(the: RunningPass, world: World) -> Advanced:
    """The end: after late space has arrived, if anything was removed."""
    removed = any(each.result is Result.REMOVED for stage in the.done for each in stage.outcomes)
    if not removed or not the.measures:
        return the._replace(ended=True), ()
    at_marks = [
        at for at, function in enumerate(the.row) if not goal_of(the, function, world).waits
    ]
    return begin_settling(
        the._replace(at=at_marks[-1] if at_marks else len(the.row) - 1), world, at_end=True
    )


# ---- late space


def measured(the: RunningPass, world: World) -> RunningPass:
    """What the removals that have ended since the last measurement have freed. If several were
    under way, nobody knows what each has freed, and what the runtime promised for it stands."""
    if not the.unmeasured:
        return the
    freed_bytes, freed_inodes = the.gained.gained_since(the.measured)
    others = any(other.id != the.id for other in world.removing())
    alone = len(the.unmeasured) == 1 and not world.claims_of(the) and not others
    current = []
    for stage in the.current:
        outcomes = list(stage.outcomes)
        for number, outcome in enumerate(outcomes):
            if outcome in the.unmeasured:
                freed = (
                    (freed_bytes, freed_inodes) if alone else (outcome.verdict.promised_bytes, 0)
                )
                outcomes[number] = replace(
                    outcome, freed_bytes=max(freed[0], 0), freed_inodes=max(freed[1], 0)
                )
        current.append(replace(stage, outcomes=tuple(outcomes)))
    return the._replace(current=tuple(current), measured=the.gained, unmeasured=())


def waits_for_late_space(the: RunningPass, disk: Disk) -> bool:
    """Whether the last removal has freed less than half of what it promised, so
    that more may come.
    """
    if not the.unmeasured or not the.measures or disk.urgent or disk.stop is not None:
        return False
    gained_bytes, _ = the.gained.gained_since(the.measured)
    return gained_bytes * 2 < promised_bytes(the.unmeasured)


def late_space_of_stages(the: RunningPass, ended: Sequence[StageRun]) -> bool:
    """Whether space may still arrive from a stage whose objects free it some
    time after the answer.
    """
    late_ones = (stage for stage in ended if stage.frees_late)
    removed = any(each.result is Result.REMOVED for stage in late_ones for each in stage.outcomes)
    return removed and the.measures and not the.urgent


def begin_settling(the: RunningPass, world: World, *, at_end: bool) -> Advanced:
    """From now on nothing is begun until nothing more arrives."""
    settling = Settling(
        at_end, began_at=world.now, quiet_since=world.now, best=the.gained, read_at=world.now
    )
    return advance(the._replace(settling=settling), world)


def settle(the: RunningPass, settling: Settling, world: World) -> Advanced:
    """Watches the disk while late space still arrives: until nothing has risen for 0.25 s, the disk
    is relieved, or 5 s have passed."""
    function = the.row[the.at]
    disk = disk_of(the, function, world)
    if disk.unread:
        return the, (Read(disk.unread),)
    gained = the.gained.gained_since(settling.best)
    if max(gained) > 0:
        settling = replace(settling, best=the.gained, quiet_since=world.now)
    over = min(settling.quiet_since + TICK_SECONDS, settling.began_at + URGENT_PATIENCE_SECONDS)
    goal = goal_of(the, function, world).thresholds
    clear = settling.at_end and not thresholds_met(
        goal, world.observations.signals, enforce_min_reclaim=True
    )
    relieved = disk.stop is not None or clear
    if not relieved and not world.stopping and world.now < over:
        if world.now < settling.read_at:
            return the._replace(settling=settling), ()
        following = min(world.now + TICK_SECONDS / 8, over)
        the = the._replace(settling=replace(settling, read_at=following), measure_after=world.now)
        return the, (Read(unread_since(the, function, world, since=the.measure_after)),)
    the = measured(the._replace(settling=None), world)
    return (the._replace(ended=True), ()) if settling.at_end else advance(the, world)


def facts_of(world: World, pass_id: str) -> PassFacts:
    """What the stages of a pass may know of it now; nothing of one that has ended."""
    the = world.passes.get(pass_id)
    if the is None:
        return PassFacts(dry_run=True)
    return PassFacts(
        dry_run=the.dry_run,
        began_at=the.began_at,
        removal_ended_at=world.removal_ended_at,
        urgent=the.urgent,
        planned=the.planned,
        pressure=the.pressure,
    )
