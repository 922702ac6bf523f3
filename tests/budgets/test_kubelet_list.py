"""The cost of the kubelet's pod list: no import at the start, and work in
proportion to the pods.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from reclaim.evidence.pod_list import parse_pod_list
from tests.work import lines_run

MODULES = (
    "reclaim.evidence.states",
    "reclaim.evidence.pod_list",
    "reclaim.kubelet.client",
    "reclaim.kubelet.pods",
)
NETWORK_MODULES = {"ssl", "http.client", "json", "socket", "ipaddress", "urllib.parse", "email"}
# 967 for a pod of five containers on Python 3.11, whatever the size of the rest of it
LINES_A_POD = 1_500


@pytest.mark.parametrize("module", MODULES)
def test_importing_loads_nothing_that_speaks_tls_or_http(module: str) -> None:
    """Those modules are loaded at the first request to the kubelet, so `reclaimd
    reclaim` starts without them.
    """
    program = f"import sys, {module}; print(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    assert module in process.stdout.split()
    assert not NETWORK_MODULES & set(process.stdout.split())


def test_the_cost_of_a_full_node_grows_only_with_the_number_of_pods() -> None:
    """500 pods of 20 KiB; counted in lines run, as a time would depend on the machine."""
    status = {
        "phase": "Running",
        "containerStatuses": [{"state": {"running": {}}, "imageID": "i@sha256:0"}] * 5,
    }
    spec = {
        "containers": [{"image": "i:1"}] * 5,
        "volumes": [{"image": {"reference": "v:1"}}],
        "more": ["y" * 9_000],
    }
    items = [
        {
            "metadata": {"uid": f"uid-{n}", "annotations": {"a": "x" * 10_000}},
            "spec": spec,
            "status": status,
        }
        for n in range(500)
    ]
    body = json.dumps(
        {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
    ).encode()
    assert len(parse_pod_list(body).states) == 500
    assert lines_run(lambda: parse_pod_list(body)) < 500 * LINES_A_POD
