"""Looking again, the one call, and asking whether it is true: one remover for each kind of object.

The runtime protects nothing: it removes an image in use, kills a running container, and takes the prefix of an id for
the id. So right before each removal the remover looks again, and sends only a whole id that a list has named.

* `check` says that the object may go *now*, or why not.
* `remove` is the one call.
* `present` asks whether the object is still there: an error is not a failure, and a success is not yet an absence.

`planned` is what a dry run goes on without: objects that an earlier stage would have removed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Protocol

from reclaim.clock import Clock
from reclaim.images.in_use import images_in_use
from reclaim.images.keep_list import KEEP_NOTHING, KeepList
from reclaim.images.lister import FRESH_SECONDS, Lister
from reclaim.images.pod_startup import PodStarts
from reclaim.images.references import ImageIndex
from reclaim.pods.states import PodStateProvider, is_pod_uid
from reclaim.services import NO_STATUS, ContainerStatus, ImageService, RuntimeService
from reclaim.types import (
    ContainerState,
    Identity,
    Image,
    Listing,
    PodSandboxState,
    Reason,
    RemovalFailed,
    Result,
    RuntimeUnavailable,
    Verdict,
)

STATUS_FRESH_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Ready:
    """The object may go, as of `checked_at` (monotonic seconds)."""

    checked_at: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now: look again after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The object stays, or is gone already (`result`)."""

    reason: Reason | None = None
    result: Result | None = None


class Remover(Protocol):
    """How one kind of object is removed. `fresh_seconds`: how old a `Ready` may be when the call is sent."""

    fresh_seconds: float

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """Looks again. Raises RuntimeUnavailable. The sum of what it asks to wait is bounded."""

    def remove(self, verdict: Verdict) -> bool:
        """The one call, after a `check` that said Ready. False when there was no such object any more.

        Raises RemovalFailed.
        """

    def present(self, verdict: Verdict) -> bool:
        """Whether the object is still there. Raises RuntimeUnavailable."""


_GONE = Refused(result=Result.ALREADY_GONE)
_STILL_ALIVE = {
    ContainerState.RUNNING: Reason.RUNNING,
    ContainerState.CREATED: Reason.CREATED,
    ContainerState.UNKNOWN: Reason.UNKNOWN_STATE,
}
_ONLY_AS_PLANNED = (ContainerState.CREATED, ContainerState.UNKNOWN)


def _has_appeared_again(verdict: Verdict, pods: PodStateProvider) -> bool:
    """Whether what was planned as part of a vanished pod is not that any more. What cannot be a UID is no pod's; that a
    pod has terminated or was evicted is final, so it is not asked again."""
    return verdict.reason is Reason.POD_GONE and is_pod_uid(verdict.pod_uid) and not pods.gone(verdict.pod_uid)


def _check_identity(verdict: Verdict, identity: Identity | None) -> None:
    """Raises RuntimeUnavailable when the status of an id is that of another object than the list had under this id: a
    list that gives the dead of a live pod to one that is gone licenses nothing."""
    if None not in (verdict.identity, identity) and verdict.identity != identity:
        raise RuntimeUnavailable(f"the status of {verdict.kind} {verdict.id} is not what was listed under its id")


class LogFiles(Protocol):
    """What takes a container's log files away."""

    def remove(self, status: ContainerStatus) -> int:
        """All of them, the rotated ones and the symlink too; how many there were. Raises RemovalFailed."""


