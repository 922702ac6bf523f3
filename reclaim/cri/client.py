"""Client of CRI v1: the calls that reclaimd needs, with values of `reclaim.types` and `reclaim.services`.

Source of the wire format: `cri.proto` beside this file. The public methods return no message types.

Covers: requests and what is taken from the responses. Does not cover: sockets, deadlines and errors (`calls`).
"""

from __future__ import annotations

from reclaim.cri.calls import IMAGE_SERVICE, READ_DEADLINE_SECONDS, RUNTIME_SERVICE, STOP_DEADLINE_SECONDS, CriCalls
from reclaim.cri.convert import (
    UID_LABEL,
    container_of,
    container_status_of,
    each_once,
    image_of,
    pod_sandbox_status_of,
    sandbox_of,
    text_in_json,
)
from reclaim.cri.entry_cache import EntryCache
from reclaim.cri.messages import pb
from reclaim.services import NO_STATUS, ContainerStatus, ImageFsInfo, PodSandboxStatus, RuntimeVersion
from reclaim.types import NEVER, Container, Image, PodSandbox, RuntimeUnavailable


class CriClient(CriCalls):
    """RuntimeService and ImageService of a container runtime, over one or two sockets.

    The first call connects. All methods may be called from any thread. Reads raise RuntimeUnavailable, removals
    RemovalFailed.
    """

    def __init__(
        self,
        runtime_endpoint: str,
        image_endpoint: str = "",
        read_deadline_seconds: float = READ_DEADLINE_SECONDS,
    ):
        super().__init__(runtime_endpoint, image_endpoint, read_deadline_seconds)
        self._containers = EntryCache(lambda entry: container_of(pb.Container.FromString(entry)))
        self._pod_sandboxes = EntryCache(lambda entry: sandbox_of(pb.PodSandbox.FromString(entry)))
        self._images = EntryCache(lambda entry: image_of(pb.Image.FromString(entry)))

    # ---- RuntimeService

    def version(self) -> RuntimeVersion:
        """Name and version of the runtime."""
        answer = self._read(RUNTIME_SERVICE + "Version", pb.VersionRequest(), pb.VersionResponse)
        return RuntimeVersion(answer.runtime_name, answer.runtime_version)

    def sandbox_image(self) -> str | None:
        """The configured sandbox image: key `sandboxImage` of the verbose status (containerd)."""
        answer = self._read(RUNTIME_SERVICE + "Status", pb.StatusRequest(verbose=True), pb.StatusResponse)
        return text_in_json(answer.info, "config", "sandboxImage")

    def list_containers(self, *, sandbox_id: str = "", pod_uid: str = "") -> tuple[Container, ...]:
        """All containers, or only those of one sandbox (by its whole id) or one pod."""
        labels = {UID_LABEL: pod_uid} if pod_uid else {}
        wanted = pb.ContainerFilter(pod_sandbox_id=sandbox_id, label_selector=labels)
        request = pb.ListContainersRequest(filter=wanted)
        whole = not sandbox_id and not pod_uid
        listed = self._list(
            RUNTIME_SERVICE + "ListContainers", "StreamContainers", request, self._containers, whole=whole
        )
        return each_once(listed, "a container")

    def list_pod_sandboxes(self) -> tuple[PodSandbox, ...]:
        """All sandboxes."""
        request = pb.ListPodSandboxRequest()
        listed = self._list(RUNTIME_SERVICE + "ListPodSandbox", "StreamPodSandboxes", request, self._pod_sandboxes)
        return each_once(listed, "a sandbox")

    def pod_sandbox_status(self, sandbox_id: str) -> PodSandboxStatus | None:
        """The sandbox as it is now; None when NOT_FOUND or when the answer is about another sandbox."""
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        answer = self._find(RUNTIME_SERVICE + "PodSandboxStatus", request, pb.PodSandboxStatusResponse)
        if answer is None:
            return None
        if not answer.status.id:
            raise RuntimeUnavailable(f"{self.endpoint}: PodSandboxStatus was answered without a status")
        return pod_sandbox_status_of(answer.status) if answer.status.id == sandbox_id else None

    def container_status(self, container_id: str) -> ContainerStatus | None:
        """The container as it is now; None when NOT_FOUND, NO_STATUS when the answer contains no status."""
        request = pb.ContainerStatusRequest(container_id=container_id)
        answer = self._find(RUNTIME_SERVICE + "ContainerStatus", request, pb.ContainerStatusResponse)
        if answer is None:
            return None
        return container_status_of(answer.status) if answer.HasField("status") else NO_STATUS

    def image_of_sandbox(self, sandbox_id: str, within_seconds: float = NEVER) -> str | None:
        """The image in the sandbox's verbose status, at `info.image` (containerd); None when NOT_FOUND or not there."""
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=True)
        answer = self._find(RUNTIME_SERVICE + "PodSandboxStatus", request, pb.PodSandboxStatusResponse, within_seconds)
        return None if answer is None else text_in_json(answer.info, "info", "image")

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """StopContainer, within the grace period and 2 minutes more."""
        request = pb.StopContainerRequest(container_id=container_id, timeout=grace_seconds)
        deadline = grace_seconds + STOP_DEADLINE_SECONDS
        self._remove(RUNTIME_SERVICE + "StopContainer", request, pb.StopContainerResponse, deadline)

    def remove_container(self, container_id: str) -> bool:
        """RemoveContainer, without a deadline."""
        request = pb.RemoveContainerRequest(container_id=container_id)
        return self._remove(RUNTIME_SERVICE + "RemoveContainer", request, pb.RemoveContainerResponse)

    def stop_pod_sandbox(self, sandbox_id: str) -> None:
        """StopPodSandbox, within 2 minutes."""
        request = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        method = RUNTIME_SERVICE + "StopPodSandbox"
        self._remove(method, request, pb.StopPodSandboxResponse, STOP_DEADLINE_SECONDS)

    def remove_pod_sandbox(self, sandbox_id: str) -> bool:
        """RemovePodSandbox, without a deadline."""
        request = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        return self._remove(RUNTIME_SERVICE + "RemovePodSandbox", request, pb.RemovePodSandboxResponse)

    def writable_layers(self) -> dict[str, int]:
        """Bytes of writable layers by container id, from ListContainerStats."""
        request = pb.ListContainerStatsRequest()
        answer = self._read(RUNTIME_SERVICE + "ListContainerStats", request, pb.ListContainerStatsResponse)
        known = (stats for stats in answer.stats if stats.writable_layer.HasField("used_bytes"))
        return {stats.attributes.id: stats.writable_layer.used_bytes.value for stats in known}

    # ---- ImageService

    def list_images(self) -> tuple[Image, ...]:
        """All images."""
        return tuple(self._list(IMAGE_SERVICE + "ListImages", "StreamImages", pb.ListImagesRequest(), self._images))

    def image_status(self, reference: str) -> Image | None:
        """The image that the runtime finds for `reference`; None when it has none."""
        request = pb.ImageStatusRequest(image=pb.ImageSpec(image=reference))
        answer = self._find(IMAGE_SERVICE + "ImageStatus", request, pb.ImageStatusResponse)
        return image_of(answer.image) if answer is not None and answer.HasField("image") else None

    def remove_image(self, image_id: str) -> bool:
        """RemoveImage by id, without a deadline."""
        request = pb.RemoveImageRequest(image=pb.ImageSpec(image=image_id))
        return self._remove(IMAGE_SERVICE + "RemoveImage", request, pb.RemoveImageResponse)

    def image_fs_info(self) -> ImageFsInfo:
        """The image and container filesystems that the runtime reports."""
        answer = self._read(IMAGE_SERVICE + "ImageFsInfo", pb.ImageFsInfoRequest(), pb.ImageFsInfoResponse)
        used = [usage.used_bytes.value for usage in answer.image_filesystems if usage.HasField("used_bytes")]
        return ImageFsInfo(
            tuple(usage.fs_id.mountpoint for usage in answer.image_filesystems),
            tuple(usage.fs_id.mountpoint for usage in answer.container_filesystems),
            used[0] if used else None,
        )
