"""The two reclaim functions: list, plan, carry out. The one path of daemon, hook, dry run, drill and tests.

`delete_all_unused_containers` and `delete_unused_images` are the kubelet's `DeleteAllUnusedContainers` and
`DeleteUnusedImages`: what the rows of the reclaim table call. Neither looks at an image GC percentage or waits for a
periodic loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from reclaim.clock import Clock
from reclaim.container_gc import ContainerGCPolicy, plan_container_gc
from reclaim.executor import Carried, Executor, LookAgain
from reclaim.image_gc import ImageGCPolicy, plan_image_gc
from reclaim.images_in_use import images_in_use
from reclaim.listing import Lister
from reclaim.pods import PodStateProvider, PodStates
from reclaim.records import ImageRecords
from reclaim.removers import ContainerRemover, ImageRemover, Remover, SandboxRemover
from reclaim.sandbox_gc import plan_sandbox_gc
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Listing, Plan, ReclaimResult, Result, RuntimeUnavailable, Verdict

CONTAINERS = "DeleteAllUnusedContainers"
IMAGES = "DeleteUnusedImages"


Answer = TypeVar("Answer")


class Collector:
    """Calls the reclaim functions on one runtime. Not for two callers at a time."""

    def __init__(
        self,
        runtime: RuntimeService,
        images: ImageService,
        pods: PodStateProvider,
        records: ImageRecords,
        executor: Executor,
        clock: Clock,
        container_policy: ContainerGCPolicy,
        image_policy: ImageGCPolicy,
    ):
        self._runtime = runtime
        self._images = images
        self._pods = pods
        self._records = records
        self._executor = executor
        self._clock = clock
        self._container_policy = container_policy
        self._image_policy = image_policy
        self._lister = Lister(runtime, images, clock)
        self._planned: tuple[Verdict, ...] = ()  # a dry run goes on as if these were gone

    @property
    def executor(self) -> Executor:
        """What carries out the plans."""
        return self._executor

    def use(self, container_policy: ContainerGCPolicy, image_policy: ImageGCPolicy) -> None:
        """Other policies from now on. Not while a function runs."""
        self._container_policy = container_policy
        self._image_policy = image_policy

    def begin(self) -> None:
        """A new row begins: what an earlier dry run planned is forgotten."""
        self._planned = ()

    def detect(self) -> None:
        """Looks at images and who uses them, for the records only. Raises RuntimeUnavailable."""
        self._record(self._lister.everything(), self._clock.monotonic())

    def delete_all_unused_containers(self, look: LookAgain) -> ReclaimResult:
        """Dead containers, then, from lists read anew, sandboxes. Never raises: `error` says what went wrong."""
        result = ReclaimResult(CONTAINERS)
        stages = ((plan_container_gc, self._container_remover), (plan_sandbox_gc, self._sandbox_remover))
        for make_plan, make_remover in stages:
            result, answer = self._read(result, self._containers_and_pods)
            if answer is None:
                break
            listing, pods = answer
            plan = make_plan(listing, pods, self._container_policy, int(self._clock.wall() * 1e9))
            result = self._carry_out(result, plan, make_remover(), look)
        return result

    def delete_unused_images(self, look: LookAgain) -> ReclaimResult:
        """Unused images, the one whose last use is longest ago first. Never raises: `error` says what went wrong."""
        result, listing = self._read(ReclaimResult(IMAGES), self._everything)
        if listing is None:
            return result
        began = self._clock.monotonic()
        self._record(listing, began)
        plan = plan_image_gc(listing, self._records.records, self._image_policy, began)
        remover = ImageRemover(self._images, self._lister, listing, self._clock, self._planned)
        result = replace(result, plan_seconds=self._clock.monotonic() - began)
        result = self._carry_out(result, plan, remover, look)
        gone = (Result.REMOVED, Result.ALREADY_GONE)
        self._records.forget(o.verdict.id for o in result.outcomes if o.result in gone)
        return result

    def _container_remover(self) -> Remover:
        return ContainerRemover(self._runtime, self._pods, self._clock)

    def _sandbox_remover(self) -> Remover:
        return SandboxRemover(self._runtime, self._pods, self._clock, self._planned)

    def _everything(self) -> Listing:
        return self._lister.everything().without(self._planned)

    def _containers_and_pods(self) -> tuple[Listing, PodStates]:
        """The pod directories are read before and after the runtime's lists: a pod exists if either look saw it."""
        before = self._pods.look()
        listing = self._lister.containers().without(self._planned)
        return listing, before.united(self._pods.look())

    def _record(self, listing: Listing, now: float) -> None:
        usage = images_in_use(listing)
        self._records.update(listing.images, usage.by_containers | usage.by_sandboxes, now, self._clock.wall())

    def _read(self, result: ReclaimResult, read: Callable[[], Answer]) -> tuple[ReclaimResult, Answer | None]:
        """Complete lists; or None, and the error in the result."""
        began = self._clock.monotonic()
        try:
            answer = read()
        except RuntimeUnavailable as error:
            return replace(result, error=str(error)), None
        return replace(result, list_seconds=result.list_seconds + self._clock.monotonic() - began), answer

    def _carry_out(self, result: ReclaimResult, plan: Plan, remover: Remover, look: LookAgain) -> ReclaimResult:
        began = self._clock.monotonic()
        carried = self._executor.carry_out(plan, remover, look)
        if self._executor.dry_run:
            self._planned += tuple(o.verdict for o in carried.outcomes if o.result is Result.PLANNED)
        return _sum(result, plan, carried, self._clock.monotonic() - began)


def _sum(result: ReclaimResult, plan: Plan, carried: Carried, seconds: float) -> ReclaimResult:
    waits = [wait for wait in (result.eligible_in_seconds, plan.eligible_in_seconds) if wait is not None]
    gone = (Result.REMOVED, Result.PLANNED)
    nominal = sum(o.verdict.size_bytes or 0 for o in carried.outcomes if o.result in gone)
    return replace(
        result,
        outcomes=result.outcomes + carried.outcomes,
        kept=result.kept + carried.kept,
        nominal_bytes=result.nominal_bytes + nominal,
        relieved=carried.relieved,
        eligible_in_seconds=min(waits, default=None),
        error=result.error or carried.error,
        remove_seconds=result.remove_seconds + seconds,
    )
