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

from __future__ import annotations

from dataclasses import replace
from typing import Final

from eviction.engine.effects import Request
from eviction.engine.relief import promised_bytes
from eviction.engine.world import RETRY_SECONDS, RunningPass, StageRun, World
from eviction.records.passes import Pass, PeriodicLoop
from eviction.types import Decision, Extent
from reclaim.functions.periodic_image_gc import IMAGE_GC
from reclaim.functions.table import CONTAINER_GC
from reclaim.types import BRAKES, NEVER, OPEN, GCEvent, Outcome, ReclaimResult
from signals.quantity import counted

CONTAINER_PERIOD_SECONDS = 60.0
IMAGE_PERIOD_SECONDS = 300.0
CONTAINER: Final = "container"
IMAGE: Final = "image"
FUNCTIONS: Final = {CONTAINER: CONTAINER_GC, IMAGE: IMAGE_GC}


def loops(now: float, *, images: bool) -> tuple[PeriodicLoop, ...]:
    """The loops, both due at once. `images`: whether there is a loop of images."""
    both = (
        PeriodicLoop(CONTAINER, CONTAINER_PERIOD_SECONDS, now),
        PeriodicLoop(IMAGE, IMAGE_PERIOD_SECONDS, now),
    )
    return both if images else both[:1]


def begin_periodic(world: World, loop: PeriodicLoop) -> tuple[World, Request | None, Decision]:
    """What the pass of a loop that is due is asked for; None: none may run now."""
    nothing = replace(world.decision, acted_on=None, row=())
    if world.held_off():
        return with_loop(world, replace(loop, due=world.now + RETRY_SECONDS)), None, nothing
    request = Request(row=(FUNCTIONS[loop.what],), extent=Extent.ALL)
    return with_loop(world, replace(loop, due=NEVER)), request, nothing


def with_loop(world: World, loop: PeriodicLoop) -> World:
    """The same with this loop."""
    return world._replace(
        periodic=tuple(loop if each.what == loop.what else each for each in world.periodic)
    )


def periodic_ended(world: World, the: RunningPass, record: Pass) -> World:
    """The next pass of a loop is due after its period.

    How this one is told depends on whether the last one failed.
    """
    loop = next(each for each in world.periodic if each.what == the.lane)
    result, event = outcome_of(the, record)
    world = with_loop(
        world, replace(loop, due=world.now + loop.period_seconds, failed=bool(result.error))
    )
    world = world.telling("collected", result)
    return world if world.stopping else world.telling("collection_ended", loop, result, event)


def outcome_of(the: RunningPass, record: Pass) -> tuple[ReclaimResult, GCEvent | None]:
    """What a pass did, and its event, which is an error with the same text.

    What is kept is not listed.
    """
    result = replace(next(iter(record.functions), ReclaimResult(the.row[0])), kept=())
    if the.lane == CONTAINER or not the.done:
        return result, None
    first, *rest = the.done
    if failed := failures(first.outcomes):
        return replace(result, error=f"maximum age of images: {failed}"), None
    if not rest:
        return result, None
    second = rest[0]  # after it there may be a defect
    freed, target = (
        promised_bytes(second.outcomes),
        None if second.plan is None else second.plan.target_bytes,
    )
    if failed := failures(second.outcomes):
        error = f"wanted to free {target} bytes of images and freed {freed}, with {failed}"
        return replace(result, error=error), None
    if result.error:
        return result, None
    event = (
        None
        if braked(second) or second.plan is None or second.plan.event_of is None
        else second.plan.event_of(freed)
    )
    return (result, None) if event is None else (replace(result, error=event.message), event)


def braked(stage: StageRun) -> bool:
    """Whether something has kept a stage from going on."""
    return any(each.verdict.reason in BRAKES for each in stage.kept)


def failures(outcomes: tuple[Outcome, ...]) -> str:
    """Failed removals in words: how many, and the first few. Empty if there are none."""
    found = [f"{each.verdict.name}: {each.error}" for each in outcomes if each.fate in OPEN]
    more = [f"and {len(found) - 3} more"] if len(found) > 3 else []
    return (
        f"{counted(len(found), 'failed removal')}: {'; '.join(found[:3] + more)}" if found else ""
    )
