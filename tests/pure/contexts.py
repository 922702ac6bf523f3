"""What the stages of one pass use, over a runtime in memory."""

from __future__ import annotations

from reclaim.containers import ContainerGCPolicy
from reclaim.execution.executor import Executor
from reclaim.execution.removals import Removals
from reclaim.function import Policies, ReclaimContext
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords
from reclaim.inventory import Inventory
from reclaim.pod_logs.names import LogPaths
from reclaim.pods.starts import PartAges
from reclaim.pods.states import PodStateProvider
from reclaim.unused_images import UnusedImages
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import SteppedClock, SteppedEvent


def context_of(
    runtime: MemoryRuntime,
    clock: SteppedClock,
    pods: PodStateProvider | None = None,
    *,
    executor: Executor | None = None,
    records: ImageRecords | None = None,
    images: ImageGCPolicy = ImageGCPolicy(pod_start_seconds=0.0),  # noqa: B008 # frozen
    containers: ContainerGCPolicy = ContainerGCPolicy(),  # noqa: B008 # frozen
    log_paths: LogPaths | None = None,
) -> ReclaimContext:
    """By default no pod is waited for, and there are no logs."""
    provider = pods or MemoryPods()
    return ReclaimContext(
        runtime,
        runtime,
        provider,
        Inventory(runtime, runtime, provider, clock),
        records or ImageRecords(),
        PartAges(clock),
        clock,
        Policies(containers, images),
        log_paths or LogPaths("/nowhere/pods", "/nowhere/containers"),
        executor or Executor(Removals(clock, SteppedEvent(clock), 1), parallel=1),
    )


def images_stage(context: ReclaimContext) -> UnusedImages:
    """The stage over unused images, with the lists of this moment."""
    stage = UnusedImages(context)
    stage.plan()
    return stage
