"""The stages over the pod log directories and the log symlinks: each reads and plans, and removes by its remover."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from reclaim.execution.remover import STATUS_FRESH_SECONDS, Ready, Refused
from reclaim.function import ReclaimContext
from reclaim.pod_logs.directories import LogsUnreadable
from reclaim.pod_logs.plan import LogPolicy, plan_log_symlinks, plan_pod_logs
from reclaim.pod_logs.removers import LogSymlinkRemover, PodLogRemover, ask_states, read_log_links, read_pod_logs
from reclaim.pods.states import PodStates
from reclaim.types import Plan, Verdict

PodsAndUids = tuple[PodStates, Collection[str] | None]
"""The pods, and the UIDs that have a container or a sandbox; None where the runtime gave no complete lists."""


class _AsPlanned:
    """Removes by the remover that knows what the plan was made of."""

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = False
    patience_seconds: float | None = None
    _remover: PodLogRemover | LogSymlinkRemover

    def check(self, verdict: Verdict) -> Ready | Refused:
        """Whether it is still the planned one, and may go."""
        return self._remover.check(verdict)

    def remove(self, verdict: Verdict) -> bool:
        """Removes it."""
        return self._remover.remove(verdict)

    def present(self, verdict: Verdict) -> bool:
        """Whether it is still there."""
        return self._remover.present(verdict)


class LogDirectories(_AsPlanned):
    """Log directories of vanished pods. `policy_for`: the policy, by what is known about the pods.

    `missing_root_is_empty`: under pressure a pod log root that does not exist has no entries; a periodic pass fails by
    it, as the kubelet's does.
    """

    def __init__(
        self,
        context: ReclaimContext,
        policy_for: Callable[[PodStates], LogPolicy],
        pods_and_uids: Callable[[], PodsAndUids],
        *,
        missing_root_is_empty: bool,
    ):
        self._context = context
        self._policy_for = policy_for
        self._pods_and_uids = pods_and_uids
        self._missing_root_is_empty = missing_root_is_empty

    def plan(self) -> Plan | None:
        """The entries are read before the kubelet's pod directories. The kubelet makes a pod's directory before its log
        directory, so a new pod is never taken for a vanished one. Raises LogsUnreadable."""
        context, began = self._context, self._context.clock.monotonic()
        try:
            entries = read_pod_logs(context.log_paths)
        except LogsUnreadable as error:
            if error.missing and self._missing_root_is_empty:
                return None
            raise
        pods, in_runtime = self._pods_and_uids()
        list_seconds = context.clock.monotonic() - began
        self._remover = PodLogRemover(context.log_paths, entries, context.pods, context.clock)
        plan = plan_pod_logs(entries, pods, self._policy_for(pods), in_runtime, int(context.clock.wall() * 1e9))
        return replace(plan, list_seconds=list_seconds)


class DanglingLogSymlinks(_AsPlanned):
    """Log symlinks that lead nowhere. `policy_for`: as above."""

    def __init__(self, context: ReclaimContext, policy_for: Callable[[PodStates], LogPolicy]):
        self._context = context
        self._policy_for = policy_for

    def plan(self) -> Plan:
        """Raises LogsUnreadable."""
        context, began = self._context, self._context.clock.monotonic()
        policy = self._policy_for(context.pods.pod_states())
        links = read_log_links(context.log_paths, policy)
        answers = ask_states(context.runtime, links)
        list_seconds = context.clock.monotonic() - began
        self._remover = LogSymlinkRemover(context.log_paths, links, context.runtime, policy, context.clock)
        return replace(plan_log_symlinks(links, answers, policy), list_seconds=list_seconds)
