"""Filesystems that count no inodes, do not answer or do not exist: neither
pressure nor the end of it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

from eviction.drill.private_mounts import unmount
from signals.filesystems import Reading, read_statvfs
from signals.types import FsLayout, Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import MIB, SmallNode, reason_of
from tests.reclaimd_process import answer, reclaimd, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.mounts import dead_filesystem, mounted_tmpfs


def test_a_tmpfs_without_an_inode_limit_has_no_inode_signal(small_node: SmallNode) -> None:
    """0 of 0 inodes is not 0 percent free: the signal does not exist, and the bytes
    are watched all the same.
    """
    mounted_tmpfs(str(small_node.images_root), 16 * MIB, 0)
    try:
        assert os.statvfs(small_node.images_root).f_files == 0
        configuration = small_node.configuration(
            evictionHard={"imagefs.inodesFree": "50%", "nodefs.inodesFree": "1%"}
        )
        process = reclaimd_here("check", "--config", configuration, "-o", "json")
        found = {each["signal"]: each for each in answer(process)["observations"]}
        assert process.returncode == 0, "a signal that does not exist is neither met nor unknown"
        assert "imagefs.inodesFree" not in found
        assert found["imagefs.available"]["capacity"] == 16 * MIB
        assert found["nodefs.inodesFree"]["capacity"] == 4000
    finally:
        unmount(str(small_node.images_root))


def test_a_filesystem_like_btrfs_is_never_under_pressure_of_inodes(small_node: SmallNode) -> None:
    """Where the inode total is 0, no image is removed for inodes, although 0 are free."""
    small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))

    def without_inodes(path: str, now: float) -> Reading:
        reading = read_statvfs(path, now)
        return reading._replace(stats=replace(reading.stats, inodes_free=0, inodes_total=0))

    node = small_node.node(Signal.NODEFS_INODES_FREE, above=100, reader=without_inodes)
    node.locate()
    observations, decision = node.look()
    assert Signal.NODEFS_INODES_FREE not in observations.signals
    assert Signal.NODEFS_AVAILABLE in observations.signals
    assert (decision.conditions, decision.acted_on) == (frozenset(), None)


class StuckReader:
    """Reads filesystems until `stuck` is set; then all paths on that of
    `path` block until `release`.
    """

    def __init__(self, path: Path) -> None:
        self._device = path.stat().st_dev
        self.stuck = False
        self.release = threading.Event()

    def __call__(self, path: str, now: float) -> Reading:
        """One reading, sooner or later."""
        if self.stuck and Path(path).stat().st_dev == self._device:
            self.release.wait()
        return read_statvfs(path, now)


def test_nothing_is_removed_blind(small_node: SmallNode) -> None:
    """When the filesystem stops answering during a pass, the pass ends: without readings
    it could remove everything.
    """
    images = small_node.add_images(4)
    small_node.run(small_node.run_pod("web"))
    reader = StuckReader(small_node.root_directory)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB, reader=reader)
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(node) as going:
        small_node.wait_for("RemoveImage")
        reader.stuck = True
        small_node.failpoints.clear()
        record = going.result()
        reader.release.set()
    assert small_node.removed() == images[:1]
    assert str(record.result) == "not_enough"
    assert "not readable" in record.reason
    assert reason_of(record, images[2]) == "unreadable", (
        "an image that stays is not reported as relieved"
    )


def test_a_dead_image_filesystem_does_not_stop_check(make_small_node: SmallNodeFactory) -> None:
    """Every reading of it blocks in the kernel: check exits with 4 all the same, and
    shows the other filesystem.
    """
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    configuration = small.configuration(
        evictionHard={"imagefs.available": "1Mi", "nodefs.available": "1Mi"}
    )
    with dead_filesystem(str(small.images_root)):
        process = reclaimd("check", "--config", configuration, "-o", "json")
        assert process.returncode == 4
        document = answer(process)
    assert {each["signal"] for each in document["observations"]} == {
        "nodefs.available",
        "nodefs.inodesFree",
    }
    assert {each["filesystem"] for each in document["unavailable"]} == {"imagefs", "containerfs"}
    assert "did not answer statvfs within 2 s" in document["unavailable"][0]["reason"]
