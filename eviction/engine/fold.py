"""What has happened is taken into the world.

Pure, and decides nothing: what follows is decided by `step`.
"""

from collections.abc import Callable
from typing import assert_never

from eviction.configuration.effective import eviction_config, needing_restart, until_restart
from eviction.decision.headroom import update_fill_rates
from eviction.engine.effects import (
    CheckEnded,
    Ended,
    Event,
    KubeletHealthy,
    Located,
    LookWanted,
    PassWanted,
    PauseSet,
    Planned,
    Progressed,
    Reconfigured,
    Refreshed,
    Resolve,
    Tick,
    Withdrawn,
    WrittenBack,
)
from eviction.engine.world import (
    FOREVER_AGO,
    REMEMBERED,
    RETRY_SECONDS,
    SELDOM_SECONDS,
    LookWhy,
    StageRun,
    World,
    Writeback,
)
from reclaim import types
from reclaim.removals import Claim, StageId, sent_claims
from reclaim.types import Outcome, Result, Usage
from signals.clock import LATE_SECONDS
from signals.samplers import Sample
from signals.summary import answered, observations_of
from signals.types import SignalObservations


def fold(world: World, event: Event) -> World:  # noqa: C901 # one case for each event
    """The world after this event."""
    now = world.now
    match event:
        case Sample():
            return sampled(world, event)
        case Planned():
            return planned(world, event)
        case Progressed(pass_id, stage):
            return progressed(
                world, pass_id, stage, change=lambda run: run._replace(progress_at=now)
            )
        case CheckEnded(claim_id, checked):
            claim = world.removals.get(claim_id)
            if claim is None:
                return world
            world = world.with_claim(claim._replace(checked=checked))
            return progressed(world, claim.pass_id, claim.stage)
        case Ended(claim_id, outcome):
            claim = world.removals.get(claim_id)
            return world if claim is None else removal_ended(world, claim, outcome)
        case Located(paths, problem):
            world = located(world, problem)
            if paths is not None and paths != world.paths:
                distinct = paths.distinct()
                readings = {
                    path: published
                    for path, published in world.readings.items()
                    if path in distinct
                }
                look = world.look
                if look is not None:  # nothing that is read elsewhere from now on is waited for
                    look = look._replace(awaited=look.awaited & readings.keys())
                world = world._replace(paths=paths, readings=readings, look=look)
                world = observed(world._replace(look_due=now))
            return world
        case Refreshed():
            return refreshed(world, event)
        case WrittenBack(device):
            last = Writeback(ended_at=now)
            return world._replace(writebacks={**world.writebacks, device: last})
        case LookWanted(urgent):
            due = now if urgent else max(world.look_floor, now)
            if due < world.look_due:
                world = world._replace(look_due=due, look_why=LookWhy.WANTED)
            return world._replace(look_is_wanted=world.look_is_wanted or not urgent)
        case PassWanted():
            return world._replace(wanted=(*world.wanted, event))
        case Withdrawn(wanted):
            return world.without(wanted).emitting(Resolve(event.done, wanted in world.wanted))
        case Reconfigured(configuration):
            changed = needing_restart(world.configuration, configuration)
            configuration = until_restart(world.configuration, configuration)
            # thresholds that stay keep their state
            world = world._replace(
                configuration=configuration, config=eviction_config(configuration), look_due=now
            )
            return world.telling("reconfigured").emitting(Resolve(event.done, changed))
        case PauseSet(seconds, unknown, if_unknown):
            if not if_unknown or world.pause_is_unknown():
                pause = world.pause.ended()
                if seconds:
                    pause = world.pause.begun(now, seconds, unknown)
                world = world._replace(pause=pause, look_due=now)
            return world.emitting(Resolve(event.done, len(sent_claims(world.removals))))
        case KubeletHealthy():
            return world._replace(hold_off_until=FOREVER_AGO, look_due=now)
        case Tick():
            return world
        case _:
            assert_never(event)


def after_defect(world: World, event: Event) -> World:
    """The world after an event that could not be taken in: a filesystem is read again, and its fill
    rate begins anew. Whoever waits for anything else goes on at its deadline."""
    match event:
        case Sample(path=path):
            readings = dict(world.readings)
            readings.pop(path, None)
            return world._replace(readings=readings, fill_rates={})
    return world


# ---- readings


def observed(world: World) -> World:
    """The same with the observations that follow from its readings now."""
    observations = observations_of(
        world.paths,
        world.readings,
        world.now,
        wall=world.wall,
        imagefs_problem=world.imagefs_problem,
    )
    return world._replace(observations=world.ahead(observations))


def sampled(world: World, sample: Sample) -> World:
    """A filesystem was read, or could not be.

    What it has gained is booked, once, to the pass that removes there.
    """
    if sample.path not in world.paths.distinct():
        return world
    before = world.observations
    world = observed(world._replace(readings=answered(world.readings, sample)))
    rates = update_fill_rates(
        world.fill_rates,
        world.observations,
        world.configuration.poll_floor_seconds,
        incomplete=devices_awaited(world),
    )
    world = world._replace(fill_rates=rates)
    if world.look is not None:
        world = world._replace(look=world.look._replace(awaited=world.look.awaited - {sample.path}))
    elif world.on_its_own and sample.begun_at < world.looked_at:
        # it came after its look was over, and may change what was decided
        world = world._replace(look_due=world.now)
    return booked(world, before)


