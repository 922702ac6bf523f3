"""`kubeletEndpoint: auto` beside a real kubelet that asks the API server whom it may
answer, as kubeadm sets it up.
"""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
from typing import Any

import pytest

from reclaim.evidence.pod_list import parse_pod_list
from reclaim.kubelet.client import KubeletEndpoint, ask_kubelet
from tests.kubelet import manifests
from tests.kubelet.access import allow_group
from tests.kubelet.conftest import NodeMaker
from tests.kubelet.kubelet import IMAGE_AGE_SECONDS
from tests.kubelet.manifests import APP
from tests.kubelet.node import KubeletNode
from tests.kubelet.programs import program
from tests.real_node.oci import BASE, Image
from tests.reclaimd_process import reclaimd, write_configuration

COLLECT = ("reclaim", "--signal", "nodefs.available", "--all", "--now")


def finding(configuration: str) -> dict[str, Any]:
    """What doctor says of asking the kubelet; empty if nothing is wrong."""
    process = reclaimd("doctor", "--config", configuration, "-o", "json")
    findings = json.loads(process.stdout)["findings"]
    return next((each for each in findings if each["check"] == "kubelet-list"), {})


def containers(node: KubeletNode) -> int:
    """How many containers the runtime has."""
    return len(node.runtime.cri.list_containers())


def configured(node: KubeletNode, **fields: str) -> str:
    """A configuration that leaves it at the default how the kubelet is
    asked, unless `fields` say so.
    """
    fields = {**node.reclaimd_fields(), "imageMinimumGCAge": f"{IMAGE_AGE_SECONDS}s", **fields}
    return str(write_configuration(node.disk.parent / f"reclaimd-{len(fields)}.yaml", **fields))


def test_at_its_own_socket_the_kubelet_lists_its_pods_to_root(make_node: NodeMaker) -> None:
    """Without an identity or a role: it says what it says over HTTPS, and what a terminated pod
    holds goes. Once the gate is off, the socket stays behind, and the other ways are tried."""
    version = subprocess.run(
        [program("KUBELET"), "--version"], capture_output=True, text=True, check=True
    ).stdout
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < (1, 36):
        pytest.skip(f"a kubelet has its Pods API from 1.36 on, and this is {version.strip()}")
    node = make_node(featureGates={"PodsAPI": True})
    at = node.kubelet.root / "pods-api" / "pods-api.sock"
    assert (stat.S_IMODE(at.parent.stat().st_mode) | stat.S_IMODE(at.stat().st_mode)) & 0o022 == 0
    node.import_images([Image(APP, (BASE,))])
    node.create(manifests.completed("done", APP))
    node.create(manifests.running("web", APP))
    node.wait_for_phase("done", "Succeeded")
    node.wait_for_phase("web", "Running")
    certificate, key = node.plane.authority.sign("reads-pods", "system:masters")
    over_https = KubeletEndpoint(
        node.kubelet.endpoint,
        certificate_file=str(certificate),
        key_file=str(key),
        ca_file=str(node.plane.authority.certificate),
    )
    over_socket = KubeletEndpoint(f"unix://{at}")

    def agree() -> bool:
        return parse_pod_list(ask_kubelet(over_socket)) == parse_pod_list(ask_kubelet(over_https))

    node.api.wait("both lists agree", agree, 30.0)
    found = parse_pod_list(ask_kubelet(over_socket))
    assert sorted(state.terminated for state in found.states.values()) == [False, True]
    assert found.from_api_server
    configuration = configured(node)
    assert finding(configuration) == {}
    assert reclaimd(*COLLECT, "--config", configuration).returncode == 0
    assert containers(node) == 1
    node.kubelet.stop()
    document = json.loads(node.kubelet.configuration.read_text())
    node.kubelet.configuration.write_text(json.dumps(document | {"featureGates": {}}))
    node.kubelet.start()
    assert at.exists()
    assert "as root at its socket: " in json.dumps(finding(configuration))
    assert "Connection refused" in json.dumps(finding(configuration))


def test_the_nodes_own_identity_is_used_once_it_has_a_role(make_node: NodeMaker) -> None:
    """Before, the kubelet forbids it, and nothing of a terminated pod goes. Only doctor says so, in
    a note, unless `kubeletEndpoint` is written."""
    node = make_node()
    node.import_images([Image(APP, (BASE,))])
    shutil.copy(node.kubelet.directory / "kubeconfig", node.kubelet.root / "kubeconfig")
    configuration = configured(node)
    node.create(manifests.completed("done", APP))
    node.wait_for_phase("done", "Succeeded")
    assert "403 Forbidden" in finding(configuration)["evidence"]
    for file, level, lines in (
        (configuration, "note", 0),
        (configured(node, kubeletEndpoint="auto"), "risk", 1),
    ):
        assert finding(file)["level"] == level
        collected = reclaimd(*COLLECT, "--config", file)
        assert (
            collected.returncode,
            collected.stderr.count("no way was found to ask the kubelet"),
        ) == (0, lines)
        assert containers(node) == 1
    take_back = allow_group(node, "system:nodes", "nodes/pods")
    try:
        node.api.wait("the kubelet is asked", lambda: finding(configuration) == {}, 30.0)
        assert reclaimd(*COLLECT, "--config", configuration).returncode == 0
        assert containers(node) == 0
    finally:
        take_back()
