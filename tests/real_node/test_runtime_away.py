"""A runtime that is missing, refuses, hangs or dies is logged; reclaiming resumes
within 2 s of its return.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from tests.nodes.real_node import RealNode
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, came_true, reclaimd, reclaimd_here

MIB = 1 << 20
BACK_SECONDS = 20.0  # ten times the 2 s that it takes at most on an idle machine


def import_unused_images(node: RealNode) -> None:
    """Two, of 10 MiB each."""
    node.import_images(
        [Image(f"reclaimd.test/spare/{n}:1", (random_layer(n, 5 * MIB),)) for n in range(2)]
    )


def under_pressure(node: RealNode, tmp_path: Path, **fields: object) -> str:
    """Two unused images and a mark that their removal clears."""
    import_unused_images(node)
    time.sleep(1.1)
    mark = node.filesystem.available_bytes() + 3 * MIB
    return configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": str(mark)},
        evictionMinimumReclaim={"nodefs.available": "0"},
        **fields,
    )


def unused_images(node: RealNode) -> int:
    return sum("spare" in tag for image in node.cri.list_images() for tag in image.repo_tags)


def test_a_missing_runtime_is_logged_once_and_used_within_2_s_of_its_return(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """The daemon starts without a runtime, logs that, and relieves the node
    when the runtime is there.
    """
    node = containerd_on_ext4
    configuration = under_pressure(node, tmp_path)
    node.containerd.kill()
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: "the container runtime cannot be asked" in event["message"])
        time.sleep(3.0)
        assert daemon.process.poll() is None, "it does not end"
        assert sum("cannot be asked" in event["message"] for event in daemon.events) == 1, (
            "logged once"
        )
        node.containerd.start()
        assert came_true(lambda: unused_images(node) < 2, BACK_SECONDS)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")


def test_a_runtime_that_hangs_does_not_stop_polling_and_is_used_within_2_s_of_its_return(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """While the runtime is stopped the daemon still logs disk pressure, and relieves it
    after the runtime's return.
    """
    node = containerd_on_ext4
    configuration = under_pressure(node, tmp_path)
    node.containerd.pause()
    try:
        with Daemon("--config", configuration) as daemon:
            daemon.wait_for(lambda event: "ReclaimPressure" in event["message"])
            time.sleep(2.0)
            assert daemon.process.poll() is None
            node.containerd.resume()
            assert came_true(lambda: unused_images(node) < 2, BACK_SECONDS)
            daemon.wait_for(lambda event: event.get("result") == "satisfied")
    finally:
        node.containerd.resume()


def test_a_daemon_beside_a_hung_runtime_exits_within_2_s_of_sigterm(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """No removal is in flight, so SIGTERM waits for nothing."""
    node = containerd_on_ext4
    configuration = under_pressure(node, tmp_path)
    node.containerd.pause()
    try:
        daemon = Daemon("--config", configuration).__enter__()
        time.sleep(0.5)
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < BACK_SECONDS
    finally:
        node.containerd.resume()


def test_a_runtime_that_is_killed_is_used_again_after_its_restart(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """After SIGKILL of the runtime a pass fails; after its restart the node is relieved."""
    node = containerd_on_ext4
    import_unused_images(node)
    mark = node.filesystem.available_bytes() - 37 * MIB
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": str(mark)},
        evictionMinimumReclaim={"nodefs.available": "0"},
    )
    with Daemon("--config", configuration) as daemon:
        time.sleep(1.0)
        node.containerd.kill()
        (node.mountpoint / "grown").write_bytes(b"x" * 40 * MIB)
        daemon.wait_for(lambda event: event.get("result") == "failed")
        node.containerd.start()
        assert came_true(lambda: unused_images(node) < 2, BACK_SECONDS)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")


def test_reclaim_reports_an_unreachable_runtime_in_one_sentence(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """Missing, refusing, not a socket: exit 3 and one sentence that names the path;
    check still shows the disk.
    """
    node = containerd_on_ext4
    refusing = tmp_path / "refusing.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(refusing))  # bound and never listened on: connections are refused
    plain = tmp_path / "plain-file"
    plain.touch()
    for run, path in (
        (reclaimd, tmp_path / "missing.sock"),
        (reclaimd_here, refusing),
        (reclaimd_here, plain),
    ):
        configuration = configure(
            tmp_path,
            node,
            evictionHard={"nodefs.available": "100Gi"},
            containerRuntimeEndpoint=f"unix://{path}",
        )
        process = run("reclaim", "--config", configuration)
        assert process.returncode == 3
        assert process.stderr.count("\n") == 1
        assert str(path) in process.stderr
        plan = run("plan", "--config", configuration)
        assert (plan.returncode, plan.stdout) == (3, "")
        check = run("check", "--config", configuration)
        assert check.returncode == 1, "nodefs is readable without a runtime, and under pressure"
        assert "nodefs.available" in check.stdout
