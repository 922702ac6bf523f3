"""The DaemonSet of `reclaimd manifests` on a node of the ring, applied by kubectl.

No scheduler runs: `bind` does its part. The controller's part is done by a
kube-controller-manager, or by `create_pod`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil

from tests.kubelet.kubectl import Kubectl
from tests.kubelet.kubelet import NODE
from tests.kubelet.node import KubeletNode
from tests.kubelet.program_image import ProgramImage
from tests.kubelet.shipped_manifests import manifests_for
from tests.real_node.loopfs import run_tool

NAMESPACE, NAME = "kube-system", "reclaimd"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DAEMONSETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
PROGRAM = f"/opt/reclaimd/bin/{NAME}"
READY_SECONDS = 120.0


class DaemonSet:
    """reclaimd as a DaemonSet on this node, once it is applied. `state`, `run`: what is mounted at
    /var/lib/reclaimd and /run/reclaimd."""

    def __init__(self, node: KubeletNode, directory: Path, image: ProgramImage) -> None:
        self._node = node
        self.state, self.run = directory / "state", directory / "run"
        self.kubectl = Kubectl(directory / "kubectl", node.api)
        _make_shared(node)
        node.runtime.import_image(image.tar, keep=True)
        self._manifests = manifests_for(node, self.state, self.run)

    def apply(self) -> None:
        """What people do: `reclaimd manifests | kubectl apply -f -`."""
        self.kubectl("apply", "-f", "-", given=self._manifests)

    def remove(self) -> None:
        """Deletes what was applied, and its pods, which get the time that
        their manifest gives them.
        """
        self.kubectl("delete", "--ignore-not-found", "-f", "-", given=self._manifests)
        for name in self.pods():
            self._node.api.patch(f"{PODS}/{name}", {"metadata": {"finalizers": None}})
            self._node.api.delete(f"{PODS}/{name}")
        self._node.api.wait("its pods are gone", lambda: not self.pods(), READY_SECONDS)

    def pods(self) -> dict[str, dict[str, Any]]:
        """Its pods by name, those that are being deleted too."""
        found = self._node.api.pods(NAMESPACE)
        return {
            name: pod
            for name, pod in found.items()
            if pod["metadata"]["labels"].get("app.kubernetes.io/name") == NAME
        }

    def create_pod(self) -> None:
        """Makes the pod for this node as the DaemonSet controller would: of the template,
        with an affinity to the node.

        Source:
        https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#how-daemon-pods-are-scheduled
        """
        template = self._node.api.get(f"{DAEMONSETS}/{NAME}")["spec"]["template"]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec = {**template["spec"], "affinity": {"nodeAffinity": required}}
        metadata = {**template["metadata"], "generateName": f"{NAME}-"}
        self._node.api.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )

    def bind(self) -> None:
        """Binds pods without a node to the only one, as the scheduler would."""
        for name, pod in self.pods().items():
            if "nodeName" not in pod["spec"]:
                target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
                binding = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": name},
                    "target": target,
                }
                self._node.api.create(f"{PODS}/{name}/binding", binding)

    def wait_until_ready(self, *but: str) -> dict[str, Any]:
        """Its only pod, once it is ready and is none of these names.

        TimeoutError with what the pod's status says.
        """

        def alone_and_ready() -> bool:
            self.bind()
            pods = self.pods()
            return len(pods) == 1 and not set(but) & set(pods) and all(map(is_ready, pods.values()))

        try:
            self._node.api.wait("the pod is ready", alone_and_ready, READY_SECONDS)
        except TimeoutError as late:
            pods = {name: pod["status"] for name, pod in self.pods().items()}
            raise TimeoutError(f"{late}: {json.dumps(pods)}; {self.events()}") from late
        (pod,) = self.pods().values()
        return pod

    def exec(self, *command: str) -> str:
        """What a command prints in the container, by kubectl exec."""
        return self.kubectl("exec", "--namespace", NAMESPACE, f"daemonset/{NAME}", "--", *command)

    def events(self) -> list[str]:
        """What was told about its objects."""
        return [
            f"{event['reason']}: {event.get('message', '')}"
            for event in self._node.api.events()
            if event["involvedObject"].get("namespace") == NAMESPACE
        ]

    def process(self) -> int:
        """The process id of the daemon on this machine."""
        monitors = map(psutil.Process, self._node.runtime.monitors())
        (found,) = [
            child.pid
            for each in monitors
            for child in each.children()
            if PROGRAM in child.cmdline()
        ]
        return found


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod is ready and is not being deleted."""
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True"


def _make_shared(node: KubeletNode) -> None:
    """Makes the disk and the runtime's directory shared mounts, as systemd makes all of a node's:
    only from such a one can a container be told of later mounts."""
    runtime = node.runtime.run_directory
    run_tool("mount", "--bind", runtime, runtime)
    for mount in (runtime, node.disk):
        run_tool("mount", "--make-shared", mount)
