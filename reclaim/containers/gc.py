"""The stages over dead containers, empty sandboxes and pod logs, in the kubelet's order.

They are dead containers, empty sandboxes, log directories of vanished pods, and dangling log symlinks
(`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, GarbageCollect). Each stage reads lists of its own. Where a stage finds
nothing to remove, its lists are used by the next one too, for a second at most: nothing has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from reclaim.clock import Clock
from reclaim.containers.plan import plan_container_gc
from reclaim.containers.policy import ContainerGCPolicy
from reclaim.containers.removers import ContainerRemover, SandboxRemover
from reclaim.containers.sandboxes import plan_sandbox_gc
from reclaim.execution.executor import Executor
from reclaim.execution.stages import Stage, StagePlan, Stopwatch
from reclaim.images.lister import FRESH_SECONDS, Lister
from reclaim.pod_logs.gc import PodLogGC
from reclaim.pod_logs.names import LogPaths
from reclaim.pod_logs.plan import LogPolicy
from reclaim.pod_logs.removers import ContainerLogs
from reclaim.pods.states import PodStateProvider, PodStates
from reclaim.services import RuntimeService
from reclaim.types import Listing, MeasureDisk, Plan, RuntimeUnavailable


@dataclass(frozen=True, slots=True)
class Observed:
    """The containers and sandboxes, and the pods before that, which one stage leaves to the next, or which were read
    ahead; `at`: when that began, monotonic seconds."""

    listing: Listing
    pods: PodStates
    at: float


class _Planner(Protocol):
    """`plan_container_gc` and `plan_sandbox_gc`."""

    def __call__(
        self,
        listing: Listing,
        pods: PodStates,
        policy: ContainerGCPolicy,
        now_ns: int,
        /,
        *,
        evict_non_deleted_pods: bool,
    ) -> Plan: ...


class ContainerGC:
    """One pass over dead containers, sandboxes and pod logs; `stages` says in which order. For one pass only.

    `evict_non_deleted_pods`: whether the containers of terminated pods that still exist are removed too: under
    pressure, not periodically. `observed`: what the first stage may plan on instead of reading.
    """

    def __init__(
        self,
        runtime: RuntimeService,
        pods: PodStateProvider,
        lister: Lister,
        executor: Executor,
        clock: Clock,
        policy: ContainerGCPolicy,
        log_paths: LogPaths,
        observed: Observed | None = None,
        *,
        evict_non_deleted_pods: bool,
    ):
        self._runtime = runtime
        self._pods = pods
        self._lister = lister
        self._executor = executor
        self._clock = clock
        self._policy = policy
        self._log_paths = log_paths
        self._evict_non_deleted_pods = evict_non_deleted_pods
        self._observed = observed

    @property
    def stages(self) -> tuple[Stage, ...]:
        """In the order in which they run."""
        logs = PodLogGC(
            self._log_paths,
            self._runtime,
            self._pods,
            self._clock,
            self._log_policy,
            self._pods_and_uids_in_runtime,
            missing_root_is_empty=self._evict_non_deleted_pods,
        )
        return self._dead_containers, self._empty_sandboxes, logs.directories, logs.symlinks

    def _dead_containers(self, _: MeasureDisk) -> StagePlan:
        plan, list_seconds = self._planned_by(plan_container_gc)
        remover = ContainerRemover(self._runtime, self._pods, self._clock, ContainerLogs(self._log_paths))
        return StagePlan(plan, remover, list_seconds=list_seconds)

    def _empty_sandboxes(self, _: MeasureDisk) -> StagePlan:
        """Reads the lists anew if the first stage had anything to remove: a sandbox that it emptied counts as empty."""
        plan, list_seconds = self._planned_by(plan_sandbox_gc)
        remover = SandboxRemover(self._runtime, self._pods, self._clock, self._executor.planned)
        return StagePlan(plan, remover, list_seconds=list_seconds)

    def _planned_by(self, planner: _Planner) -> tuple[Plan, float]:
        """The plan from complete lists, and the seconds that reading them took. The lists are used again by the next
        stage if there is nothing to remove."""
        watch = Stopwatch(self._clock)
        observed = watch.time(self._containers_and_pods)
        plan = planner(
            observed.listing.without(self._executor.planned),
            observed.pods,
            self._policy,
            self._now_ns(),
            evict_non_deleted_pods=self._evict_non_deleted_pods,
        )
        self._observed = None if plan.remove else observed
        return plan, watch.seconds

    def _containers_and_pods(self) -> Observed:
        """Reads the pod directories before and after the runtime's lists: a pod exists if either reading has it. Then
        compares them with the lists, without which they are not believed.

        The lists of the stage before may be used again, or those that were read ahead; the directories are read again
        all the same.
        """
        observed, now = self._observed, self._clock.monotonic()
        if observed is None or now - observed.at > FRESH_SECONDS:
            before = self._pods.read()
            observed = Observed(self._lister.containers(), before, now)
        return replace(observed, pods=self._pods.compared(observed.pods.merge(self._pods.read()), observed.listing))

    def _pods_and_uids_in_runtime(self) -> tuple[PodStates, frozenset[str] | None]:
        """The pods, and the UIDs that have a container or a sandbox; None if the runtime gave no complete lists."""
        try:
            observed = self._containers_and_pods()
        except RuntimeUnavailable:
            return self._pods.compared(self._pods.read(), None), None
        listing = observed.listing.without(self._executor.planned)
        of_containers = {container.pod_uid for container in listing.containers}
        return observed.pods, frozenset(of_containers | {sandbox.pod_uid for sandbox in listing.sandboxes})

    def _log_policy(self, pods: PodStates) -> LogPolicy:
        return LogPolicy(cautious=self._policy.guarded(pods), settle_seconds=self._policy.settle_seconds)

    def _now_ns(self) -> int:
        return int(self._clock.wall() * 1e9)
