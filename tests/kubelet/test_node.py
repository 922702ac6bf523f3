"""The ring itself: a pod runs on the kubelet's node, and its log is served by the API server."""

from __future__ import annotations

from tests.kubelet import manifests
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.node import PODS
from tests.real_node.oci import BASE, Image


def test_a_pod_runs_and_its_log_is_served(make_node: NodeMaker) -> None:
    """One that ends, too."""
    node = make_node()
    node.import_images([Image("reclaimd.test/app:1", (BASE,))])
    node.create(manifests.running("serves", "reclaimd.test/app:1"))
    node.create(manifests.completed("done", "reclaimd.test/app:1"))
    node.wait_for_phase("serves", "Running")
    node.wait_for_phase("done", "Succeeded")
    assert node.api.text(f"{PODS}/done/log") == "done is done\n"
