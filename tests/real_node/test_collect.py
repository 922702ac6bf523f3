"""What is removed and kept of twelve pods on a real containerd, in both modes, is exactly
what was written down before.

Afterwards the kubelet's restart rule starts no container that it would not have started before.
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
from tests.real_node.twelve_pods import TwelvePods, build_twelve_pods
from tests.reclaimd_process import answer, reclaimd, reclaimd_here
from tests.restart_rule import would_start
from tests.sockets import kubelet_server

BELIEVED = {"believed": True, "why": None, "sentence": None}


@pytest.fixture
def pods(make_node: NodeFactory) -> TwelvePods:
    """Twelve pods, the youngest old enough that its parts may be removed."""
    node: RealNode = make_node(GIB)
    image = node.import_image(Image("reclaimd.test/app:1", (BASE,)))
    built = build_twelve_pods(node, image)
    time.sleep(SETTLED_SECONDS)
    return built


def would_run(pods: TwelvePods) -> dict[str, frozenset[str]]:
    """What the kubelet would start next, by pod."""
    copies = pods.copies()
    return {pod.uid: would_start(pod, copies) for pod in pods.specs}


def collect(pods: TwelvePods, path: Path, **fields: Any) -> dict[str, Any]:
    """One pass over the whole row; its record."""
    configuration = configure(path, pods.node, **fields)
    process = reclaimd(
        "reclaim", "--config", configuration, "--signal", "nodefs.available", "--now", "-o", "json"
    )
    assert process.returncode == 0, process.stderr
    record: dict[str, Any] = answer(process)
    return record


def logs_of(pods: TwelvePods) -> dict[str, str]:
    """The fields of a configuration that name the logs of this node."""
    logs = pods.node.kubelet.pod_logs_dir
    return {"podLogsDir": str(logs), "containerLogsDir": str(logs.parent / "containers")}


def plan_of(pods: TwelvePods, path: Path, **fields: Any) -> dict[str, Any]:
    """What would be removed and kept now; nothing is."""
    before = pods.objects()
    plan: dict[str, Any] = answer(
        reclaimd_here("plan", "--config", configure(path, pods.node, **fields), "-o", "json")
    )
    assert pods.objects() == before
    return plan


def parts(record: dict[str, Any]) -> set[str]:
    """The containers and sandboxes among the removals."""
    return {o["id"] for o in record["removals"] if o["kind"] in ("container", "sandbox")}


def test_the_stricter_guards_decide_without_the_kubelets_state_and_with_it_it_is_the_kubelet_object_for_object(
    pods: TwelvePods, tmp_path: Path
) -> None:
    """Without it older copies and all of deleted pods are removed; completed pods, whose directory
    is there, keep everything. With it, and with extent all, terminated pods lose their containers
    and sandboxes too; their logs are kept, as the pods are not deleted."""
    before, starts, logs = pods.objects(), would_run(pods), pods.log_directories()
    listed = kubelet_server.answer(kubelet_server.pod_list(*pods.pod_list))
    with kubelet_server.KubeletServer(listed) as kubelet:
        with_state = {**logs_of(pods), "kubeletEndpoint": kubelet.url, "extent": "all"}
        told = plan_of(pods, tmp_path, **with_state)
        assert parts(told) == pods.always_removed | pods.removed_with_kubelet
        assert told["pods"] == {"told_by": "kubelet", "problem": None, "directories": BELIEVED}
        assert {o["rule"] for o in told["kept"] if o["kind"] in ("container", "sandbox")} == {
            "kubelet"
        }

        guarded = plan_of(pods, tmp_path, **logs_of(pods))
        over = [
            o
            for o in guarded["kept"]
            if o["id"] in pods.removed_with_kubelet and o["kind"] == "container"
        ]
        assert over
        assert {o["rule"] for o in over} == {"guard"}, (
            "a guard keeps what only the kubelet knows to be terminated"
        )
        assert guarded["pods"] == {
            "told_by": "directories",
            "problem": None,
            "directories": BELIEVED,
        }
        record = collect(pods, tmp_path, **logs_of(pods))
        assert before - pods.objects() == pods.always_removed
        assert logs - pods.log_directories() == pods.logs_of_deleted
        assert would_run(pods) == starts, "the restart rule starts nothing more than before"
        assert {
            o["id"] for o in record["removals"] if o["result"] == "removed"
        } >= pods.always_removed
        assert parts(record) == pods.always_removed

        collect(pods, tmp_path, **with_state)
    assert before - pods.objects() == pods.always_removed | pods.removed_with_kubelet
    assert logs - pods.log_directories() == pods.logs_of_deleted
    assert would_run(pods) == starts
