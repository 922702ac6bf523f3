"""Filesystems that count no inodes, do not answer or do not exist: neither
pressure nor the end of it.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from eviction.drill.runtime.private_mounts import mount_tmpfs, unmount
from signals.filesystems import Reading, read_statvfs
from signals.types import KUBELET_SIGNALS, FsLayout, Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import MIB, SmallNode, reason_of
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd, reclaimd_here
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.mounts import dead_filesystem, mounted_tmpfs_without_inodes


def test_a_tmpfs_without_an_inode_limit_has_no_inode_signal(small_node: SmallNode) -> None:
    """0 of 0 inodes is not 0 percent free: the signal does not exist, and the bytes
    are watched all the same.
    """
    mounted_tmpfs_without_inodes(str(small_node.images_root), 16 * MIB)
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
        return replace(reading, stats=replace(reading.stats, inodes_free=0, inodes_total=0))

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


def test_a_reading_that_hangs_is_stale_and_no_second_one_is_started(small_node: SmallNode) -> None:
    """Each path is waited for 2 s, once; as long as that reading is outstanding,
    there is no further wait.
    """
    small_node.add_images(1)
    reader = StuckReader(small_node.root_directory)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=MIB, reader=reader)
    node.locate()
    assert node.look()[1].acted_on is not None
    reader.stuck = True
    try:
        observations, decision = node.look()
        stale = {str(signal) for signal, each in observations.signals.items() if each.stale}
        assert stale == {str(signal) for signal in KUBELET_SIGNALS}, "all are on that filesystem"
        assert decision.acted_on is None, "a late reading starts no pressure"
        assert decision.conditions, "and ends none: the condition stays"
        before = threading.active_count()
        observations, _ = node.look()
        assert threading.active_count() == before
        assert any(
            "did not answer statvfs within 2 s" in each.reason for each in observations.unavailable
        )
    finally:
        reader.stuck = False
        reader.release.set()
    assert came_true(lambda: node.look()[1].acted_on is not None), (
        "and the threshold is acted on again"
    )


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


def test_a_daemon_beside_a_dead_image_filesystem_goes_on_and_exits_on_sigterm(
    make_small_node: SmallNodeFactory,
) -> None:
    """The image filesystem dies: the daemon says so, still observes the other one,
    and exits with 0 on SIGTERM.
    """
    small = make_small_node(FsLayout.DEDICATED_IMAGEFS)
    configuration = small.configuration(
        evictionHard={"nodefs.available": "20Mi"}, pollCeiling="200ms"
    )
    with Daemon("--config", configuration, "--no-watch") as daemon:
        time.sleep(0.5)
        with dead_filesystem(str(small.images_root)):
            daemon.wait_for(lambda event: "did not answer statvfs" in event["message"])
            small.fill(small.available() - 10 * MIB)
            daemon.wait_for(lambda event: "ReclaimPressure: nodefs.available" in event["message"])
            assert daemon.process.poll() is None
            assert daemon.stop() == 0


def test_a_root_directory_that_is_not_there_is_unknown_and_not_clear(small_node: SmallNode) -> None:
    """No other path is tried instead: check exits with 4 and names the path."""
    configuration = small_node.configuration(
        rootDirectory="/nowhere/kubelet", evictionHard={"nodefs.available": "10%"}
    )
    process = reclaimd_here("check", "--config", configuration)
    assert process.returncode == 4
    assert "/nowhere/kubelet" in process.stdout


def test_a_larger_filesystem_in_place_of_the_old_one_is_read_anew(small_node: SmallNode) -> None:
    """Capacity is read for each observation, so a percentage follows the disk when it grows."""
    node = small_node.node(evictionHard={"nodefs.available": "50%"})
    node.locate()
    assert node.look()[0].signals[Signal.NODEFS_AVAILABLE].capacity == 64 * MIB
    mount_tmpfs(str(small_node.root_directory), 128 * MIB, 1000)
    try:
        assert node.look()[0].signals[Signal.NODEFS_AVAILABLE].capacity == 128 * MIB
    finally:
        unmount(str(small_node.root_directory))


@pytest.mark.parametrize("share", [1, 2])
def test_one_reading_serves_all_roles_of_a_filesystem(small_node: SmallNode, share: int) -> None:
    """One reading for each distinct path and observation, however many roles
    and thresholds there are.
    """
    read: list[str] = []

    def counting(path: str, now: float) -> Reading:
        read.append(path)
        return read_statvfs(path, now)

    node = small_node.node(reader=counting)
    node.locate()
    for _ in range(share):
        node.look()
    assert sorted(read) == sorted(
        [str(small_node.root_directory), str(small_node.images_root)] * share
    )
