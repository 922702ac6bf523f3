"""What follows from the world as it is now: the decisions of the daemon between its passes. Pure.

* A pass begins when its threshold is met: its mark is reached, or what is coming would reach the
  kubelet's (`decision.headroom`). One pass at a time relieves a filesystem;
  what is slow on one delays no other.
* Nothing that may have to wait delays a pass: a command's pass gives way to it, dry runs have a
  lane of their own, and the question who uses what is given up when a pass begins.
* The next look is due when a filesystem could have reached its mark (`signals.interval`); a
  poll, inotify or a command may ask for an earlier one. A filesystem that does not answer
  delays no look at the others.
* After a pass that freed nothing, the next one of the same row waits longer, up to a minute, or
  until the next object is old enough; other rows are served meanwhile. A runtime that does not
  answer is asked every second.
* Another configuration is in force with the next step, whatever runs: passes that were made
  before send nothing more.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import starmap, takewhile
from operator import itemgetter

from eviction.decision.synchronize import synchronize
from eviction.decision.thresholds import is_coming
from eviction.engine.effects import (
    Check,
    Effect,
    Forget,
    Locate,
    Looked,
    Read,
    Refresh,
    Request,
    Resolve,
    Send,
    Tell,
    Watch,
    WriteBack,
)
from eviction.engine.ended import record_of
from eviction.engine.fold import observed, removal_ended, with_outcome
from eviction.engine.gate import may_send, too_old
from eviction.engine.periodic import FUNCTIONS, periodic_ended, with_loop
from eviction.engine.relief import NO_PLAN, advance, cannot_plan, overdue_at, unread_since
from eviction.engine.world import (
    RETRY_SECONDS,
    SELDOM_SECONDS,
    TICK_SECONDS,
    BackOff,
    LaneName,
    Look,
    LookWhy,
    RunningPass,
    StageRun,
    World,
    Writeback,
)
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.types import Decision, Extent, Thresholds
from reclaim.function import Ready, Refused, Wait
from reclaim.removals import (
    CHECK_ATTEMPTS,
    HANGS_SECONDS,
    Checked,
    Claim,
    StageId,
    State,
    checked_again,
    left,
    never_fresh,
    refused,
    sent,
    waiting,
)
from reclaim.types import NEVER, Outcome, Reason, ReclaimResult, Result
from signals.clock import LATE_SECONDS
from signals.summary import asked
from signals.types import Signal

LOOK_PATIENCE_SECONDS = 0.05  # a filesystem that answers later is decided about when it has
SLOW_SECONDS = 10.0  # what makes no progress for longer is announced
# a mark is near that a fill reaches within this time; what waits longer, the kernel writes itself
NEAR_SECONDS = 30.0
WRITEBACK_PAUSE_SECONDS = 0.1  # so each has little to write, and no removal waits long for one
KUBELET_INTERVAL_SECONDS = 10.0  # evictionMonitoringPeriod in `pkg/kubelet/kubelet.go`


def step(world: World) -> tuple[World, tuple[Effect, ...]]:
    """The next world, and what is to be done. Called after everything that has happened."""
    world = readings_in_time(world)
    world = removals_in_time(world)
    world = plans_in_time(world)
    world = judged(world)
    for pass_id in list(world.passes):
        world = advanced(world, world.passes[pass_id])
    world = looked(world)
    world = wanted_begun(world)
    if world.on_its_own and not world.stopping:
        world = periodic_begun(world)
        world = runtime_asked(world)
        world = written_back(world)
    # who listens never stands before relief
    effects = sorted(world.effects, key=lambda effect: isinstance(effect, Tell | Resolve))
    return world._replace(effects=()), tuple(effects)


def next_deadline(world: World) -> float:
    """When something is due although nothing happens (monotonic seconds)."""
    due = [world.look_due if world.look is None else look_ends_at(world.look, world)]
    late_at = [
        published.asked_at + LATE_SECONDS
        for published in world.readings.values()
        if published.asked_at is not None
    ]
    # what is late already is noticed when it answers
    due += [at for at in late_at if at > world.now]
    for claim in world.removals.values():
        if claim.state is State.WAITING:
            due.append(claim.again_at)
        if claim.awaited:
            due.append(overdue_at(claim, world))
    for running in world.passes.values():
        planning = [run for run in running.current if run.plan is None]
        due += [run.progress_at + HANGS_SECONDS for run in planning]
        due += [at for run in planning if (at := run.asked_at + TICK_SECONDS) > world.now]
        if running.settling is not None and running.settling.read_at > world.now:
            due.append(running.settling.read_at)
        elif world.claims_of(running):
            due.append(world.now + TICK_SECONDS)
    if world.on_its_own and not world.stopping:
        due += [loop.due for loop in world.periodic.values()]
        asking = world.asking
        if world.configuration.has_runtime and not asking.overdue_told:
            since = asking.locating_since
            due.append(asking.locate_due if since is None else since + LATE_SECONDS)
    return min(due)


# ---- what takes too long


def readings_in_time(world: World) -> World:
    """A filesystem that does not answer in time cannot be read at present."""
    late = any(published.late(world.now) for published in world.readings.values())
    return observed(world) if late else world


def removals_in_time(world: World) -> World:
    """A removal that is overdue is waited for by nobody any more; one whose wait
    is over is checked again.
    """
    for claim in list(world.removals.values()):
        running = world.passes.get(claim.pass_id)
        if running is None or not claim.awaited:
            continue
        if world.now >= overdue_at(claim, world):
            lonely, outcome = left(claim, world.now)
            world = world.with_claim(lonely)
            world = with_outcome(world, claim, outcome).telling("parked", outcome)
        elif claim.state is State.WAITING:
            if (reason := may_send(running, world)) is not None:
                world = kept_back(world, claim, reason)
            elif world.now >= claim.again_at:
                world = check_again(world, claim)
    return world


def plans_in_time(world: World) -> World:
    """A plan that hangs is given up by its pass, and not asked for again before it has ended."""
    for running in world.passes.values():
        for run in running.current:
            if run.plan is None and world.now >= run.progress_at + HANGS_SECONDS:
                given_up = run._replace(
                    plan=NO_PLAN,
                    error=cannot_plan(run.id, f"it did not answer within {HANGS_SECONDS:g} s"),
                    planned_at=world.now,
                )
                world = world.with_pass(world.passes[running.id].with_stage(given_up))
                world = world._replace(hanging=world.hanging | {run.id})
    return world


# ---- what was checked


def judged(world: World) -> World:
    """Every removal whose check has ended goes on: it is sent if the gate lets it pass."""
    for claim in list(world.removals.values()):
        if claim.checked is None:
            continue
        try:
            world = judged_claim(world, claim, claim.checked)
        except Exception as defect:  # noqa: BLE001 # a defect in one pass sends nothing, and does not end all relief
            world = removal_ended(
                world, claim, Outcome(claim.verdict, Result.FAILED, in_words(defect))
            )
    return world


def judged_claim(world: World, claim: Claim, checked: Checked) -> World:
    """What becomes of a removal after its check."""
    running = world.passes.get(claim.pass_id)
    answer = checked.answer
    if not claim.awaited:  # nothing was sent, and nothing is
        return kept_back(world, claim, Reason.STOPPING)
    if isinstance(answer, Refused):
        return removal_ended(world, claim, refused(claim, answer, world.now))
    if (reason := may_send(running, world)) is not None:
        return kept_back(world, claim, reason)
    if isinstance(answer, Wait):
        return world.with_claim(waiting(claim, world.now + answer.seconds))
    if answer is None:
        return check_again(world, claim)
    if claim.ready_since == NEVER:
        claim = claim._replace(ready_since=checked.looked_at)
        world = world.with_claim(claim)
    assert running is not None
    # what may have been mounted over it meanwhile, or be enough by now
    unread = unread_since(
        running,
        claim.stage.function,
        world,
        since=max(claim.ready_since, running.measure_after),
    )
    if unread:
        return reads(world, unread)
    if another_goes_first(claim, running, world):
        return world
    if too_old(checked, world):
        return check_again(world, claim)
    if claim.dry_run:
        planned = Outcome(
            claim.verdict, Result.PLANNED, "", duration_seconds=world.now - claim.claimed_at
        )
        return removal_ended(world, claim, planned)
    return send(world, claim, answer)


def kept_back(world: World, claim: Claim, reason: Reason) -> World:
    """Its object stays: nothing is sent."""
    return removal_ended(world, claim, refused(claim, Refused(reason), world.now))


def another_goes_first(claim: Claim, running: RunningPass, world: World) -> bool:
    """Whether an object that comes before it in the row is not sent yet: as long as it is not
    urgent they go in order. A check that takes long holds nobody up."""
    earlier = takewhile(lambda other: other.id != claim.id, world.removals.values())
    return not running.urgent and any(
        other.pass_id == claim.pass_id
        and other.state is State.CHECKING
        and world.now < other.claimed_at + TICK_SECONDS
        for other in earlier
    )


def check_again(world: World, claim: Claim) -> World:
    """The object is checked once more, or given up if that never leads to anything."""
    again = checked_again(claim)
    if again.attempts >= CHECK_ATTEMPTS:
        run = world.passes[claim.pass_id].stage(claim.stage)
        fresh_seconds = 0.0 if run is None else run.fresh_seconds
        return removal_ended(world, claim, never_fresh(claim, fresh_seconds, world.now))
    return world.with_claim(again).emitting(Check(again))


def send(world: World, claim: Claim, ready: Ready) -> World:
    """The call goes out. What its filesystem gains from now on is booked to its pass."""
    claim = sent(claim, world.now)
    btrfs = dict[int, str]()
    booked_to = dict(world.booked_to)
    for role, (identity, _) in world.observations.filesystems.items():
        if identity.type == "btrfs":
            btrfs[identity.device_id] = identity.path
        frees = role is world.functions[claim.stage.function].frees
        if frees and world.passes[claim.pass_id].measures:
            booked_to[identity.device_id] = claim.pass_id
    world = world.with_claim(claim)._replace(booked_to=booked_to)
    return world.emitting(Send(claim, ready, tuple(btrfs.values())))


# ---- passes


def advanced(world: World, running: RunningPass) -> World:
    """The pass goes on; if it has ended, its record is made."""
    before = running
    effects = tuple[Effect, ...]()
    try:
        running, effects = advance(running, world)
    except Exception as defect:  # noqa: BLE001 # a defect in one pass ends that pass, and not all relief
        stage = StageId(running.function or "".join(running.row[-1:]), 1)
        failed = StageRun(
            stage, world.now, world.now, plan=NO_PLAN, error=in_words(defect), ended_at=world.now
        )
        done = (*running.done, *running.current, failed)
        running = running._replace(current=(), done=done, ended=True)
    if running is not before:
        world = world.with_pass(running)
    for effect in effects:
        if isinstance(effect, Read):
            world = reads(world, effect.paths)
            continue
        if isinstance(effect, Check):
            world = world.with_claim(effect.claim)
        world = world.emitting(effect)
    return ended(world, running) if running.ended else world


def in_words(defect: Exception) -> str:
    """What was raised that never should be."""
    return f"{type(defect).__name__}: {defect}"


def unasked(world: World, paths: Iterable[str]) -> tuple[str, ...]:
    """Those that are not being read already."""
    return tuple(
        path
        for path in paths
        if path not in world.readings or world.readings[path].asked_at is None
    )


def reads(world: World, paths: Iterable[str]) -> World:
    """These paths are read, unless an answer is awaited already."""
    paths = unasked(world, paths)
    if not paths:
        return world
    world = world._replace(readings=asked(world.readings, paths, world.now))
    return world.emitting(Read(paths))


def begun(world: World, running: RunningPass) -> World:
    """The pass begins: another row of its filesystem may wait for it from now on."""
    world = world.with_lane(running.lane, another_waits=False).with_pass(running)
    if isinstance(running.lane, int) and not running.dry_run:
        world = world._replace(booked_to={running.lane: running.id, **world.booked_to})
    return advanced(world, running)


def new_pass(
    world: World, trigger: Trigger, request: Request, *, decision: Decision
) -> tuple[World, RunningPass]:
    """A pass that begins now, and the world that has counted it."""
    number = world.passes_begun + 1
    running = RunningPass(
        id=f"{world.ids_begin}{number:06x}",
        trigger=trigger,
        request=request,
        observations=world.observations,
        decision=decision,
        row=decision.row if request.row is None else request.row,
        lane=None,
        configuration=world.configuration,
        began_at=world.now,
        started_wall=world.wall,
        begun_rates=world.fill_rates,
        pause_count=world.pause.count if request.now else None,
        dry_run=request.dry_run or world.removes_nothing,
        progress_at=world.now,
    )
    return world._replace(passes_begun=number), running


def ended(world: World, running: RunningPass) -> World:
    """Its record is made, and told; its filesystem is free."""
    record = Pass(
        running.id,
        running.started_wall,
        running.trigger,
        observations=running.observations,
        decision=running.decision,
        after=world.observations,
        row=running.row,
    )
    try:
        record = record_of(record, running, world)
    except Exception as defect:  # noqa: BLE001 # nor may one keep a pass from ending
        problem = in_words(defect)
        failed = tuple(ReclaimResult(name, error=problem) for name in running.row[:1])
        record = replace(record, functions=failed, result=PassResult.FAILED, reason=problem)
    passes = dict(world.passes)
    del passes[running.id]
    world = world._replace(passes=passes)
    booked_to = {}
    for device, holder in world.booked_to.items():
        heir = running_in(device, world) if holder == running.id else passes.get(holder)
        if heir is not None:
            booked_to[device] = heir.id
    world = world._replace(booked_to=booked_to).with_lane(running.lane, ended_at=world.now)
    world = world.emitting(Forget(running.id))
    if world.on_its_own:
        world = world._replace(look_due=min(world.look_due, world.now))
    if not running.dry_run:
        called = [result.operation for result in record.functions if result.outcomes]
        until = {name: world.now + world.functions[name].cooldown_seconds for name in called}
        world = world._replace(cooling_until={**world.cooling_until, **until})
    if running.trigger is Trigger.PERIODIC:
        return periodic_ended(world, running, record)
    if running.wanted is None:
        world = backed_off(world, running, record)
    else:
        world = world.emitting(Resolve(running.wanted.record, record))
    return world if running.request.dry_run else world.telling("passed", record)


def backed_off(world: World, running: RunningPass, record: Pass) -> World:
    """The pause of its row after a pass of the daemon's own: none after success, 1 s after a
    failure or any gain, else twice the last one, up to 60 s; never longer than until the next
    object is old enough."""
    seconds = world.lane(running.lane).back_off(running.row).seconds
    if record.result is PassResult.SATISFIED:
        seconds = 0.0
    elif record.result is PassResult.FAILED or record.count(Result.REMOVED):
        seconds = RETRY_SECONDS
    else:
        seconds = min(max(seconds * 2, RETRY_SECONDS), SELDOM_SECONDS)
    eligible = (result.eligible_in_seconds for result in record.functions)
    waits = [max(wait, 0.0) for wait in eligible if wait is not None]
    after = BackOff(world.now + min([seconds, *waits]), seconds)
    return world.with_back_off(running.lane, running.row, after)


# ---- looks


def looked(world: World) -> World:
    """A look begins when it is due, and ends when all filesystems have answered, or soon after."""
    if world.look is None:
        if world.now < world.look_due:
            return world
        awaited = unasked(world, sorted(world.paths.distinct()))
        world = reads(world, awaited)._replace(
            look=Look(world.now, frozenset(awaited)), look_due=NEVER
        )
    assert world.look is not None
    if world.look.awaited and world.now < look_ends_at(world.look, world):
        return world
    return decided(world)


def look_ends_at(look: Look, world: World) -> float:
    """When it is decided although a filesystem has not answered: soon if its last reading is known,
    as the next look of the daemon is not far."""
    unknown = any(world.readings[path].last is None for path in look.awaited)
    patience = LOOK_PATIENCE_SECONDS if world.on_its_own and not unknown else LATE_SECONDS
    return look.began_at + patience


def decided(world: World) -> World:
    """What the look shows is decided about, and passes begin where they are due."""
    if world.observations.time < world.now:  # else the last answer was just taken in
        world = observed(world)
    observations = world.observations._replace(polls={})
    manager, decision = synchronize(world.config, world.manager, observations)
    world = world.emitting(Looked())
    world = world.telling("observed", observations, decision)
    trigger = Trigger.WATCH if world.look_is_wanted else Trigger.INTERVAL
    wanted_at = world.look_due
    pressed = world.pressed
    world = world._replace(
        manager=manager,
        decision=decision,
        look=None,
        look_due=NEVER,
        look_is_wanted=False,
        looked_at=world.now,
        looks=world.looks + 1,
    )
    # from now on it is asked every second, and not after a minute first
    if world.pressed and not pressed:
        due = min(world.asking.locate_due, world.now + RETRY_SECONDS)
        world = world._replace(asking=world.asking._replace(locate_due=due))
    if world.stopping:
        return world
    if not world.on_its_own:
        return world._replace(look_due=wanted_at)
    return next_look_set(begun_where_due(world, trigger), wanted_at)


def begun_where_due(world: World, trigger: Trigger) -> World:
    """Passes begin for each threshold that is met, the most urgent first. What makes no progress is
    told."""
    decision = world.decision
    world = row_is_empty(lanes_after(world), decision)
    for running in world.passes.values():
        stalled = stalled_seconds(running, world)
        if stalled > SLOW_SECONDS:
            world = world.telling("takes_long", what_of(running), stalled)
    others = [
        decision._replace(
            acted_on=threshold, row=world.config.row(threshold.signal, world.observations)
        )
        for threshold in decision.others
    ]
    for due_now in (decision, *others):
        world = begin_where_due(world, due_now, trigger)
    return world


def next_look_set(world: World, wanted_at: float) -> World:
    """The next look is due; sooner if one was wanted meanwhile. Close to a mark, samplers poll."""
    # half the time in which a mark could be reached
    halfway = world.outlook.interval(marks_to_watch(world))
    seconds, why = next_look(world, halfway)
    due = world.now + seconds
    if wanted_at < due:
        due = wanted_at
        why = LookWhy.WANTED
    world = world._replace(
        look_due=due,
        look_why=why,
        look_floor=world.now + world.configuration.poll_floor_seconds,
    )
    return world.emitting(*polls(world, halfway))


def lane_of(signal: Signal | None, world: World) -> int | None:
    """The lane of the filesystem that this signal is about now; what cannot
    be read has one of its own.
    """
    observation = None if signal is None else world.observations.signals.get(signal)
    return None if observation is None else observation.filesystem.device_id


def running_in(lane: LaneName, world: World) -> RunningPass | None:
    """The pass that has this lane."""
    return next((running for running in world.passes.values() if running.lane == lane), None)


def lanes_after(world: World) -> World:
    """Once no threshold of a lane has been met for a while, its pauses are forgotten, because
    whatever comes next is new pressure."""
    pressed = {lane_of(threshold.signal, world) for threshold in world.decision.thresholds_met}
    here = {identity.device_id for identity, _ in world.observations.filesystems.values()}
    lanes = {}
    for name in pressed | world.lanes.keys():
        lane = world.lane(name)
        if name in pressed:
            lane = lane._replace(met_at=world.now)
        # what flaps is no new pressure
        elif world.now - lane.met_at >= KUBELET_INTERVAL_SECONDS and lane.back_offs:
            lane = lane._replace(back_offs={})
        # those of filesystems that are gone are forgotten
        if name in here or not isinstance(name, int):
            lanes[name] = lane
    return world._replace(lanes=lanes)


def row_is_empty(world: World, decision: Decision) -> World:
    """Instead of a pass, if the row has no function to call: the kubelet's event all the same, as
    in each of its own passes, which are 10 s apart."""
    if decision.acted_on is None or decision.row or world.now < world.empty_row_due:
        return world
    world = world._replace(empty_row_due=world.now + KUBELET_INTERVAL_SECONDS)
    return world.telling("reclaiming", decision.acted_on)


def begin_where_due(world: World, decision: Decision, trigger: Trigger) -> World:
    """Begins the pass, unless there is nothing to act on, its row is empty or paused,
    or its filesystem has one.
    """
    row = decision.row
    name = lane_of(decision.signal, world)
    back_off = world.lane(name).back_off(row)
    if decision.acted_on is None or not row or world.now < back_off.until:
        return world
    if (running := running_in(name, world)) is not None:
        waits = running.wanted is not None or row != running.row
        return world.with_lane(name, another_waits=True) if waits else world
    if held_off := world.held_off():
        tried_again = back_off._replace(until=world.now + RETRY_SECONDS)
        world = world.with_back_off(name, row, tried_again)
        return world.telling("not_begun", held_off)
    if is_coming(decision.acted_on, world.observations.signals):
        trigger = Trigger.LEAD
    world = world.telling("reclaiming", decision.acted_on)
    world, begins = new_pass(world, trigger, Request(), decision=decision)
    return begun(world, begins._replace(lane=name))


def next_look(world: World, halfway: float) -> tuple[float, LookWhy]:
    """In how many seconds to look again, and why.

    Close to a mark the samplers poll in between (`polls`).
    """
    configuration = world.configuration
    decision = world.decision
    if any(running.measures for running in world.removing()):
        return TICK_SECONDS, LookWhy.RELIEVING
    if pass_is_due(world):
        return configuration.poll_floor_seconds, LookWhy.TO_RELIEVE
    if decision.acted_on is None:
        due = [(configuration.poll_ceiling_seconds, LookWhy.NO_MARK_NEAR)]
        # in a grace period, or the layout is not known, or there is no newer reading
        if decision.thresholds_met:
            due.append((TICK_SECONDS, LookWhy.NOT_YET))
    elif decision.row:  # the other thresholds are still watched
        why = LookWhy.HELD_OFF if world.held_off() else LookWhy.BACKS_OFF
        due = [(min(pause_seconds(world), RETRY_SECONDS), why)]
    else:
        due = [(RETRY_SECONDS, LookWhy.EMPTY_ROW)]
    longest, near = longest_near_a_mark(world)
    due.append((longest, near) if halfway < longest else (halfway, LookWhy.HALFWAY))
    return min(due, key=itemgetter(0))


def polls(world: World, halfway: float) -> list[Watch]:
    """The polls between this look and the next one, of filesystems that
    could reach a mark meanwhile.
    """
    longest, _ = longest_near_a_mark(world)
    if pass_is_due(world) or halfway >= longest:
        return []
    return list(starmap(Watch, world.outlook.levels_to_watch(marks_to_watch(world)).items()))


def marks_to_watch(world: World) -> Thresholds:
    """The thresholds in force, and the kubelet's."""
    return world.config.marks_to_watch(world.observations.layout)


