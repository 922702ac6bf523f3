"""A plain CRI client for the tests: one blocking call a method, without retries.

It is separate from the client under test on purpose: a test must not observe the node through the
code that it checks. Errors are grpc.RpcError, as the runtime gave them.
"""

from __future__ import annotations

from pathlib import Path

from reclaim.cri import cri_pb2 as cri
from tests.sockets.cri_calls import CriCalls

CALL_SECONDS = 60.0


class CriClient(CriCalls):
    """CRI v1 over the unix socket at `socket`; every call ends within a minute."""

    def __init__(self, socket: Path) -> None:
        super().__init__(f"unix:{socket}")

    def close(self) -> None:
        """Close the channel; calls under way are cancelled."""
        self._channel.close()

    def version(self, timeout_seconds: float = CALL_SECONDS) -> cri.VersionResponse:
        """Name and version of the runtime."""
        answer: cri.VersionResponse = self.call("Version", timeout_seconds)
        return answer

    def list_images(self) -> list[cri.Image]:
        """Every image that CRI shows."""
        return list(self.call("ListImages").images)

    def image_ids(self) -> set[str]:
        """The ids of every image that CRI shows."""
        return {image.id for image in self.list_images()}

    def image_tags(self) -> set[str]:
        """The names of every image that CRI shows."""
        return {tag for image in self.list_images() for tag in image.repo_tags}

    def image_status(self, image: str) -> cri.Image | None:
        """One image by id or reference; None when the runtime has none."""
        answer = self.call("ImageStatus", image={"image": image})
        return answer.image if answer.HasField("image") else None

    def remove_image(self, image: str) -> None:
        """Remove one image; on containerd 1.6 the answer comes after its garbage collection."""
        self.call("RemoveImage", image={"image": image})

    def list_containers(self) -> list[cri.Container]:
        """Every container, in every state."""
        return list(self.call("ListContainers").containers)

    def container_ids(self) -> set[str]:
        """The ids of every container."""
        return {container.id for container in self.list_containers()}

    def list_sandboxes(self) -> list[cri.PodSandbox]:
        """Every sandbox, in every state."""
        return list(self.call("ListPodSandbox").items)

    def container_status(self, container_id: str) -> cri.ContainerStatus:
        """One container. grpc.RpcError with NOT_FOUND when it is gone."""
        status: cri.ContainerStatus = self.call("ContainerStatus", container_id=container_id).status
        return status

    def kill_container(self, container_id: str, timeout_seconds: float = CALL_SECONDS) -> None:
        """Stop one container by SIGKILL."""
        self.call("StopContainer", timeout_seconds, container_id=container_id)

    def remove_container(self, container_id: str) -> None:
        """Remove one container, running or not."""
        self.call("RemoveContainer", container_id=container_id)

    def stop_sandbox(self, sandbox_id: str, timeout_seconds: float = CALL_SECONDS) -> None:
        """Stop one sandbox and what runs in it."""
        self.call("StopPodSandbox", timeout_seconds, pod_sandbox_id=sandbox_id)

    def remove_sandbox(self, sandbox_id: str, timeout_seconds: float = CALL_SECONDS) -> None:
        """Remove one sandbox and its containers."""
        self.call("RemovePodSandbox", timeout_seconds, pod_sandbox_id=sandbox_id)
