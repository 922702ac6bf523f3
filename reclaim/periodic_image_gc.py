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
after another; after a stop, nothing new is started and the removal in flight finishes. If the runtime stops answering,
the pass ends, so that it does not wait out a deadline for every image. Images that are already gone, and images whose
removal is parked, add nothing to the sum.

Covers: one pass. Does not cover: the plans and the arithmetic (`plan`), when a pass is due
(`eviction.daemon.periodic_gc`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from reclaim.function import ReclaimContext
from reclaim.images.plan import decide_space, invalid_capacity, not_enough_freed, plan_image_gc, plan_maximum_age
from reclaim.types import (
    NO_LAYERS,
    Action,
    GCEvent,
    Layers,
    Outcome,
    Plan,
    Reason,
    ReclaimResult,
    Result,
    Rule,
    RuntimeUnavailable,
    Verdict,
)
from reclaim.unused_images import ListedImages, UnusedImages

IMAGE_GC = "GarbageCollectImages"

ImageFsStats = Callable[[], tuple[int | None, int | None]]
"""Reads the image filesystem: capacity and available bytes, None if not known. Any exception ends the pass."""

_FAILED = (Result.FAILED, Result.UNANSWERED, Result.PARKED)


@dataclass(frozen=True, slots=True)
class ImageGCResult:
    """What a pass did. `reclaim` holds the outcomes (reason `maximum_age` or `unused`), what was kept, the nominal
    bytes of both parts (in a dry run, of what would be removed), and the error."""

    reclaim: ReclaimResult
    events: tuple[GCEvent, ...] = ()


class ImageGC:
    """One pass. `context`: the pass's own, with its own executor."""

    def __init__(self, context: ReclaimContext):
        self._executor = context.executor
        self._clock = context.clock
        self._records = context.records
        self._policy = context.policies.images
        self._inventory = context.inventory
        self._stage = UnusedImages(context)

    def run(self, started_at: float, stats: ImageFsStats, *, exact: bool = False) -> ImageGCResult:
        """Never raises because of the runtime, the filesystem or an image: `reclaim.error` reports it.

        `started_at`: when the loop of passes began, in monotonic seconds. `exact`: apply the maximum age, and
        count sizes, exactly as the kubelet does.
        """
        try:
            found = self._stage.read()
        except RuntimeUnavailable as error:
            return ImageGCResult(ReclaimResult(IMAGE_GC, error=str(error)))
        records, now = self._records.records, found.detected_at
        plan = plan_maximum_age(found.listing, records, self._policy, now, started_at, exact=exact)
        planned_at = self._clock.monotonic()
        aged = self._remove(plan.remove)
        if _failures(aged) or _stopped(aged):
            failed = f"maximum age of images: {_removals_failed(aged)}" if _failures(aged) else ""
            result = _result(aged, plan, error=failed)
        else:
            layers = NO_LAYERS if exact else self._inventory.layers
            result = self._free_space(found, aged, stats, layers)
        timings = replace(
            result.reclaim,
            list_seconds=found.list_seconds,
            plan_seconds=planned_at - found.detected_at - found.list_seconds,
            remove_seconds=self._clock.monotonic() - planned_at,
        )
        return replace(result, reclaim=timings)

    def _free_space(
        self, found: ListedImages, aged: list[Outcome], stats: ImageFsStats, layers: Layers
    ) -> ImageGCResult:
        """The second part. In a dry run, what the first part would remove counts as freed."""
        rest = found.listing.without(outcome.verdict for outcome in aged)
        plan = plan_image_gc(rest, self._records.records, self._policy, found.detected_at, layers=layers)
        unread = [*aged, *_kept(plan.remove, Reason.UNREADABLE)]
        try:
            capacity, available = stats()
        except Exception as error:  # noqa: BLE001 # whatever the reading raises ends this pass, not the loop
            return _result(unread, plan, error=f"the image filesystem cannot be read: {error}")
        if capacity is None or capacity <= 0:
            return _result(unread, plan, event=invalid_capacity(capacity))
        if self._executor.dry_run and available is not None:
            available += _promised_bytes(aged)
        space = decide_space(available, capacity, self._policy)
        if space.target_bytes is None:
            return _result([*aged, *_kept(plan.remove, Reason.ENOUGH_FREED)], plan, relieved=True)
        part = self._remove(plan.remove, space.target_bytes)
        freed = _promised_bytes(part)
        failed = f"wanted to free {space.target_bytes} bytes of images and freed {freed}, with {_removals_failed(part)}"
        event = not_enough_freed(space, freed, says_usage=self._policy.says_usage)
        return _result(
            [*aged, *part],
            plan,
            relieved=freed >= space.target_bytes,
            error=failed if _failures(part) else "",
            event=None if _failures(part) or _stopped(part) else event,
        )

    def _remove(self, verdicts: Sequence[Verdict], target_bytes: int | None = None) -> list[Outcome]:
        """Removes in this order until what is promised reaches the target, or to the end without one. The sum is
        compared after a removal, so a target of 0 removes one image."""
        part: list[Outcome] = []
        for number, verdict in enumerate(verdicts):
            if self._executor.stopping.is_set():
                return [*part, *_kept(verdicts[number:], Reason.STOPPING)]
            outcome = self._executor.remove(verdict, self._stage)
            part.append(outcome)
            if outcome.result is Result.UNANSWERED:
                return [*part, *_kept(verdicts[number + 1 :], Reason.INCOMPLETE_LISTING)]
            gone = outcome.result in (Result.REMOVED, Result.PLANNED, Result.ALREADY_GONE)
            if gone and target_bytes is not None and _promised_bytes(part) >= target_bytes:
                return [*part, *_kept(verdicts[number + 1 :], Reason.ENOUGH_FREED)]
        return part


def _kept(verdicts: Iterable[Verdict], reason: Reason) -> list[Outcome]:
    """Keeps these after all. Stopping once enough is freed is the kubelet's rule; other reasons are ours."""
    rule = Rule.KUBELET if reason is Reason.ENOUGH_FREED else Rule.GUARD
    return [Outcome(verdict.kept(reason, rule)) for verdict in verdicts]


def _promised_bytes(part: Iterable[Outcome]) -> int:
    removed = (each.verdict for each in part if each.result in (Result.REMOVED, Result.PLANNED))
    return sum(verdict.promised_bytes for verdict in removed)


def _failures(part: Iterable[Outcome]) -> list[str]:
    return [f"{each.verdict.name}: {each.error}" for each in part if each.result in _FAILED]


def _stopped(part: Iterable[Outcome]) -> bool:
    return any(each.verdict.reason is Reason.STOPPING for each in part)


def _removals_failed(part: Iterable[Outcome]) -> str:
    """Failed removals in words: how many, and the first few."""
    failures = _failures(part)
    count = len(failures)
    more = f"; and {count - 3} more" if count > 3 else ""
    return f"{count} failed {'removal' if count == 1 else 'removals'}: {'; '.join(failures[:3])}{more}"


def _result(
    outcomes: Sequence[Outcome], plan: Plan, *, relieved: bool = False, error: str = "", event: GCEvent | None = None
) -> ImageGCResult:
    """The result of both parts, including what the last plan keeps. An event is also an error with the same text."""
    kept = tuple(each for each in outcomes if each.verdict.action is Action.KEEP)
    reclaim = ReclaimResult(
        IMAGE_GC,
        outcomes=tuple(each for each in outcomes if each.verdict.action is Action.REMOVE),
        kept=tuple(map(Outcome, plan.keep)) + kept,
        relieved=relieved,
        eligible_in_seconds=plan.eligible_in_seconds,
        error=error if event is None else event.message,
    )
    return ImageGCResult(reclaim, () if event is None else (event,))
