"""`kubeletEndpoint: auto` beside a real kubelet that asks the API server whom it may answer, as kubeadm sets it up."""

from __future__ import annotations

import json
import shutil
from typing import Any

from tests.kubelet import manifests
from tests.kubelet.access import allow_group
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.kubelet import IMAGE_AGE_SECONDS
from tests.kubelet.manifests import APP
from tests.kubelet.node import KubeletNode
from tests.real_node.oci import BASE, Image
from tests.reclaimd_process import reclaimd, write_configuration


def finding(configuration: str) -> dict[str, Any]:
    """What doctor says of asking the kubelet; empty if nothing is wrong."""
    process = reclaimd("doctor", "--config", configuration, "-o", "json")
    findings = json.loads(process.stdout)["findings"]
    return next((each for each in findings if each["check"] == "kubelet-list"), {})


def containers(node: KubeletNode) -> int:
    """How many containers the runtime has."""
    return len(node.runtime.cri.list_containers())


def test_the_nodes_own_identity_is_used_once_it_has_a_role(make_node: NodeMaker) -> None:
    """Before, the kubelet forbids it, which doctor says, and nothing of a terminated pod goes."""
    node = make_node()
    node.import_images([Image(APP, (BASE,))])
    shutil.copy(node.kubelet.directory / "kubeconfig", node.kubelet.root / "kubeconfig")
    configuration = str(
        write_configuration(
            node.disk.parent / "reclaimd.yaml",
            **node.reclaimd_fields(),
            kubeletEndpoint="auto",
            imageMinimumGCAge=f"{IMAGE_AGE_SECONDS}s",
        )
    )
    collect = ("reclaim", "--config", configuration, "--signal", "nodefs.available", "--all", "--now")
    node.create(manifests.completed("done", APP))
    node.wait_for_phase("done", "Succeeded")
    assert "403 Forbidden" in json.dumps(finding(configuration))
    assert reclaimd(*collect).returncode == 0
    assert containers(node) == 1
    take_back = allow_group(node, "system:nodes", "nodes/pods", "nodes/stats")
    try:
        node.api.wait("the kubelet is asked", lambda: finding(configuration) == {}, 30.0)
        assert reclaimd(*collect).returncode == 0
        assert containers(node) == 0
        planned = reclaimd("plan", "--pods", "--config", configuration, "--signal", "nodefs.available", "-o", "json")
        assert planned.returncode == 0, planned.stderr
    finally:
        take_back()
