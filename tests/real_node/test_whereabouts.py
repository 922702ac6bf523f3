"""Where the bytes are on a real containerd: its own statistics, its own directories, another namespace in the store."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.nodes.real_node import RealNode
from tests.real_node.loopfs import run_tool
from tests.real_node.oci import BASE, Image, random_layer, write_image
from tests.real_node.test_relief import configure
from tests.reclaimd_process import answer, reclaimd_here

MIB = 1 << 20
STATISTICS_SECONDS = 12.0  # containerd looks at its snapshots every 10 s
ON_DISK = 2  # packed and unpacked: an image of random bytes takes its size twice


def shares(file: str) -> dict[str, int]:
    (attribution,) = answer(reclaimd_here("plan", "--config", file, "-o", "json"))["attribution"]
    found = {share["use"]: share["bytes"] for share in attribution["shares"]}
    assert sum(found.values()) == attribution["used"]
    return found


def test_the_plan_tells_where_the_bytes_of_a_containerd_are(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """Two images of 40 MiB, a container that wrote 30 MiB, 20 MiB of logs, an image of 60 MiB in another namespace."""
    node = containerd_on_ext4
    used = node.import_image(Image("registry.example/used:1", (BASE, random_layer(1, 40 * MIB))))
    node.import_image(Image("registry.example/old:1", (random_layer(2, 40 * MIB),)))
    node.kubelet.admit_pod("uid-web")
    sandbox = node.kubelet.run_pod("web", "uid-web")
    script = "dd if=/dev/urandom of=/written bs=1048576 count=30; exec sleep 1000000"
    container = node.kubelet.run_container(sandbox, "app", used, ("/bin/sh", "-c", script))
    log = sandbox.log_directory / "app" / "0.log.20260101-000000"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(os.urandom(20 * MIB))
    hidden = write_image(Image("registry.example/built:1", (random_layer(3, 60 * MIB),)), tmp_path)
    run_tool("ctr", "--address", node.containerd.socket, "--namespace", "another", "images", "import", hidden.path)
    time.sleep(STATISTICS_SECONDS)
    file = configure(tmp_path, node, podLogsDir=str(node.kubelet.pod_logs_dir))
    found = shares(file)
    assert node.kubelet.state_of(container) == 1, "it still runs"
    assert found["images_in_use"] == pytest.approx(ON_DISK * 40 * MIB, rel=0.15)
    assert found["images_may_go"] == pytest.approx(ON_DISK * 40 * MIB, rel=0.15)
    assert found["containers_live"] == pytest.approx(30 * MIB, rel=0.1)
    assert found["logs_rotated"] == pytest.approx(20 * MIB, rel=0.05)
    assert found["hidden"] == pytest.approx(ON_DISK * 60 * MIB, rel=0.15)
