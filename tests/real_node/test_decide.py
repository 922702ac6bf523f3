"""Deciding on a real node: grace periods, minimum reclaim, the transition period, a layout that changes."""

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


def spare_images(node: RealNode, count: int) -> list[str]:
    """Unused images of 20 MiB, on disk as blob and as snapshot, old enough to go; the oldest first."""
    images = [
        node.import_image(Image(f"reclaimd.test/spare/{number}:1", (random_layer(number, 20 * MIB),)))
        for number in range(count)
    ]
    time.sleep(1.1)
    return images


def status(configuration: str) -> Any:
    """What the daemon says of itself, as soon as it answers."""
    arguments = ("status", "--config", configuration, "-o", "json")
    assert came_true(lambda: reclaimd_here(*arguments).returncode == 0)
    return answer(reclaimd_here(*arguments))


def test_a_soft_threshold_acts_after_its_grace_and_not_before(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """A grace of 3 s: the condition at once, the first removal 3 s later and not long after."""
    node = containerd_on_ext4
    images = spare_images(node, 2)
    configuration = configure(
        tmp_path,
        node,
        evictionSoft={"nodefs.available": str(node.filesystem.available_bytes() + 10 * MIB)},
        evictionSoftGracePeriod={"nodefs.available": "3s"},
    )
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: event["message"].startswith("DiskPressure: nodefs.available"))
        seen = time.monotonic()
        assert set(images) <= node.cri.image_ids()
        assert came_true(lambda: images[0] not in node.cri.image_ids())
        took = time.monotonic() - seen
        record = daemon.wait_for(lambda event: event.get("result") == "satisfied")["record"]
        assert daemon.stop() == 0
    assert took >= 2.0, "the condition was told after it was seen"
    assert (record["acted_on"]["hard"], record["acted_on"]["grace_seconds"]) == (False, 3.0)
    assert len(daemon.passes) == 1, "nothing was tried before"
    assert removed(record, "image") == images[:1]


def test_pressure_that_ends_within_the_grace_costs_nothing(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """A file that comes and goes within a grace of 3 s: no removal, also not later."""
    node = containerd_on_ext4
    images = spare_images(node, 2)
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
        daemon.wait_for(lambda event: event["message"].startswith("DiskPressure: nodefs.available"))
        grown.unlink()
        time.sleep(4.0)
        assert daemon.passes == []
    assert set(images) <= node.cri.image_ids()


def test_release_is_above_trigger_by_the_minimum_reclaim(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """5 MiB are missing, 60 MiB are the minimum reclaim: two images of 40 MiB on disk go, the third stays."""
    node = containerd_on_ext4
    images = spare_images(node, 3)
    mark = node.filesystem.available_bytes() + 5 * MIB
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": str(mark)},
        evictionMinimumReclaim={"nodefs.available": "60Mi"},
        parallelRemovals=1,
    )
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert node.filesystem.available_bytes() >= mark + 60 * MIB
        left = node.cri.image_ids()
        (node.mountpoint / "grown").write_bytes(b"x" * (node.filesystem.available_bytes() - mark - 2 * MIB))
        time.sleep(2.0)
        assert node.cri.image_ids() == left, "the region above the mark, entered from above, is nothing"
        assert len(daemon.passes) == 1
    assert [image in left for image in images] == [False, False, True]


def test_the_condition_stays_for_the_transition_period(containerd_on_ext4: RealNode, tmp_path: Path) -> None:
    """With a period of 4 s DiskPressure is reported 2 s after the relief, and not any more after 4 s."""
    node = containerd_on_ext4
    spare_images(node, 2)
    configuration = configure(
        tmp_path,
        node,
        evictionHard={"nodefs.available": str(node.filesystem.available_bytes() + 5 * MIB)},
        evictionPressureTransitionPeriod="4s",
        controlSocket=str(tmp_path / "control.sock"),
        pollCeiling="100ms",
    )
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        relieved = time.monotonic()
        document = status(configuration)
        if time.monotonic() - relieved < 3.0:
            assert document["conditions"] == ["DiskPressure"]
        assert [record["result"] for record in document["passes"]] == ["satisfied"]
        daemon.wait_for(lambda event: event["message"] == "no DiskPressure any more")
        assert time.monotonic() - relieved >= 2.0, "the last look with pressure was before the relief was told"
        assert status(configuration)["conditions"] == []


def test_a_filesystem_that_is_mounted_over_the_image_root_changes_layout_and_row(
    containerd_on_ext4: RealNode, tmp_path: Path
) -> None:
    """While the daemon runs: single before, dedicated-imagefs after; then nodefs has nothing that relieves it."""
    node = containerd_on_ext4
    images = spare_images(node, 1)
    mark = node.filesystem.available_bytes() - 30 * MIB
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
                daemon.wait_for(lambda event: event["message"].startswith("DiskPressure: nodefs"))
                time.sleep(1.0)
                assert daemon.passes == [], "an empty row: the runtime is asked for nothing"
                signals = {one["signal"] for one in status(configuration)["thresholds"]}
                assert signals == {"nodefs.available"}, "containerfs follows imagefs, which has no threshold"
            finally:
                unmount(Path(root))
        assert came_true(lambda: status(configuration)["layout"] == "single")
        record = daemon.wait_for(lambda event: event.get("result") == "satisfied")["record"]
    assert record["row"] == ["DeleteAllUnusedContainers", "DeleteUnusedImages"]
    assert removed(record, "image") == images
