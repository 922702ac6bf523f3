"""An embedded runtime with more than a drill needs: calls that make pods, the rules of other
versions and of CRI-O, runtime handlers, artifacts, pins, and ids that are cut short.

A full id names its object, and so does any unique prefix. That makes a careless caller dangerous:
six characters of an id remove a container as surely as all 64 do.

RunPodSandbox and CreateContainer pull nothing: their images must be present.
"""

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from eviction.drill.private_mounts import EmbeddedNodeError
from eviction.drill.runtime import (
    CONTENT,
    Container,
    EmbeddedRuntime,
    Image,
    LayerSpec,
    NotFoundError,
    Record,
    Sandbox,
    copied,
    deterministic_id,
    exited,
)
from reclaim.cri import cri_pb2
from reclaim.evidence.references import normalized, repository_of
from tests.nodes.dialects import CONTAINERD_2, Dialect

IMAGES, CONTAINERS = "overlay-images", "overlay-containers"
ID_CHARACTERS = 64
SANDBOX_IMAGE = "registry.k8s.io/pause:3.10"
Fields = dict[str, Any]
"""Of an answer."""

FULL_NAME = re.compile(r"([^/]*[.:][^/]*|localhost)/[^A-Z@]+(@sha256:[0-9a-f]{64})?|[0-9a-f]{3,64}")


