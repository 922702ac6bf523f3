"""Eviction on a real node: grace periods, minimum reclaim, the transition
period, a layout that changes.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.nodes.real_node import RealNode
from tests.real_node.loopfs import MIB, LoopFilesystem, run_tool, unmount
from tests.real_node.steps import file_of, relieved, removed, status, unused_images
from tests.reclaimd_process import Daemon, came_true


def test_a_soft_threshold_acts_after_its_grace_and_not_for_pressure_that_ends_within_it(
    containerd: RealNode,
) -> None:
    """A grace period of 3 s: a file that exists for less causes no removal, also not later. Of one
    that stays the condition is logged at once, and the first image removed 3 s later."""
    node = containerd
    images = unused_images(node, 3, 10 * MIB)
    soft = {"nodefs.available": str(node.filesystem.available_bytes() - 20 * MIB)}
    configuration = file_of(
        node,
        evictionSoft=soft,
        evictionSoftGracePeriod={"nodefs.available": "3s"},
        evictionPressureTransitionPeriod="1s",
        pollCeiling="100ms",
    )
    grown = node.mountpoint / "grown"
    with Daemon("--config", configuration) as daemon:

        def pressed() -> int:
            """How often the mark was crossed."""
            told = [event["message"] for event in list(daemon.events)]
            return sum(each.startswith("ReclaimPressure: nodefs.available") for each in told)

        grown.write_bytes(b"x" * 30 * MIB)
        assert came_true(lambda: pressed() == 1)
        grown.unlink()
        time.sleep(4.0)
        assert daemon.passes == []
        assert set(images) <= node.cri.image_ids()
        grown.write_bytes(b"x" * 30 * MIB)
        assert came_true(lambda: pressed() == 2)
        seen = time.monotonic()
        assert set(images) <= node.cri.image_ids()
        assert came_true(lambda: images[0] not in node.cri.image_ids())
        took = time.monotonic() - seen
        record = relieved(daemon)
        assert daemon.stop() == 0
    assert took >= 2.0, "the condition was logged later than it was observed"
    assert (record["acted_on"]["hard"], record["acted_on"]["grace_seconds"]) == (False, 3.0)
    assert len(daemon.passes) == 1, "no pass ran before"
    assert removed(record) == images[:1]


def test_the_condition_is_kept_for_the_transition_period(
    containerd: RealNode, tmp_path: Path
) -> None:
    """Release is above trigger by the minimum reclaim: 2 MiB are missing, 15 MiB the minimum
    reclaim, so two images of 10 MiB are removed and the third is kept. With a period of 4 s
    ReclaimPressure is still reported after the relief, and ends after the period; above the mark
    nothing is removed, even below mark and minimum reclaim."""
    node = containerd
    images = unused_images(node, 3)
    mark = node.filesystem.available_bytes() + 2 * MIB
    configuration = file_of(
        node,
        nodefs=mark,
        evictionMinimumReclaim={"nodefs.available": "15Mi"},
        evictionPressureTransitionPeriod="4s",
        controlSocket=str(tmp_path / "control.sock"),
        pollCeiling="100ms",
        parallelRemovals=1,
    )
    with Daemon("--config", configuration) as daemon:
        relieved(daemon)
        since = time.monotonic()
        assert node.filesystem.available_bytes() >= mark + 15 * MIB
        document = status(configuration)
        if time.monotonic() - since < 3.0:
            assert document["conditions"] == ["ReclaimPressure"]
        above = node.filesystem.available_bytes() - mark
        (node.mountpoint / "grown").write_bytes(b"x" * (above - 2 * MIB))
        daemon.wait_for(lambda event: event["message"].startswith("ReclaimPressure is over"))
        # the last observation with pressure was before the relief was logged
        assert time.monotonic() - since >= 2.0
        document = status(configuration)
        assert document["conditions"] == []
        assert [record["result"] for record in document["passes"]] == ["satisfied"]
        left = node.cri.image_ids()
    assert [image in left for image in images] == [False, False, True]


def test_a_filesystem_that_is_mounted_over_the_image_root_changes_layout_and_row(
    containerd: RealNode, tmp_path: Path
) -> None:
    """The layout changes from single to dedicated-imagefs; then no function
    of the row relieves nodefs.
    """
    node = containerd
    images = unused_images(node, 1)
    mark = node.filesystem.available_bytes() - 36 * MIB
    control = str(tmp_path / "control.sock")
    configuration = file_of(node, nodefs=mark, controlSocket=control, pollCeiling="100ms")

    def becomes(layout: str) -> bool:
        return came_true(lambda: status(configuration)["layout"] == layout)

    with Daemon("--config", configuration) as daemon:
        assert becomes("single")
        [root] = {
            one["filesystem"]["path"]
            for one in status(configuration)["observations"]
            if one["signal"] == "imagefs.available"
        }
        with LoopFilesystem(tmp_path / "second", 64 * MIB) as second:
            run_tool("mount", "--bind", second.mountpoint, root)
            try:
                assert becomes("dedicated-imagefs")
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
        assert becomes("single")
        record = relieved(daemon)
    assert record["row"] == ["DeleteAllUnusedContainers", "DeleteUnusedImages"]
    assert removed(record) == images
