"""The stage over unused images under pressure, and the detection of images in use that its order needs.

The periodic pass over images is in `periodic_gc`: it frees down to a percentage, which pressure does not ask for.
"""

from __future__ import annotations

from functools import partial

from reclaim.clock import Clock
from reclaim.execution.executor import Executor
from reclaim.execution.plan_in_execution import ExecutionResult
from reclaim.execution.stages import StagePlan, Stopwatch
from reclaim.images.in_use import ImagesInUse, images_in_use
from reclaim.images.lister import Lister
from reclaim.images.newest import NewestOfRepositories
from reclaim.images.plan import ImageGCPolicy, plan_image_gc
from reclaim.images.pod_startup import PodStarts, Sightings
from reclaim.images.records import ImageRecords
from reclaim.images.removal_order import ImageRemovalOrder
from reclaim.images.remover import ImageRemover
from reclaim.pods.states import PodStateProvider
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Listing, MeasureDisk, Result


def detect_images(listing: Listing, records: ImageRecords, clock: Clock, usage: ImagesInUse | None = None) -> float:
    """Records which of these images are in use now (the kubelet's detectImages); when that was, monotonic seconds.

    `usage`: that of `listing`, if the caller has it.
    """
    now = clock.monotonic()
    usage = usage or images_in_use(listing)
    records.update(listing.images, usage.by_containers | usage.by_sandboxes, now, clock.wall())
    return now


class UnusedImageGC:
    """One pass over unused images. `order` and `sightings` are kept from pass to pass."""

    def __init__(
        self,
        runtime: RuntimeService,
        images: ImageService,
        pods: PodStateProvider,
        lister: Lister,
        records: ImageRecords,
        order: ImageRemovalOrder,
        sightings: Sightings,
        executor: Executor,
        clock: Clock,
        policy: ImageGCPolicy,
    ):
        self._runtime = runtime
        self._images = images
        self._pods = pods
        self._lister = lister
        self._records = records
        self._order = order
        self._sightings = sightings
        self._executor = executor
        self._clock = clock
        self._policy = policy

    def unused_images(self, _: MeasureDisk) -> StagePlan:
        """Unused images, the least recently used first, or the largest yield where there is no time for that. Raises
        RuntimeUnavailable."""
        watch = Stopwatch(self._clock)
        planned, policy = self._executor.planned, self._policy
        listing = watch.time(lambda: self._lister.everything().without(planned))
        usage = images_in_use(listing, self._lister.index_of(listing.images))
        started = detect_images(listing, self._records, self._clock, usage)
        records = self._records.records
        newest = NewestOfRepositories(listing.images, records, policy.keep_newest_per_repository, started)
        plan = plan_image_gc(listing, records, policy, started, usage, newest)
        starts = PodStarts(self._runtime, self._pods, self._clock, policy.pod_start_seconds, self._sightings)
        remover = ImageRemover(
            self._images,
            self._lister,
            listing,
            self._clock,
            planned,
            keep=policy.keep,
            starts=None if self._executor.dry_run else starts,
            newest=newest,
        )
        self._order.start_pass(self._executor.parallel)
        return StagePlan(
            plan,
            remover,
            self._order,
            partial(_forget_removed, self._records),
            list_seconds=watch.seconds,
            plan_seconds=self._clock.monotonic() - started,
        )


def _forget_removed(records: ImageRecords, executed: ExecutionResult) -> None:
    """An image that is pulled again later is a new one."""
    gone = (Result.REMOVED, Result.ALREADY_GONE)
    records.forget(o.verdict.id for o in executed.outcomes if o.result in gone or o.may_have_gone)
