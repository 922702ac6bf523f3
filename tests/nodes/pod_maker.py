"""Makes pods over CRI as a kubelet does. The product only lists and removes."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from eviction.drill.embedded_node import begin_container
from reclaim.cri import cri_pb2 as pb
from reclaim.cri.client import RUNTIME_SERVICE, CriClient
from reclaim.cri.convert import CONTAINER_NAME_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL, UID_LABEL
from reclaim.cri.status import CallError, parsed

MAKE_DEADLINE_SECONDS = 60.0

Answer = TypeVar("Answer")


class PodMaker(CriClient):
    """A CRI client that can also run pods. Every method raises RuntimeUnavailable
    with the runtime's message.

    `root_directory`: the kubelet's, for what it makes of a container in the directory of its pod.
    """

    def __init__(self, endpoint: str, root_directory: str) -> None:
        super().__init__(endpoint)
        self._root_directory = root_directory

    def run_pod(self, name: str, uid: str, log_directory: str, attempt: int = 0) -> str:
        """Calls RunPodSandbox on the host's network. Returns the sandbox's id."""
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(
                name=name, uid=uid, namespace="default", attempt=attempt
            ),
            hostname=name,
            log_directory=log_directory,
            labels=_labels(name, uid),
            linux=pb.LinuxPodSandboxConfig(
                security_context=pb.LinuxSandboxSecurityContext(
                    namespace_options=pb.NamespaceOption(network=pb.NODE, pid=pb.CONTAINER)
                )
            ),
        )
        answer = self._make(
            "RunPodSandbox", pb.RunPodSandboxRequest(config=config), pb.RunPodSandboxResponse
        )
        return answer.pod_sandbox_id

    def run_container(
        self, sandbox_id: str, pod: tuple[str, str], name: str, image: str, attempt: int = 0
    ) -> str:
        """Calls CreateContainer and StartContainer; `pod` is (name, uid).

        Returns the container's id.
        """
        container_id = self.create_container(sandbox_id, pod, name, image, attempt)
        start = pb.StartContainerRequest(container_id=container_id)
        self._make("StartContainer", start, pb.StartContainerResponse)
        return container_id

    def create_container(
        self, sandbox_id: str, pod: tuple[str, str], name: str, image: str, attempt: int = 0
    ) -> str:
        """Calls CreateContainer only, so the container stays CREATED. Returns its id."""
        pod_name, uid = pod
        begin_container(os.path.join(self._root_directory, "pods", uid), name)
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox_id,
            config=pb.ContainerConfig(
                metadata=pb.ContainerMetadata(name=name, attempt=attempt),
                image=pb.ImageSpec(image=image),
                labels={**_labels(pod_name, uid), CONTAINER_NAME_LABEL: name},
                log_path=f"{name}/{attempt}.log",
            ),
            sandbox_config=pb.PodSandboxConfig(
                metadata=pb.PodSandboxMetadata(name=pod_name, uid=uid)
            ),
        )
        return self._make("CreateContainer", request, pb.CreateContainerResponse).container_id

    def _make(self, method: str, request: Any, answer_type: type[Answer]) -> Answer:
        path = RUNTIME_SERVICE + method
        try:
            return parsed(answer_type, self._call(path, request, MAKE_DEADLINE_SECONDS))
        except CallError as error:
            raise self._unavailable(path, error) from error


def _labels(pod_name: str, uid: str) -> dict[str, str]:
    return {UID_LABEL: uid, POD_NAME_LABEL: pod_name, POD_NAMESPACE_LABEL: "default"}