def devices_awaited(world: World) -> set[int]:
    """Those of which a path has not answered yet, and is not late: paths of one filesystem are read
    a moment apart, and one of them has the polls since the last look."""
    devices = set()
    for published in world.readings.values():
        awaited = published.asked_at is not None and not published.late(world.now)
        if awaited and published.last is not None and published.last.reading is not None:
            devices.add(published.last.reading.device_id)
    return devices


def booked(world: World, before: SignalObservations) -> World:
    """The same, with what each device has gained since these observations booked to its pass."""
    if not world.booked_to:
        return world
    known = {identity.device_id: stats for identity, stats in before.filesystems.values()}
    passes = dict(world.passes)
    for identity, stats in dict(world.observations.filesystems.values()).items():
        then = known.get(identity.device_id)
        running = passes.get(world.booked_to.get(identity.device_id, ""))
        if then is None or running is None or stats.time <= then.time:
            continue
        del known[identity.device_id]  # another role of the same filesystem
        gained = Usage(
            running.gained.available_bytes + stats.available_bytes - then.available_bytes,
            running.gained.free_bytes + stats.free_bytes - then.free_bytes,
            running.gained.inodes_free + stats.inodes_free - then.inodes_free,
        )
        passes[running.id] = running._replace(gained=gained)
    return world._replace(passes=passes)


# ---- plans and removals


def progressed(
    world: World,
    pass_id: str,
    stage: StageId,
    *,
    change: Callable[[StageRun], StageRun] = lambda run: run,
) -> World:
    """The same: a pass that runs has had an answer, which changes one of its stages like this."""
    running = world.passes.get(pass_id)
    if running is None:
        return world
    running = running._replace(progress_at=world.now)
    run = running.stage(stage)
    return world.with_pass(running if run is None else running.with_stage(change(run)))


def planned(world: World, event: Planned) -> World:
    """A stage has planned, or failed to. What there is nothing to plan for has an empty plan."""
    world = world._replace(hanging=world.hanging - {event.stage})
    plan = event.plan or types.Plan()
    return progressed(
        world,
        event.pass_id,
        event.stage,
        change=lambda run: run._replace(
            plan=plan,
            kept=tuple(map(Outcome, plan.keep)),
            error=event.error,
            plan_seconds=event.seconds,
            planned_at=world.now,
            fresh_seconds=event.fresh_seconds,
            frees_late=event.frees_late,
            patience_seconds=event.patience_seconds,
            last=event.last,
        ),
    )


def removal_ended(world: World, claim: Claim, outcome: Outcome) -> World:
    """A removal has ended, in whatever way: its object may be claimed again."""
    removals = dict(world.removals)
    removals.pop(claim.id, None)
    world = world._replace(removals=removals)
    if not claim.dry_run and claim.sent_at is not None:
        world = world._replace(removal_ended_at=world.now)
        if outcome.result is Result.REMOVED and outcome.verdict.size_bytes:
            world = world._replace(
                durations=(*world.durations, outcome.duration_seconds)[-REMEMBERED:]
            )
    if not claim.awaited:
        return world.telling("parked_ended", outcome)
    return with_outcome(world, claim, outcome)


def with_outcome(world: World, claim: Claim, outcome: Outcome) -> World:
    """An object has ended this way for its pass, if that still runs."""

    def change(run: StageRun) -> StageRun:
        if outcome.kept:
            return run._replace(kept=(*run.kept, outcome))
        run = run._replace(outcomes=(*run.outcomes, outcome))
        if outcome.result is Result.UNANSWERED:
            run = run._replace(silent=True, error=run.error or outcome.error)
        return run

    world = progressed(world, claim.pass_id, claim.stage, change=change)
    running = world.passes.get(claim.pass_id)
    if running is None or outcome.kept:
        return world
    if outcome.result is Result.PLANNED:
        role = world.functions[claim.stage.function].frees
        promised = running.assumed.get(role, 0) + outcome.verdict.promised_bytes
        running = running._replace(assumed={**running.assumed, role: promised})
    else:
        running = running._replace(measure_after=world.now)
    if outcome.result is Result.REMOVED:
        running = running._replace(unmeasured=(*running.unmeasured, outcome))
    return world.with_pass(running)


# ---- what the runtime is asked from time to time


def located(world: World, problem: str) -> World:
    """The runtime has said where its images are, or not. While a threshold is met, every second, as
    nothing can be relieved in the wrong place; after waiting for an answer in vain, a minute later;
    while nothing is known yet, every second."""
    asking = world.asking
    known = world.paths.imagefs is not None
    waited = world.now - (asking.locating_since or world.now)
    in_vain = known and waited >= LATE_SECONDS
    soon = not in_vain and (problem or world.pressed)
    asking = asking._replace(
        locating_since=None,
        overdue_told=False,
        problem=problem,
        locate_due=world.now + (RETRY_SECONDS if soon else SELDOM_SECONDS),
    )
    world = world._replace(asking=asking, imagefs_problem=problem or world.imagefs_problem)
    return world.telling("runtime_asked", problem)


def refreshed(world: World, event: Refreshed) -> World:
    """The image records were updated, or not."""
    waited = world.now - (world.asking.refreshing_since or world.now)
    soon = event.given_up or (event.problem and waited < LATE_SECONDS)
    due = world.now + (RETRY_SECONDS if soon else SELDOM_SECONDS)
    world = world._replace(asking=world.asking._replace(refreshing_since=None, refresh_due=due))
    if event.given_up:
        return world
    world = world.telling("runtime_asked", event.problem)
    return world if event.problem or world.under_pressure else world.telling("detected")
