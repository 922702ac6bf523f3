"""What the stages of one pass use, over a runtime in memory; and what a stage does with a plan."""

from __future__ import annotations

import threading
from collections.abc import Callable

from reclaim.containers.plan import ContainerGCPolicy
from reclaim.cri.inventory import Inventory
from reclaim.evidence.starts import PartAges
from reclaim.evidence.states import PodStateProvider
from reclaim.function import PassFacts, Policies, Ready, ReclaimContext, Refused, Stage, Wait
from reclaim.functions.unused_images import UnusedImages
from reclaim.images.plan import ImageGCPolicy
from reclaim.images.records import ImageRecords
from reclaim.pod_logs.names import LogPaths
from reclaim.types import Outcome, Plan, Verdict
from tests.inline import configured, run_stages
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
    stopping: threading.Event | None = None,
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
        stopping or threading.Event(),
        facts,
    )


def images_stage(context: ReclaimContext) -> UnusedImages:
    """The stage over unused images, with the lists of this moment."""
    stage = UnusedImages(context)
    stage.plan()
    return stage


class _Given(Stage):
    """A stage with a plan that is given."""

    def __init__(self, stage: Stage, plan: Plan):
        self.fresh_seconds, self.frees_late, self.patience_seconds = (
            stage.fresh_seconds,
            stage.frees_late,
            stage.patience_seconds,
        )
        self._stage = stage
        self._plan = plan

    def plan(self) -> Plan:
        """As given."""
        return self._plan

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """As the stage."""
        return self._stage.check(verdict)

    def remove(self, verdict: Verdict) -> bool:
        """As the stage."""
        return self._stage.remove(verdict)

    def present(self, verdict: Verdict) -> bool:
        """As the stage."""
        return self._stage.present(verdict)


def carried_out(
    plan: Plan, stage: Stage, clock: SteppedClock, *, dry_run: bool = False
) -> list[Outcome]:
    """What becomes of the objects of a plan if nothing stops their removals,
    which come one after another.
    """
    result = run_stages(
        lambda facts: context_of(MemoryRuntime(clock), clock, facts=facts),
        clock,
        lambda _: (_Given(stage, plan),),
        dry_run=dry_run,
        configuration=configured(parallelRemovals=1),
    )
    return [*result.outcomes, *result.kept]