def longest_near_a_mark(world: World) -> tuple[float, LookWhy]:
    """The longest interval where polls look in between, and why."""
    if world.outlook.nothing_fills():
        return RETRY_SECONDS, LookWhy.NOTHING_FILLS
    return TICK_SECONDS, LookWhy.POLLED


def pause_seconds(world: World) -> float:
    """How long the row that is to be called still pauses."""
    lane = world.lane(lane_of(world.decision.signal, world))
    return lane.back_off(world.decision.row).until - world.now


def pass_is_due(world: World) -> bool:
    """Whether a row is to be called, and does not pause."""
    decision = world.decision
    return decision.acted_on is not None and bool(decision.row) and pause_seconds(world) <= 0


# ---- what others want


def wanted_begun(world: World) -> World:
    """The pass of a command begins once its filesystem has none, unless it is to be asked for anew.
    A dry run waits for other dry runs only."""
    for wanted in world.wanted:
        name: LaneName = "dry run"
        if not wanted.request.dry_run:
            name = lane_of(wanted.signal or wanted.decision.signal, world)
        if running_in(name, world) is not None:
            continue
        world = world.without(wanted)
        if world.lane(name).ended_at > wanted.asked_at:
            world = world.emitting(Resolve(wanted.record, None))
            continue
        world, running = new_pass(world, wanted.trigger, wanted.request, decision=wanted.decision)
        running = running._replace(lane=name, wanted=wanted, observations=wanted.observations)
        world = begun(world, running)
    return world


