"""What ext4 and btrfs say in sysfs: a tree like theirs, and parts of it missing."""

from __future__ import annotations

from pathlib import Path

from eviction.reporting.space import About, Remark, btrfs_remarks, kernel_remarks
from signals.mounts import Mount
from tests.pure.values import GIB, KIB, MIB

CHUNKS = {"data": (8 * GIB, 6 * GIB, 8 * GIB), "metadata": (GIB, 512 * MIB, 2 * GIB)}


def a_btrfs(sys: Path) -> Path:
    """A btrfs on two disks of 8 GiB; its directory."""
    here = sys / "fs" / "btrfs" / "12345678-aaaa"
    for kind, numbers in CHUNKS.items():
        (here / "allocation" / kind / "single").mkdir(parents=True)
        for name, number in zip(("total_bytes", "bytes_used", "disk_total"), numbers, strict=True):
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
    """Of the filesystem, not of 512 bytes; nothing on a kernel that does not tell."""
    for name, number in (("sda1", "8:1"), ("sda2", "8:2")):
        (tmp_path / "dev" / "block").mkdir(parents=True, exist_ok=True)
        (tmp_path / "devices" / name).mkdir(parents=True)
        (tmp_path / "dev" / "block" / number).symlink_to(tmp_path / "devices" / name)
    (tmp_path / "fs" / "ext4" / "sda1").mkdir(parents=True)
    (tmp_path / "fs" / "ext4" / "sda1" / "delayed_allocation_blocks").write_text("300\n")
    (told,) = kernel_remarks(Mount("/", "8:1", "ext4", "/dev/sda1", ()), 4 * KIB, str(tmp_path))
    assert (told.about, told.bytes) == (About.DELAYED_ALLOCATION, 1200 * KIB)
    assert told.sentence == (
        "1.2MiB are written but have no place on the disk yet (delayed allocation); they already count as used"
    )
    assert list(kernel_remarks(Mount("/", "8:2", "ext4", "/dev/sda2", ()), 4 * KIB, str(tmp_path))) == []


def test_a_btrfs_is_found_by_any_of_its_devices(tmp_path: Path) -> None:
    """What is in no chunk is the size of all devices less the chunks with their copies."""
    a_btrfs(tmp_path)
    expected = [
        Remark(
            About.DELAYED_ALLOCATION,
            64 * MIB,
            "64.0MiB are written but have no place on the disk yet (delayed allocation); they still count as free",
        ),
        Remark(
            About.BTRFS_CHUNKS,
            GIB,
            "in chunks of btrfs: data 6.0GiB of 8.0GiB, metadata 512.0MiB of 1.0GiB (2.0GiB with its copies), not in "
            "chunks yet 6.0GiB; without room for metadata, writes fail although bytes are available",
        ),
    ]
    assert list(btrfs_remarks("vdb", str(tmp_path))) == list(btrfs_remarks("vdc", str(tmp_path))) == expected
    assert list(btrfs_remarks("vda", str(tmp_path))) == []


def test_without_the_size_of_a_device_what_is_not_allocated_is_unknown(tmp_path: Path) -> None:
    """A missing disk of a degraded btrfs; and without any chunk nothing is known at all."""
    here = a_btrfs(tmp_path)
    (here / "devices" / "vdc" / "size").unlink()
    _, chunks = btrfs_remarks("vdb", str(tmp_path))
    assert "data 6.0GiB of 8.0GiB, metadata 512.0MiB of 1.0GiB (2.0GiB with its copies); " in chunks.sentence
    for kind in ("data", "metadata"):
        (here / "allocation" / kind / "bytes_used").write_text("not a number")
    assert list(btrfs_remarks("vdb", str(tmp_path))) == []
