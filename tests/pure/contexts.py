"""What the stages of one pass use, over a runtime in memory."""

import threading
from collections.abc import Callable

from reclaim.containers.plan import ContainerGCPolicy
from reclaim.cri.inventory import Inventory
from reclaim.evidence.starts import PartAges
from reclaim.evidence.states import PodStateProvider
from reclaim.function import PassFacts, Policies, ReclaimContext
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords
from reclaim.pod_logs.names import LogPaths
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import SteppedClock


def context_of(
    runtime: MemoryRuntime,
    clock: SteppedClock,
    pods: PodStateProvider | None = None,
    *,
    records: ImageRecords | None = None,
    images: ImageGCPolicy = ImageGCPolicy(pod_start_seconds=0.0),  # noqa: B008 # frozen
    containers: ContainerGCPolicy = ContainerGCPolicy(),  # noqa: B008 # frozen
    log_paths: LogPaths | None = None,
    facts: Callable[[], PassFacts] = PassFacts,
) -> ReclaimContext:
    """By default no pod is waited for, and there are no logs."""
    provider = pods or MemoryPods()
    return ReclaimContext(
        runtime,
        provider,
        Inventory(runtime, provider, clock=clock),
        records or ImageRecords(),
        PartAges(clock),
        clock,
        Policies(containers, images),
        log_paths or LogPaths("/nowhere/pods", "/nowhere/containers"),
        threading.Event(),
        facts,
    )
