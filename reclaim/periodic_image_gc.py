"""One pass of the periodic image garbage collection.

The kubelet's pass (`pkg/kubelet/images/image_gc_manager.go`, GarbageCollect), in its order:

1. Detect: list images and containers, bring the records up to date.
2. Remove what has not been used for longer than the maximum age. If one of these removals fails the rest are tried,
   and the pass ends with an error.
3. Read the image filesystem. Below the high mark the pass is done.
4. Remove unused images, least recently used first, until the sum of their sizes reaches the target. The sizes are the
   runtime's, and the filesystem is not read again: the next pass corrects their errors.

Each removal is the executor's, as under pressure: check, one call, ask whether it is gone. They run one after another;
nothing new is started after a stop, and the one in flight ends. If the runtime no longer answers the pass ends, so that
it does not wait for a deadline once for every image. An image that is already gone adds nothing to the sum, and neither
does one whose removal is parked.

Covers: one pass. Does not cover: the plans (`plan`), the arithmetic (`gc_thresholds`), when a pass is due
(`eviction.daemon.periodic_gc`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from reclaim.events import GCEvent
from reclaim.function import ReclaimContext
from reclaim.images.gc_thresholds import (
    InvalidDiskCapacity,
    SpaceDecision,
    decide_space,
    free_space_outcome,
    invalid_capacity_event,
    removals_failed,
)
from reclaim.images.plan import plan_image_gc, plan_maximum_age
from reclaim.types import (
    Action,
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
"""Reads the image filesystem: capacity and available bytes, None where not known. May raise: that ends the pass."""


@dataclass(frozen=True, slots=True)
class ImageGCResult:
    """What a pass did. `reclaim` has the outcomes (reason `maximum_age` or `unused`), what was kept, and the error.

    `space` is None if the pass did not come to the decision. `freed_bytes` are nominal, of the space part alone, and
    `reclaim.nominal_bytes` of both parts. In a dry run both count what would be removed.
    """

    reclaim: ReclaimResult
    space: SpaceDecision | None = None
    freed_bytes: int = 0
    events: tuple[GCEvent, ...] = ()


class ImageGC:
    """One pass. `context`: that of the pass, with an executor of its own."""

    def __init__(self, context: ReclaimContext):
        self._executor = context.executor
        self._clock = context.clock
        self._records = context.records
        self._policy = context.policies.images
        self._stage = UnusedImages(context)

    def run(self, started_at: float, stats: ImageFsStats, *, exact: bool = False) -> ImageGCResult:
        """Never raises for what the runtime, the filesystem or one image does: `reclaim.error` says it.

        `started_at`: when the loop of passes began, monotonic seconds. `exact`: the maximum age as the kubelet has it.
        """
        try:
            found = self._stage.read()
        except RuntimeUnavailable as error:
            return ImageGCResult(ReclaimResult(IMAGE_GC, error=str(error)))
        records, now = self._records.records, found.detected_at
        plan = plan_maximum_age(found.listing, records, self._policy, now, started_at, exact=exact, newest=found.newest)
        planned_at = self._clock.monotonic()
        aged = self._remove(plan)
        if aged.failures or aged.cut_short:
            failed = f"maximum age of images: {removals_failed(aged.failures)}" if aged.failures else ""
            result = _result((aged,), plan.keep, error=failed)
        else:
            result = self._free_space(found, aged, stats)
        timings = replace(
            result.reclaim,
            list_seconds=found.list_seconds,
            plan_seconds=planned_at - found.detected_at - found.list_seconds,
            remove_seconds=self._clock.monotonic() - planned_at,
        )
        return replace(result, reclaim=timings)

    def _free_space(self, found: ListedImages, aged: _Part, stats: ImageFsStats) -> ImageGCResult:
        """The second part. In a dry run what the first part would remove counts as freed."""
        rest = found.listing.without(outcome.verdict for outcome in (*aged.outcomes, *aged.kept))
        plan = plan_image_gc(rest, self._records.records, self._policy, found.detected_at)
        unread = _Part.not_begun(plan, Reason.UNREADABLE)
        try:
            capacity, available = stats()
        except Exception as error:  # noqa: BLE001 # whatever the reading raises ends this pass, not the loop
            return _result((aged, unread), plan.keep, error=f"the image filesystem cannot be read: {error}")
        if self._executor.dry_run and available is not None:
            available += aged.freed_bytes
        try:
            space = decide_space(available, capacity, self._policy)
        except InvalidDiskCapacity as error:
            return _result((aged, unread), plan.keep, error=str(error), events=(invalid_capacity_event(error),))
        if space.target_bytes is None:
            return _result((aged, _Part.not_begun(plan, Reason.ENOUGH_FREED)), plan.keep, space=space)
        part = self._remove(plan, space.target_bytes)
        if part.cut_short and not part.failures:  # it was stopped: not reaching the target is no failure
            return _result((aged, part), plan.keep, space=space)
        outcome = free_space_outcome(space, part.freed_bytes, part.failures)
        events = () if outcome.event is None else (outcome.event,)
        return _result((aged, part), plan.keep, space=space, error=outcome.error, events=events)

    def _remove(self, plan: Plan, target_bytes: int | None = None) -> _Part:
        """Removes in the order of the plan until the nominal sum reaches the target; without a target to the end. The
        sum is compared after a removal: a target of 0 removes one image."""
        part = _Part()
        pending = deque(plan.remove)
        ended: Reason | None = None
        while pending and ended is None:
            if self._executor.stopping.is_set():
                part.keep_all(pending, Reason.STOPPING)
                return part
            outcome = self._executor.remove(pending.popleft(), self._stage)
            gone = part.add(outcome)
            if gone and target_bytes is not None and part.freed_bytes >= target_bytes:
                ended = Reason.ENOUGH_FREED
            elif outcome.result is Result.UNANSWERED:
                ended = Reason.INCOMPLETE_LISTING
        if ended is not None:
            part.keep_all(pending, ended)
        return part


@dataclass(slots=True)
class _Part:
    """What became of the images of one part of the pass."""

    outcomes: list[Outcome] = field(default_factory=list)
    kept: list[Outcome] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    freed_bytes: int = 0
    cut_short: bool = False

    @classmethod
    def not_begun(cls, plan: Plan, reason: Reason) -> _Part:
        """A part whose images are all kept."""
        part = cls()
        part.keep_all(plan.remove, reason)
        return part

    def add(self, outcome: Outcome) -> bool:
        """Adds what became of one image; whether it is gone."""
        match outcome.result:
            case None | Result.IN_USE:  # the check right before the removal is a guard of ours
                self.kept.append(replace(outcome, verdict=outcome.verdict._replace(rule=Rule.GUARD)))
                return False
            case Result.FAILED | Result.UNANSWERED | Result.PARKED:
                self.outcomes.append(outcome)
                self.failures.append(f"{outcome.verdict.name}: {outcome.error}")
                return False
            case Result.REMOVED | Result.PLANNED:
                self.freed_bytes += outcome.verdict.size_bytes or 0
            case Result.ALREADY_GONE:
                pass
            case _ as never:
                assert_never(never)
        self.outcomes.append(outcome)
        return True

    def keep_all(self, verdicts: Iterable[Verdict], reason: Reason) -> None:
        """These are kept after all. That enough was freed is the kubelet's rule, other reasons are ours."""
        self.cut_short = self.cut_short or reason in (Reason.STOPPING, Reason.INCOMPLETE_LISTING)
        rule = Rule.KUBELET if reason is Reason.ENOUGH_FREED else Rule.GUARD
        self.kept += [Outcome(verdict._replace(action=Action.KEEP, reason=reason, rule=rule)) for verdict in verdicts]


def _result(
    parts: Sequence[_Part],
    keep: Sequence[Verdict],
    *,
    space: SpaceDecision | None = None,
    error: str = "",
    events: tuple[GCEvent, ...] = (),
) -> ImageGCResult:
    """The result of the parts, the space part last if there was one, and of what the last plan keeps."""
    freed_bytes = parts[-1].freed_bytes if space is not None else 0
    reached = space is not None and (space.target_bytes is None or freed_bytes >= space.target_bytes)
    reclaim = ReclaimResult(
        IMAGE_GC,
        outcomes=tuple(outcome for part in parts for outcome in part.outcomes),
        kept=tuple(map(Outcome, keep)) + tuple(outcome for part in parts for outcome in part.kept),
        nominal_bytes=sum(part.freed_bytes for part in parts),
        relieved=reached,
        eligible_in_seconds=Plan(keep=tuple(keep)).eligible_in_seconds,
        error=error,
    )
    return ImageGCResult(reclaim, space, freed_bytes, events)
