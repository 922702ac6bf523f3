"""The two reclaim functions: list, plan, carry out. The one path of daemon, hook, dry run, drill and tests.

`delete_all_unused_containers` and `delete_unused_images` are the kubelet's `DeleteAllUnusedContainers` and
`DeleteUnusedImages`: what the rows of the reclaim table call. Neither looks at an image GC percentage or waits for a
periodic loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from reclaim.clock import Clock
from reclaim.container_gc import ContainerGCPolicy, plan_container_gc, plan_sandbox_gc, without
from reclaim.executor import Carried, Executor, LookAgain
from reclaim.image_gc import ImageGCPolicy, images_in_use, plan_image_gc
from reclaim.listing import Lister
from reclaim.pods import PodStateProvider, PodStates
from reclaim.records import ImageRecords
from reclaim.removers import ContainerRemover, ImageRemover, Remover, SandboxRemover
from reclaim.services import ImageService, RuntimeService
from reclaim.types import Listing, Plan, ReclaimResult, Result, RuntimeUnavailable, Verdict

CONTAINERS = "DeleteAllUnusedContainers"
IMAGES = "DeleteUnusedImages"


@dataclass(slots=True)
class _Stage:
    """What one function has done so far."""

    operation: str
    began: float
    result: ReclaimResult = field(init=False)

    def __post_init__(self) -> None:
        self.result = ReclaimResult(self.operation)


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

    def begin(self) -> None:
        """A new row begins: what an earlier dry run planned is forgotten."""
        self._planned = ()

    def detect(self) -> None:
        """Looks at images and who uses them, for the records only. Raises RuntimeUnavailable."""
        self._detect(self._lister.everything())

    def delete_all_unused_containers(self, look: LookAgain) -> ReclaimResult:
        """Dead containers, then, from lists read anew, sandboxes. Never raises: `error` says what went wrong."""
        stage = _Stage(CONTAINERS, self._clock.monotonic())
        containers = ContainerRemover(self._runtime, self._pods, self._clock)
        sandboxes = SandboxRemover(self._runtime, self._pods, self._clock)
        for plan_stage, remover in ((plan_container_gc, containers), (plan_sandbox_gc, sandboxes)):
            before = self._pods.look()
            plan = self._planned_stage(
                stage,
                self._lister.containers,
                lambda listing, make=plan_stage, earlier=before: make(  # type: ignore[misc] # bound per stage
                    listing, self._pod_states(earlier), self._container_policy, int(self._clock.wall() * 1e9)
                ),
            )
            if plan is None:
                break
            self._carry_out(stage, plan, remover, look)
        return stage.result

    def delete_unused_images(self, look: LookAgain) -> ReclaimResult:
        """Unused images, the one whose last use is longest ago first. Never raises: `error` says what went wrong."""
        stage = _Stage(IMAGES, self._clock.monotonic())
        listed: list[Listing] = []

        def make(listing: Listing) -> Plan:
            listed.append(listing)
            self._detect(listing)
            return plan_image_gc(listing, self._records.records, self._image_policy, self._clock.monotonic())

        plan = self._planned_stage(stage, self._lister.everything, make)
        if plan is not None:
            self._carry_out(stage, plan, ImageRemover(self._images, self._lister, listed[0], self._clock), look)
        return stage.result

    def _pod_states(self, earlier: PodStates) -> PodStates:
        """The pod directories are read before and after the runtime's lists: a pod exists if either look saw it."""
        return earlier.united(self._pods.look())

    def _detect(self, listing: Listing) -> None:
        usage = images_in_use(listing)
        now, wall_now = self._clock.monotonic(), self._clock.wall()
        self._records.update(listing.images, usage.by_containers | usage.by_sandboxes, now, wall_now)

    def _planned_stage(
        self, stage: _Stage, read: Callable[[], Listing], make: Callable[[Listing], Plan]
    ) -> Plan | None:
        """The plan from complete lists; None, and the error in the result, when there are none."""
        began = self._clock.monotonic()
        try:
            listing = without(read(), self._planned)
        except RuntimeUnavailable as error:
            stage.result = replace(stage.result, error=str(error))
            return None
        listed = self._clock.monotonic()
        plan = make(listing)
        stage.result = replace(
            stage.result,
            list_seconds=stage.result.list_seconds + listed - began,
            plan_seconds=stage.result.plan_seconds + self._clock.monotonic() - listed,
        )
        return plan

    def _carry_out(self, stage: _Stage, plan: Plan, remover: Remover, look: LookAgain) -> None:
        began = self._clock.monotonic()
        carried = self._executor.carry_out(plan, remover, look)
        if self._executor.dry_run:
            self._planned += tuple(o.verdict for o in carried.outcomes if o.result is Result.PLANNED)
        stage.result = _sum(stage.result, plan, carried, self._clock.monotonic() - began)


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
