"""What garbage collection beside a real kubelet must not disturb: no pod runs
again, and no log is lost.

The kubelet finds again what a pod has done by the dead containers that the runtime still has:
without them a completed pod would run a second time, and an init container would be repeated.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.kubelet.conftest import NodeMaker
from tests.kubelet.every_kind import (
    LOGS,
    MIB,
    SETTLED,
    logs,
    make_pods_of_every_kind,
    restarts_of,
    statuses,
)
from tests.kubelet.kubelet import IMAGE_AGE_SECONDS
from tests.kubelet.node import KubeletNode
from tests.real_node.oci import BASE, Image, random_layer
from tests.reclaimd_process import reclaimd, write_configuration

TIMES = 20


@pytest.fixture
def node(make_node: NodeMaker) -> KubeletNode:
    """A node with a pod of each kind, a static one among them."""
    made = make_node()
    make_pods_of_every_kind(made)
    return made


def test_no_pod_runs_again_and_every_log_is_served(node: KubeletNode) -> None:
    """After everything that may go was removed twenty times, with new unused images each time."""
    configuration = write_configuration(
        node.disk.parent / "reclaimd.yaml", **node.reclaimd_fields()
    )
    before = statuses(node, *SETTLED)
    crashes = restarts_of(node, "crashing")
    for number in range(TIMES):
        node.import_images(
            [Image(f"reclaimd.test/unused:{number}", (BASE, random_layer(100 + number, MIB)))]
        )
        time.sleep(1.1 * IMAGE_AGE_SECONDS)
        process = reclaimd(
            "reclaim",
            "--config",
            str(configuration),
            "--signal",
            "imagefs.available",
            "--all",
            "--now",
            "-o",
            "json",
        )
        assert process.returncode == 0, process.stderr
        removed = [each["name"] for each in json.loads(process.stdout)["removals"]]
        assert f"reclaimd.test/unused:{number}" in removed, process.stdout + process.stderr
    assert statuses(node, *before) == before
    assert restarts_of(node, "crashing") >= crashes
    assert logs(node) == {**LOGS, "prepared": "prepared is prepared\n"}


def test_a_kubelet_that_restarts_afterwards_finds_everything_again(node: KubeletNode) -> None:
    """Its memory is what the runtime holds: nothing runs again."""
    configuration = write_configuration(
        node.disk.parent / "reclaimd.yaml", **node.reclaimd_fields()
    )
    before = statuses(node, *SETTLED)
    process = reclaimd(
        "reclaim", "--config", str(configuration), "--signal", "imagefs.available", "--all", "--now"
    )
    assert process.returncode == 0, process.stderr
    node.kubelet.stop()
    node.kubelet.start()
    crashes = restarts_of(node, "crashing")
    node.api.wait("it crashes again", lambda: restarts_of(node, "crashing") > crashes, 120.0)
    assert statuses(node, *before) == before
