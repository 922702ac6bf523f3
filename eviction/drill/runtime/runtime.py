"""A CRI v1 runtime as a state machine: one method for each call, messages in and messages out, without gRPC.

It is a second implementation of the protocol. Its rules are containerd's, as measured on 1.6 and 2.x. The dialect
decides where versions and runtimes differ (`dialects`); otherwise these rules hold:

* Nothing is protected. RemoveImage of an image in use succeeds, and its layers are freed with the last container that
  uses them. RemoveContainer of a RUNNING container kills it.
* A unique prefix of an id is accepted in place of the id.
* Stopping and removing an absent object succeeds. ContainerStatus and PodSandboxStatus of it are NOT_FOUND, and
  ImageStatus of it is an answer without an image.
* RemoveImage by any name removes the image with all its names.
* RunPodSandbox and CreateContainer need their images to be present: nothing is pulled.

A method raises NotFoundError for NOT_FOUND, and EmbeddedNodeError for every other error, which containerd answers with
UNKNOWN. Source: github.com/containerd/containerd internal/cri/server.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from eviction.drill.runtime.dialects import CONTAINERD_2, Dialect
from eviction.drill.runtime.id_lookup import find, find_or_keep, find_or_none
from eviction.drill.runtime.image_table import Image
from eviction.drill.runtime.pod_records import Container, Sandbox
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.runtime.state import DEFAULT_SANDBOX_IMAGE, RuntimeState
from reclaim.cri import cri_pb2


class EmbeddedRuntime(RuntimeState):
    """The runtime of an embedded node. Thread-safe.

    `images_root` and `containers_root` (empty: the same): directories on the filesystems under test. `wall_clock`
    returns seconds since the epoch. `changes`: fields of the dialect with other values.
    """

    def __init__(
        self,
        images_root: str,
        *,
        containers_root: str = "",
        wall_clock: Callable[[], float] = time.time,
        sandbox_image: str = DEFAULT_SANDBOX_IMAGE,
        dialect: Dialect = CONTAINERD_2,
        **changes: Any,
    ) -> None:
        super().__init__(
            images_root,
            containers_root=containers_root,
            wall_clock=wall_clock,
            sandbox_image=sandbox_image,
            dialect=replace(dialect, **changes),
        )

    def version(self, _: cri_pb2.VersionRequest) -> cri_pb2.VersionResponse:
        """Version."""
        return cri_pb2.VersionResponse(
            version="0.1.0",
            runtime_name=self.dialect.runtime_name,
            runtime_version=self.dialect.runtime_version,
            runtime_api_version="v1",
        )

    def status(self, request: cri_pb2.StatusRequest) -> cri_pb2.StatusResponse:
        """Status: always ready; verbose, with the configuration as JSON text under the key "config"."""
        conditions = [cri_pb2.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")]
        config = {"containerdRootDir": self._store.images_root}
        if self.dialect.reports_sandbox_image:
            config["sandboxImage"] = self.sandbox_image
        return cri_pb2.StatusResponse(
            status=cri_pb2.RuntimeStatus(conditions=conditions),
            info={"config": json.dumps(config)} if request.verbose else {},
        )

    def list_containers(self, request: cri_pb2.ListContainersRequest) -> cri_pb2.ListContainersResponse:
        """ListContainers: by id, state, sandbox and labels; all given fields must match."""
        wanted = request.filter
        with self._lock:
            full_id = find_or_keep(self._containers, wanted.id)
            full_sandbox_id = find_or_keep(self._sandboxes, wanted.pod_sandbox_id)
            taken = [each for each in self._containers.values() if each.matches(wanted, full_id, full_sandbox_id)]
            items = [each.item(self._images.get(each.image_id), self.dialect) for each in taken]
        return cri_pb2.ListContainersResponse(containers=items)

    def container_status(self, request: cri_pb2.ContainerStatusRequest) -> cri_pb2.ContainerStatusResponse:
        """ContainerStatus. Raises NotFoundError."""
        with self._lock:
            container = self._containers[find(self._containers, request.container_id, "container")]
            status = container.status(self._images.get(container.image_id), self.dialect)
        return cri_pb2.ContainerStatusResponse(status=status)

    def list_container_stats(self, _: cri_pb2.ListContainerStatsRequest) -> cri_pb2.ListContainerStatsResponse:
        """ListContainerStats: writable layers only, of every container."""
        with self._lock:
            written = self._store.writable_usage()
        stats = [
            cri_pb2.ContainerStats(
                attributes=cri_pb2.ContainerAttributes(id=container_id),
                writable_layer=cri_pb2.FilesystemUsage(used_bytes=cri_pb2.UInt64Value(value=used.bytes)),
            )
            for container_id, used in written.items()
        ]
        return cri_pb2.ListContainerStatsResponse(stats=stats)

    def stop_container(self, request: cri_pb2.StopContainerRequest) -> cri_pb2.StopContainerResponse:
        """StopContainer: the process ends at once, whatever the timeout."""
        with self._lock:
            if (container := find_or_none(self._containers, request.container_id, "container")) is not None:
                self._stop(container)
        return cri_pb2.StopContainerResponse()

    def remove_container(self, request: cri_pb2.RemoveContainerRequest) -> cri_pb2.RemoveContainerResponse:
        """RemoveContainer, whatever its state."""
        with self._lock:
            if (container := find_or_none(self._containers, request.container_id, "container")) is not None:
                self._require_free_space("containers.json")
                self._drop_container(container)
        return cri_pb2.RemoveContainerResponse()

    def list_pod_sandbox(self, request: cri_pb2.ListPodSandboxRequest) -> cri_pb2.ListPodSandboxResponse:
        """ListPodSandbox: by id, state and labels; all given fields must match."""
        with self._lock:
            full_id = find_or_keep(self._sandboxes, request.filter.id)
            items = [each.item() for each in self._sandboxes.values() if each.matches(request.filter, full_id)]
        return cri_pb2.ListPodSandboxResponse(items=items)

    def pod_sandbox_status(self, request: cri_pb2.PodSandboxStatusRequest) -> cri_pb2.PodSandboxStatusResponse:
        """PodSandboxStatus; verbose, with its image in JSON text under the key "info". Raises NotFoundError."""
        with self._lock:
            sandbox = self._sandboxes[find(self._sandboxes, request.pod_sandbox_id, "sandbox")]
            status = sandbox.status()
        details = {"runtimeHandler": sandbox.runtime_handler}
        if self.dialect.reports_sandbox_image:
            details["image"] = sandbox.image
        info = {"info": json.dumps(details)} if request.verbose else {}
        return cri_pb2.PodSandboxStatusResponse(status=status, info=info)

    def stop_pod_sandbox(self, request: cri_pb2.StopPodSandboxRequest) -> cri_pb2.StopPodSandboxResponse:
        """StopPodSandbox: its containers exit, and it is NOTREADY."""
        with self._lock:
            if (sandbox := find_or_none(self._sandboxes, request.pod_sandbox_id, "sandbox")) is not None:
                sandbox.ready = False
                for container in self._containers.values():
                    if container.sandbox_id == sandbox.id:
                        self._stop(container)
        return cri_pb2.StopPodSandboxResponse()

    def remove_pod_sandbox(self, request: cri_pb2.RemovePodSandboxRequest) -> cri_pb2.RemovePodSandboxResponse:
        """RemovePodSandbox: with all its containers, whatever their state."""
        with self._lock:
            if (sandbox := find_or_none(self._sandboxes, request.pod_sandbox_id, "sandbox")) is not None:
                self._require_free_space("containers.json")
                self._drop_sandbox(sandbox)
        return cri_pb2.RemovePodSandboxResponse()

    def run_pod_sandbox(self, request: cri_pb2.RunPodSandboxRequest) -> cri_pb2.RunPodSandboxResponse:
        """RunPodSandbox. Raises NotFoundError if the sandbox image is absent."""
        with self._lock:
            layers = self._acquire_layers(self._images.resolve(self.sandbox_image))
            sandbox_id, handler = self._new_id("sandbox"), request.runtime_handler
            self._sandboxes[sandbox_id] = Sandbox(
                sandbox_id, request.config, handler, self.sandbox_image, layers, self._now_ns()
            )
        return cri_pb2.RunPodSandboxResponse(pod_sandbox_id=sandbox_id)

    def create_container(self, request: cri_pb2.CreateContainerRequest) -> cri_pb2.CreateContainerResponse:
        """CreateContainer. Raises NotFoundError if the sandbox, the image or the image of a volume is absent."""
        config = request.config
        with self._lock:
            sandbox = self._sandboxes[find(self._sandboxes, request.pod_sandbox_id, "sandbox")]
            image = self._images.resolve(config.image.image)
            volumes = [self._images.resolve(mount.image.image) for mount in config.mounts if mount.image.image]
            container_id = self._new_id("container")
            self._store.make_writable(container_id)
            directory = request.sandbox_config.log_directory or sandbox.config.log_directory
            self._containers[container_id] = Container(
                id=container_id,
                sandbox_id=sandbox.id,
                config=config,
                image_id=image.id,
                layers=self._acquire_layers(image, *volumes),
                log_path=os.path.join(directory, config.log_path) if config.log_path else "",
                created_at=self._now_ns(),
            )
        return cri_pb2.CreateContainerResponse(container_id=container_id)

    def start_container(self, request: cri_pb2.StartContainerRequest) -> cri_pb2.StartContainerResponse:
        """StartContainer. Raises NotFoundError; EmbeddedNodeError unless it is CREATED and its sandbox READY."""
        with self._lock:
            container = self._containers[find(self._containers, request.container_id, "container")]
            if container.state != cri_pb2.CONTAINER_CREATED:
                name = cri_pb2.ContainerState.Name(container.state)
                raise EmbeddedNodeError(f"container {container.id!r} is in {name} state")
            if not self._sandboxes[container.sandbox_id].ready:
                raise EmbeddedNodeError(f"sandbox container {container.sandbox_id!r} is not running")
            container.state = cri_pb2.CONTAINER_RUNNING
            container.started_at = self._now_ns()
        return cri_pb2.StartContainerResponse()

    def list_images(self, request: cri_pb2.ListImagesRequest) -> cri_pb2.ListImagesResponse:
        """ListImages: all, or the one that the filter's image names."""
        with self._lock:
            if request.filter.image.image:
                named = self._images.resolve_or_none(request.filter.image.image)
                images = [] if named is None else [named]
            else:
                images = list(self._images)
            items = [self._image_item(image, handler) for image in images for handler in image.runtime_handlers]
        return cri_pb2.ListImagesResponse(images=items)

    def image_status(self, request: cri_pb2.ImageStatusRequest) -> cri_pb2.ImageStatusResponse:
        """ImageStatus: an answer without an image if there is none of that name."""
        with self._lock:
            image = self._images.resolve_or_none(request.image.image)
            return cri_pb2.ImageStatusResponse(image=None if image is None else self._image_item(image))

    def remove_image(self, request: cri_pb2.RemoveImageRequest) -> cri_pb2.RemoveImageResponse:
        """RemoveImage: the image with all its names, even if it is pinned. Raises EmbeddedNodeError if the
        dialect refuses."""
        with self._lock:
            image = self._images.resolve_or_none(request.image.image)
            if image is not None:
                self._require_free_space("images.json")
                if not (self.dialect.name_only_untags and self._images.untag(image, request.image.image)):
                    self._refuse_in_use(image)
                    self._drop_image(image)
        return cri_pb2.RemoveImageResponse()

    def image_fs_info(self, _: cri_pb2.ImageFsInfoRequest) -> cri_pb2.ImageFsInfoResponse:
        """ImageFsInfo: one filesystem for images, and one for containers, which is the same if the roots are."""
        now = self._now_ns()
        with self._lock:
            usages = {
                root: cri_pb2.FilesystemUsage(
                    timestamp=now,
                    fs_id=cri_pb2.FilesystemIdentifier(mountpoint=root),
                    used_bytes=cri_pb2.UInt64Value(value=used.bytes),
                    inodes_used=cri_pb2.UInt64Value(value=used.inodes),
                )
                for root, used in self._store.usage().items()
            }
        return cri_pb2.ImageFsInfoResponse(
            image_filesystems=[usages[self._store.images_root]],
            container_filesystems=[usages[self._store.containers_root]],
        )

    def _refuse_in_use(self, image: Image) -> None:
        users = [each.id for each in self._containers.values() if each.image_id == image.id]
        if users and self.dialect.refuses_image_in_use:
            raise EmbeddedNodeError(f"image used by {users[0]}: image is in use by a container")

    def _require_free_space(self, file: str) -> None:
        """Raises EmbeddedNodeError on a full disk: the runtime writes its new list beside the old one before it
        deletes."""
        if not self.dialect.needs_room_to_delete:
            return
        found = os.statvfs(self._store.images_root)
        if found.f_bavail == 0 or (found.f_files and found.f_favail == 0):
            raise EmbeddedNodeError(f"open {self._store.images_root}/.tmp-{file}: no space left on device")

    def _image_item(self, image: Image, runtime_handler: str = "") -> cri_pb2.Image:
        pinned = self.dialect.pins_sandbox_image and self.sandbox_image in image.tags
        return image.item(pinned=pinned, runtime_handler=runtime_handler)

    def _acquire_layers(self, *images: Image) -> tuple[str, ...]:
        digests = tuple(digest for image in images for digest in image.layer_digests)
        for digest in digests:
            self._store.acquire(digest)
        return digests
