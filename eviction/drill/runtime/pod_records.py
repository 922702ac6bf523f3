"""Sandboxes and containers of the embedded runtime as records, and what the list and status calls report of them.

Rules, as containerd has them; see `dialects` for differences:

* `image_ref` is the image id in ListContainers; in ContainerStatus it is the repository digest while the image exists.
* `image_id` is filled by newer runtimes only; containerd 1.6 leaves it empty everywhere.
* `image.image` is what the creator asked for in ListContainers; in ContainerStatus it is a tag while there is one.

Source: github.com/containerd/containerd internal/cri/server/{container_list,container_status}.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from eviction.drill.runtime.dialects import Dialect, ImageRefersAs
from eviction.drill.runtime.id_lookup import matches_labels
from eviction.drill.runtime.image_table import Image
from reclaim.cri import cri_pb2


@dataclass(slots=True)
class Sandbox:
    """One pod sandbox. `layers`: the layers of its image, to which it has references. Times are wall-clock
    nanoseconds."""

    id: str
    config: cri_pb2.PodSandboxConfig
    runtime_handler: str
    image: str
    layers: tuple[str, ...]
    created_at: int
    ready: bool = True

    @property
    def state(self) -> cri_pb2.PodSandboxState:
        """READY or NOTREADY, as on the wire."""
        return cri_pb2.SANDBOX_READY if self.ready else cri_pb2.SANDBOX_NOTREADY

    def item(self) -> cri_pb2.PodSandbox:
        """The entry in ListPodSandbox."""
        return cri_pb2.PodSandbox(
            id=self.id,
            metadata=self.config.metadata,
            state=self.state,
            created_at=self.created_at,
            labels=self.config.labels,
            annotations=self.config.annotations,
            runtime_handler=self.runtime_handler,
        )

    def status(self) -> cri_pb2.PodSandboxStatus:
        """The status in PodSandboxStatus."""
        return cri_pb2.PodSandboxStatus(
            id=self.id,
            metadata=self.config.metadata,
            state=self.state,
            created_at=self.created_at,
            labels=self.config.labels,
            annotations=self.config.annotations,
            runtime_handler=self.runtime_handler,
        )

    def matches(self, wanted: cri_pb2.PodSandboxFilter, full_id: str) -> bool:
        """True if the filter matches. `full_id`: what the id of the filter resolves to, empty for any."""
        return (
            (not full_id or self.id == full_id)
            and (not wanted.HasField("state") or self.state == wanted.state.state)
            and matches_labels(wanted.label_selector, self.config.labels)
        )


@dataclass(slots=True)
class Container:
    """One container. `layers`: the layers of its image and its image volumes, to which it has references. Times are
    wall-clock nanoseconds."""

    id: str
    sandbox_id: str
    config: cri_pb2.ContainerConfig
    image_id: str
    layers: tuple[str, ...]
    log_path: str
    created_at: int
    state: cri_pb2.ContainerState = cri_pb2.CONTAINER_CREATED
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    files_written: int = 0

    def finish(self, exit_code: int, reason: str, finished_at: int) -> None:
        """Makes it EXITED. `finished_at`: wall-clock nanoseconds."""
        self.state = cri_pb2.CONTAINER_EXITED
        self.exit_code, self.reason, self.finished_at = exit_code, reason, finished_at

    def item(self, image: Image | None, dialect: Dialect) -> cri_pb2.Container:
        """The entry in ListContainers. `image`: the image of the container, if it still exists."""
        image_ref = self.image_id
        if dialect.image_ref is ImageRefersAs.DIGEST and image is not None and image.digests:
            image_ref = image.digests[0]
        return cri_pb2.Container(
            id=self.id,
            pod_sandbox_id=self.sandbox_id,
            metadata=self.config.metadata,
            image=self.config.image,
            image_ref=image_ref,
            state=self.state,
            created_at=self.created_at,
            labels=self.config.labels,
            annotations=self.config.annotations,
            image_id=self.image_id if dialect.fills_image_id else "",
        )

    def status(self, image: Image | None, dialect: Dialect) -> cri_pb2.ContainerStatus:
        """The status in ContainerStatus. `image`: the image of the container, if it still exists."""
        spec = cri_pb2.ImageSpec()
        spec.CopyFrom(self.config.image)
        image_ref = self.image_id
        if image is not None:
            spec.image = image.tags[0] if image.tags else spec.image
            image_ref = image.digests[0] if image.digests else image_ref
        return cri_pb2.ContainerStatus(
            id=self.id,
            metadata=self.config.metadata,
            state=self.state,
            created_at=self.created_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            exit_code=self.exit_code,
            image=spec,
            image_ref=image_ref,
            reason=self.reason,
            labels=self.config.labels,
            annotations=self.config.annotations,
            mounts=self.config.mounts,
            log_path=self.log_path,
            image_id=self.image_id if dialect.fills_image_id else "",
        )

    def matches(self, wanted: cri_pb2.ContainerFilter, full_id: str, full_sandbox_id: str) -> bool:
        """True if the filter matches. The ids: what the ids of the filter resolve to, empty for any."""
        return (
            (not full_id or self.id == full_id)
            and (not full_sandbox_id or self.sandbox_id == full_sandbox_id)
            and (not wanted.HasField("state") or self.state == wanted.state.state)
            and matches_labels(wanted.label_selector, self.config.labels)
        )
