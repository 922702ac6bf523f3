"""The kubelet's side of a pod, over CRI: its directory, its sandbox, its
containers, in the kubelet's order.

The order matters: the kubelet makes `<root-dir>/pods/<uid>` before it asks for a sandbox and
removes it only after the pod is gone, so the directory distinguishes a live pod from a dead one
(https://github.com/kubernetes/kubernetes, pkg/kubelet/kubelet.go, SyncPod).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eviction.drill.node.pod_directories import begin_container
from reclaim.cri import cri_pb2
from tests.real_node.cri_client import CriClient

POD_UID = "io.kubernetes.pod.uid"
POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
CONTAINER_NAME = "io.kubernetes.container.name"


@dataclass(frozen=True)
class Sandbox:
    """A sandbox that was run: its id and the configuration that containers of it must repeat."""

    id: str
    config: cri_pb2.PodSandboxConfig

    @property
    def uid(self) -> str:
        """The UID of its pod."""
        return self.config.metadata.uid

    @property
    def log_directory(self) -> Path:
        """Where the logs of its containers are."""
        return Path(self.config.log_directory)


@dataclass(frozen=True)
class PretendKubelet:
    """Makes pods as the kubelet does: `root_dir` is its --root-dir, `pod_logs_dir` its podLogsDir.

    Pods use the host's network. Errors of the runtime are grpc.RpcError.
    """

    cri: CriClient
    root_dir: Path
    pod_logs_dir: Path
    cgroup_parent: str
    namespace: str = "default"

    def pod_directory(self, uid: str) -> Path:
        """`<root-dir>/pods/<uid>`."""
        return self.root_dir / "pods" / uid

    def admit_pod(self, uid: str) -> Path:
        """Make the pod's directory, with the subdirectories that the kubelet gives it.

        Comes before the sandbox.
        """
        directory = self.pod_directory(uid)
        for name in ("volumes", "plugins", "containers"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        return directory

    def forget_pod(self, uid: str) -> None:
        """Remove the pod's directory, after which the pod is gone.

        FileNotFoundError when it was never admitted.
        """
        shutil.rmtree(self.pod_directory(uid))

    def run_pod(self, name: str, uid: str, attempt: int = 0) -> Sandbox:
        """Run a sandbox for an admitted pod. ValueError when the pod was not admitted."""
        if not self.pod_directory(uid).is_dir():
            raise ValueError(
                f"pod {uid} has no directory: admit_pod comes first, as in the kubelet"
            )
        log_directory = self.pod_logs_dir / f"{self.namespace}_{name}_{uid}"
        log_directory.mkdir(parents=True, exist_ok=True)
        config = cri_pb2.PodSandboxConfig(
            metadata=cri_pb2.PodSandboxMetadata(
                name=name, uid=uid, namespace=self.namespace, attempt=attempt
            ),
            log_directory=str(log_directory),
            labels={POD_NAME: name, POD_UID: uid, POD_NAMESPACE: self.namespace},
            linux=cri_pb2.LinuxPodSandboxConfig(
                cgroup_parent=self.cgroup_parent,
                security_context=cri_pb2.LinuxSandboxSecurityContext(
                    namespace_options=cri_pb2.NamespaceOption(
                        network=cri_pb2.NODE, pid=cri_pb2.CONTAINER
                    )
                ),
            ),
        )
        request = cri_pb2.RunPodSandboxRequest(config=config)
        answer = self.cri.call(
            "RuntimeService/RunPodSandbox", request, cri_pb2.RunPodSandboxResponse
        )
        return Sandbox(answer.pod_sandbox_id, config)

    def create_container(
        self,
        sandbox: Sandbox,
        name: str,
        image: str,
        command: tuple[str, ...],
        attempt: int = 0,
        mounts: Sequence[cri_pb2.Mount] = (),
    ) -> str:
        """Create a container without starting it; return its id.

        `image` is an id or a reference.
        """
        (sandbox.log_directory / name).mkdir(exist_ok=True)
        begin_container(str(self.pod_directory(sandbox.uid)), name)
        pod = sandbox.config.metadata
        labels = {
            POD_NAME: pod.name,
            POD_UID: pod.uid,
            POD_NAMESPACE: pod.namespace,
            CONTAINER_NAME: name,
        }
        config = cri_pb2.ContainerConfig(
            metadata=cri_pb2.ContainerMetadata(name=name, attempt=attempt),
            image=cri_pb2.ImageSpec(image=image, user_specified_image=image),
            command=command,
            mounts=mounts,
            labels=labels,
            annotations={"io.kubernetes.container.restartCount": str(attempt)},
            log_path=f"{name}/{attempt}.log",
            linux=cri_pb2.LinuxContainerConfig(
                security_context=cri_pb2.LinuxContainerSecurityContext(
                    namespace_options=cri_pb2.NamespaceOption(
                        network=cri_pb2.NODE, pid=cri_pb2.CONTAINER
                    )
                )
            ),
        )
        request = cri_pb2.CreateContainerRequest(
            pod_sandbox_id=sandbox.id, config=config, sandbox_config=sandbox.config
        )
        return self.cri.call(
            "RuntimeService/CreateContainer", request, cri_pb2.CreateContainerResponse
        ).container_id

    def run_container(
        self, sandbox: Sandbox, name: str, image: str, command: tuple[str, ...], attempt: int = 0
    ) -> str:
        """Create and start a container; return its id."""
        container_id = self.create_container(sandbox, name, image, command, attempt)
        request = cri_pb2.StartContainerRequest(container_id=container_id)
        self.cri.call("RuntimeService/StartContainer", request, cri_pb2.StartContainerResponse)
        return container_id

    def wait_exited(
        self, container_id: str, timeout_seconds: float = 10.0
    ) -> cri_pb2.ContainerStatus:
        """Wait until the container is EXITED and return its status.

        TimeoutError when it is not in time.
        """
        deadline = time.monotonic() + timeout_seconds
        while (status := self.cri.container_status(container_id)).state != cri_pb2.CONTAINER_EXITED:
            if time.monotonic() > deadline:
                state = cri_pb2.ContainerState.Name(status.state)
                raise TimeoutError(f"container {container_id} is {state} after {timeout_seconds} s")
            time.sleep(0.01)
        return status

    def state_of(self, container_id: str) -> cri_pb2.ContainerState:
        """The state of one container."""
        return self.cri.container_status(container_id).state

    def end_pod(self, sandbox: Sandbox) -> None:
        """Stop the sandbox and what runs in it (it becomes NOTREADY), then forget the pod.

        Nothing is removed.
        """
        self.cri.stop_sandbox(sandbox.id)
        self.forget_pod(sandbox.uid)
