"""The objects of the embedded runtime: how a call names them, and what the lists and status calls report of them.

Rules, as containerd has them; see `dialects` for differences:

* A full id names its object, and so does any unique prefix. That makes a careless caller dangerous: six characters of
  an id remove a container as surely as all 64 do.
* An image has one id, and any number of tags and repository digests, also none.
* `image_ref` is the image id in ListContainers; in ContainerStatus it is the repository digest while the image exists.
* `image_id` is filled by newer runtimes only; containerd 1.6 leaves it empty everywhere.
* `image.image` is what the creator asked for in ListContainers; in ContainerStatus it is a tag while there is one.

Source: github.com/containerd/containerd internal/cri/store/{container,sandbox,image} (truncindex, digestset),
internal/cri/server/{container_list,container_status}.go, images/image_list.go (LocalResolve),
github.com/distribution/reference normalize.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from eviction.drill.runtime.dialects import Dialect
from eviction.drill.runtime.layer_store import LayerSpec
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from reclaim.cri import cri_pb2

_Record = TypeVar("_Record")
_Message = TypeVar("_Message")
_ID_CHARACTERS = 64


class NotFoundError(EmbeddedNodeError):
    """A call names an object that does not exist. Over gRPC it is NOT_FOUND; any other EmbeddedNodeError is UNKNOWN."""


def find(table: Mapping[str, _Record], wanted: str, kind: str) -> _Record:
    """The object that `wanted` names: by its id, or the only one whose id begins with it. `kind` is for the message.

    Raises NotFoundError if there is none, EmbeddedNodeError if `wanted` is empty or several begin with it.
    """
    about = f"an error occurred when try to find {kind} {wanted!r}"
    if not wanted:
        raise EmbeddedNodeError(f"{about}: prefix can't be empty")
    found = _named(table, wanted)
    if not found:
        raise NotFoundError(f"{about}: not found")
    if len(found) > 1:
        raise EmbeddedNodeError(f"{about}: {len(found)} ids begin so")
    return table[found[0]]


def selected(table: Mapping[str, _Record], wanted: str) -> Mapping[str, _Record]:
    """What the id of a list's filter selects: everything if it is empty, nothing if it names no object, or several."""
    if not wanted:
        return table
    found = _named(table, wanted)
    return {each: table[each] for each in found} if len(found) == 1 else {}


def _named(ids: Collection[str], wanted: str) -> list[str]:
    if wanted in ids:
        return [wanted]
    if len(wanted) == _ID_CHARACTERS:  # no prefix of another one: do not search 50 000 ids for one that was removed
        return []
    return [each for each in ids if each.startswith(wanted)]


def normalize_reference(reference: str) -> str:
    """An image reference in full: registry, repository, and a digest or a tag ("latest" if neither is given).

    "busybox" is "docker.io/library/busybox:latest"; of "name:tag@digest" the tag is dropped, as runtimes do.
    """
    name, _, digest = reference.partition("@")
    path, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    repository = path + slash + last
    registry = repository.split("/", 1)[0]
    if "/" not in repository:
        repository = f"docker.io/library/{repository}"
    elif not ("." in registry or ":" in registry or registry == "localhost"):
        repository = f"docker.io/{repository}"
    return f"{repository}@{digest}" if digest else f"{repository}:{tag or 'latest'}"


def repository_of(tag: str) -> str:
    """The repository of a normalized "repository:tag" reference."""
    return tag.rpartition(":")[0]


def deterministic_id(*parts: object) -> str:
    """64 hex digits that depend on the parts alone, so that two runs of a scenario have the same ids."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


@dataclass(slots=True)
class Image:
    """One image. `layers` is in order, the lowest first; `tags` and `digests` are full references; `runtime_handlers`
    those that it was pulled for, the default one (empty) first. `created_at`: when it was pulled, wall-clock
    nanoseconds."""

    id: str
    layers: tuple[LayerSpec, ...]
    created_at: int
    pinned: bool = False
    tags: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    runtime_handlers: list[str] = field(default_factory=lambda: [""])

    @property
    def layer_digests(self) -> tuple[str, ...]:
        """The digests of the layers, the lowest first."""
        return tuple(layer.digest for layer in self.layers)

    def item(self, runtime_handler: str, *, pinned: bool) -> cri_pb2.Image:
        """The answer of ListImages and ImageStatus. `size` counts shared layers in full, as in every runtime."""
        return cri_pb2.Image(
            id=self.id,
            repo_tags=self.tags,
            repo_digests=self.digests,
            size=sum(layer.size_bytes for layer in self.layers),
            pinned=self.pinned or pinned,
            spec=cri_pb2.ImageSpec(runtime_handler=runtime_handler) if runtime_handler else None,
        )


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

    def described(self, as_a: Callable[..., _Message]) -> _Message:
        """The entry in ListPodSandbox, or the status in PodSandboxStatus: they have the same fields."""
        return as_a(
            id=self.id,
            metadata=self.config.metadata,
            state=self.state,
            created_at=self.created_at,
            labels=self.config.labels,
            annotations=self.config.annotations,
            runtime_handler=self.runtime_handler,
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
        digests = image.digests if image is not None and dialect.lists_digests else []
        return cri_pb2.Container(
            pod_sandbox_id=self.sandbox_id,
            image=self.config.image,
            image_ref=digests[0] if digests else self.image_id,
            **self._in_both(dialect),
        )

    def status(self, image: Image | None, dialect: Dialect) -> cri_pb2.ContainerStatus:
        """The status in ContainerStatus. `image`: the image of the container, if it still exists."""
        status = cri_pb2.ContainerStatus(
            started_at=self.started_at,
            finished_at=self.finished_at,
            exit_code=self.exit_code,
            image=self.config.image,
            image_ref=image.digests[0] if image is not None and image.digests else self.image_id,
            reason=self.reason,
            mounts=self.config.mounts,
            log_path=self.log_path,
            **self._in_both(dialect),
        )
        if image is not None and image.tags:
            status.image.image = image.tags[0]
        return status

    def _in_both(self, dialect: Dialect) -> dict[str, Any]:
        return {
            "id": self.id,
            "metadata": self.config.metadata,
            "state": self.state,
            "created_at": self.created_at,
            "labels": self.config.labels,
            "annotations": self.config.annotations,
            "image_id": self.image_id if dialect.fills_image_id else "",
        }


def matches(record: Sandbox | Container, wanted: cri_pb2.PodSandboxFilter | cri_pb2.ContainerFilter) -> bool:
    """Whether a record has the state and the labels of a list's filter."""
    labels = record.config.labels
    return (not wanted.HasField("state") or record.state == wanted.state.state) and all(
        labels.get(key) == value for key, value in wanted.label_selector.items()
    )
