"""The devices below a filesystem: a tree like sysfs, with a thin pool in it or without."""

from __future__ import annotations

from pathlib import Path

import pytest

from eviction.reporting.space import About, kernel_name, kernel_remarks, thin_pool, thin_pool_below
from signals.mounts import Mount


class Sysfs:
    """A tree of directories and links like `/sys`."""

    def __init__(self, root: Path):
        self.root = root
        for name in ("block", "class/block", "dev/block"):
            (root / name).mkdir(parents=True)

    def add(self, name: str, number: str, *slaves: str, mapped: tuple[str, str] | None = None) -> None:
        """A block device on others; `mapped`: its name and UUID in the device mapper."""
        device = self.root / "devices" / name
        (device / "slaves").mkdir(parents=True)
        for slave in slaves:
            (device / "slaves" / slave).symlink_to(self.root / "devices" / slave)
        if mapped is not None:
            (device / "dm").mkdir()
            (device / "dm" / "name").write_text(f"{mapped[0]}\n")
            (device / "dm" / "uuid").write_text(f"{mapped[1]}\n")
        for link in (f"block/{name}", f"class/block/{name}", f"dev/block/{number}"):
            (self.root / link).symlink_to(device)


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    """A thin volume of LVM on its pool, a plain volume, and one on a pool that containerd's snapshotter has made."""
    made = Sysfs(tmp_path)
    made.add("sda", "8:0")
    made.add("dm-0", "253:0", "sda", mapped=("vg-pool_tdata", "LVM-abcdef-tdata"))
    made.add("dm-1", "253:1", "sda", mapped=("vg-pool_tmeta", "LVM-abcdef-tmeta"))
    made.add("dm-2", "253:2", "dm-0", "dm-1", mapped=("vg-pool-tpool", "LVM-abcdef-tpool"))
    made.add("dm-3", "253:3", "dm-2", mapped=("vg-kubelet", "LVM-abcdefthin"))
    made.add("dm-4", "253:4", "sda", mapped=("vg-plain", "LVM-abcdefplain"))
    made.add("dm-5", "253:5", "sda", mapped=("containerd-pool", ""))
    made.add("dm-6", "253:6", "dm-5", mapped=("containerd-pool-snap-7", ""))
    return made


def mount(number: str, source: str) -> Mount:
    return Mount("/var/lib/kubelet", number, "ext4", source, ())


@pytest.mark.parametrize(
    ("name", "uuid", "pool"),
    [
        ("vg-pool-tpool", "LVM-abcdef-tpool", "the thin pool vg-pool-tpool"),
        ("vg-pool", "LVM-abcdef-pool", None),
        ("vg-carpool", "LVM-abcdef", None),
        ("docker-253:1-77-pool", "", "docker-253:1-77-pool, a thin pool by its name"),
        ("crypt", "CRYPT-LUKS2-abc-crypt", None),
    ],
)
def test_a_thin_pool_is_told_by_the_uuid_of_lvm_else_by_its_name(name: str, uuid: str, pool: str | None) -> None:
    """Where LVM has made the device its name says nothing; what others made is a guess, and says so."""
    assert thin_pool(name, uuid) == pool


@pytest.mark.parametrize(
    ("device", "pool"),
    [
        ("dm-3", "the thin pool vg-pool-tpool"),
        ("dm-6", "containerd-pool, a thin pool by its name"),
        ("dm-4", None),
        ("sda", None),
        ("no such device", None),
    ],
)
def test_the_pool_is_found_through_the_devices_below(sysfs: Sysfs, device: str, pool: str | None) -> None:
    """A plain volume beside it, a disk, and what is not there have none."""
    assert thin_pool_below(device, str(sysfs.root)) == pool


@pytest.mark.parametrize(
    ("number", "pool"),
    [("253:3", "the thin pool vg-pool-tpool"), ("253:6", "containerd-pool, a thin pool by its name")],
)
def test_a_filesystem_on_a_pool_is_told_with_what_its_numbers_do_not_show(sysfs: Sysfs, number: str, pool: str) -> None:
    """A pool that only its name tells is no certainty: the sentence says by what it is one."""
    (remark,) = kernel_remarks(mount(number, "/dev/x"), 4096, str(sysfs.root))
    assert (remark.about, remark.bytes) == (About.THIN_POOL, None)
    assert remark.sentence == (
        f"on {pool}: when that is full (lvs, dmsetup status), writes fail, whatever is available here"
    )
    assert list(kernel_remarks(mount("253:4", "/dev/x"), 4096, str(sysfs.root))) == []


@pytest.mark.parametrize(
    ("number", "source", "name"),
    [
        ("253:3", "/dev/mapper/vg-kubelet", "dm-3"),
        ("0:45", "/nowhere/sda", "sda"),
        ("0:45", "/dev/mapper/vg-kubelet", "dm-3"),
        ("0:45", "tmpfs", None),
    ],
)
def test_the_kernels_name_of_what_is_mounted(sysfs: Sysfs, number: str, source: str, name: str | None) -> None:
    """By number; a btrfs has one of its own, so by its source, also where `/dev/mapper` is not there; else none."""
    assert kernel_name(mount(number, source), str(sysfs.root)) == name
