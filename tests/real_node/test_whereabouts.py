"""Attribution of bytes on a real containerd: its statistics, its directories, and
another namespace in its store.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.real_node import RealNode
from tests.real_node.conftest import NodeFactory
from tests.real_node.loopfs import run_tool
from tests.real_node.oci import BASE, Image, random_layer, write_image
from tests.real_node.test_relief import configure
from tests.reclaimd_process import answer, came_true, reclaimd_here

MIB = 1 << 20
STATISTICS_SECONDS = 3.0  # containerd measures its snapshots every second, here
MEASURE_OFTEN = "  stats_collect_period = 1\n"
ON_DISK = 2  # packed and unpacked: an image of random bytes takes its size twice


def measure_often(node: RealNode) -> None:
    """Restart containerd so that it measures every second, not every 10 s."""
    node.containerd.kill()
    file = node.containerd.run_directory / "config.toml"
    head = '[plugins."io.containerd.grpc.v1.cri"]\n'
    file.write_text(file.read_text().replace(head, head + MEASURE_OFTEN))
    node.containerd.start()


def planned(file: str) -> dict[str, Any]:
    """The attribution of the node's only filesystem."""
    (attribution,) = answer(reclaimd_here("plan", "--config", file, "-o", "json"))["attribution"]
    return dict(attribution)


def shares(file: str) -> dict[str, int]:
    attribution = planned(file)
    found = {share["use"]: share["bytes"] for share in attribution["shares"]}
    assert sum(found.values()) == attribution["used"]
    return found


def test_the_plan_attributes_the_bytes_of_a_containerd(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """Two images of 16 MiB, a container that wrote 12 MiB, 8 MiB of logs, an image of 24
    MiB in another namespace.
    """
    node = containerd_on_ext4
    measure_often(node)
    used = node.import_image(Image("registry.example/used:1", (BASE, random_layer(1, 16 * MIB))))
    node.import_image(Image("registry.example/old:1", (random_layer(2, 16 * MIB),)))
    node.kubelet.admit_pod("uid-web")
    sandbox = node.kubelet.run_pod("web", "uid-web")
    script = "dd if=/dev/urandom of=/written bs=1048576 count=12; echo done; exec sleep 1000000"
    container = node.kubelet.run_container(sandbox, "app", used, ("/bin/sh", "-c", script))
    log = sandbox.log_directory / "app" / "0.log.20260101-000000"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(os.urandom(8 * MIB))
    hidden = write_image(Image("registry.example/built:1", (random_layer(3, 24 * MIB),)), tmp_path)
    run_tool(
        "ctr",
        "--address",
        node.containerd.socket,
        "--namespace",
        "another",
        "images",
        "import",
        hidden.path,
    )
    written = sandbox.log_directory / "app" / "0.log"
    assert came_true(lambda: "stdout F done" in written.read_text())
    time.sleep(STATISTICS_SECONDS)
    file = configure(tmp_path, node, podLogsDir=str(node.kubelet.pod_logs_dir))
    found = shares(file)
    assert node.kubelet.state_of(container) == 1, "it still runs"
    assert found["images_in_use"] == pytest.approx(ON_DISK * 16 * MIB, rel=0.15)
    assert found["images_may_go"] == pytest.approx(ON_DISK * 16 * MIB, rel=0.15)
    assert found["containers_live"] == pytest.approx(12 * MIB, rel=0.1)
    assert found["logs_rotated"] == pytest.approx(8 * MIB, rel=0.05)
    assert found["hidden"] == pytest.approx(ON_DISK * 24 * MIB, rel=0.15)


def test_a_deleted_file_that_a_container_holds_open_is_told(
    make_node: NodeFactory, tmp_path: Path
) -> None:
    """It was in the container's writable layer, whose statistics know nothing of it;
    the layer is the runtime's.
    """
    node = make_node(512 * MIB)
    image = node.import_image(Image("registry.example/used:1", (BASE,)))
    node.kubelet.admit_pod("uid-web")
    sandbox = node.kubelet.run_pod("web", "uid-web")
    script = (
        "exec 3>/gone; dd if=/dev/urandom bs=1048576 count=10 >&3; sync; rm /gone; echo done; exec"
        " sleep 1000000"
    )
    node.kubelet.run_container(sandbox, "app", image, ("/bin/sh", "-c", script))
    assert came_true(
        lambda: "stdout F done" in (sandbox.log_directory / "app" / "0.log").read_text()
    )
    attribution = planned(configure(tmp_path, node, podLogsDir=str(node.kubelet.pod_logs_dir)))
    found = {share["use"]: share["bytes"] for share in attribution["shares"]}
    assert found["deleted_open"] == pytest.approx(10 * MIB, rel=0.05)
    remarks = {remark["about"]: remark["sentence"] for remark in attribution["remarks"]}
    assert remarks["deleted_open"].startswith("sleep (pid ")
