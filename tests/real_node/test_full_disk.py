"""A real filesystem with a real containerd and without a free byte or inode is relieved by every
start and every daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.full_disk import full, relieved, tell
from tests.nodes.real_node import RealNode, running_node
from tests.real_node.loopfs import MIB, loop_devices_of, run_tool
from tests.real_node.oci import BASE, Image, many_files_layer, random_layer, write_image
from tests.real_node.steps import ALL, configure, reclaim

UNUSED_IMAGES = 3


@dataclass(frozen=True)
class Disk:
    """A filesystem that is filled. `clear`: the mark, in bytes or inodes.

    `dead_copy`: with a dead container that has a log, as on every real node.
    """

    fstype: str
    size_bytes: int
    clear: int = 40 * MIB
    layer_bytes: int = 12 * MIB
    inodes: bool = False
    mkfs_options: tuple[str, ...] = ()
    reserve_percent: int = 0
    leave_reserve: bool = False
    dead_copy: bool = False


# btrfs overwrites nothing in place, so containerd's own database needs room to delete an image:
# only unlinking a log, without the runtime, makes that room. The mark is less than one image:
# containerd may leave the space of images that it has deleted to its next collection.
BTRFS = Disk("btrfs", 400 * MIB, 20 * MIB, 16 * MIB, dead_copy=True)
EXT4_INODES = ("-N", "8000")
DISKS = {
    "ext4-reserve-left": Disk("ext4", 192 * MIB, reserve_percent=5, leave_reserve=True),
    "ext4-to-the-last": Disk("ext4", 192 * MIB, reserve_percent=5),
    "ext4-inodes": Disk("ext4", 192 * MIB, 500, inodes=True, mkfs_options=EXT4_INODES),
    "xfs": Disk("xfs", 320 * MIB),
    "xfs-inodes": Disk("xfs", 320 * MIB, 500, inodes=True, mkfs_options=("-i", "maxpct=1")),
    "btrfs": BTRFS,
}
IN_THE_SUITE = ("ext4-to-the-last", "ext4-inodes", "xfs")
IN_THE_SOAK = [
    pytest.param(name, 20, marks=(pytest.mark.soak, pytest.mark.timeout(1800))) for name in DISKS
]


class FullNode:
    """A node with a running pod; its unused images are imported again before each run."""

    def __init__(self, node: RealNode, disk: Disk, outside: Path) -> None:
        self.node, self.disk, self.where = node, disk, node.mountpoint
        self._app = node.import_image(Image("reclaimd.test/app:1", (BASE,)))
        self._sandbox, self._copies = node.kubelet.pod("web"), 0
        self.running = node.kubelet.run_container(self._sandbox, "app", self._app)
        self.protected = {self._app, node.sandbox_image_id}
        self._tars = []
        for number in range(UNUSED_IMAGES):
            layers = [random_layer(number, disk.layer_bytes)]
            if disk.inodes or disk.fstype == "btrfs":
                layers.append(many_files_layer(100 + number, 700, 16))
            image = Image(f"reclaimd.test/spare/{number}:1", tuple(layers))
            self._tars.append(write_image(image, outside))
        self.configuration = configure(
            outside,
            node,
            evictionHard={
                f"nodefs.{'inodesFree' if disk.inodes else 'available'}": str(disk.clear)
            },
            imageMinimumGCAge="0s",
            podLogsDir=str(node.kubelet.pod_logs_dir),
            stateFile=str(self.where / "state" / "images.json"),
            controlSocket=str(self.where / "control" / "control.sock"),
        )

    def populate(self) -> None:
        """Imports the unused images that are missing."""
        there = self.node.cri.image_ids()
        for tar in self._tars:
            if tar.image_id not in there:
                self.node.containerd.import_image(tar, keep=True)
        for _ in range(2 if self.disk.dead_copy else 0):
            self._crash()

    def _crash(self) -> None:
        """Another copy of a container of the pod has died and left a log; the
        copy before is now removable.
        """
        command = ("/bin/false",)
        self.node.kubelet.run_to_end(self._sandbox, "worker", self._app, command, self._copies)
        log = self._sandbox.log_directory / "worker" / f"{self._copies}.log"
        log.write_bytes(os.urandom(MIB))
        self._copies += 1

    def run(self, number: int) -> float:
        """Fills the disk and relieves it; seconds to the first byte or inode."""
        self.populate()
        disk = self.disk
        seconds = relieved(
            self.where,
            self.configuration,
            number,
            inodes=disk.inodes,
            leave_reserve=disk.leave_reserve,
        )
        assert self.node.kubelet.runs(self.running)
        assert self.protected <= self.node.cri.image_ids()
        return seconds


@contextmanager
def full_node(directory: Path, disk: Disk) -> Iterator[FullNode]:
    """The node; everything but its disk is outside of it."""
    made = running_node(directory, disk.size_bytes, None, disk.fstype, disk.mkfs_options)
    with made as node, TemporaryDirectory(prefix="rn-image-") as outside:
        if disk.reserve_percent:
            device = loop_devices_of(node.filesystem.image)[0]
            run_tool("tune2fs", "-m", str(disk.reserve_percent), device)
        yield FullNode(node, disk, Path(outside))


@pytest.mark.parametrize(("name", "runs"), [*((name, 2) for name in IN_THE_SUITE), *IN_THE_SOAK])
def test_a_full_disk_is_relieved_by_a_cold_start_and_by_a_running_daemon(
    name: str, runs: int, tmp_path: Path
) -> None:
    """In turns, and none fails, with working directory, HOME, TMPDIR, state file and
    control socket on the full disk.
    """
    with full_node(tmp_path / "node", DISKS[name]) as node:
        tell(name, [node.run(number) for number in range(runs)])


def test_a_btrfs_without_a_byte_and_without_a_log_is_reported_and_keeps_its_images(
    tmp_path: Path,
) -> None:
    """containerd has no room there to delete an image from its database: every removal fails and
    is reported as failed with containerd's error, and the command exits with 1. With one mebibyte
    free the removals succeed."""
    disk = Disk("btrfs", BTRFS.size_bytes, BTRFS.clear, BTRFS.layer_bytes)
    with full_node(tmp_path / "node", disk) as node:
        node.populate()
        images = node.node.cri.image_ids()
        with full(node.where, inodes=False):
            record = reclaim(node.configuration, code=1)
        assert record["removals_by_result"] == {"image": {"failed": UNUSED_IMAGES}}
        assert all("no space left on device" in each["error"] for each in record["removals"])
        assert node.node.cri.image_ids() == images
        # all of them: btrfs gives back what was deleted some time later,
        # which may be enough for a mark
        reclaim(node.configuration, *ALL)
        assert node.protected <= node.node.cri.image_ids() < images
