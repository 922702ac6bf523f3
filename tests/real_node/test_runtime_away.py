"""A runtime that is missing, refuses, hangs or dies: a clear state, no crash, and back to work within 2 s."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from tests.nodes.real_node import RealNode
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import Daemon, came_true, reclaimd

MIB = 1 << 20
BACK_SECONDS = 20.0  # ten times the 2 s that it takes at most where nothing else runs


def pressured(node: RealNode, tmp_path: Path, **fields: object) -> str:
    """Two unused images and a mark that their removal clears."""
    for number in range(2):
        node.import_image(Image(f"reclaimd.test/spare/{number}:1", (random_layer(number, 20 * MIB),)))
    time.sleep(1.1)
    mark = node.filesystem.available_bytes() + 10 * MIB
    return configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": str(mark)},
        evictionMinimumReclaim={"nodefs.available": "0"},
        **fields,
    )


def spare_images(node: RealNode) -> int:
    return sum("spare" in tag for image in node.cri.list_images() for tag in image.repo_tags)


def test_a_runtime_that_is_not_there_is_said_once_and_found_within_2_s_of_its_return(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """The daemon starts without a runtime, says so, and relieves the node when the runtime is there."""
    node = containerd_on_ext4
    configuration = pressured(node, tmp_path)
    node.containerd.kill()
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: "the container runtime cannot be asked" in event["message"])
        time.sleep(3.0)
        assert daemon.process.poll() is None, "it does not end"
        assert sum("cannot be asked" in event["message"] for event in daemon.events) == 1, "said once"
        node.containerd.start()
        assert came_true(lambda: spare_images(node) < 2, BACK_SECONDS)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")


def test_a_runtime_that_hangs_does_not_stop_the_looks_and_is_used_within_2_s_of_its_return(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """While the runtime is stopped the daemon still says that the disk is under pressure, and leaves when told."""
    node = containerd_on_ext4
    configuration = pressured(node, tmp_path)
    node.containerd.pause()
    try:
        with Daemon("--config", configuration) as daemon:
            daemon.wait_for(lambda event: "DiskPressure" in event["message"])
            time.sleep(2.0)
            assert daemon.process.poll() is None
            node.containerd.resume()
            assert came_true(lambda: spare_images(node) < 2, BACK_SECONDS)
            daemon.wait_for(lambda event: event.get("result") == "satisfied")
    finally:
        node.containerd.resume()


def test_a_daemon_beside_a_hung_runtime_leaves_within_2_s_of_sigterm(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """Nothing is in flight, so nothing is waited for."""
    node = containerd_on_ext4
    configuration = pressured(node, tmp_path)
    node.containerd.pause()
    try:
        daemon = Daemon("--config", configuration).__enter__()
        time.sleep(0.5)
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < BACK_SECONDS
    finally:
        node.containerd.resume()


def test_a_runtime_that_dies_in_the_middle_is_taken_up_again(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """SIGKILL while the daemon runs: it says so, and relieves the next pressure after the restart."""
    node = containerd_on_ext4
    for number in range(2):
        node.import_image(Image(f"reclaimd.test/spare/{number}:1", (random_layer(number, 20 * MIB),)))
    mark = node.filesystem.available_bytes() - 30 * MIB
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
        assert came_true(lambda: spare_images(node) < 2, BACK_SECONDS)
        daemon.wait_for(lambda event: event.get("result") == "satisfied")


def test_the_hook_says_in_one_sentence_that_the_runtime_cannot_be_reached(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """Missing, refused, no socket: exit 3 and one sentence that names the socket; check still shows the disk."""
    node = containerd_on_ext4
    refusing = tmp_path / "refusing.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(refusing))  # bound and never listened on: connections are refused
    plain = tmp_path / "plain-file"
    plain.touch()
    for path in (tmp_path / "missing.sock", refusing, plain):
        configuration = configure(
            tmp_path, node, evictionHard={"nodefs.available": "100Gi"}, containerRuntimeEndpoint=f"unix://{path}"
        )
        process = reclaimd("reclaim", "--config", configuration)
        assert process.returncode == 3
        assert process.stderr.count("\n") == 1
        assert str(path) in process.stderr
        plan = reclaimd("plan", "--config", configuration)
        assert (plan.returncode, plan.stdout) == (3, "")
        check = reclaimd("check", "--config", configuration)
        assert check.returncode == 1, "nodefs is readable without a runtime, and under pressure"
        assert "nodefs.available" in check.stdout
