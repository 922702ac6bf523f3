"""A plain CRI client for the tests: one blocking call a method, without retries.

It is separate from the client under test on purpose: a test must not observe the node through the
code that it checks. Errors are grpc.RpcError, as the runtime gave them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from reclaim.cri import cri_pb2 as cri

Answer = TypeVar("Answer", bound=Message)

OPTIONS = (
    # grpcio's own is the percent-encoded path, which Go servers reject
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.max_receive_message_length", 64 << 20),
)


class CriClient:
    """CRI v1 over the unix socket at `socket`; every call ends within `timeout_seconds`."""

    def __init__(self, socket: Path, timeout_seconds: float = 30.0) -> None:
        self.timeout_seconds = timeout_seconds
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=OPTIONS)

    def close(self) -> None:
        """Close the channel; calls under way are cancelled."""
        self._channel.close()

    def call(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        timeout_seconds: float | None = None,
    ) -> Answer:
        """Call `method` (`RuntimeService/Version`) once."""
        stub: Callable[..., Any] = self._channel.unary_unary(
            f"/runtime.v1.{method}",
            request_serializer=lambda message: cast(Message, message).SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return cast(Answer, stub(request, timeout=timeout_seconds or self.timeout_seconds))

    def version(self, timeout_seconds: float | None = None) -> cri.VersionResponse:
        """Name and version of the runtime."""
        asked = cri.VersionRequest()
        return self.call("RuntimeService/Version", asked, cri.VersionResponse, timeout_seconds)

    def list_images(self) -> list[cri.Image]:
        """Every image that CRI shows."""
        asked = cri.ListImagesRequest()
        return list(self.call("ImageService/ListImages", asked, cri.ListImagesResponse).images)

    def image_ids(self) -> set[str]:
        """The ids of every image that CRI shows."""
        return {image.id for image in self.list_images()}

    def image_tags(self) -> set[str]:
        """The names of every image that CRI shows."""
        return {tag for image in self.list_images() for tag in image.repo_tags}

    def image_status(self, image: str) -> cri.Image | None:
        """One image by id or reference; None when the runtime has none."""
        asked = cri.ImageStatusRequest(image=cri.ImageSpec(image=image))
        answer = self.call("ImageService/ImageStatus", asked, cri.ImageStatusResponse)
        return answer.image if answer.HasField("image") else None

    def remove_image(self, image: str) -> None:
        """Remove one image; on containerd 1.6 the answer comes after its garbage collection."""
        asked = cri.RemoveImageRequest(image=cri.ImageSpec(image=image))
        self.call("ImageService/RemoveImage", asked, cri.RemoveImageResponse)

    def image_filesystems(self) -> cri.ImageFsInfoResponse:
        """The answer of ImageFsInfo."""
        asked = cri.ImageFsInfoRequest()
        return self.call("ImageService/ImageFsInfo", asked, cri.ImageFsInfoResponse)

    def list_containers(self) -> list[cri.Container]:
        """Every container, in every state."""
        method, asked = "RuntimeService/ListContainers", cri.ListContainersRequest()
        return list(self.call(method, asked, cri.ListContainersResponse).containers)

    def container_ids(self) -> set[str]:
        """The ids of every container."""
        return {container.id for container in self.list_containers()}

    def list_sandboxes(self) -> list[cri.PodSandbox]:
        """Every sandbox, in every state."""
        method, asked = "RuntimeService/ListPodSandbox", cri.ListPodSandboxRequest()
        return list(self.call(method, asked, cri.ListPodSandboxResponse).items)

    def container_status(self, container_id: str) -> cri.ContainerStatus:
        """One container. grpc.RpcError with NOT_FOUND when it is gone."""
        method, asked = (
            "RuntimeService/ContainerStatus",
            cri.ContainerStatusRequest(container_id=container_id),
        )
        return self.call(method, asked, cri.ContainerStatusResponse).status

    def kill_container(self, container_id: str, timeout_seconds: float | None = None) -> None:
        """Stop one container by SIGKILL."""
        asked = cri.StopContainerRequest(container_id=container_id)
        self.call("RuntimeService/StopContainer", asked, cri.StopContainerResponse, timeout_seconds)

    def remove_container(self, container_id: str) -> None:
        """Remove one container, running or not."""
        asked = cri.RemoveContainerRequest(container_id=container_id)
        self.call("RuntimeService/RemoveContainer", asked, cri.RemoveContainerResponse)

    def stop_sandbox(self, sandbox_id: str, timeout_seconds: float | None = None) -> None:
        """Stop one sandbox and what runs in it."""
        asked = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        self.call(
            "RuntimeService/StopPodSandbox", asked, cri.StopPodSandboxResponse, timeout_seconds
        )

    def remove_sandbox(self, sandbox_id: str, timeout_seconds: float | None = None) -> None:
        """Remove one sandbox and its containers."""
        asked = cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        self.call(
            "RuntimeService/RemovePodSandbox", asked, cri.RemovePodSandboxResponse, timeout_seconds
        )
