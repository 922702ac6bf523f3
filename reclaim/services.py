"""What reclaim functions receive: the container runtime.

Its calls are named as in CRI (RuntimeService and ImageService), and made over gRPC by
`reclaim.cri.client`.
Reads raise RuntimeUnavailable if there is no complete answer. Removals raise RemovalFailed if the
runtime answered with an error; nothing is known then, so ask again. A removal returns False if the
runtime has no such object.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from reclaim.types import (
    NEVER,
    Container,
    ContainerState,
    Identity,
    Image,
    PodSandbox,
    PodSandboxState,
)


class RuntimeVersion(NamedTuple):
    """Name and version of a runtime, such as `containerd` 1.6.20."""

    name: str
    version: str

    def mounts_images(self) -> bool:
        """Whether this runtime's containers may have image volumes. Assumed for
        unknown runtimes and versions.

        containerd supports them since 2.1 (containerd/containerd#10579). 2.0 counts
        too: its CRI has the field, and a container made by 2.1 keeps running when the
        runtime is downgraded to 2.0.
        """
        if self.name != "containerd":
            return True
        major = self.version.lstrip("v").partition(".")[0]
        return not major.isdigit() or int(major) >= 2


class ContainerStatus(NamedTuple):
    """One container as it is now: its state, the images it mounts as volumes, each with
    all its references, and what leads to its log files: the path the runtime writes to,
    and the names in its labels.

    `stop_grace_seconds`: how long the kubelet would give it to stop, at least 2.
    `identity`: None if not reported.
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


class PodSandboxStatus(NamedTuple):
    """One sandbox as it is now. `identity`: None if not reported."""

    state: PodSandboxState
    identity: Identity | None = None


class ImageFsInfo(NamedTuple):
    """Where images and writable layers are stored: paths that the runtime calls
    mount points, in its order.

    `image_used_bytes`: what its images take on the first of them, by the runtime's own count
    (containerd includes writable layers, but not compressed content); None if not reported.
    """

    image_filesystems: tuple[str, ...] = ()
    container_filesystems: tuple[str, ...] = ()
    image_used_bytes: int | None = None


class Runtime(Protocol):
    """Containers, sandboxes and images."""

    @property
    def runtime_path(self) -> str:
        """The path of its socket; empty if it has none."""

    @property
    def connections_made(self) -> int:
        """How many connections have been made so far. While it stays the same, the same process
        answers; once it has grown, ask again what the runtime supports and how it is configured."""

    def version(self) -> RuntimeVersion:
        """Name and version of the runtime."""

    def sandbox_image(self) -> str | None:
        """The image of pod sandboxes in the runtime's configuration; None if it does not say."""

    def list_containers(self, *, sandbox_id: str = "", pod_uid: str = "") -> tuple[Container, ...]:
        """All containers in every state; optionally only those of one sandbox, or of the pod with
        this UID in its label."""

    def list_pod_sandboxes(self) -> tuple[PodSandbox, ...]:
        """All sandboxes in every state."""

    def container_status(self, container_id: str) -> ContainerStatus | None:
        """The container as it is now; None if there is no such container."""

    def pod_sandbox_status(self, sandbox_id: str) -> PodSandboxStatus | None:
        """The sandbox with exactly this id as it is now; None if there is no such sandbox."""

    def image_of_sandbox(self, sandbox_id: str, within_seconds: float = NEVER) -> str | None:
        """The image that a sandbox was made from; None if the runtime does not
        say or the sandbox is gone.

        `within_seconds`: a shorter deadline than that of other reads.
        """

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """Stops a container, killing it if it has not exited after the grace period. A container
        that is gone counts as stopped."""

    def remove_container(self, container_id: str) -> bool:
        """Removes a container. The runtime would kill it if it were running."""

    def stop_pod_sandbox(self, sandbox_id: str) -> None:
        """Stops what is left of a sandbox, including its network."""

    def remove_pod_sandbox(self, sandbox_id: str) -> bool:
        """Removes a sandbox. The runtime would remove its containers with it."""

    def call_service(self, method: str, request: bytes, seconds: float) -> bytes:
        """Calls a service other than CRI on the same socket and returns the answer's message;
        of a stream, all of them in one, as their repeated fields go on where the last one's
        ended. `seconds`: the deadline. Raises CallError (`cri.status`), with UNIMPLEMENTED if
        there is no such service."""

    def list_images(self) -> tuple[Image, ...]:
        """All images."""

    def image_status(self, reference: str) -> Image | None:
        """The image that a reference resolves to; None if the runtime has none."""

    def remove_image(self, image_id: str) -> bool:
        """Removes an image with all its tags.

        The runtime would remove it even if it were in use.
        """
