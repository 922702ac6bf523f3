"""The kubelet's periodic garbage collection: containers every minute, images every 5 minutes. Pure.

Off by default, because on most nodes the kubelet does it. Its passes run beside all
others, one removal at a time.

* Each loop begins with a pass at once, and waits its period after each pass; passes
  of one loop never overlap.
* With a high threshold of 100 and no maximum age there is no image loop (`StartGarbageCollection`
  in `pkg/kubelet/kubelet.go`).
* A failed pass is not retried before the next period. In the container loop every failure is an
  event (`ContainerGCFailed`). In the image loop the first failure in a row is only logged, because
  statistics may not be available yet, and every further one is an event (`ImageGCFailed`).
* No pass runs during the hold-off after a start.
"""

from dataclasses import replace

from eviction.engine.relief import promised_bytes
from eviction.engine.world import Loops, RunningPass, World
from eviction.records.passes import Pass, PassResult, PeriodicLoop
from reclaim.functions.table import CONTAINER_GC
from reclaim.functions.unused_images import IMAGE_GC
from reclaim.types import BRAKES, OPEN, GCEvent, Outcomes, ReclaimResult, Result
from signals.quantity import counted

CONTAINER_PERIOD_SECONDS = 60.0
IMAGE_PERIOD_SECONDS = 300.0
CONTAINER = "container"
IMAGE = "image"
FUNCTIONS = {CONTAINER: CONTAINER_GC, IMAGE: IMAGE_GC}
NAMED = 3  # failed removals in an error


def loops(now: float, *, images: bool) -> Loops:
    """The loops, due at once. `images`: whether there is a loop of images."""
    periods = {CONTAINER: CONTAINER_PERIOD_SECONDS}
    if images:
        periods[IMAGE] = IMAGE_PERIOD_SECONDS
    return {what: PeriodicLoop(what, seconds, now) for what, seconds in periods.items()}


def with_loop(world: World, loop: PeriodicLoop) -> World:
    """The same with this loop."""
    return world._replace(periodic={**world.periodic, loop.what: loop})


def periodic_ended(world: World, running: RunningPass, record: Pass) -> World:
    """The next pass of a loop is due after its period.

    How this one is told depends on whether the last one failed.
    """
    loop = world.periodic[running.lane]
    result, event = outcome_of(running, record)
    world = with_loop(
        world, loop._replace(due=world.now + loop.period_seconds, failed=bool(result.error))
    )
    record = replace(
        record,
        functions=(result,),
        measured=result.measured,
        timings=replace(record.timings, detect_seconds=0.0),
        result=PassResult.FAILED if result.error else PassResult.SATISFIED,
        reason=result.error or f"removed {counted(result.count(Result.REMOVED), 'object')}",
    )
    world = world.telling("collected", record)
    return world if world.stopping else world.telling("collection_ended", loop, result, event)


def outcome_of(running: RunningPass, record: Pass) -> tuple[ReclaimResult, GCEvent | None]:
    """What a pass did, and its event, which is an error with the same text.

    What is kept is not listed.
    """
    result = replace(next(iter(record.functions), ReclaimResult(running.row[0])), kept=())
    if running.lane == CONTAINER or not running.done:
        return result, None
    by_age, *by_space = running.done
    if failed := failures(by_age.outcomes):
        return replace(result, error=f"maximum age of images: {failed}"), None
    if not by_space or (plan := by_space[0].plan) is None:
        return result, None
    stage = by_space[0]  # after it there may be a defect
    freed = promised_bytes(stage.outcomes)
    if failed := failures(stage.outcomes):
        error = (
            f"wanted to free {plan.target_bytes} bytes of images and freed {freed}, with {failed}"
        )
        return replace(result, error=error), None
    # something has kept it from going on
    braked = any(outcome.verdict.reason in BRAKES for outcome in stage.kept)
    if result.error or braked or plan.event_of is None:
        return result, None
    event = plan.event_of(freed)
    return (result if event is None else replace(result, error=event.message)), event


def failures(outcomes: Outcomes) -> str:
    """Failed removals in words: how many, and the first few. Empty if there are none."""
    failed = [outcome for outcome in outcomes if outcome.result in OPEN]
    if not failed:
        return ""
    named = [f"{outcome.verdict.name}: {outcome.error}" for outcome in failed[:NAMED]]
    if len(failed) > NAMED:
        named.append(f"and {len(failed) - NAMED} more")
    return f"{counted(len(failed), 'failed removal')}: {'; '.join(named)}"
