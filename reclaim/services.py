"""What the reclaim functions are handed in: the container runtime, and who hears what happens.

The protocols of the runtime are named as CRI names them, and implemented over gRPC by `reclaim.cri.client`. All reads
raise RuntimeUnavailable when there is no complete answer; all removals raise RemovalFailed when the runtime answered
with an error, and then nothing is known: ask again. A removal is False when the runtime answered that it has no such
object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from reclaim.types import NEVER, Container, ContainerState, Identity, Image, Outcome, PodSandbox, PodSandboxState

Metadata = tuple[tuple[str, str], ...]
"""Header fields that a call carries besides those of gRPC: names in lower case, and their values."""


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """Name and version of a runtime, such as `containerd` 1.6.20."""

    name: str
    version: str

    def mounts_images(self) -> bool:
        """Whether containers of this runtime may have image volumes; of an unknown runtime or version they may.

        containerd makes such containers since 2.1 (containerd/containerd#10579). 2.0 counts too: its CRI has the
        field, and a container of 2.1 runs on when its runtime is taken back to 2.0.
        """
        if self.name != "containerd":
            return True
        major = self.version.lstrip("v").partition(".")[0]
        return not major.isdigit() or int(major) >= 2


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """One container as it is now: its state, the images that it mounts as volumes, each with all its references, and
    what its log files are found by: the path that the runtime writes to, and the names in its labels.

    `stop_grace_seconds`: how long the kubelet would give it to stop, at least 2. `identity`: None if not reported.
    """

    id: str
    state: ContainerState
    image_volumes: tuple[tuple[str, ...], ...] = ()
    name: str = ""
    pod_name: str = ""
    pod_namespace: str = ""
    log_path: str = ""
    stop_grace_seconds: int = 2
    identity: Identity | None = None


NO_STATUS = ContainerStatus("", ContainerState.UNKNOWN)
"""The answer of a runtime that neither has a status nor says that there is no such container."""


@dataclass(frozen=True, slots=True)
class PodSandboxStatus:
    """One sandbox as it is now. `identity`: None if it is not reported."""

    state: PodSandboxState
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class ImageFsInfo:
    """Where images and writable layers are: paths that the runtime calls mount points, in its order.

    `image_used_bytes`: what its images take on the first of them by its own count, on containerd with the writable
    layers and without the compressed content; None if it is not reported.
    """

    image_filesystems: tuple[str, ...] = ()
    container_filesystems: tuple[str, ...] = ()
    image_used_bytes: int | None = None


class RuntimeService(Protocol):
    """Containers and sandboxes."""

    @property
    def connections_made(self) -> int:
        """How many connections were made so far. While it stays the same, the same process answers: what a runtime can
        do and how it is configured has to be asked again once it has grown."""

    def version(self) -> RuntimeVersion:
        """Name and version of the runtime."""

    def sandbox_image(self) -> str | None:
        """The image of pod sandboxes that the runtime is configured with; None when it does not say."""

    def list_containers(self, *, sandbox_id: str = "", pod_uid: str = "") -> tuple[Container, ...]:
        """All containers in every state; of one sandbox, or of the pod with this UID in its label, when named."""

    def list_pod_sandboxes(self) -> tuple[PodSandbox, ...]:
        """All sandboxes in every state."""

    def container_status(self, container_id: str) -> ContainerStatus | None:
        """The container as it is now; None when there is no such container."""

    def pod_sandbox_status(self, sandbox_id: str) -> PodSandboxStatus | None:
        """The sandbox with this very id as it is now; None when there is no such sandbox."""

    def image_of_sandbox(self, sandbox_id: str, within_seconds: float = NEVER) -> str | None:
        """The image that a sandbox was made from; None when the runtime does not say or the sandbox is gone.

        `within_seconds`: a deadline that is shorter than that of reads.
        """

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """Stops a container; killed when it has not ended after the grace period. One that is gone is stopped."""

    def remove_container(self, container_id: str) -> bool:
        """Removes a container; the runtime would kill a running one."""

    def stop_pod_sandbox(self, sandbox_id: str) -> None:
        """Stops what is left of a sandbox, its network included."""

    def remove_pod_sandbox(self, sandbox_id: str) -> bool:
        """Removes a sandbox; the runtime would remove its containers too."""

    def call_service(self, method: str, request: bytes, seconds: float, metadata: Metadata) -> bytes:
        """One call of a service beside CRI at the same socket, within so many seconds; the message that answers it.
        Raises CallError (`cri.status`), with UNIMPLEMENTED where there is no such service."""


class ImageService(Protocol):
    """Images."""

    def list_images(self) -> tuple[Image, ...]:
        """All images."""

    def image_status(self, reference: str) -> Image | None:
        """The image that a reference means; None when the runtime has none."""

    def remove_image(self, image_id: str) -> bool:
        """Removes an image with all its tags; the runtime would remove one in use."""

    def image_fs_info(self) -> ImageFsInfo:
        """Where the images are."""


class UsageService(Protocol):
    """How much of the disk is used by what, by the runtime's own count. For people, never for a decision."""

    def image_fs_info(self) -> ImageFsInfo:
        """Where the images are, and what they take."""

    def writable_layers(self) -> Mapping[str, int]:
        """Bytes of the writable layer by container id; containers that it does not report are left out. A runtime
        without such statistics is unavailable for this question."""


class Listener:
    """Hears nothing. A subclass overrides what it wants to hear; a method may be called on any thread, and returns
    soon."""

    def called(self, call: str, seconds: float, failed: bool) -> None:
        """A call of the runtime was answered, or has failed."""

    def parked(self, outcome: Outcome) -> None:
        """A pass goes on without a removal that is not answered."""

    def parked_ended(self, outcome: Outcome) -> None:
        """A removal that was parked has ended at last."""

    def program_line(self, function: str, line: str) -> None:
        """A program of the configuration has printed a line."""