def periodic_begun(world: World) -> World:
    """The passes of the kubelet's periodic loops, where they are due."""
    for loop in world.periodic.values():
        if world.now < loop.due:
            continue
        if world.held_off():
            world = with_loop(world, loop._replace(due=world.now + RETRY_SECONDS))
            continue
        request = Request(row=(FUNCTIONS[loop.what],), extent=Extent.ALL)
        decision = Decision(world.decision.conditions, world.decision.thresholds_met)
        world = with_loop(world, loop._replace(due=NEVER))  # until the pass has ended
        world, running = new_pass(world, Trigger.PERIODIC, request, decision=decision)
        world = begun(world, running._replace(lane=loop.what))
    return world


def runtime_asked(world: World) -> World:
    """The runtime is asked where its images are, whatever runs; and who uses
    them, while nothing does.
    """
    now = world.now
    asking = world.asking
    if not world.configuration.has_runtime:
        return world
    if asking.locating_since is not None:
        if asking.overdue_told or now < asking.locating_since + LATE_SECONDS:
            return world
        problem = f"where its images are: it did not answer within {LATE_SECONDS:g} s"
        asking = asking._replace(overdue_told=True, problem=problem)
        return world._replace(asking=asking).telling("runtime_asked", problem)
    if now >= asking.locate_due:
        return world._replace(asking=asking._replace(locating_since=now)).emitting(Locate())
    at_rest = not world.under_pressure and not world.asks_the_runtime()
    may_refresh = at_rest and asking.refreshing_since is None and not asking.problem
    if may_refresh and now >= asking.refresh_due:
        return world._replace(asking=asking._replace(refreshing_since=now)).emitting(Refresh())
    return world


