"""The stages over the pod log directories and the log symlinks: read, plan, and hand the plan over for execution."""

from __future__ import annotations

from collections.abc import Callable, Collection

from reclaim.clock import Clock
from reclaim.execution.stages import StagePlan, Stopwatch
from reclaim.pod_logs.directories import LogsUnreadable
from reclaim.pod_logs.names import LogPaths
from reclaim.pod_logs.plan import LogPolicy, plan_log_symlinks, plan_pod_logs
from reclaim.pod_logs.removers import LogSymlinkRemover, PodLogRemover, ask_states, read_log_links, read_pod_logs
from reclaim.pods.states import PodStateProvider, PodStates
from reclaim.services import RuntimeService
from reclaim.types import MeasureDisk


class PodLogGC:
    """Two stages. `policy_for`: the policy, by what is known about the pods.

    `pods_and_uids_in_runtime`: the pods, and the UIDs that have a container or a sandbox; None where the runtime gave
    no complete lists. `missing_root_is_empty`: under pressure a pod log root that does not exist has no entries; a
    periodic pass fails by it, as the kubelet's does.
    """

    def __init__(
        self,
        paths: LogPaths,
        runtime: RuntimeService,
        pods: PodStateProvider,
        clock: Clock,
        policy_for: Callable[[PodStates], LogPolicy],
        pods_and_uids_in_runtime: Callable[[], tuple[PodStates, Collection[str] | None]],
        *,
        missing_root_is_empty: bool,
    ):
        self._paths = paths
        self._runtime = runtime
        self._pods = pods
        self._clock = clock
        self._policy_for = policy_for
        self._pods_and_uids_in_runtime = pods_and_uids_in_runtime
        self._missing_root_is_empty = missing_root_is_empty

    def directories(self, _: MeasureDisk) -> StagePlan | None:
        """Log directories of vanished pods. Raises LogsUnreadable.

        The entries are read before the kubelet's pod directories. The kubelet makes a pod's directory before its log
        directory, so a new pod is never taken for a vanished one.
        """
        watch = Stopwatch(self._clock)
        try:
            entries = watch.time(lambda: read_pod_logs(self._paths))
        except LogsUnreadable as error:
            if error.missing and self._missing_root_is_empty:
                return None
            raise
        pods, in_runtime = watch.time(self._pods_and_uids_in_runtime)
        plan = plan_pod_logs(entries, pods, self._policy_for(pods), in_runtime, int(self._clock.wall() * 1e9))
        remover = PodLogRemover(self._paths, entries, self._pods, self._clock)
        return StagePlan(plan, remover, list_seconds=watch.seconds)

    def symlinks(self, _: MeasureDisk) -> StagePlan:
        """Log symlinks that lead nowhere."""
        watch = Stopwatch(self._clock)
        policy = self._policy_for(self._pods.pod_states())
        links = watch.time(lambda: read_log_links(self._paths, policy))
        answers = watch.time(lambda: ask_states(self._runtime, links))
        remover = LogSymlinkRemover(self._paths, links, self._runtime, policy, self._clock)
        return StagePlan(plan_log_symlinks(links, answers, policy), remover, list_seconds=watch.seconds)
