"""One pass of the periodic image garbage collection.

The kubelet's pass (`pkg/kubelet/images/image_gc_manager.go`, GarbageCollect), in its order:

1. Detect: list images and containers, and update the records.
2. Remove what has been unused for longer than the maximum age. If a removal fails, the rest are still tried, and the
   pass ends with an error.
3. Read the image filesystem. Below the high mark, the pass is done.
4. Remove unused images, least recently used first, until the sum of their sizes reaches the target. The sizes are the
   runtime's, and the filesystem is not read again: the next pass corrects any error. Here, unless it is to be exactly
   the kubelet's, the order is the policy's, and what an image frees counts where it is known.

The executor makes each removal, as under pressure: check, one call, ask whether the object is gone. Removals run one
after another; after a stop or a pause, or once another configuration is loaded, nothing new is started and the removal
in flight finishes. If the runtime stops answering, the pass ends, so that it does not wait out a deadline for every
image. Images that are already gone, and images whose removal is parked, add nothing to the sum.

Covers: one pass. Does not cover: the plans and the arithmetic (`plan`), when a pass is due
(`eviction.daemon.periodic_gc`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from reclaim.function import ReclaimContext
from reclaim.images.plan import decide_space, invalid_capacity, not_enough_freed, plan_image_gc, plan_maximum_age
from reclaim.types import (
    NO_LAYERS,
    Action,
    GCEvent,
    Outcome,
    ReclaimResult,
    Result,
    RuntimeUnavailable,
    Verdict,
)
from reclaim.unused_images import ListedImages, UnusedImages
from signals.quantity import counted

IMAGE_GC = "GarbageCollectImages"

ImageFsStats = Callable[[], tuple[int | None, int | None]]
"""Reads the image filesystem: capacity and available bytes, None if not known. Any exception ends the pass."""


def garbage_collect_images(
    context: ReclaimContext, started_at: float, stats: ImageFsStats, *, exact: bool = False
) -> tuple[ReclaimResult, GCEvent | None]:
    """What the pass did, and its event, which is an error with the same text. Never raises because of the runtime, the
    filesystem or an image: the error says it. What is kept is not listed.

    `context`: the pass's own, with its own executor. `started_at`: when the loop of passes began, in monotonic seconds.
    `exact`: apply the maximum age, and count sizes, exactly as the kubelet does.
    """
    clock, stage = context.clock, UnusedImages(context)
    try:
        found = stage.read()
    except RuntimeUnavailable as error:
        return ReclaimResult(IMAGE_GC, error=str(error)), None
    plan = plan_maximum_age(
        found.listing, context.records.records, context.policies.images, found.detected_at, started_at, exact=exact
    )
    planned_at = clock.monotonic()
    outcomes, event = _remove(plan.remove, context, stage), None
    if failed := _failures(outcomes):
        failed = f"maximum age of images: {failed}"
    elif context.executor.braked is None:
        part, failed, event = _free_space(found, outcomes, context, stage, stats, exact=exact)
        outcomes += part
    result = ReclaimResult(
        IMAGE_GC,
        outcomes=tuple(each for each in outcomes if each.verdict.action is Action.REMOVE),
        error=failed if event is None else event.message,
        list_seconds=found.list_seconds,
        plan_seconds=planned_at - found.detected_at - found.list_seconds,
        remove_seconds=clock.monotonic() - planned_at,
    )
    return result, event


def _free_space(
    found: ListedImages,
    aged: Sequence[Outcome],
    context: ReclaimContext,
    stage: UnusedImages,
    stats: ImageFsStats,
    *,
    exact: bool,
) -> tuple[list[Outcome], str, GCEvent | None]:
    """The second part: its outcomes, and its error or event. `aged`: the outcomes of the first; in a dry run, what that
    would remove counts as freed."""
    policy, layers = context.policies.images, NO_LAYERS if exact else context.inventory.layers
    try:
        capacity, available = stats()
    except Exception as error:  # noqa: BLE001 # whatever the reading raises ends this pass, not the loop
        return [], f"the image filesystem cannot be read: {error}", None
    if capacity is None or capacity <= 0:
        return [], "", invalid_capacity(capacity)
    if context.executor.dry_run and available is not None:
        available += _promised_bytes(aged)
    space = decide_space(available, capacity, policy)
    if space.target_bytes is None:
        return [], "", None
    rest = found.listing.without(outcome.verdict for outcome in aged)
    plan = plan_image_gc(rest, context.records.records, policy, found.detected_at, layers=layers)
    part = _remove(plan.remove, context, stage, space.target_bytes)
    freed = _promised_bytes(part)
    if failed := _failures(part):
        return part, f"wanted to free {space.target_bytes} bytes of images and freed {freed}, with {failed}", None
    stopped = context.executor.braked is not None
    return part, "", None if stopped else not_enough_freed(space, freed, says_usage=policy.says_usage)


def _remove(
    verdicts: Sequence[Verdict], context: ReclaimContext, stage: UnusedImages, target_bytes: int | None = None
) -> list[Outcome]:
    """Removes in this order until what is promised reaches the target, or to the end without one. The sum is compared
    after a removal, so a target of 0 removes one image."""
    part: list[Outcome] = []
    for verdict in verdicts:
        if context.executor.braked is not None:
            break
        outcome = context.executor.remove(verdict, stage)
        part.append(outcome)
        gone = outcome.result in (Result.REMOVED, Result.PLANNED, Result.ALREADY_GONE)
        enough = gone and target_bytes is not None and _promised_bytes(part) >= target_bytes
        if enough or outcome.result is Result.UNANSWERED:
            break
    return part


def _promised_bytes(part: Iterable[Outcome]) -> int:
    removed = (each.verdict for each in part if each.result in (Result.REMOVED, Result.PLANNED))
    return sum(verdict.promised_bytes for verdict in removed)


def _failures(part: Iterable[Outcome]) -> str:
    """Failed removals in words: how many, and the first few. Empty if there are none."""
    failed = (Result.FAILED, Result.UNANSWERED, Result.PARKED)
    failures = [f"{each.verdict.name}: {each.error}" for each in part if each.result in failed]
    more = [f"and {len(failures) - 3} more"] if len(failures) > 3 else []
    return f"{counted(len(failures), 'failed removal')}: {'; '.join(failures[:3] + more)}" if failures else ""