def written_back(world: World) -> World:
    """What waits to be written is written back while a fill nears a mark: the runtime's fsync at a
    removal waits for it. One begins soon after the last one has ended, so it has little to do. Not
    on XFS, where an fsync does not wait for what others wrote, but for this."""
    if world.removes_nothing or world.look is not None:  # the look may show something else
        return world
    thresholds = world.config.in_layout(world.observations.layout)
    near = {
        headroom.filesystem.device_id: headroom
        for headroom in world.outlook.nearing(thresholds, NEAR_SECONDS)
        if headroom.filesystem.type != "xfs"
    }
    # those of other filesystems are forgotten once they have ended
    writebacks = {
        device: last
        for device, last in world.writebacks.items()
        if device in near or last.since is not None
    }
    effects = list[Effect]()
    for device, headroom in near.items():
        last = writebacks.get(device, Writeback())
        if last.since is None and world.now - last.ended_at >= WRITEBACK_PAUSE_SECONDS:
            writebacks[device] = last._replace(since=world.now)
            effects.append(WriteBack(headroom.filesystem.path, device, max(headroom.above, 0)))
    return world._replace(writebacks=writebacks).emitting(*effects)


# ---- what is told of it


def what_of(running: RunningPass) -> str:
    """What a pass is doing, in words."""
    if running.trigger is Trigger.PERIODIC:
        return f"the periodic {running.lane} garbage collection"
    acted_on = running.decision.acted_on
    if running.wanted is not None or acted_on is None:
        return "planning a dry run" if running.request.dry_run else "relieving on request"
    return f"relieving {acted_on.signal}"


def stalled_seconds(running: RunningPass, world: World) -> float:
    """How long a pass has made no progress: no call was answered, no removal ended or was left, and
    no program is within its time."""
    sent_by = {claim.stage for claim in world.claims_of(running) if claim.sent_at is not None}
    if any(run.patience_seconds is not None and run.id in sent_by for run in running.current):
        return 0.0
    return max(world.now - running.progress_at, 0.0)