class ContainerRemover:
    """Removes a container that a status, read within the last 50 ms, calls EXITED (which is final in CRI).

    Only a plan made with the kubelet's own state names others: one that is CREATED must still be CREATED; one whose
    state is UNKNOWN is stopped first, and must then be EXITED. A preStop hook is not run: only the kubelet can.

    The log goes first, as in the kubelet: if it cannot be deleted the container stays, and the next pass tries again.
    """

    fresh_seconds = STATUS_FRESH_SECONDS

    def __init__(self, runtime: RuntimeService, pods: PodStateProvider, clock: Clock, logs: LogFiles | None = None):
        self._runtime = runtime
        self._pods = pods
        self._clock = clock
        self._logs = logs
        self._checked: dict[str, ContainerStatus] = {}

    def check(self, verdict: Verdict) -> Ready | Refused:
        """EXITED now; then that the newer copy is still there; and last, as it takes no time, that the pod is gone."""
        status = self._dead(verdict)
        read_at = self._clock.monotonic()
        if isinstance(status, Refused):
            return status
        if verdict.superseded_by:
            copies = {container.id for container in self._runtime.list_containers(pod_uid=verdict.pod_uid)}
            if verdict.superseded_by not in copies:
                return Refused(Reason.NEWEST_OF_LIVE_POD)
            if self._clock.monotonic() - read_at > self.fresh_seconds:  # on a node under pressure lists are slow
                status = self._dead(verdict)
                read_at = self._clock.monotonic()
                if isinstance(status, Refused):
                    return status
        if _has_appeared_again(verdict, self._pods):
            return Refused(Reason.POD_ALIVE)
        self._checked[verdict.id] = status
        return Ready(read_at)

    def _dead(self, verdict: Verdict) -> ContainerStatus | Refused:
        """The status, if by it the container may go. Raises RuntimeUnavailable."""
        status = self._runtime.container_status(verdict.id)
        if status == NO_STATUS:
            return Refused(Reason.UNKNOWN_STATE)
        if status is None or status.id != verdict.id:
            return _GONE
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
        """Stops a container and says what has become of it. Raises RemovalFailed unless it has exited, or is gone."""
        self._runtime.stop_container(status.id, status.stop_grace_seconds)
        try:
            stopped = self._runtime.container_status(status.id)
        except RuntimeUnavailable as error:
            raise RemovalFailed(str(error)) from error
        if stopped is not None and stopped.state is not ContainerState.EXITED:
            raise RemovalFailed(f"it was stopped, but is {stopped.state}")
        return stopped or status

    def present(self, verdict: Verdict) -> bool:
        """ContainerStatus answers with this very id, or with nothing that would say that it is gone."""
        status = self._runtime.container_status(verdict.id)
        return status is not None and status.id in (verdict.id, NO_STATUS.id)


class SandboxRemover:
    """Stops and removes a sandbox that is not READY and holds no container (the runtime would take those along)."""

    fresh_seconds = STATUS_FRESH_SECONDS

    def __init__(
        self, runtime: RuntimeService, pods: PodStateProvider, clock: Clock, planned: tuple[Verdict, ...] = ()
    ):
        self._runtime = runtime
        self._pods = pods
        self._clock = clock
        self._planned = planned

    def check(self, verdict: Verdict) -> Ready | Refused:
        """Not READY now and without containers; and last, as it takes no time, that the pod is gone."""
        refused = self._not_dead(verdict)
        read_at = self._clock.monotonic()
        if refused is not None:
            return refused
        listing = Listing(containers=self._runtime.list_containers(sandbox_id=verdict.id)).without(self._planned)
        if any(container.sandbox_id == verdict.id for container in listing.containers):
            return Refused(Reason.HAS_CONTAINERS)
        if self._clock.monotonic() - read_at > self.fresh_seconds:  # on a node under pressure lists are slow
            refused = self._not_dead(verdict)
            read_at = self._clock.monotonic()
            if refused is not None:
                return refused
        if _has_appeared_again(verdict, self._pods):
            return Refused(Reason.POD_ALIVE)
        return Ready(read_at)

    def _not_dead(self, verdict: Verdict) -> Refused | None:
        """Why it stays by its status; None when it may go. Raises RuntimeUnavailable."""
        status = self._runtime.pod_sandbox_status(verdict.id)
        if status is None:
            return _GONE
        if status.state is PodSandboxState.READY:
            return Refused(Reason.READY)
        _check_identity(verdict, status.identity)
        return None

    def remove(self, verdict: Verdict) -> bool:
        """StopPodSandbox, which frees its network, then RemovePodSandbox."""
        self._runtime.stop_pod_sandbox(verdict.id)
        return self._runtime.remove_pod_sandbox(verdict.id)

    def present(self, verdict: Verdict) -> bool:
        """PodSandboxStatus answers with this very id."""
        return self._runtime.pod_sandbox_status(verdict.id) is not None


