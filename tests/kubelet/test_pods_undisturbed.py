"""What garbage collection beside a real kubelet must not disturb: no pod runs again, and no log is lost.

The kubelet finds again what a pod has done by the dead containers that the runtime still has: without them a completed
pod would run a second time, and an init container would be repeated.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.kubelet import manifests
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.kubelet import IMAGE_AGE_SECONDS
from tests.kubelet.node import PODS, KubeletNode
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import reclaimd, write_configuration

TIMES = 20
APP = "reclaimd.test/app:1"
MIB = 1 << 20


def statuses(node: KubeletNode, *names: str) -> dict[str, list[Any]]:
    """Of each pod: its phase, and of each container its restarts and when it began and ended."""
    found = {}
    for name in names:
        status = node.api.get(f"{PODS}/{name}")["status"]
        kinds = ("initContainerStatuses", "containerStatuses")
        containers = [
            [each["name"], each["restartCount"], each["state"]] for kind in kinds for each in status.get(kind, ())
        ]
        found[name] = [status["phase"], containers]
    return found


@pytest.fixture
def node(make_node: NodeMaker) -> KubeletNode:
    """A node with a pod of each kind, a static one among them."""
    made = make_node()
    made.import_images([Image(APP, (BASE,)), Image("reclaimd.test/first:1", (BASE, random_layer(1, MIB)))])
    static = manifests.running("static", APP)
    (made.kubelet.static_pods / "static.json").write_text(json.dumps(static))
    for pod in (
        manifests.running("serves", APP),
        manifests.completed("done", APP),
        manifests.with_init("prepared", APP, "reclaimd.test/first:1"),
        manifests.pod(
            "failed", manifests.container("fails", APP, (*manifests.SHELL, "echo oh; exit 3")), restart="Never"
        ),
        manifests.crashing("crashing", APP),
    ):
        made.create(pod)
    for name, phase in (("serves", "Running"), ("prepared", "Running"), ("done", "Succeeded"), ("failed", "Failed")):
        made.wait_for_phase(name, phase)
    made.wait_for_phase("static-127.0.0.1", "Running")
    made.api.wait("it has crashed twice", lambda: restarts_of(made, "crashing") >= 2, 90.0)
    return made


def restarts_of(node: KubeletNode, name: str) -> int:
    """How often the container of a pod was started again."""
    return int(node.api.get(f"{PODS}/{name}")["status"]["containerStatuses"][0]["restartCount"])


def test_no_pod_runs_again_and_every_log_is_served(node: KubeletNode) -> None:
    """After everything that may go was removed twenty times, with new unused images each time."""
    configuration = write_configuration(node.disk.parent / "reclaimd.yaml", **node.reclaimd_fields())
    before = statuses(node, "serves", "prepared", "done", "failed", "static-127.0.0.1")
    crashes = restarts_of(node, "crashing")
    for number in range(TIMES):
        node.import_images([Image(f"reclaimd.test/unused:{number}", (BASE, random_layer(100 + number, MIB)))])
        time.sleep(1.1 * IMAGE_AGE_SECONDS)
        process = reclaimd(
            "reclaim", "--config", str(configuration), "--signal", "imagefs.available", "--all", "--now", "-o", "json"
        )
        assert process.returncode == 0, process.stderr
        removed = [each["name"] for each in json.loads(process.stdout)["removals"]]
        assert f"reclaimd.test/unused:{number}" in removed, process.stdout + process.stderr
    assert statuses(node, *before) == before
    assert restarts_of(node, "crashing") >= crashes
    logs = {"done": "done is done\n", "failed": "oh\n", "crashing": "crashing fails\n"}
    assert {name: node.api.text(f"{PODS}/{name}/log") for name in logs} == logs
    assert node.api.text(f"{PODS}/prepared/log?container=prepares") == "prepared is prepared\n"


def test_a_kubelet_that_restarts_afterwards_finds_everything_again(node: KubeletNode) -> None:
    """Its memory is what the runtime holds: nothing runs again."""
    configuration = write_configuration(node.disk.parent / "reclaimd.yaml", **node.reclaimd_fields())
    before = statuses(node, "serves", "prepared", "done", "failed", "static-127.0.0.1")
    process = reclaimd("reclaim", "--config", str(configuration), "--signal", "imagefs.available", "--all", "--now")
    assert process.returncode == 0, process.stderr
    node.kubelet.stop()
    node.kubelet.start()
    crashes = restarts_of(node, "crashing")
    node.api.wait("it crashes again", lambda: restarts_of(node, "crashing") > crashes, 120.0)
    assert statuses(node, *before) == before
