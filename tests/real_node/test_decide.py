"""Grace, minimum reclaim, transition and layout, decided on a real containerd as the kubelet would."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.real_node.loopfs import run_tool, unmount
from tests.real_node.node import Node
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_relief import MIB, configure, removed
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd

OFF = {"evictionMinimumReclaim": {"nodefs.available": "0", "imagefs.available": "0"}}


def spare_images(node: Node, count: int) -> list[str]:
    """Unused images of 40 MiB on disk, the oldest first."""
    made = [
        node.import_image(Image(f"reclaimd.test/spare/{number}:1", (random_layer(number, 20 * MIB),)))
        for number in range(count)
    ]
    time.sleep(1.1)
    return made


def grow(node: Node, size_bytes: int) -> None:
    with (node.mountpoint / "grown").open("ab") as file:
        file.write(b"\1" * size_bytes)


def seconds(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


def test_a_soft_threshold_with_a_grace_of_3_s_acts_after_3_s(containerd_on_ext4: Node, tmp_path: Path) -> None:
    """DiskPressure shows at once; the first removal comes when the grace has been served, and soon after."""
    node = containerd_on_ext4
    images = spare_images(node, 2)
    mark = node.filesystem.available_bytes() - 20 * MIB
    configuration = configure(
        tmp_path,
        node,
        evictionSoft={"nodefs.available": str(mark)},
        evictionSoftGracePeriod={"nodefs.available": "3s"},
        **OFF,
    )
    with Daemon("--config", configuration) as daemon:
        time.sleep(1.0)
        grow(node, 30 * MIB)
        pressure = daemon.wait_for(lambda event: "DiskPressure" in event["message"], 5.0)
        time.sleep(2.0)
        assert set(images) <= node.cri.image_ids(), "within the grace period nothing goes"
        acted = daemon.wait_for(lambda event: event.get("result") == "satisfied", 10.0)
        assert 3.0 <= seconds(acted) - seconds(pressure) < 6.0
    assert images[0] not in node.cri.image_ids()


def test_release_is_above_trigger_and_the_condition_outlives_the_pressure(
    containerd_on_ext4: Node, tmp_path: Path
) -> None:
    """60 MiB of minimum reclaim take two images where one would clear the mark; DiskPressure stays for 3 s more."""
    node = containerd_on_ext4
    images = spare_images(node, 4)
    mark = node.filesystem.available_bytes() - 20 * MIB
    control = tmp_path / "control.sock"
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": str(mark)},
        evictionMinimumReclaim={"nodefs.available": "60Mi"},
        evictionPressureTransitionPeriod="3s",
        parallelRemovals=1,
        pollCeiling="100ms",
        controlSocket=str(control),
    )

    def conditions() -> list[str]:
        status = answer(reclaimd("status", "--config", configuration, "-o", "json"))
        return [str(condition) for condition in status["conditions"]]

    with Daemon("--config", configuration) as daemon:
        time.sleep(1.0)
        grow(node, 25 * MIB)
        relieved = daemon.wait_for(lambda event: event.get("result") == "satisfied", 10.0)
        assert removed(relieved["record"], "image") == images[:2]
        assert conditions() == ["DiskPressure"], "relieved, and still reported"
        over = daemon.wait_for(lambda event: event["message"] == "no DiskPressure any more", 10.0)
        assert seconds(over) - seconds(relieved) >= 2.5
        assert conditions() == []


def test_a_filesystem_mounted_over_the_images_while_it_runs_changes_layout_and_row(
    containerd_on_ext4: Node, tmp_path: Path
) -> None:
    """One filesystem for everything until a second one is mounted over the image root; then nodefs has no row."""
    node = containerd_on_ext4
    (info,) = node.cri.image_filesystems().image_filesystems
    over = Path(info.fs_id.mountpoint)
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": "1Mi"},
        pollCeiling="100ms",
        controlSocket=str(tmp_path / "control.sock"),
        **OFF,
    )

    def layout() -> object:
        return answer(reclaimd("status", "--config", configuration, "-o", "json"))["layout"]

    with Daemon("--config", configuration):
        assert came_true(lambda: layout() == "single", 10.0)
        run_tool("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(over))
        try:
            assert came_true(lambda: layout() == "dedicated-imagefs", 10.0)
        finally:
            unmount(over)
        assert came_true(lambda: layout() == "single", 10.0)


@pytest.mark.parametrize("margin", ["0%", "30Mi"])
def test_beside_a_kubelet_configuration_its_thresholds_are_ours_plus_the_margin(
    containerd_on_ext4: Node, tmp_path: Path, margin: str
) -> None:
    """With a margin of 30 MiB pressure is seen before the kubelet's own mark; with none it is not."""
    node = containerd_on_ext4
    mark = node.filesystem.available_bytes() - 20 * MIB
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(
        json.dumps(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "evictionHard": {"nodefs.available": str(mark), "memory.available": "100Mi"},
                "containerRuntimeEndpoint": f"unix://{node.containerd.socket}",
            }
        )
    )
    arguments = ("--kubelet-config", str(kubelet), "--root-dir", str(node.kubelet.root_dir), "-o", "json")
    override = tmp_path / "own.yaml"
    override.write_text(
        json.dumps({"apiVersion": "reclaimd.io/v1alpha1", "kind": "ReclaimdConfiguration", "margin": margin})
    )
    check = reclaimd("check", "--config", str(override), *arguments)
    met = {threshold["signal"] for threshold in answer(check)["thresholds_met"]}
    assert ("nodefs.available" in met) is (margin == "30Mi")
