"""Eviction on a real node: grace periods, minimum reclaim, the transition
period, a layout that changes.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.nodes.real_node import RealNode
from tests.real_node.loopfs import LoopFilesystem, run_tool, unmount
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_relief import configure, removed
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here

MIB = 1 << 20
SLACK_SECONDS = 10.0  # the machine is shared


def unused_images(node: RealNode, count: int) -> list[str]:
    """Unused images of 5 MiB, on disk as blob and as snapshot, old enough to be
    removed; the oldest first.
    """
    images = node.import_images(
        [
            Image(f"reclaimd.test/spare/{number}:1", (random_layer(number, 5 * MIB),))
            for number in range(count)
        ]
    )
    time.sleep(1.1)
    return images


def status(configuration: str) -> Any:
    """The daemon's status, as soon as it answers."""
    arguments = ("status", "--config", configuration, "-o", "json")
    assert came_true(lambda: reclaimd_here(*arguments).returncode == 0)
    return answer(reclaimd_here(*arguments))


def test_a_soft_threshold_acts_after_its_grace_and_not_before(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """A grace period of 3 s: the condition is logged at once, the first image removed 3 s later."""
    node = containerd_on_ext4
    images = unused_images(node, 2)
    configuration = configure(
        tmp_path,
        node,
        evictionSoft={"nodefs.available": str(node.filesystem.available_bytes() + 3 * MIB)},
        evictionSoftGracePeriod={"nodefs.available": "3s"},
    )
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(
            lambda event: event["message"].startswith("ReclaimPressure: nodefs.available")
        )
        seen = time.monotonic()
        assert set(images) <= node.cri.image_ids()
        assert came_true(lambda: images[0] not in node.cri.image_ids())
        took = time.monotonic() - seen
        record = daemon.wait_for(lambda event: event.get("result") == "satisfied")["record"]
        assert daemon.stop() == 0
    assert took >= 2.0, "the condition was logged later than it was observed"
    assert (record["acted_on"]["hard"], record["acted_on"]["grace_seconds"]) == (False, 3.0)
    assert len(daemon.passes) == 1, "no pass ran before"
    assert removed(record, "image") == images[:1]


def test_pressure_that_ends_within_the_grace_period_removes_nothing(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """A file that exists for less than a grace period of 3 s causes no removal, also not later."""
    node = containerd_on_ext4
    images = unused_images(node, 2)
    configuration = configure(
        tmp_path,
        node,
        evictionSoft={"nodefs.available": str(node.filesystem.available_bytes() - 20 * MIB)},
        evictionSoftGracePeriod={"nodefs.available": "3s"},
        pollCeiling="100ms",
    )
    grown = node.mountpoint / "grown"
    with Daemon("--config", configuration) as daemon:
        grown.write_bytes(b"x" * 40 * MIB)
        daemon.wait_for(
            lambda event: event["message"].startswith("ReclaimPressure: nodefs.available")
        )
        grown.unlink()
        time.sleep(4.0)
        assert daemon.passes == []
    assert set(images) <= node.cri.image_ids()


def test_release_is_above_trigger_by_the_minimum_reclaim(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """2 MiB are missing, 15 MiB the minimum reclaim: two images of 10 MiB are
    removed, the third is kept.
    """
    node = containerd_on_ext4
    images = unused_images(node, 3)
    mark = node.filesystem.available_bytes() + 2 * MIB
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": str(mark)},
        evictionMinimumReclaim={"nodefs.available": "15Mi"},
        parallelRemovals=1,
    )
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert node.filesystem.available_bytes() >= mark + 15 * MIB
        left = node.cri.image_ids()
        (node.mountpoint / "grown").write_bytes(
            b"x" * (node.filesystem.available_bytes() - mark - 2 * MIB)
        )
        time.sleep(1.0)
        assert node.cri.image_ids() == left, (
            "above the mark nothing is removed, even below mark and minimum reclaim"
        )
        assert len(daemon.passes) == 1
    assert [image in left for image in images] == [False, False, True]


def test_the_condition_is_kept_for_the_transition_period(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """With a period of 4 s ReclaimPressure is still reported after the relief,
    and ends after the period.
    """
    node = containerd_on_ext4
    unused_images(node, 2)
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": str(node.filesystem.available_bytes() + 3 * MIB)},
        evictionPressureTransitionPeriod="4s",
        controlSocket=str(tmp_path / "control.sock"),
        pollCeiling="100ms",
    )
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        relieved = time.monotonic()
        document = status(configuration)
        if time.monotonic() - relieved < 3.0:
            assert document["conditions"] == ["ReclaimPressure"]
        assert [record["result"] for record in document["passes"]] == ["satisfied"]
        daemon.wait_for(lambda event: event["message"].startswith("ReclaimPressure is over"))
        assert time.monotonic() - relieved >= 2.0, (
            "the last observation with pressure was before the relief was logged"
        )
        assert status(configuration)["conditions"] == []


def test_a_filesystem_that_is_mounted_over_the_image_root_changes_layout_and_row(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """The layout changes from single to dedicated-imagefs; then no function
    of the row relieves nodefs.
    """
    node = containerd_on_ext4
    images = unused_images(node, 1)
    mark = node.filesystem.available_bytes() - 36 * MIB
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": str(mark)},
        controlSocket=str(tmp_path / "control.sock"),
        pollCeiling="100ms",
    )
    with Daemon("--config", configuration) as daemon:
        assert came_true(lambda: status(configuration)["layout"] == "single")
        [root] = {
            one["filesystem"]["path"]
            for one in status(configuration)["observations"]
            if one["signal"] == "imagefs.available"
        }
        with LoopFilesystem(tmp_path / "second", 64 * MIB) as second:
            run_tool("mount", "--bind", second.mountpoint, root)
            try:
                assert came_true(lambda: status(configuration)["layout"] == "dedicated-imagefs")
                (node.mountpoint / "grown").write_bytes(b"x" * 40 * MIB)
                daemon.wait_for(
                    lambda event: event["message"].startswith("ReclaimPressure: nodefs")
                )
                time.sleep(1.0)
                assert daemon.passes == [], "the row is empty, so no pass runs"
                signals = {one["signal"] for one in status(configuration)["thresholds"]}
                assert signals == {"nodefs.available"}, (
                    "containerfs follows imagefs, which has no threshold"
                )
            finally:
                unmount(Path(root))
        assert came_true(lambda: status(configuration)["layout"] == "single")
        record = daemon.wait_for(lambda event: event.get("result") == "satisfied")["record"]
    assert record["row"] == ["DeleteAllUnusedContainers", "DeleteUnusedImages"]
    assert removed(record, "image") == images
