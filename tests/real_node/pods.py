"""The kubelet's side of a pod, over CRI: its directory, its sandbox, its
containers, in the kubelet's order.

The order matters: the kubelet makes `<root-dir>/pods/<uid>` before it asks for a sandbox and
removes it only after the pod is gone, so the directory distinguishes a live pod from a dead one
(https://github.com/kubernetes/kubernetes, pkg/kubelet/kubelet.go, SyncPod).
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eviction.drill.embedded_node import begin_container
from reclaim.cri import cri_pb2
from tests.real_node.cri_client import CriClient
from tests.real_node.oci import SLEEP_FOR_EVER
from tests.reclaimd_process import came_true

POD_UID = "io.kubernetes.pod.uid"
POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
CONTAINER_NAME = "io.kubernetes.container.name"
ON_THE_HOST = {"namespace_options": {"network": cri_pb2.NODE, "pid": cri_pb2.CONTAINER}}
NAMESPACE = "default"


@dataclass(frozen=True)
class Sandbox:
    """A sandbox that was run: its id, the UID of its pod, where the logs of its containers are, and
    the configuration that containers of it must repeat."""

    id: str
    uid: str
    log_directory: Path
    config: dict[str, Any]


@dataclass(frozen=True)
class PretendKubelet:
    """Makes pods as the kubelet does: `root_dir` is its --root-dir, `pod_logs_dir` its podLogsDir.

    Pods use the host's network. Errors of the runtime are grpc.RpcError.
    """

    cri: CriClient
    root_dir: Path
    pod_logs_dir: Path
    cgroup_parent: str

    def pod_directory(self, uid: str) -> Path:
        """`<root-dir>/pods/<uid>`."""
        return self.root_dir / "pods" / uid

    def forget_pod(self, uid: str) -> None:
        """Remove the pod's directory, after which the pod is gone."""
        shutil.rmtree(self.pod_directory(uid))

    def pod(self, name: str) -> Sandbox:
        """A new pod: its directory, with the subdirectories that the kubelet gives it, and then its
        sandbox. Its UID follows from its name, so that logs read alike."""
        uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.reclaimd.test"))
        for part in ("volumes", "plugins", "containers"):
            (self.pod_directory(uid) / part).mkdir(parents=True, exist_ok=True)
        return self.run_pod(name, uid)

    def run_pod(self, name: str, uid: str, attempt: int = 0) -> Sandbox:
        """Run a sandbox for an admitted pod."""
        log_directory = self.pod_logs_dir / f"{NAMESPACE}_{name}_{uid}"
        log_directory.mkdir(parents=True, exist_ok=True)
        config = {
            "metadata": {"name": name, "uid": uid, "namespace": NAMESPACE, "attempt": attempt},
            "log_directory": str(log_directory),
            "labels": {POD_NAME: name, POD_UID: uid, POD_NAMESPACE: NAMESPACE},
            "linux": {"cgroup_parent": self.cgroup_parent, "security_context": ON_THE_HOST},
        }
        made = self.cri.call("RunPodSandbox", config=config)
        return Sandbox(made.pod_sandbox_id, uid, log_directory, config)

    def create_container(
        self,
        sandbox: Sandbox,
        name: str,
        image: str,
        command: tuple[str, ...] = SLEEP_FOR_EVER,
        attempt: int = 0,
        mounts: Sequence[dict[str, Any]] = (),
    ) -> str:
        """Create a container without starting it; return its id.

        `image` is an id or a reference.
        """
        (sandbox.log_directory / name).mkdir(exist_ok=True)
        begin_container(str(self.pod_directory(sandbox.uid)), name)
        config = {
            "metadata": {"name": name, "attempt": attempt},
            "image": {"image": image, "user_specified_image": image},
            "command": command,
            "mounts": mounts,
            "labels": {**sandbox.config["labels"], CONTAINER_NAME: name},
            "annotations": {"io.kubernetes.container.restartCount": str(attempt)},
            "log_path": f"{name}/{attempt}.log",
            "linux": {"security_context": ON_THE_HOST},
        }
        made = self.cri.call(
            "CreateContainer",
            pod_sandbox_id=sandbox.id,
            config=config,
            sandbox_config=sandbox.config,
        )
        return str(made.container_id)

    def run_container(
        self,
        sandbox: Sandbox,
        name: str,
        image: str,
        command: tuple[str, ...] = SLEEP_FOR_EVER,
        attempt: int = 0,
    ) -> str:
        """Create and start a container; return its id."""
        container_id = self.create_container(sandbox, name, image, command, attempt)
        self.cri.call("StartContainer", container_id=container_id)
        return container_id

    def run_to_end(
        self,
        sandbox: Sandbox,
        name: str,
        image: str,
        command: tuple[str, ...] = ("/bin/true",),
        attempt: int = 0,
    ) -> str:
        """The same, and wait for its end; the id of the dead copy."""
        container_id = self.run_container(sandbox, name, image, command, attempt)
        exited = cri_pb2.CONTAINER_EXITED
        assert came_true(lambda: self.state_of(container_id) == exited)
        return container_id

    def run_script(self, sandbox: Sandbox, image: str, script: str) -> str:
        """A container `app` that does this, and then sleeps; its id, once it is done."""
        command = ("/bin/sh", "-c", f"{script}; echo done; exec sleep 1000000")
        container_id = self.run_container(sandbox, "app", image, command)
        log = sandbox.log_directory / "app" / "0.log"
        assert came_true(lambda: "stdout F done" in log.read_text()), log.read_text()
        return container_id

    def state_of(self, container_id: str) -> cri_pb2.ContainerState:
        """The state of one container."""
        return self.cri.container_status(container_id).state

    def runs(self, container_id: str) -> bool:
        """Whether one container is running."""
        return self.state_of(container_id) == cri_pb2.CONTAINER_RUNNING

    def end_pod(self, sandbox: Sandbox) -> None:
        """Stop the sandbox and what runs in it (it becomes NOTREADY), then forget the pod.

        Nothing is removed.
        """
        self.cri.stop_sandbox(sandbox.id)
        self.forget_pod(sandbox.uid)

    def remove_pod(self, sandbox: Sandbox) -> None:
        """Stop and remove the sandbox and its containers, then forget the pod."""
        self.cri.stop_sandbox(sandbox.id)
        self.cri.remove_sandbox(sandbox.id)
        self.forget_pod(sandbox.uid)
