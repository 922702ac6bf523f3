"""The stages of `DeleteAllUnusedContainers`, in the kubelet's order.

They are dead containers, empty sandboxes, log directories of vanished pods, and dangling log symlinks
(`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, GarbageCollect). Each plans on lists of its own: where the stage before
has removed nothing, the inventory still has them.

The status of an object is read right before its removal, at most 50 ms earlier, and again if another question took
longer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Protocol

from reclaim.containers import ContainerGCPolicy, plan_container_gc, plan_sandbox_gc
from reclaim.execution.remover import GONE, STATUS_FRESH_SECONDS, Ready, Refused, Stage
from reclaim.function import ReclaimContext
from reclaim.pod_logs.directories import LogsUnreadable
from reclaim.pod_logs.plan import LogPolicy, plan_log_symlinks, plan_pod_logs
from reclaim.pod_logs.removers import (
    ContainerLogs,
    LogSymlinkRemover,
    PodLogRemover,
    ask_states,
    read_log_links,
    read_pod_logs,
)
from reclaim.pods.states import PodStateProvider, PodStates, is_pod_uid
from reclaim.services import NO_STATUS, ContainerStatus
from reclaim.types import (
    ContainerState,
    Identity,
    Listing,
    Plan,
    PodSandboxState,
    Reason,
    RemovalFailed,
    RuntimeUnavailable,
    Verdict,
)

PodsAndUids = tuple[PodStates, Collection[str] | None]
"""The pods, and the UIDs that have a container or a sandbox; None where the runtime gave no complete lists."""


_Planner = Callable[[Listing, PodStates, ContainerGCPolicy, int, bool], Plan]


def container_stages(context: ReclaimContext, *, evict_non_deleted_pods: bool = True) -> tuple[Stage, ...]:
    """In the order in which they run. `evict_non_deleted_pods`: whether the containers of terminated pods that still
    exist are removed too: under pressure, not periodically."""
    policy = context.policies.containers

    def log_policy(pods: PodStates) -> LogPolicy:
        return LogPolicy(cautious=policy.guarded(pods), settle_seconds=policy.settle_seconds)

    def pods_and_uids() -> PodsAndUids:
        """The pods, and the UIDs that have a container or a sandbox; None if the runtime gave no complete lists."""
        try:
            found = context.inventory.pods_and_containers(context.not_older_than())
        except RuntimeUnavailable:
            return context.pods.compared(context.pods.read(), None), None
        listing = found.listing.without(context.planned)
        of_containers = {container.pod_uid for container in listing.containers}
        return found.pods, frozenset(of_containers | {sandbox.pod_uid for sandbox in listing.sandboxes})

    return (
        DeadContainers(context, evict_non_deleted_pods=evict_non_deleted_pods),
        EmptySandboxes(context, evict_non_deleted_pods=evict_non_deleted_pods),
        LogDirectories(context, log_policy, pods_and_uids, missing_root_is_empty=evict_non_deleted_pods),
        DanglingLogSymlinks(context, log_policy),
    )


def _planned_by(planner: _Planner, context: ReclaimContext, *, evict_non_deleted_pods: bool) -> Plan:
    """The plan from complete lists. Raises RuntimeUnavailable."""
    began = context.clock.monotonic()
    found = context.inventory.pods_and_containers(context.not_older_than())
    list_seconds = context.clock.monotonic() - began
    plan = planner(
        found.listing.without(context.planned),
        found.pods,
        context.policies.containers,
        int(context.clock.wall() * 1e9),
        evict_non_deleted_pods,
    )
    return replace(plan, list_seconds=list_seconds)


_STILL_ALIVE = {
    ContainerState.RUNNING: Reason.RUNNING,
    ContainerState.CREATED: Reason.CREATED,
    ContainerState.UNKNOWN: Reason.UNKNOWN_STATE,
}
_ONLY_AS_PLANNED = (ContainerState.CREATED, ContainerState.UNKNOWN)


def _refusal_by_pod(verdict: Verdict, pods: PodStateProvider) -> Refused | None:
    """Why an object that was planned as part of a vanished pod stays: the pod exists by now, or the kubelet's
    directories are not believed any more. Or why one stays of a pod that was seen to have terminated: that does not
    show any more. What cannot be a UID is no pod's; that a pod has terminated or was evicted by the kubelet's word is
    final, so it is not asked again."""
    if verdict.reason is Reason.TERMINATED_BY_EVIDENCE:
        return None if pods.shown_terminated(verdict.pod_uid) else Refused(Reason.POD_ALIVE)
    if verdict.reason is not Reason.POD_GONE or not is_pod_uid(verdict.pod_uid) or pods.gone(verdict.pod_uid):
        return None
    return Refused(Reason.POD_ALIVE if pods.doubt is None else Reason.POD_UNKNOWN)


def _check_identity(verdict: Verdict, identity: Identity | None) -> None:
    """Raises RuntimeUnavailable when the status of an id is that of another object than was listed under this id: a
    list that gives the dead containers of a live pod to a vanished one justifies no removal."""
    if None not in (verdict.identity, identity) and verdict.identity != identity:
        raise RuntimeUnavailable(f"the status of {verdict.kind} {verdict.id} is not what was listed under its id")


class LogFiles(Protocol):
    """What deletes a container's log files."""

    def remove(self, status: ContainerStatus) -> int:
        """All of them, the rotated ones and the symlink too; how many there were. Raises RemovalFailed."""