class FullRuntime(EmbeddedRuntime):
    """A runtime with the rules of a dialect. `changes` overrides its fields.

    Each name of an OCI artifact is an image here, whose id is the artifact's and that name.
    `runtime_handlers`: by id of an image those for which it was pulled besides the default one.
    `pulled_at_ns`: by id of an image when it was pulled, in wall-clock nanoseconds.
    """

    def __init__(
        self,
        images_root: str,
        *,
        dialect: Dialect = CONTAINERD_2,
        wall_clock: Callable[[], float] = time.time,
        sandbox_image: str = SANDBOX_IMAGE,
        **options: Any,
    ) -> None:
        changes = {name: options.pop(name) for name in Dialect.__slots__ if name in options}
        super().__init__(images_root, sandbox_image=sandbox_image, **options)
        self.wall_seconds = wall_clock
        self._files_written = 0
        self.dialect = replace(dialect, **changes)
        self.runtime_handlers: dict[str, list[str]] = {}
        self.pulled_at_ns: dict[str, int] = {}
        self._log_directories: dict[str, str] = {}  # by sandbox
        self._pinned: set[str] = set()
        if self.dialect.is_cri_o:
            self.image_id_prefix = ""
            self._reported = [
                f"{root}/{IMAGES if root == images_root else CONTAINERS}" for root in self._reported
            ]
            for path in self._reported:
                os.makedirs(path, exist_ok=True)

    @property
    def dialect(self) -> Dialect:
        """The rules in force."""
        return self._dialect

    @dialect.setter
    def dialect(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.runtime_name, self.runtime_version = dialect.runtime_name, dialect.runtime_version
        self.fills_image_id, self.pins_sandbox_image = (
            dialect.fills_image_id,
            dialect.pins_sandbox_image,
        )
        self.container_space_delay_seconds = dialect.container_space_delay_seconds

    def _find(self, table: Mapping[str, Record], wanted: str, kind: str) -> Record:
        """The object with this id, or the only one whose id begins so, those of images with or
        without "sha256:".

        Raises NotFoundError if there is none, EmbeddedNodeError if `wanted` is
        empty or several ids begin so.
        """
        if kind == "image":
            table = {each.removeprefix("sha256:"): image for each, image in table.items()}
            wanted = wanted.removeprefix("sha256:")
        if wanted in table:
            return table[wanted]
        about = f"an error occurred when try to find {kind} {wanted!r}"
        if not wanted:
            raise EmbeddedNodeError(f"{about}: prefix can't be empty")
        # A full id is no prefix: no search through 50 000 ids for a removed object.
        if len(wanted) == ID_CHARACTERS:
            raise NotFoundError(f"{about}: not found")
        ids = [each for each in table if each.startswith(wanted)]
        if not ids:
            raise NotFoundError(f"{about}: not found")
        if len(ids) > 1:
            raise EmbeddedNodeError(f"{about}: {len(ids)} ids begin so")
        return table[ids[0]]

    def run_pod_sandbox(self, request: cri_pb2.RunPodSandboxRequest) -> Fields:
        """RunPodSandbox. Raises NotFoundError if the sandbox image is absent."""
        config = request.config
        layers = self._layers[self._image_named(self.sandbox_image).id]
        sandbox_id = self._new_id("sandbox")
        self._acquire(sandbox_id, layers)
        self._log_directories[sandbox_id] = config.log_directory
        handler, now = request.runtime_handler, self._now_ns()
        self._sandboxes[sandbox_id] = copied(
            Sandbox, config, id=sandbox_id, runtime_handler=handler, created_at=now
        )
        return {"pod_sandbox_id": sandbox_id}

    def create_container(self, request: cri_pb2.CreateContainerRequest) -> Fields:
        """CreateContainer.

        Raises NotFoundError if the sandbox, the image or an image volume is absent.
        """
        config = request.config
        sandbox = self._sandbox(request.pod_sandbox_id)
        image = self._image_named(config.image.image)
        volumes = [
            self._image_named(mount.image.image) for mount in config.mounts if mount.image.image
        ]
        container_id = self._new_id("container")
        self._make_writable(container_id)
        directory = request.sandbox_config.log_directory or self._log_directories[sandbox.id]
        self._sandbox_of[container_id] = sandbox.id
        layers = [layer for each in (image, *volumes) for layer in self._layers[each.id]]
        self._acquire(container_id, layers)
        self._containers[container_id] = copied(
            Container,
            config,
            id=container_id,
            created_at=self._now_ns(),
            image_ref=image.id,
            image_id=image.id,
            log_path=os.path.join(directory, config.log_path) if config.log_path else "",
        )
        return {"container_id": container_id}

    def start_container(self, request: cri_pb2.StartContainerRequest) -> Fields:
        """StartContainer.

        Raises NotFoundError, or EmbeddedNodeError unless it is CREATED and its sandbox READY.
        """
        container = self._container(request.container_id)
        if container.state != cri_pb2.CONTAINER_CREATED:
            name = cri_pb2.ContainerState.Name(container.state)
            raise EmbeddedNodeError(f"container {container.id!r} is in {name} state")
        sandbox_id = self._sandbox_of[container.id]
        if self._sandboxes[sandbox_id].state != cri_pb2.SANDBOX_READY:
            raise EmbeddedNodeError(f"sandbox container {sandbox_id!r} is not running")
        container.state = cri_pb2.CONTAINER_RUNNING
        container.started_at = self._now_ns()
        return {}

    def status(self, request: cri_pb2.StatusRequest) -> Fields:
        """Status: if verbose, with the configuration as JSON text."""
        config = {"containerdRootDir": self.images_root}
        if self.dialect.reports_sandbox_image:
            config["sandboxImage"] = self.sandbox_image
        info = {"config": json.dumps(config)} if request.verbose else {}
        return {**super().status(request), "info": info}

    def list_images(self, request: cri_pb2.ListImagesRequest) -> Fields:
        """ListImages: each image once for each runtime handler."""
        items = []
        for image in super().list_images(request)["images"]:
            items.append(image)
            for handler in self.runtime_handlers.get(image.id, ()):
                other = cri_pb2.Image(spec=cri_pb2.ImageSpec(runtime_handler=handler))
                other.MergeFrom(image)
                items.append(other)
        return {"images": items}

    def remove_image(self, request: cri_pb2.RemoveImageRequest) -> None:
        """RemoveImage. Raises EmbeddedNodeError if the dialect refuses."""
        image = self._image_named(request.image.image)
        self._require_free_space("images.json")
        tag = normalized(request.image.image)
        if self.dialect.is_cri_o and tag in image.repo_tags and len(image.repo_tags) > 1:
            image.repo_tags.remove(tag)
        # no artifact is removed by its id
        elif not image.id.startswith(f"{request.image.image} "):
            self._refuse_in_use(image)
            self._drop_image(image)

    def add_image(
        self,
        tags: Sequence[str],
        layers: Sequence[LayerSpec],
        pinned: bool = False,
        is_artifact: bool = False,
    ) -> str:
        """Pulls an image, or an artifact, which gets one tag."""
        if not is_artifact:
            known = set(self._images)
            image_id = super().add_image(tags, layers)
            with self._lock:
                if image_id not in known:
                    self._pinned.discard(image_id)
                    self.pulled_at_ns[image_id] = self._now_ns()
                if pinned:
                    self._pinned.add(image_id)
            return image_id
        (name,) = map(normalized, tags)
        digits = deterministic_id("artifact", *[layer.digits for layer in layers])
        digest = f"{repository_of(name)}@sha256:{digits}"
        size = sum(layer.size_bytes for layer in layers)
        entry = Image(id=f"{digits} {name}", repo_tags=[name], repo_digests=[digest], size=size)
        with self._lock:
            self._acquire(entry.id, layers)
            self._images[entry.id] = entry
            self.pulled_at_ns[entry.id] = self._now_ns()
            if pinned:
                self._pinned.add(entry.id)
        return digits

    def age(self, object_id: str, seconds: float) -> None:
        """Moves all times of an object into the past. Those of images are in containerd's image
        store only, not in CRI."""
        if object_id in self._images:
            with self._lock:
                self.pulled_at_ns[object_id] -= round(seconds * 1e9)
        else:
            with self._lock:
                record = self._sandboxes.get(object_id) or self._container(object_id)
                for name in ("created_at", "started_at", "finished_at"):
                    if at := getattr(record, name, 0):
                        setattr(record, name, at - round(seconds * 1e9))

    def exit_container(self, container_id: str, exit_code: int = 0) -> None:
        """The container's process exits by itself.

        Raises EmbeddedNodeError unless it is RUNNING or UNKNOWN.
        """
        with self._lock:
            container = self._container(container_id)
            if container.state not in (
                cri_pb2.CONTAINER_RUNNING,
                cri_pb2.CONTAINER_UNKNOWN,
            ):
                raise EmbeddedNodeError(f"container {container_id} has no process that could exit")
            container.MergeFrom(Container(**exited(exit_code, self._now_ns())))

    def lose_container(self, container_id: str) -> None:
        """Makes the container UNKNOWN, as if its shim was lost."""
        with self._lock:
            self._container(container_id).state = cri_pb2.CONTAINER_UNKNOWN

    def kill_sandbox(self, sandbox_id: str) -> None:
        """Makes the sandbox NOTREADY alone, which can happen on a real runtime."""
        with self._lock:
            self._sandbox(sandbox_id).state = cri_pb2.SANDBOX_NOTREADY

    def reboot(self) -> None:
        """After this every sandbox is NOTREADY, every container that ran has EXITED with 255."""
        with self._lock:
            for sandbox in self._sandboxes.values():
                sandbox.state = cri_pb2.SANDBOX_NOTREADY
            for container in self._containers.values():
                if container.state in (cri_pb2.CONTAINER_RUNNING, cri_pb2.CONTAINER_UNKNOWN):
                    container.MergeFrom(Container(**exited(255, self._now_ns())))

    def write_to_container(self, container_id: str, size_bytes: int) -> int:
        """The container writes a new file of `size_bytes`. Returns the bytes that fitted: fewer if
        the filesystem is full."""
        layer, fitted = self.writable_layer(container_id), 0
        with self._lock, suppress(OSError):
            self._files_written += 1
            with open(f"{layer}/{self._files_written:06}", "xb", buffering=0) as file:
                while fitted < size_bytes:
                    fitted += file.write(CONTENT[: size_bytes - fitted])
        self._count(layer)
        return fitted

    def tag_image(self, image_id: str, tag: str) -> None:
        """Adds a tag to an image. An image that had the tag loses it."""
        with self._lock:
            self._tag(self._image_named(image_id), normalized(tag))

    def _tag(self, image: Image, tag: str) -> None:
        for other in self._images.values():
            if tag in other.repo_tags:
                other.repo_tags.remove(tag)
        super()._tag(image, tag)

    def _now_ns(self) -> int:
        return round(self.wall_seconds() * 1e9)

    def _described(self, as_a: Any, container: Container, **others: str) -> Any:
        answer, image = (
            super()._described(as_a, container, **others),
            self._images.get(container.image_id),
        )
        if self.dialect.is_cri_o and image is not None and image.repo_digests:
            answer.image_ref = image.repo_digests[0]
        return answer

    def _image_named(self, wanted: str) -> Image:
        entries = [
            image
            for image_id, image in self._images.items()
            if image_id.partition(" ")[0] == wanted
        ]
        if len(entries) == 1:
            return entries[0]
        if self.dialect.is_cri_o and not FULL_NAME.fullmatch(wanted):
            raise EmbeddedNodeError(f"short-name {wanted!r} did not resolve to an alias")
        return super()._image_named(wanted)

    def _image_item(self, image: Image) -> cri_pb2.Image:
        answer = super()._image_item(image)
        answer.id = image.id.partition(" ")[0]
        answer.pinned |= image.id in self._pinned
        return answer

    def _require_free_space(self, file: str) -> None:
        """Raises EmbeddedNodeError on a full disk if the runtime writes its new list beside the old
        one before it deletes."""
        if not self.dialect.is_cri_o:
            return
        found = os.statvfs(self.images_root)
        if found.f_bavail == 0 or (found.f_files and found.f_favail == 0):
            raise EmbeddedNodeError(f"open {self.images_root}/.tmp-{file}: no space left on device")

    def _refuse_in_use(self, image: Image) -> None:
        users = [each.id for each in self._containers.values() if each.image_id == image.id]
        if users and self.dialect.is_cri_o:
            raise EmbeddedNodeError(f"image used by {users[0]}: image is in use by a container")

    def _drop_image(self, image: Image) -> None:
        del self._images[image.id]
        self._removed("image", image.id, self.dialect.image_space_delay_seconds)

    def _drop_container(self, container: Container) -> None:
        self._require_free_space("containers.json")
        super()._drop_container(container)

    def _drop_sandbox(self, sandbox: Sandbox) -> None:
        self._require_free_space("containers.json")
        super()._drop_sandbox(sandbox)
