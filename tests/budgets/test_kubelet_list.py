"""What the kubelet's pod list costs: nothing at a start that does not ask, and little for a full node."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from reclaim.pods.pod_list import parse_pod_list
from tests.work import lines_run

MODULES = (
    "reclaim.pods.states",
    "reclaim.pods.pod_list",
    "reclaim.pods.kubelet_endpoint",
    "reclaim.pods.kubelet_client",
    "reclaim.pods.kubelet_pods",
)
DEAR = {"ssl", "http.client", "json", "socket", "ipaddress", "urllib.parse", "email"}
LINES_A_POD = 600  # 303 for a pod of five containers on Python 3.11, whatever the size of the rest of it


@pytest.mark.parametrize("module", MODULES)
def test_importing_loads_nothing_that_speaks_tls_or_http(module: str) -> None:
    """That is loaded when the kubelet is asked: the emergency hook starts without it."""
    program = f"import sys, {module}; print(*sys.modules)"
    process = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert module in process.stdout.split()
    assert not DEAR & set(process.stdout.split())


def test_what_a_full_node_costs_grows_with_its_pods_alone() -> None:
    """500 pods of 20 KiB; counted in lines, as a time would be that of the machine."""
    status = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}] * 5}
    items = [
        {"metadata": {"uid": f"uid-{n}", "annotations": {"a": "x" * 10_000}}, "spec": ["y" * 9_000], "status": status}
        for n in range(500)
    ]
    body = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}).encode()
    assert len(parse_pod_list(body).states) == 500
    assert lines_run(lambda: parse_pod_list(body)) < 500 * LINES_A_POD
