"""What goes and what stays of thirty pods on a real containerd, in both modes, is exactly what was written down before.

And afterwards the kubelet's restart rule finds no container that would run again because of it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.real_node import GIB, RealNode
from tests.real_node.conftest import NodeFactory
from tests.real_node.oci import BASE, Image
from tests.real_node.test_relief import SETTLED_SECONDS, configure
from tests.real_node.thirty_pods import ThirtyPods, build_thirty_pods
from tests.reclaimd_process import answer, reclaimd, reclaimd_here
from tests.restart_rule import would_start
from tests.sockets import kubelet_server


@pytest.fixture
def pods(make_node: NodeFactory) -> ThirtyPods:
    """Thirty pods, the youngest old enough to count as settled."""
    node: RealNode = make_node(GIB)
    image = node.import_image(Image("reclaimd.test/app:1", (BASE,)))
    built = build_thirty_pods(node, image)
    time.sleep(SETTLED_SECONDS)
    return built


def would_run(pods: ThirtyPods) -> dict[str, frozenset[str]]:
    """What the kubelet would start next, by pod."""
    copies = pods.copies()
    return {pod.uid: would_start(pod, copies) for pod in pods.specs}


def collect(pods: ThirtyPods, path: Path, **fields: Any) -> dict[str, Any]:
    """One pass to the end of the row; its record."""
    configuration = configure(path, pods.node, **fields)
    process = reclaimd("reclaim", "--config", configuration, "--signal", "nodefs.available", "--now", "-o", "json")
    assert process.returncode == 0, process.stderr
    record: dict[str, Any] = answer(process)
    return record


def logs_of(pods: ThirtyPods) -> dict[str, str]:
    """The fields of a configuration that name the logs of this node."""
    logs = pods.node.kubelet.pod_logs_dir
    return {"podLogsDir": str(logs), "containerLogsDir": str(logs.parent / "containers")}


def test_without_the_kubelets_state_the_stricter_guards_decide(pods: ThirtyPods, tmp_path: Path) -> None:
    """Older copies and all of deleted pods go; of completed pods, whose directory is there, everything stays."""
    before, starts, logs = pods.objects(), would_run(pods), pods.log_directories()
    plan = answer(reclaimd_here("plan", "--config", configure(tmp_path, pods.node, **logs_of(pods)), "-o", "json"))
    record = collect(pods, tmp_path, **logs_of(pods))
    assert before - pods.objects() == pods.goes_always
    assert logs - pods.log_directories() == pods.logs_of_deleted
    assert would_run(pods) == starts, "no container would run again because of it"
    removed = {
        o["id"] for o in record["removals"] if o["result"] == "removed" and o["kind"] in ("container", "sandbox")
    }
    assert removed == pods.goes_always
    over = [o for o in plan["kept"] if o["id"] in pods.goes_when_known and o["kind"] == "container"]
    assert over
    assert {o["rule"] for o in over} == {"guard"}, "a guard keeps what only the kubelet knows to be over"
    assert plan["pods"] == {"told_by": "directories", "problem": None}


def test_with_the_kubelets_state_and_extent_all_it_is_the_kubelet_object_for_object(
    pods: ThirtyPods, tmp_path: Path
) -> None:
    """Terminated pods lose their containers and sandboxes too; their logs stay, as they are not deleted."""
    before, starts, logs = pods.objects(), would_run(pods), pods.log_directories()
    told = kubelet_server.answer(kubelet_server.pod_list(*pods.pod_list))
    with kubelet_server.KubeletServer(told) as kubelet:
        fields = {**logs_of(pods), "kubeletEndpoint": kubelet.url, "extent": "all"}
        plan = answer(reclaimd_here("plan", "--config", configure(tmp_path, pods.node, **fields), "-o", "json"))
        collect(pods, tmp_path, **fields)
    assert before - pods.objects() == pods.goes_always | pods.goes_when_known
    assert logs - pods.log_directories() == pods.logs_of_deleted
    assert would_run(pods) == starts
    assert plan["pods"] == {"told_by": "kubelet", "problem": None}
    decided = [o for o in plan["kept"] if o["kind"] in ("container", "sandbox")]
    assert {o["rule"] for o in decided} == {"kubelet"}
