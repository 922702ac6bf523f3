"""The two stages of the periodic image garbage collection.

The kubelet's pass (`pkg/kubelet/images/image_gc_manager.go`, GarbageCollect), in its order:

1. Detect: list images and containers, and update the records.
2. Remove what has been unused for longer than the maximum age. If a removal fails, the rest are
   still tried, and the pass ends with an error.
3. Read the image filesystem. Below the high mark, the pass is done.
4. Remove unused images, least recently used first, until the sum of their sizes reaches the target.
   The sizes are the runtime's, and the filesystem is not read again: the next pass corrects any
   error. Here, unless it is to be exactly the kubelet's, the order is the policy's, and what an
   image frees counts where it is known.

Images that are already gone, and images whose removal is not answered in
time, add nothing to the sum.

Covers: what is planned. Does not cover: the arithmetic (`images.plan`), each removal, which is made
as under pressure, and when a pass is due and what is announced of it (`eviction.engine.periodic`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from reclaim.evidence.lists import Evidence
from reclaim.function import ReclaimContext, ReclaimFunction
from reclaim.functions.unused_images import UnusedImages
from reclaim.images.plan import (
    decide_space,
    invalid_capacity,
    not_enough_freed,
    plan_image_gc,
    plan_maximum_age,
)
from reclaim.types import NO_LAYERS, Kind, Plan, ReclaimError
from signals.types import FilesystemRole

IMAGE_GC = "GarbageCollectImages"

ImageFsStats = Callable[[], tuple[int | None, int | None]]
"""Reads the image filesystem: capacity and available bytes, None if not known.

Any exception ends the pass.
"""


class PeriodicImages(NamedTuple):
    """The plans of its stages, and what they need besides the context."""

    started_at: float
    """When the loop of passes began (monotonic seconds)."""
    stats: ImageFsStats
    exact: Callable[[], bool]
    """Whether to apply the maximum age, and count sizes, exactly as the kubelet does."""

    def function(self) -> ReclaimFunction:
        """The entry for the table of functions. What is kept is not listed."""
        return ReclaimFunction(
            IMAGE_GC,
            FilesystemRole.IMAGEFS,
            (Kind.IMAGE,),
            stages=lambda context: (
                UnusedImages(context, self.old),
                UnusedImages(context, self.for_space),
            ),
            stops_on_failure=True,
        )

    def old(self, context: ReclaimContext, evidence: Evidence, detected_at: float) -> Plan:
        """Images that have been unused for longer than the maximum age."""
        plan = plan_maximum_age(
            evidence.listing,
            context.records.records,
            context.policies.images,
            now=detected_at,
            started_at=self.started_at,
            exact=self.exact(),
        )
        return Plan(plan.remove)

    def for_space(self, context: ReclaimContext, evidence: Evidence, detected_at: float) -> Plan:
        """Unused images until enough is promised to reach the low mark; none below the high mark.

        Raises ReclaimError, whatever the reading raises.
        """
        policy = context.policies.images
        layers = NO_LAYERS if self.exact() else context.inventory.layers
        try:
            capacity, available = self.stats()
        except Exception as error:  # whatever it raises ends this pass, not the loop
            raise ReclaimError(f"the image filesystem cannot be read: {error}") from error
        if capacity is None or capacity <= 0:
            return Plan(event_of=lambda _: invalid_capacity(capacity))
        if available is not None:  # what a dry run would have removed
            available += sum(verdict.promised_bytes for verdict in context.facts().planned)
        space = decide_space(available, capacity, policy)
        if space.target_bytes is None:
            return Plan()
        plan = plan_image_gc(
            evidence.listing,
            context.records.records,
            policy,
            now=detected_at,
            usage=evidence.usage,
            layers=layers,
        )
        return Plan(
            plan.remove,
            target_bytes=space.target_bytes,
            event_of=partial(not_enough_freed, space, says_usage=policy.says_usage),
        )