class DeadContainers:
    """Removes a container whose status, read within the last 50 ms, is EXITED (which is final in CRI).

    Only a plan made with the kubelet's own state names others: one that is CREATED must still be CREATED; one whose
    state is UNKNOWN is stopped first, and must then be EXITED. A preStop hook is not run: only the kubelet can.

    The log is deleted first, as the kubelet does: if that fails the container is kept, and the next pass tries again.
    """

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = True
    patience_seconds: float | None = None

    def __init__(self, context: ReclaimContext, logs: LogFiles | None = None, *, evict_non_deleted_pods: bool = True):
        self._context = context
        self._evict_non_deleted_pods = evict_non_deleted_pods
        self._runtime = context.runtime
        self._pods = context.pods
        self._clock = context.clock
        self._logs = logs or ContainerLogs(context.log_paths)
        self._checked: dict[str, ContainerStatus] = {}

    def plan(self) -> Plan:
        """Dead containers. Raises RuntimeUnavailable."""
        return _planned_by(plan_container_gc, self._context, evict_non_deleted_pods=self._evict_non_deleted_pods)

    def check(self, verdict: Verdict) -> Ready | Refused:
        """EXITED now; then that the newer copy is still there; and last, as it takes no time, that the pod is gone."""
        status = self._status_if_removable(verdict)
        read_at = self._clock.monotonic()
        if isinstance(status, Refused):
            return status
        if verdict.superseded_by:
            copies = {container.id for container in self._runtime.list_containers(pod_uid=verdict.pod_uid)}
            if verdict.superseded_by not in copies:
                return Refused(Reason.NEWEST_OF_LIVE_POD)
            if self._clock.monotonic() - read_at > self.fresh_seconds:  # on a node under pressure lists are slow
                status = self._status_if_removable(verdict)
                read_at = self._clock.monotonic()
                if isinstance(status, Refused):
                    return status
        self._checked[verdict.id] = status
        return _refusal_by_pod(verdict, self._pods) or Ready(read_at)

    def _status_if_removable(self, verdict: Verdict) -> ContainerStatus | Refused:
        """The status, if by it the container may be removed. Raises RuntimeUnavailable."""
        status = self._runtime.container_status(verdict.id)
        if status == NO_STATUS:
            return Refused(Reason.UNKNOWN_STATE)
        if status is None or status.id != verdict.id:
            return GONE
        as_planned = verdict.state in _ONLY_AS_PLANNED and status.state is verdict.state
        if status.state is not ContainerState.EXITED and not as_planned:
            return Refused(_STILL_ALIVE[status.state])
        _check_identity(verdict, status.identity)
        return status

    def remove(self, verdict: Verdict) -> bool:
        """StopContainer where its state is not known, the log files, then RemoveContainer by whole id."""
        status = self._checked.pop(verdict.id)
        if status.state is ContainerState.UNKNOWN:
            status = self._stopped(status)
        if status.state is ContainerState.EXITED:  # one that never started has no log
            self._logs.remove(status)
        return self._runtime.remove_container(verdict.id)

    def _stopped(self, status: ContainerStatus) -> ContainerStatus:
        """Stops a container and returns its status then. Raises RemovalFailed unless it has exited, or is gone."""
        self._runtime.stop_container(status.id, status.stop_grace_seconds)
        try:
            stopped = self._runtime.container_status(status.id)
        except RuntimeUnavailable as error:
            raise RemovalFailed(str(error)) from error
        if stopped is not None and stopped.state is not ContainerState.EXITED:
            raise RemovalFailed(f"it was stopped, but is {stopped.state}")
        return stopped or status

    def present(self, verdict: Verdict) -> bool:
        """True if ContainerStatus answers with this very id, or with nothing that would say that it is gone."""
        status = self._runtime.container_status(verdict.id)
        return status is not None and status.id in (verdict.id, NO_STATUS.id)


