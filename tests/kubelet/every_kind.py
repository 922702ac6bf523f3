"""A pod of each kind on a node, and what the API server says of them: what must not
change, whatever is removed.
"""

from __future__ import annotations

import json
from typing import Any

from tests.kubelet import manifests
from tests.kubelet.manifests import APP
from tests.kubelet.node import PODS, KubeletNode
from tests.real_node.oci import BASE, Image, random_layer

MIB = 1 << 20
SETTLED = ("serves", "prepared", "done", "failed", "static-127.0.0.1")
"""The pods that stay as they are; `crashing` begins again and again."""
LOGS = {"done": "done is done\n", "failed": "oh\n", "crashing": "crashing fails\n"}


def make_pods_of_every_kind(node: KubeletNode) -> None:
    """Running, completed, failed, crashing, one with an init container, and a static
    one; each in its last phase.
    """
    node.import_images(
        [Image(APP, (BASE,)), Image("reclaimd.test/first:1", (BASE, random_layer(1, MIB)))]
    )
    static = manifests.running("static", APP)
    (node.kubelet.static_pods / "static.json").write_text(json.dumps(static))
    fails = manifests.container("fails", APP, (*manifests.SHELL, "echo oh; exit 3"))
    for pod in (
        manifests.running("serves", APP),
        manifests.completed("done", APP),
        manifests.with_init("prepared", APP, "reclaimd.test/first:1"),
        manifests.pod("failed", fails, restart="Never"),
        manifests.crashing("crashing", APP),
    ):
        node.create(pod)
    for name, phase in (
        ("serves", "Running"),
        ("prepared", "Running"),
        ("done", "Succeeded"),
        ("failed", "Failed"),
    ):
        node.wait_for_phase(name, phase)
    node.wait_for_phase("static-127.0.0.1", "Running")
    node.api.wait("it has crashed twice", lambda: restarts_of(node, "crashing") >= 2, 90.0)


def statuses(node: KubeletNode, *names: str) -> dict[str, list[Any]]:
    """Of each pod: its phase, and of each container its restarts and when it began and ended."""
    found = {}
    for name in names:
        status = node.api.get(f"{PODS}/{name}")["status"]
        kinds = ("initContainerStatuses", "containerStatuses")
        containers = [
            [each["name"], each["restartCount"], each["state"]]
            for kind in kinds
            for each in status.get(kind, ())
        ]
        found[name] = [status["phase"], containers]
    return found


def restarts_of(node: KubeletNode, name: str) -> int:
    """How often the container of a pod was started again."""
    return int(node.api.get(f"{PODS}/{name}")["status"]["containerStatuses"][0]["restartCount"])


def logs(node: KubeletNode) -> dict[str, str]:
    """The logs of those that have ended, as the API server serves them, and of
    the init container.
    """
    served = {name: node.api.text(f"{PODS}/{name}/log") for name in LOGS}
    return {**served, "prepared": node.api.text(f"{PODS}/prepared/log?container=prepares")}
