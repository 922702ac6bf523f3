"""Removes dead containers and pod sandboxes: checks each once more, sends one removal, asks whether it is gone.

The status of an object is read right before its removal, at most 50 ms earlier, and again if another question took
longer than that.
"""

from __future__ import annotations

from typing import Protocol

from reclaim.clock import Clock
from reclaim.execution.remover import GONE, STATUS_FRESH_SECONDS, Ready, Refused
from reclaim.pods.states import PodStateProvider, is_pod_uid
from reclaim.services import NO_STATUS, ContainerStatus, RuntimeService
from reclaim.types import (
    ContainerState,
    Identity,
    Listing,
    PodSandboxState,
    Reason,
    RemovalFailed,
    RuntimeUnavailable,
    Verdict,
)

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


class ContainerRemover:
    """Removes a container whose status, read within the last 50 ms, is EXITED (which is final in CRI).

    Only a plan made with the kubelet's own state names others: one that is CREATED must still be CREATED; one whose
    state is UNKNOWN is stopped first, and must then be EXITED. A preStop hook is not run: only the kubelet can.

    The log is deleted first, as the kubelet does: if that fails the container is kept, and the next pass tries again.
    """

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = True

    def __init__(self, runtime: RuntimeService, pods: PodStateProvider, clock: Clock, logs: LogFiles | None = None):
        self._runtime = runtime
        self._pods = pods
        self._clock = clock
        self._logs = logs
        self._checked: dict[str, ContainerStatus] = {}

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
        if self._logs is not None and status.state is ContainerState.EXITED:  # one that never started has no log
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


class SandboxRemover:
    """Stops and removes a sandbox that is not READY and has no containers (the runtime would remove those with it).

    `planned`: what a dry run would have removed before: these containers count as gone.
    """

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = True

    def __init__(
        self, runtime: RuntimeService, pods: PodStateProvider, clock: Clock, planned: tuple[Verdict, ...] = ()
    ):
        self._runtime = runtime
        self._pods = pods
        self._clock = clock
        self._planned = planned

    def check(self, verdict: Verdict) -> Ready | Refused:
        """Not READY now and without containers; and last, as it takes no time, that the pod is gone."""
        refused = self._refusal_by_status(verdict)
        read_at = self._clock.monotonic()
        if refused is not None:
            return refused
        listing = Listing(containers=self._runtime.list_containers(sandbox_id=verdict.id)).without(self._planned)
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
