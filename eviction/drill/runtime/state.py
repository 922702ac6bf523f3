"""The state of the embedded runtime: its images, sandboxes and containers, and changes to them without a CRI call.

Covers: pulls, containers that exit or write, sandboxes that die, ageing, a reboot; when the space of a removed object
is freed; and the record of what was really removed.

Does not cover: the CRI calls. They are in `runtime`, on the same tables and under the same lock. A method here takes
full ids only and raises EmbeddedNodeError for an unknown id: its caller is a scenario or a test, where a mistyped id
must not pass for an idempotent call.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from eviction.drill.runtime.dead_containers import dead_containers
from eviction.drill.runtime.dialects import CONTAINERD_2, Dialect
from eviction.drill.runtime.id_lookup import deterministic_id, normalize_reference
from eviction.drill.runtime.image_table import Image, ImageTable, image_id_of
from eviction.drill.runtime.layer_store import LayerSpec, LayerStore, even_parts
from eviction.drill.runtime.pod_records import Container, Sandbox
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from reclaim.cri import cri_pb2

DEFAULT_SANDBOX_IMAGE = "registry.k8s.io/pause:3.10"
"""The default image of RunPodSandbox. The node starts without images, so add it first."""

_LIVE = (cri_pb2.CONTAINER_RUNNING, cri_pb2.CONTAINER_UNKNOWN)
_KILLED = 137  # 128 + SIGKILL
_WRITE_BYTES = 1 << 20  # written in one go under the lock: little enough that list calls do not wait for a large write

_log = logging.getLogger(__name__)


class RemovalRecord(NamedTuple):
    """One object that was really removed, and when, in wall-clock seconds."""

    wall_seconds: float
    kind: Literal["container", "sandbox", "image"]
    id: str


class RuntimeState:
    """The tables of the runtime and their layers on disk. Thread-safe. See `EmbeddedRuntime` for the options."""

    def __init__(
        self,
        images_root: str,
        *,
        containers_root: str = "",
        wall_clock: Callable[[], float] = time.time,
        sandbox_image: str = DEFAULT_SANDBOX_IMAGE,
        dialect: Dialect = CONTAINERD_2,
    ) -> None:
        self.sandbox_image = normalize_reference(sandbox_image)
        self.dialect = dialect
        self._store = LayerStore(images_root, containers_root)
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._pulling = threading.Lock()
        self._images = ImageTable()
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, Container] = {}
        self._removals: list[RemovalRecord] = []
        self._removed_but_not_freed: list[tuple[str, tuple[str, ...]]] = []
        self._gc_timer: threading.Timer | None = None
        self._made = 0

    @property
    def removals(self) -> tuple[RemovalRecord, ...]:
        """Every object that was really removed, in order. Calls that found nothing to remove are not in it."""
        with self._lock:
            return tuple(self._removals)

    @property
    def images_root(self) -> str:
        """The directory on the filesystem of images."""
        return self._store.images_root

    def wall_seconds(self) -> float:
        """What its clock says, in seconds since the epoch."""
        return self._wall_clock()

    def add_image(self, tags: Sequence[str], layers: Sequence[LayerSpec], pinned: bool = False) -> str:
        """Pulls an image: writes the layers that are not here yet, then lists it. Returns its id (64 hex digits, in
        most dialects with "sha256:" before them).

        Images are pulled one after the other, as with the kubelet's serializeImagePulls; other calls run meanwhile. The
        same tags and layers give the same id. Raises EmbeddedNodeError if it does not fit, and leaves nothing behind.
        """
        image_id = image_id_of(tags, layers, bare=self.dialect.bare_image_ids)
        with self._pulling:
            with self._lock:
                if self._images.get(image_id) is not None:
                    self._images.put(image_id, tags, layers, pinned=pinned)
                    return image_id
            acquired: list[str] = []
            try:
                for layer in layers:
                    self._pull(layer)
                    acquired.append(layer.digest)
            except EmbeddedNodeError:
                with self._lock:
                    self._store.release(acquired)
                raise
            with self._lock:
                self._images.put(image_id, tags, layers, pinned=pinned).created_at = self._wall_clock()
        return image_id

    def tag_image(self, image_id: str, tag: str) -> None:
        """Gives an image one more tag. An image that had the tag loses it."""
        with self._lock:
            if (image := self._images.get(image_id)) is None:
                raise EmbeddedNodeError(f"there is no image with the full id {image_id!r}")
            self._images.put(image_id, [tag], image.layers, pinned=image.pinned)

    def pull_for_handler(self, image_id: str, runtime_handler: str) -> None:
        """Pulls an image for one more runtime handler. Its layers are here, so nothing is written."""
        with self._lock:
            if (image := self._images.get(image_id)) is None:
                raise EmbeddedNodeError(f"there is no image with the full id {image_id!r}")
            image.runtime_handlers.append(runtime_handler)

    def exit_container(self, container_id: str, exit_code: int = 0) -> None:
        """The process of the container ends by itself. Raises EmbeddedNodeError if it is not RUNNING or UNKNOWN."""
        with self._lock:
            container = self._container(container_id)
            if container.state not in _LIVE:
                raise EmbeddedNodeError(f"container {container_id} has no process that could exit")
            container.finish(exit_code, "Completed" if exit_code == 0 else "Error", self._now_ns())

    def lose_container(self, container_id: str) -> None:
        """Makes the container UNKNOWN, as after the loss of its shim."""
        with self._lock:
            self._container(container_id).state = cri_pb2.CONTAINER_UNKNOWN

    def add_dead_containers(self, sandbox_id: str, count: int, image_id: str, age_seconds: float) -> list[str]:
        """Adds `count` containers to a sandbox that exited `age_seconds` ago: in the lists only, without files. Returns
        their ids."""
        with self._lock:
            died_at = self._now_ns() - round(age_seconds * 1e9)
            made = {each.id: each for each in dead_containers(self._sandbox(sandbox_id), count, image_id, died_at)}
            self._containers.update(made)
        return list(made)

    def kill_sandbox(self, sandbox_id: str) -> None:
        """Makes the sandbox NOTREADY. Its containers stay as they are, which can happen on a real runtime too."""
        with self._lock:
            self._sandbox(sandbox_id).ready = False

    def write_to_container(self, container_id: str, size_bytes: int, files: int = 1) -> int:
        """The container writes `files` new files with `size_bytes` together. Returns the number of bytes that fitted.

        It is fewer than asked if the filesystem is full, or if the container was removed meanwhile.
        """
        with self._lock:
            container = self._container(container_id)
        written = 0
        for part in even_parts(size_bytes, files):
            with self._lock:
                container.files_written += 1
                name = f"data-{container.files_written:06d}"
            left = part
            while True:  # at least once: a file without bytes still takes its inode
                chunk = min(left, _WRITE_BYTES)
                with self._lock:
                    if container_id not in self._containers:
                        return written
                    fitted = self._store.append(container_id, name, chunk)
                written += fitted
                left -= fitted
                if fitted < chunk:
                    return written
                if left == 0:
                    break
        return written

    def age(self, object_id: str, seconds: float) -> None:
        """Moves all times of an object into the past; of an image that in containerd's image store, as CRI has none."""
        nanoseconds = round(seconds * 1e9)
        with self._lock:
            image = self._images.get(object_id)
            if image is not None:
                image.created_at -= seconds
                return
            if object_id in self._sandboxes:
                self._sandboxes[object_id].created_at -= nanoseconds
                return
            container = self._container(object_id)
            container.created_at -= nanoseconds
            container.started_at -= nanoseconds if container.started_at else 0
            container.finished_at -= nanoseconds if container.finished_at else 0

    def images_created_at(self) -> dict[str, float]:
        """When each image was pulled, wall seconds by id: what containerd's image store tells."""
        with self._lock:
            return {image.id: image.created_at for image in self._images}

    def reboot(self) -> None:
        """What a runtime finds after a reboot: every sandbox NOTREADY, every container that ran EXITED with 255."""
        with self._lock:
            for sandbox in self._sandboxes.values():
                sandbox.ready = False
            for container in self._containers.values():
                if container.state in _LIVE:
                    container.finish(255, "Unknown", self._now_ns())

    def force_gc(self) -> None:
        """Frees now what would be freed later, and waits for the thread that would have done it."""
        with self._lock:
            self._collect_garbage()
            timer = self._gc_timer
        if timer is not None:
            timer.join()

    def _container(self, container_id: str) -> Container:
        if container_id not in self._containers:
            raise EmbeddedNodeError(f"there is no container with the full id {container_id!r}")
        return self._containers[container_id]

    def _sandbox(self, sandbox_id: str) -> Sandbox:
        if sandbox_id not in self._sandboxes:
            raise EmbeddedNodeError(f"there is no sandbox with the full id {sandbox_id!r}")
        return self._sandboxes[sandbox_id]

    def _now_ns(self) -> int:
        return round(self._wall_clock() * 1e9)

    def _new_id(self, kind: str) -> str:
        self._made += 1
        return deterministic_id(kind, self._made)

    def _pull(self, layer: LayerSpec) -> None:
        with self._lock:
            if self._store.acquire(layer.digest):
                return
        # Outside the lock: only pulls make layers, and `_pulling` lets one through at a time.
        self._store.unpack(layer)
        with self._lock:
            self._store.commit(layer)

    def _stop(self, container: Container) -> None:
        if container.state in _LIVE:
            container.finish(_KILLED, "Error", self._now_ns())

    def _drop_image(self, image: Image) -> None:
        self._images.drop(image)
        self._removals.append(RemovalRecord(self._wall_clock(), "image", image.id))
        if self.dialect.image_space_delay_seconds > 0:
            self._free_later(image.id, image.layer_digests, self.dialect.image_space_delay_seconds)
            return
        self._collect_garbage()  # RemoveImage is the one call that waits for the runtime's garbage collection
        self._store.release(image.layer_digests)

    def _drop_container(self, container: Container) -> None:
        self._stop(container)
        del self._containers[container.id]
        self._removals.append(RemovalRecord(self._wall_clock(), "container", container.id))
        self._free_later(container.id, container.layers, self.dialect.container_space_delay_seconds)

    def _drop_sandbox(self, sandbox: Sandbox) -> None:
        for container in [each for each in self._containers.values() if each.sandbox_id == sandbox.id]:
            self._drop_container(container)
        del self._sandboxes[sandbox.id]
        self._removals.append(RemovalRecord(self._wall_clock(), "sandbox", sandbox.id))
        self._free_later(sandbox.id, sandbox.layers, self.dialect.container_space_delay_seconds)

    def _free_later(self, object_id: str, layers: tuple[str, ...], delay_seconds: float) -> None:
        """Frees the space of a removed object: at once, or by one timer for all of them after the delay."""
        first = not self._removed_but_not_freed
        self._removed_but_not_freed.append((object_id, layers))
        if delay_seconds <= 0:
            self._collect_garbage()
        elif first:
            self._gc_timer = threading.Timer(delay_seconds, self._collect_garbage_later)
            self._gc_timer.daemon = True
            self._gc_timer.start()

    def _collect_garbage_later(self) -> None:
        with self._lock:
            try:
                self._collect_garbage()
            except EmbeddedNodeError as error:
                _log.warning("the embedded runtime could not free space: %s", error)

    def _collect_garbage(self) -> None:
        if self._gc_timer is not None:
            self._gc_timer.cancel()
        while self._removed_but_not_freed:
            object_id, layers = self._removed_but_not_freed.pop()
            self._store.remove_writable(object_id)  # a sandbox or an image has none
            self._store.release(layers)
