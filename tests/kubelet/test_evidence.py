"""`terminatedPods: evidence` beside a real kubelet: what finished pods hold goes, no pod runs again, and no status in
the API changes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.kubelet import manifests
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.manifests import APP
from tests.kubelet.node import PODS, KubeletNode
from tests.real_node.oci import BASE, Image
from tests.reclaimd_process import Daemon, reclaimd, write_configuration

AGE_SECONDS = 10  # the shortest that can be configured
SOAK_BATCHES, SOAK_BATCH = 21, 50


def finished(number: int) -> dict[str, Any]:
    """A pod of a Job that has a volume, as all do that mount a token; every third one fails."""
    end = "; exit 3" if number % 3 == 0 else ""
    works = manifests.container("works", APP, (*manifests.SHELL, f"echo {number}{end}"))
    works["volumeMounts"] = [{"name": "scratch", "mountPath": "/scratch"}]
    return manifests.pod(f"job-{number}", works, restart="Never", volumes=[{"name": "scratch", "emptyDir": {}}])


def container_ids(node: KubeletNode, names: list[str]) -> set[str]:
    """The ids of the containers of these pods that the API knows."""
    pods = node.api.pods()
    statuses = (status for name in names for status in pods[name]["status"].get("containerStatuses", ()))
    return {status["containerID"].partition("://")[2] for status in statuses}


def told(node: KubeletNode, names: list[str]) -> dict[str, Any]:
    """What the API says of these pods."""
    pods = node.api.pods()
    return {name: pods[name]["status"] for name in names}


def is_settled(status: dict[str, Any]) -> bool:
    """Whether the kubelet has told everything of a finished pod: last of all that its sandbox has been stopped."""
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    return bool(conditions["PodReadyToStartContainers"] == "False")


def batch_is_removed(node: KubeletNode, configuration: str, numbers: range) -> int:
    """A batch of pods ends, and what they hold is removed while their statuses stay; how many containers went."""
    names = [f"job-{number}" for number in numbers]
    for number in numbers:
        node.create(finished(number))
    for name in names:
        node.wait_for_phase(name, "Succeeded", "Failed", seconds=120.0)
    node.api.wait(
        "their sandboxes are stopped, and told so", lambda: all(map(is_settled, told(node, names).values())), 120.0
    )
    before, held = told(node, names), container_ids(node, names)

    def are_gone() -> bool:
        # the daemon does it, which has watched the pods and the kubelet
        process = reclaimd("reclaim", "--config", configuration, "--signal", "nodefs.available", "--all")
        assert process.returncode == 0, process.stderr
        return not held & {container.id for container in node.runtime.cri.list_containers()}

    node.api.wait("the containers of the finished pods are removed", are_gone, 180.0, pause_seconds=2.0)
    time.sleep(3.0)  # the kubelet looks at every pod each second
    assert told(node, names) == before
    for name in names:
        node.api.delete(f"{PODS}/{name}")
    return len(held)


def removed_by_evidence(make_node: NodeMaker, batches: int, pods: int) -> int:
    """How many containers of so many batches of finished pods were removed while a pod that serves ran on."""
    node = make_node()
    node.import_images([Image(APP, (BASE,))])
    configuration = str(
        write_configuration(
            node.disk.parent / "reclaimd.yaml",
            **node.reclaimd_fields(),
            controlSocket=str(node.disk.parent / "control.sock"),
            terminatedPods="evidence",
            terminatedPodAge=f"{AGE_SECONDS}s",
            evictionHard={"nodefs.available": "0%", "imagefs.available": "0%"},
        )
    )
    node.create(manifests.running("serves", APP))
    node.wait_for_phase("serves", "Running")
    before = told(node, ["serves"])
    with Daemon("--config", configuration):
        removed = sum(
            batch_is_removed(node, configuration, range(batch * pods, (batch + 1) * pods)) for batch in range(batches)
        )
    assert told(node, ["serves"]) == before
    return removed


def test_what_finished_pods_hold_goes_by_evidence(make_node: NodeMaker) -> None:
    """Ten pods, a third of which have failed."""
    assert removed_by_evidence(make_node, 1, 10) == 10


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_thousand_removals_by_evidence_make_no_pod_run_again(make_node: NodeMaker) -> None:
    """In batches, each of which is deleted when its containers are gone."""
    removed = removed_by_evidence(make_node, SOAK_BATCHES, SOAK_BATCH)
    print(f"\nevidence: {removed} containers of finished pods removed, no pod ran again, no status changed")
    assert removed > 1000
