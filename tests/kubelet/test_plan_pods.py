"""`plan --pods` against the kubelet: the pods that it evicts go in the order of the list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kubelet import manifests
from tests.kubelet.access import certificate_fields
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.manifests import APP
from tests.kubelet.node import KubeletNode
from tests.real_node.fill import fill_bytes
from tests.real_node.oci import BASE, Image
from tests.reclaimd_process import reclaimd, write_configuration

MIB = 1 << 20
MARK_BYTES = 300 * MIB
WRITES_MIB = {"small": 60, "large": 180, "middle": 120, "entitled": 240}  # entitled: within its request


def writing(name: str, mebibytes: int) -> dict[str, Any]:
    """A pod that writes so much into its container's layer, and goes on running."""
    command = (*manifests.SHELL, f"dd if=/dev/urandom of=/file bs=1M count={mebibytes}; sleep 1000000")
    resources = {"requests": {"ephemeral-storage": "300Mi"}} if name == "entitled" else {}
    return manifests.pod(name, manifests.container("writes", APP, command, resources=resources))


def evicted(node: KubeletNode) -> list[str]:
    """The evicted pods, in the order in which the kubelet told it."""
    events = [event for event in node.api.events() if event["reason"] == "Evicted"]
    return [event["involvedObject"]["name"] for event in sorted(events, key=lambda event: str(event["firstTimestamp"]))]


@pytest.mark.timeout(300)
def test_the_kubelet_evicts_in_the_order_of_the_list(make_node: NodeMaker) -> None:
    """Nothing is left to remove, so pods have to go; each brings more than was missing, so the first two tell."""
    node = make_node({"nodefs.available": f"{MARK_BYTES // MIB}Mi"})
    node.import_images([Image(APP, (BASE,))])
    configuration = write_configuration(
        node.disk.parent / "reclaimd.yaml",
        **node.reclaimd_fields(),
        **certificate_fields(node, "reclaimd-plan", "system:masters"),
    )
    for name, mebibytes in WRITES_MIB.items():
        node.create(writing(name, mebibytes))

    def planned() -> list[dict[str, Any]]:
        command = ("plan", "--pods", "--signal", "nodefs.available", "--config", str(configuration), "-o", "json")
        process = reclaimd(*command)
        assert process.returncode == 0, process.stderr
        pods: list[dict[str, Any]] = json.loads(process.stdout)["pods"]
        return pods

    def all_written() -> bool:
        used = {pod["name"]: pod["used"] or 0 for pod in planned()}
        return all(used.get(name, 0) >= mebibytes * MIB for name, mebibytes in WRITES_MIB.items())

    node.api.wait("the kubelet's statistics know what was written", all_written, 90.0, pause_seconds=1.0)
    order = [pod["name"] for pod in planned()]
    assert order == ["large", "middle", "small", "entitled"]
    fill_bytes(node.disk / "fill", MARK_BYTES - 50 * MIB, fast=True).wait(60.0)
    node.api.wait("a pod is evicted", lambda: bool(evicted(node)), 120.0)
    assert evicted(node)[0] == order[0]
    # what it wrote comes back once its container is removed
    node.api.wait("its space is back", lambda: node.filesystem.available_bytes() > MARK_BYTES, 60.0)
    fill_bytes(node.disk / "more", MARK_BYTES - 50 * MIB, fast=True).wait(60.0)
    node.api.wait("another pod is evicted", lambda: len(evicted(node)) > 1, 120.0)
    assert evicted(node)[:2] == order[:2]
