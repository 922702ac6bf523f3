"""What ext4 and btrfs say in sysfs: a tree like theirs, and parts of it missing."""

from __future__ import annotations

from pathlib import Path

from eviction.reporting.space import BtrfsAllocation, ChunkUse, btrfs_allocation, delayed_allocation_bytes
from tests.pure.values import GIB, KIB, MIB

DATA, METADATA = ChunkUse(8 * GIB, 6 * GIB, 8 * GIB), ChunkUse(GIB, 512 * MIB, 2 * GIB)


def a_btrfs(sys: Path) -> Path:
    """A btrfs on two disks of 8 GiB; its directory."""
    here = sys / "fs" / "btrfs" / "12345678-aaaa"
    for kind, use in (("data", DATA), ("metadata", METADATA)):
        (here / "allocation" / kind / "single").mkdir(parents=True)
        for name, number in (("total_bytes", use.total), ("bytes_used", use.used), ("disk_total", use.on_disk)):
            (here / "allocation" / kind / name).write_text(f"{number}\n")
    (here / "allocation" / "data" / "bytes_may_use").write_text(f"{48 * MIB}\n")
    (here / "allocation" / "data" / "bytes_reserved").write_text(f"{16 * MIB}\n")
    (here / "allocation" / "global_rsv_size").write_text("16777216\n")
    for device in ("vdb", "vdc"):
        (here / "devices" / device).mkdir(parents=True)
        (here / "devices" / device / "size").write_text(f"{8 * GIB // 512}\n")
    (sys / "fs" / "btrfs" / "features").mkdir()
    return here


def test_delayed_allocation_is_told_in_blocks(tmp_path: Path) -> None:
    """Of the filesystem, not of 512 bytes; None on a kernel that does not tell."""
    (tmp_path / "fs" / "ext4" / "sda1").mkdir(parents=True)
    (tmp_path / "fs" / "ext4" / "sda1" / "delayed_allocation_blocks").write_text("300\n")
    assert delayed_allocation_bytes("sda1", 4 * KIB, str(tmp_path)) == 1200 * KIB
    assert delayed_allocation_bytes("sda2", 4 * KIB, str(tmp_path)) is None


def test_a_btrfs_is_found_by_any_of_its_devices(tmp_path: Path) -> None:
    """What is in no chunk is the size of all devices less the chunks with their copies."""
    a_btrfs(tmp_path)
    expected = BtrfsAllocation({"data": DATA, "metadata": METADATA}, unallocated=6 * GIB, delayed=64 * MIB)
    assert btrfs_allocation("vdb", str(tmp_path)) == btrfs_allocation("vdc", str(tmp_path)) == expected
    assert btrfs_allocation("vda", str(tmp_path)) is None


def test_without_the_size_of_a_device_what_is_not_allocated_is_unknown(tmp_path: Path) -> None:
    """A missing disk of a degraded btrfs; and without any chunk nothing is known at all."""
    here = a_btrfs(tmp_path)
    (here / "devices" / "vdc" / "size").unlink()
    found = btrfs_allocation("vdb", str(tmp_path))
    assert found is not None
    assert (found.unallocated, set(found.chunks)) == (None, {"data", "metadata"})
    for kind in ("data", "metadata"):
        (here / "allocation" / kind / "bytes_used").write_text("not a number")
    assert btrfs_allocation("vdb", str(tmp_path)) is None
