"""One pass over a row of the reclaim table: relieved? next candidate; check; send; measure.

A pass is a value. `advance` says what follows for it now: it is called after everything that
happens, and looks up what is in force in the world, never what was when the pass began. It
reads nothing and waits for nothing: what it needs is asked for, as an effect, and the answer is
the next thing that happens.

* The functions of the row come in order, as in the kubelet; an error in one does not stop the next.
* After every removal the filesystem of its goal is read anew, and nothing is
  begun before that reading.
* Urgency is one number: the seconds until the filesystem reaches the level it must not reach. It
  decides how many removals are in flight, how long each is waited for, whether functions go side by
  side, and whether space that arrives late is waited for; nothing else.
* While removals are in flight, another one is begun only if what they promise is not enough.
* A dry run takes the same path minus the one call: promised sizes of what would be
  removed count as free instead.

Covers: which object is next, when a pass ends, what it waits for. Does not cover: whether an object
may go (the stages and `gate`), which removals have begun (`reclaim.removals`), how the record reads
(`eviction.records.passes`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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
from eviction.records.passes import Trigger
from eviction.types import Extent, Row, Thresholds
from reclaim import types
from reclaim.function import PassFacts, Pressure
from reclaim.removals import Claim, StageId, late, limit_in_flight, stuck
from reclaim.types import BRAKES, NEVER, OPEN, UNSETTLED, Amounts, Outcome, Reason, Result
from signals.types import FilesystemRole, SignalObservations

# a minute: some hundred removals one after another, or ten that wait for a busy disk
URGENT_SECONDS = 60.0
# how long a program is assumed to run: what is written meanwhile has to be freed as well
RUN_SECONDS = 1.0
# side by side, one removal in this many promises no size: 500 dead containers may hold nothing
TURNS = 8

NO_PLAN = types.Plan()

Advanced = tuple[RunningPass, tuple[Effect, ...]]


def advance(running: RunningPass, world: World) -> Advanced:
    """What follows for a pass now.

    Called after everything that happens; nothing is asked for twice.
    """
    if running.settling is not None:
        return settle(running, running.settling, world)
    if not running.function:
        return after_the_row(running, world)
    in_flight = world.claims_of(running)

    # a stop, a pause, another configuration: nothing more is begun, and what
    # is under way is waited for
    braked = brake(running, world)
    if braked is not None:
        return (running, ()) if in_flight else stopped(running, braked, world)

    # the disk as it is after the last removal
    disk = disk_of(running, world)
    if disk.unread:
        return running, (Read(disk.unread),)
    running = running._replace(urgent=disk.urgent, pressure=pressure_of(running, world))
    if waits_for_late_space(running, disk):
        return begin_settling(running, world, at_end=False)
    running = measured(running, world)

    # the next function, and its plans
    if not running.current:
        return begin(running, world)
    planning = any(stage.plan is None for stage in running.current)

    # relieved, or nothing is known of the disk any more
    if disk.stop is not None:
        return (running, ()) if in_flight or planning else stopped(running, disk.stop, world)

    # it has become urgent meanwhile: what else may run side by side
    if beside := beside_those(running, world):
        return ask_plans(running, beside, world)

    # the next candidates, as long as what is in flight is not enough
    effects: list[Effect] = []
    while (stage := stage_with_room(running, in_flight, world)) is not None:
        running, claim = claimed(running, stage, world)
        if claim is not None:
            in_flight = (*in_flight, claim)
            effects.append(Check(claim))
    if in_flight or planning:
        return running, (*effects, *look_meanwhile(running, world))
    return next_stage(running, world)


# ---- what each line of it means: the disk


class Goal(NamedTuple):
    """What one function of the row has to clear, as the world is now."""

    thresholds: Thresholds
    waits: bool
    """It is called only below a mark of its own, which is lower."""
    stops: bool
    """Whether it may stop early at all."""

    ahead: bool
    """Whether what is coming counts: not for a mark that a row or a command names."""

    def met(self, observations: SignalObservations) -> bool:
        """Whether a threshold is not clear yet, minimum reclaim included."""
        return bool(
            thresholds_met(
                self.thresholds, observations.signals, enforce_min_reclaim=True, ahead=self.ahead
            )
        )


class Disk(NamedTuple):
    """The filesystem of a goal as it is now."""

    stop: Reason | None = None
    """Why nothing more is removed: RELIEVED, UNREADABLE or LAYOUT_CHANGED; None: removals go on."""
    urgent: bool = False
    unread: tuple[str, ...] = ()
    """Paths of which there is no reading yet that began after the last removal."""


def goal_of(running: RunningPass, function: str, world: World) -> Goal:
    """The thresholds that the function can relieve; or what was asked for in their place."""
    thresholds, waits = world.config.goal(function, world.observations)
    waits = waits and not running.request.every_function
    if running.request.until is not None and not waits:
        thresholds = running.request.until
    stops = running.extent is Extent.ENOUGH and bool(thresholds)
    ahead = not waits and running.request.until is None
    if ahead and not reached(running, world):
        # not what is met in its grace period, and would take all that can go
        thresholds = tuple(each for each in thresholds if each == running.decision.acted_on)
    return Goal(thresholds, waits, waits or stops, ahead)


def disk_of(running: RunningPass, world: World, *, promised_bytes: int = 0) -> Disk:
    """The disk, as if this many more bytes were available where the function frees space."""
    goal = goal_of(running, running.function, world)
    seen = world.observations
    unread = unread_since(running, running.function, world, since=running.measure_after)
    if unread:
        return Disk(unread=unread)
    seconds_left = NEVER  # with `extent: all` nothing is urgent
    if running.extent is Extent.ENOUGH:
        # by the present fill rate or the one at the beginning, whichever is faster,
        # because freed bytes hide a fill
        rates = faster(running.begun_rates, world.fill_rates)
        seconds_left = urgency(
            goal.thresholds, seen, rates, kubelets=world.config.kubelets_in_layout(seen.layout)
        )
    promised = Counter(running.assumed)
    promised[world.functions[running.function].frees] += promised_bytes
    relieved = not goal.met(with_promised(seen, promised))
    of_goal = [
        seen.signals[threshold.signal]
        for threshold in goal.thresholds
        if threshold.signal in seen.signals
    ]
    stop = None
    if moved(running.observations, seen):
        stop = Reason.LAYOUT_CHANGED
    elif goal.stops and any(observation.stale for observation in of_goal):
        stop = Reason.UNREADABLE  # going on without a reading could remove everything
    # with `extent: enough`: every threshold that the function can relieve is clear
    elif goal.stops and relieved:
        stop = Reason.RELIEVED
    return Disk(stop, seconds_left < URGENT_SECONDS)


def last_read(running: RunningPass, function: str, world: World) -> dict[str, float]:
    """What is read for a function, and when it was read last: where its goal is, and where it
    frees space, even if that is one filesystem: another may be mounted over one of the two. What
    cannot be read is left out."""
    if not running.measures:
        return {}
    seen = world.observations
    paths = set[str]()
    for threshold in goal_of(running, function, world).thresholds:
        observation = seen.signals.get(threshold.signal)
        if observation is not None:
            paths.add(observation.filesystem.path)
    frees = world.functions[function].frees
    if frees in seen.filesystems:
        paths.add(seen.filesystems[frees][0].path)
    times = {}
    for path in sorted(paths):
        published = world.readings[path]
        if published.last is not None and not published.problem and not published.late(world.now):
            times[path] = published.last.begun_at
    return times


def unread_since(
    running: RunningPass, function: str, world: World, *, since: float
) -> tuple[str, ...]:
    """Those of which there is no reading yet that began after this time."""
    times = last_read(running, function, world)
    return tuple(path for path, time in times.items() if time < since)


def look_meanwhile(running: RunningPass, world: World) -> tuple[Effect, ...]:
    """Another reading while removals are waited for, if the last one is too old by now."""
    paths = tuple(
        path
        for path, time in last_read(running, running.function, world).items()
        if time <= world.now - TICK_SECONDS
    )
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
        if not signal.counts_inodes:
            promised_here = by_device[seen.filesystem.device_id]
            signals[signal] = seen._replace(
                available=min(seen.available + promised_here, max(seen.available, seen.capacity))
            )
    return observations._replace(signals=signals)


def pressure_of(running: RunningPass, world: World) -> Pressure:
    """What the pass acts on, and how much is missing for it now, including the minimum reclaim and
    what is written while a program runs."""
    acted_on = running.decision.acted_on if running.request.row is None else None
    if acted_on is None:
        acted_on = next(
            (
                threshold
                for function in running.row
                for threshold in goal_of(running, function, world).thresholds
            ),
            None,
        )
    if acted_on is None:
        return Pressure(pass_id=running.id)
    signal = acted_on.signal
    observation = world.observations.signals.get(signal)
    if observation is None:
        return Pressure(signal=str(signal), pass_id=running.id)
    needed = max(acted_on.mark_with_min_reclaim(observation.capacity), observation.needed)
    missing = max(needed - observation.available, 0)
    filesystem = observation.filesystem
    fill = world.fill_rates.get((filesystem.device_id, signal.counts_inodes))
    if missing and fill is not None:
        missing += int(fill.rate * RUN_SECONDS)
    return Pressure(
        signal=str(signal),
        filesystem=filesystem.mount_point or filesystem.path,
        available=observation.available,
        mark=acted_on.mark(observation.capacity),
        missing_bytes=0 if signal.counts_inodes else missing,
        missing_inodes=missing if signal.counts_inodes else 0,
        pass_id=running.id,
    )


# ---- what must stop it


def brake(running: RunningPass, world: World) -> Reason | None:
    """Why nothing more is begun, whatever the disk says; None if it may go on. A pause and another
    configuration do not stop a dry run."""
    if world.stopping:
        return Reason.STOPPING
    if running.dry_run:
        return None
    if running.configuration is not world.configuration:
        return Reason.RECONFIGURED
    paused = world.pause_left_seconds() > 0 and world.pause.count != running.pause_count
    return Reason.PAUSED if paused else None


def stopped(running: RunningPass, why: Reason, world: World) -> Advanced:
    """Nothing more is removed: what is left of the plans is kept for this reason. A function
    that waits for a lower mark of its own is relieved there, while the thresholds may not
    be: then the row goes on."""
    current = tuple(
        left_over(stage, why)._replace(relieved=True, ended_at=world.now)
        for stage in running.current
    )
    alone = len(current) == 1 and goal_of(running, running.function, world).waits
    running = with_ended(running, current)
    if alone and why not in BRAKES:
        return advance(running._replace(at=running.at + 1), world)
    return finish(running, world)


def left_over(stage: StageRun, why: Reason) -> StageRun:
    """A stage whose objects that are left are kept for this reason."""
    if stage.plan is None:
        return stage
    rest = tuple(Outcome(verdict.kept(why)) for verdict in stage.plan.remove[stage.taken :])
    return stage._replace(kept=(*stage.kept, *rest), taken=len(stage.plan.remove))


def with_ended(running: RunningPass, stages: tuple[StageRun, ...]) -> RunningPass:
    """The pass after all stages that ran have ended, like this."""
    planned = [
        outcome.verdict
        for stage in stages
        for outcome in stage.outcomes
        if outcome.result is Result.PLANNED
    ]
    return running._replace(
        current=(), done=(*running.done, *stages), planned=(*running.planned, *planned)
    )


# ---- the next candidates


def stage_with_room(
    running: RunningPass, in_flight: tuple[Claim, ...], world: World
) -> StageRun | None:
    """The stage whose next object is claimed now; None: none, or none before something has ended.

    Among several, those whose objects promise a size get most of the turns: an object that promises
    nothing may free nothing, or much.
    """
    current = running.current
    if any(stage.silent for stage in current) or enough_by_plan(running):
        return None
    promising = list[StageRun]()
    others = list[StageRun]()
    for stage in current:
        verdict = stage.next
        if verdict is not None:
            group = promising if verdict.size_bytes else others
            group.append(stage)
    if not promising and not others:
        return None
    # what may free nothing must not go because it was planned a moment sooner, but for the first
    # object of the row; and a plan that hangs holds nothing up
    awaited = [
        stage
        for stage in current
        if stage.plan is None and world.now < stage.asked_at + TICK_SECONDS
    ]
    begun_so_far = sum(stage.begun for stage in current)
    if awaited and (current[0] in awaited or begun_so_far):
        return None
    if why_stuck(running, world) or (in_flight and not has_room(running, in_flight, world)):
        return None
    take_others = not promising or (others and begun_so_far % TURNS == 0)
    return min(others if take_others else promising, key=lambda stage: stage.begun)


def parallel_of(running: RunningPass, world: World) -> int:
    """How many removals may run side by side if it is not urgent."""
    one_by_one = running.dry_run or not running.measures
    return 1 if one_by_one else max(world.configuration.parallel_removals, 1)


def why_stuck(running: RunningPass, world: World) -> str:
    """Why the runtime is sent nothing more, in a sentence; empty if it is. A dry run sends
    nothing."""
    if running.dry_run:
        return ""
    return stuck(world.removals, parallel_of(running, world), world.now)


def has_room(running: RunningPass, in_flight: tuple[Claim, ...], world: World) -> bool:
    """Whether another removal is worth it: what those in flight promise is not enough, and there
    are not too many of them. Late removals are still in flight and count."""
    limit = parallel_of(running, world)
    if running.urgent:
        limit = limit_in_flight(limit)
    if not running.dry_run:
        limit -= len(late(world.removals))
    promised = sum(claim.verdict.promised_bytes for claim in in_flight)
    return len(in_flight) < limit and disk_of(running, world, promised_bytes=promised).stop is None


def enough_by_plan(running: RunningPass) -> bool:
    """Whether what was removed promises as much as a plan with a target of its own wants; with a
    target of 0, one removal does."""
    for stage in running.current:
        wanted = None if stage.plan is None else stage.plan.target_bytes
        ended = any(not outcome.kept and outcome.result not in OPEN for outcome in stage.outcomes)
        if wanted is not None and ended and promised_bytes(stage.outcomes) >= wanted:
            return True
    return False


def promised_bytes(outcomes: Sequence[Outcome]) -> int:
    """What the removals among these promise."""
    gone = (Result.REMOVED, Result.PLANNED)
    return sum(outcome.verdict.promised_bytes for outcome in outcomes if outcome.result in gone)


def claimed(
    running: RunningPass, stage: StageRun, world: World
) -> tuple[RunningPass, Claim | None]:
    """The next object of a stage is claimed; or left out, as it is being removed already."""
    verdict = stage.next
    assert verdict is not None
    stage = stage._replace(taken=stage.taken + 1)
    if any(claim.verdict.id == verdict.id for claim in world.under_way()):
        left_out = stage._replace(kept=(*stage.kept, Outcome(verdict.kept(Reason.BEING_REMOVED))))
        return running.with_stage(left_out), None
    claim = Claim(running.id, stage.id, verdict, claimed_at=world.now, dry_run=running.dry_run)
    return running.with_stage(stage._replace(begun=stage.begun + 1)), claim


def overdue_at(claim: Claim, world: World) -> float:
    """When a removal is waited for by nobody any more."""
    running = world.passes.get(claim.pass_id)
    stage = None if running is None else running.stage(claim.stage)
    if running is None or stage is None:
        return NEVER
    patience_seconds = world.configuration.removal_patience_seconds
    if running.urgent:
        patience_seconds = min(patience_seconds, URGENT_PATIENCE_SECONDS)
    if stage.patience_seconds is not None:
        patience_seconds = stage.patience_seconds
        # its own ends at once if something else waits for this filesystem
        if world.lane(running.lane).another_waits:
            patience_seconds = 0.0
    return claim.overdue_at(patience_seconds)


# ---- the next stage, the next function


def begin(running: RunningPass, world: World) -> Advanced:
    """The next function of the row, or the first ones side by side, if it is urgent."""
    if together := beside_those(running, world):
        return ask_plans(running, together, world)
    function = running.function
    following = running._replace(at=running.at + 1)
    if running.last_resort and not held_something_back(running, function):
        return advance(following, world)
    if not running.last_resort and (why_not := why_not_called(running, function, world)):
        return advance(following._replace(skipped={**running.skipped, function: why_not}), world)
    return ask_plans(running, (StageId(function, 1, running.last_resort),), world)


def ask_plans(running: RunningPass, stages: tuple[StageId, ...], world: World) -> Advanced:
    """Has these stages plan, beside those that run. A plan that is still awaited from an earlier
    pass, because it hangs, is not asked for again."""
    current = list(running.current)
    asked = list[Effect]()
    for stage in stages:
        run = StageRun(stage, world.now, world.now)
        if stage in world.hanging:
            run = run._replace(
                plan=NO_PLAN,
                error=cannot_plan(stage, "an earlier reading has not been answered yet"),
            )
        else:
            asked.append(Plan(running.id, stage))
        current.append(run)
    running = running._replace(current=tuple(current), progress_at=world.now)
    return (running, tuple(asked)) if asked else advance(running, world)


def cannot_plan(stage: StageId, why: str) -> str:
    """An error of a stage, in a sentence."""
    return f"{stage.function}, stage {stage.number} cannot plan: {why}"


def beside_those(running: RunningPass, world: World) -> tuple[StageId, ...]:
    """The first stages of the functions that are to run side by side if it is urgent, without the
    one that runs; none if they run already."""
    if not running.urgent or len(running.current) > 1:
        return ()
    running_already = {stage.id.function for stage in running.current}
    return tuple(
        StageId(function, 1)
        for function in side_by_side(running, world)
        if function not in running_already
    )


def side_by_side(running: RunningPass, world: World) -> Row:
    """The functions at the start of the row whose objects do not depend on each other,
    provided that they have the same thresholds to clear; none if the pass has begun already,
    or if there is only one."""
    begun = running.done or running.skipped or running.at > 0 or running.last_resort
    if begun or running.extent is Extent.ALL:
        return ()
    together = list[str]()
    goals = set[Thresholds]()
    for function in running.row:
        goal = goal_of(running, function, world)
        if goal.waits or not world.functions[function].side_by_side:
            break
        together.append(function)
        goals.add(goal.thresholds)
    return tuple(together) if len(together) > 1 and len(goals) == 1 else ()


def why_not_called(running: RunningPass, function: str, world: World) -> str:
    """Why a function is not called; empty if it is."""
    goal = goal_of(running, function, world)
    if goal.waits and not goal.met(world.observations):
        return ", ".join(f"{mark.signal} is not below {mark.value}" for mark in goal.thresholds)
    left = world.cooling_until.get(function, 0.0) - world.now
    return f"its cooldown lasts another {left:.0f} s" if left > 0 and not running.dry_run else ""


def next_stage(running: RunningPass, world: World) -> Advanced:
    """Nothing of the current stages is left or under way: the next stage of the
    function, or the next function.
    """
    ended = tuple(ended_stage(stage, running, world) for stage in running.current)
    # space may still arrive from a stage whose objects free it some time after the answer
    frees_late = any_removed(stage for stage in ended if stage.frees_late)
    if frees_late and running.measures and not running.urgent:
        waited_for = tuple(stage._replace(frees_late=False) for stage in running.current)
        return begin_settling(running._replace(current=waited_for), world, at_end=False)
    running = with_ended(running, ended)
    if len(ended) > 1:  # the row follows from its beginning, all stages of each function
        return advance(running, world)
    (last,) = ended
    if last.last or (world.functions[last.id.function].stops_on_failure and failed(last)):
        return advance(running._replace(at=running.at + 1), world)
    return ask_plans(running, (last.id._replace(number=last.id.number + 1),), world)


def ended_stage(stage: StageRun, running: RunningPass, world: World) -> StageRun:
    """A stage of which nothing more is begun although the disk is not relieved: the runtime is
    silent or stuck, or it has done what it was to do."""
    stuck_because = "" if stage.next is None else why_stuck(running, world)
    why = Reason.RELIEVED
    if stuck_because:
        why = Reason.RUNTIME_STUCK
    elif any(other.silent for other in running.current):
        why = Reason.INCOMPLETE_LISTING
    return left_over(stage, why)._replace(error=stage.error or stuck_because, ended_at=world.now)


def failed(stage: StageRun) -> bool:
    """Whether it could not do what it planned."""
    return bool(stage.error) or any(
        outcome.result in (Result.FAILED, Result.PARKED) for outcome in stage.outcomes
    )


# ---- after the row


def after_the_row(running: RunningPass, world: World) -> Advanced:
    """What goes only as a last resort, if nothing else is left that could
    still be enough; else the end.
    """
    # the kubelet's periodic passes have no last resort
    something = running.measures and any(
        held_something_back(running, function) for function in running.row
    )
    # after an error, or while a removal is not answered, by whomever it was sent, it is not known
    # that nothing else is enough
    under_way = any(world.under_way())
    untried = something and not running.last_resort and reached(running, world)
    if untried and not under_way and settled(running):
        return advance(running._replace(at=0, last_resort=True), world)
    return finish(running, world)


def reached(running: RunningPass, world: World) -> bool:
    """Whether the mark that it acts on is reached: what is only coming may not come."""
    acts_on = running.decision.acted_on
    if running.trigger is not Trigger.LEAD or acts_on is None:
        return True
    seen = world.observations.signals
    return bool(thresholds_met((acts_on,), seen, ahead=False))


def settled(running: RunningPass) -> bool:
    """Whether every object is gone, planned or kept for a reason of its
    own, and no stage has failed.
    """
    return not any(
        stage.error
        or any(outcome.result in OPEN for outcome in stage.outcomes)
        or any(outcome.verdict.reason in UNSETTLED for outcome in stage.kept)
        for stage in running.done
    )


def held_something_back(running: RunningPass, function: str) -> bool:
    """Whether a function that was called keeps something that may go as a last resort."""
    return any(
        outcome.verdict.last_resort
        for stage in running.done
        if stage.id.function == function and not stage.id.last_resort
        for outcome in stage.kept
    )


def finish(running: RunningPass, world: World) -> Advanced:
    """The end: after late space has arrived, if anything was removed."""
    if not running.measures or not any_removed(running.done):
        return running._replace(ended=True), ()
    # by the goal of the last function that does not wait for a mark of its own
    last = len(running.row) - 1
    for at, function in enumerate(running.row):
        if not goal_of(running, function, world).waits:
            last = at
    return begin_settling(running._replace(at=last), world, at_end=True)


# ---- late space


def any_removed(stages: Iterable[StageRun]) -> bool:
    """Whether any of their objects was removed."""
    return any(outcome.result is Result.REMOVED for stage in stages for outcome in stage.outcomes)


def measured(running: RunningPass, world: World) -> RunningPass:
    """What the removals that have ended since the last measurement have freed. If several were
    under way, nobody knows what each has freed, and what the runtime promised for it stands."""
    if not running.unmeasured:
        return running
    freed_bytes, freed_inodes = running.gained.gained_since(running.measured)
    others = any(other.id != running.id for other in world.removing())
    alone = len(running.unmeasured) == 1 and not world.claims_of(running) and not others
    current = []
    for stage in running.current:
        outcomes = list(stage.outcomes)
        for number, outcome in enumerate(outcomes):
            if outcome in running.unmeasured:
                freed = Amounts(max(outcome.verdict.promised_bytes, 0))
                if alone:
                    freed = Amounts(max(freed_bytes, 0), max(freed_inodes, 0))
                outcomes[number] = outcome._replace(freed=freed)
        current.append(stage._replace(outcomes=tuple(outcomes)))
    return running._replace(current=tuple(current), measured=running.gained, unmeasured=())


def waits_for_late_space(running: RunningPass, disk: Disk) -> bool:
    """Whether the last removal has freed less than half of what it promised, so
    that more may come.
    """
    if not running.unmeasured or not running.measures or disk.urgent or disk.stop is not None:
        return False
    gained_bytes, _ = running.gained.gained_since(running.measured)
    return gained_bytes * 2 < promised_bytes(running.unmeasured)


def begin_settling(running: RunningPass, world: World, *, at_end: bool) -> Advanced:
    """From now on nothing is begun until nothing more arrives."""
    settling = Settling(
        at_end, began_at=world.now, quiet_since=world.now, best=running.gained, read_at=world.now
    )
    return advance(running._replace(settling=settling), world)


def settle(running: RunningPass, settling: Settling, world: World) -> Advanced:
    """Watches the disk while late space still arrives: until nothing has risen for 0.25 s, the disk
    is relieved, or 5 s have passed."""
    now = world.now
    disk = disk_of(running, world)
    if disk.unread:
        return running, (Read(disk.unread),)
    if max(running.gained.gained_since(settling.best)) > 0:
        settling = settling._replace(best=running.gained, quiet_since=now)
    over = min(settling.quiet_since + TICK_SECONDS, settling.began_at + URGENT_PATIENCE_SECONDS)
    goal = goal_of(running, running.function, world)
    clear = settling.at_end and not goal.met(world.observations)
    if disk.stop is not None or clear or world.stopping or now >= over:
        running = measured(running._replace(settling=None), world)
        return (running._replace(ended=True), ()) if settling.at_end else advance(running, world)
    if now < settling.read_at:
        return running._replace(settling=settling), ()
    settling = settling._replace(read_at=min(now + TICK_SECONDS / 8, over))
    running = running._replace(settling=settling, measure_after=now)
    return running, (Read(unread_since(running, running.function, world, since=now)),)


def facts_of(world: World, pass_id: str) -> PassFacts:
    """What the stages of a pass may know of it now; nothing of one that has ended."""
    running = world.passes.get(pass_id)
    if running is None:
        return PassFacts(dry_run=True)
    return PassFacts(
        dry_run=running.dry_run,
        began_at=running.began_at,
        removal_ended_at=world.removal_ended_at,
        urgent=running.urgent,
        planned=running.planned,
        pressure=running.pressure,
    )