class EmptySandboxes:
    """Stops and removes a sandbox that is not READY and has no containers (the runtime would remove those with it)."""

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = True
    patience_seconds: float | None = None

    def __init__(self, context: ReclaimContext, *, evict_non_deleted_pods: bool = True):
        self._context = context
        self._evict_non_deleted_pods = evict_non_deleted_pods
        self._runtime = context.runtime
        self._pods = context.pods
        self._clock = context.clock

    def plan(self) -> Plan:
        """Sandboxes; one that the stage before has emptied counts as empty. Raises RuntimeUnavailable."""
        return _planned_by(plan_sandbox_gc, self._context, evict_non_deleted_pods=self._evict_non_deleted_pods)

    def check(self, verdict: Verdict) -> Ready | Refused:
        """Not READY now and without containers; and last, as it takes no time, that the pod is gone."""
        refused = self._refusal_by_status(verdict)
        read_at = self._clock.monotonic()
        if refused is not None:
            return refused
        listing = Listing(containers=self._runtime.list_containers(sandbox_id=verdict.id)).without(
            self._context.planned
        )
        if any(container.sandbox_id == verdict.id for container in listing.containers):
            return Refused(Reason.HAS_CONTAINERS)
        if self._clock.monotonic() - read_at > self.fresh_seconds:  # on a node under pressure lists are slow
            refused = self._refusal_by_status(verdict)
            read_at = self._clock.monotonic()
            if refused is not None:
                return refused
        return _refusal_by_pod(verdict, self._pods) or Ready(read_at)

    def _refusal_by_status(self, verdict: Verdict) -> Refused | None:
        """Why its status keeps it; None if it may be removed. Raises RuntimeUnavailable."""
        status = self._runtime.pod_sandbox_status(verdict.id)
        if status is None:
            return GONE
        if status.state is PodSandboxState.READY:
            return Refused(Reason.READY)
        _check_identity(verdict, status.identity)
        return None

    def remove(self, verdict: Verdict) -> bool:
        """StopPodSandbox, which frees its network, then RemovePodSandbox."""
        self._runtime.stop_pod_sandbox(verdict.id)
        return self._runtime.remove_pod_sandbox(verdict.id)

    def present(self, verdict: Verdict) -> bool:
        """True if PodSandboxStatus answers with this very id."""
        return self._runtime.pod_sandbox_status(verdict.id) is not None


class AsPlanned:
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


class LogDirectories(AsPlanned):
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


class DanglingLogSymlinks(AsPlanned):
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
