"""What is read for a kubelet follows its version: the kubelet itself says what
it has made of its files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kubelet.access import service_account, token_fields
from tests.kubelet.api import Api
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.node import KubeletNode
from tests.kubelet.programs import kubelet_version
from tests.reclaimd_process import answer, reclaimd, write_configuration


def as_read(node: KubeletNode, *resources: str) -> tuple[dict[str, Any], str]:
    """`reclaimd config`, asking the kubelet as a service account that may get
    these resources; its warnings.
    """
    fields = {**node.reclaimd_fields(), "kubeletConfigDir": str(node.kubelet.drop_ins)}
    access = token_fields(node, service_account(node, *resources))
    file = write_configuration(Path(node.disk.parent, "reclaimd.yaml"), **fields, **access)
    done = reclaimd("config", "--config", str(file), "-o", "json")
    assert done.returncode == 0, done.stderr
    return answer(done), done.stderr


def test_the_thresholds_are_those_that_this_kubelet_made_of_its_files(make_node: NodeMaker) -> None:
    """Merged defaults and a null in a drop-in: before 1.33 and 1.32 both are something else."""
    node = make_node(
        {"nodefs.available": "7%", "imagefs.inodesFree": "3%"},
        drop_ins=[{"evictionHard": {"imagefs.inodesFree": None, "imagefs.available": None}}],
        mergeDefaultEvictionSettings=True,
    )
    token = service_account(node, "nodes/proxy", "nodes/metrics")
    kubelet = Api(node.kubelet.endpoint, node.plane.authority.certificate, token)
    if "\nkubernetes_build_info{" not in kubelet.text("/metrics"):
        pytest.skip("this kubelet was built without the metric kubernetes_build_info")
    in_force = kubelet.get("/configz")["kubeletconfig"]["evictionHard"]
    found, _ = as_read(node, "nodes/proxy", "nodes/metrics")
    assert found["kubelet_version"] == {"version": kubelet_version(), "assumed": ""}
    assert found["values"]["evictionHard"] == in_force


def test_the_newest_is_assumed_where_the_version_may_not_be_asked(make_node: NodeMaker) -> None:
    """With what is missing, and a warning as the thresholds depend on it."""
    node = make_node({"nodefs.available": "7%"}, mergeDefaultEvictionSettings=True)
    found, warnings = as_read(node, "nodes/proxy")
    assert found["kubelet_version"]["version"] == "1.36"
    assert (
        "403 Forbidden: is the identity allowed to get nodes/metrics"
        in found["kubelet_version"]["assumed"]
    )
    assert (
        "warning: the kubelet's settings depend on its version, for which 1.36 is assumed"
        in warnings
    )