class ImageRemover:
    """Removes an image that a list of containers, at most 1 s old, shows to be unused.

    The list is read anew before each removal where that is cheap: it may be as old as four times what it took to
    read, and never older than 1 s. (A list that takes half a second and more is counted from its answer: from the
    question it could never be young enough.) Removals that run side by side share one. `starts`: who is waited for.
    """

    fresh_seconds = FRESH_SECONDS

    def __init__(
        self,
        images: ImageService,
        lister: Lister,
        listing: Listing,
        clock: Clock,
        planned: tuple[Verdict, ...] = (),
        *,
        keep: KeepList = KEEP_NOTHING,
        starts: PodStarts | None = None,
    ):
        self._images = images
        self._keep = keep
        self._starts = starts
        self._planned = planned
        self._lister = lister
        self._clock = clock
        self._index = ImageIndex(listing.images)
        self._lock = threading.Lock()
        self._listing = listing
        self._read_at = float("-inf")
        self._cost_seconds = 0.0

    def check(self, verdict: Verdict) -> Ready | Refused | Wait:
        """In use by now, or no longer told apart with certainty: then it stays. While a pod is made it waits."""
        with self._lock:
            if self._refresh() and self._starts is not None:
                wait = self._starts.wait_seconds(self._listing.containers)
                if wait > 0:
                    self._read_at = float("-inf")  # after it everything is read anew
                    return Wait(wait)
            usage, read_at = images_in_use(self._listing, self._index), self._read_at
        if verdict.id in usage.by_containers:
            return Refused(Reason.IN_USE, Result.IN_USE)
        if usage.unresolved:
            return Refused(Reason.UNRESOLVED_IMAGE)
        image = self._images.image_status(verdict.id)
        if image is None or image.id != verdict.id:
            return _GONE
        reason = self._protected(image)
        return Ready(read_at) if reason is None else Refused(reason)

    def _protected(self, image: Image) -> Reason | None:
        """Why the image stays by what its status says now: it may have been pinned, or got another name, since it was
        listed, and a list may have had it wrong."""
        if image.pinned:
            return Reason.PINNED
        if self._keep.kept_ids((image,)):
            return Reason.KEEP_LIST
        usage = images_in_use(replace(self._listing, images=(image,)))
        if image.id in usage.by_containers:
            return Reason.IN_USE
        return Reason.SANDBOX_IMAGE if image.id in usage.by_sandboxes else None

    def _refresh(self) -> bool:
        """Whether the list was read anew."""
        asked_at = self._clock.monotonic()
        if asked_at - self._read_at <= min(4 * self._cost_seconds, FRESH_SECONDS / 2):
            return False
        self._listing = self._lister.again(self._listing, self._index).without(self._planned)
        self._cost_seconds = self._clock.monotonic() - asked_at
        self._read_at = asked_at if self._cost_seconds < FRESH_SECONDS / 2 else asked_at + self._cost_seconds
        return True

    def remove(self, verdict: Verdict) -> bool:
        """RemoveImage by whole id, never by name: by name one runtime drops all tags and another only one."""
        return self._images.remove_image(verdict.id)

    def present(self, verdict: Verdict) -> bool:
        """ImageStatus answers with this very id."""
        image = self._images.image_status(verdict.id)
        return image is not None and image.id == verdict.id
