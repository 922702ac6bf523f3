"""The kernel's table of mounts: parsed, and asked what a path is on."""

from __future__ import annotations

from pathlib import Path

from signals.mounts import Mount, mount_holding, mounts_of, parse_mountinfo, read_mounts

LINES = [
    "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n",
    (
        "90 27 0:45 /@ /var/lib/far\\040away rw,noatime shared:2 master:1 - btrfs /dev/vdb"
        " rw,compress=zstd:3\n"
    ),
    "91 27 8:1 / /data ro,relatime - xfs /dev/sda1 rw,prjquota\n",
    "92 27 8:2 / /data rw,relatime - ext4 /dev/sda2 rw\n",
    "what is no line of it\n",
]


def test_a_line_is_a_mount_with_the_options_of_both_sides() -> None:
    """Optional fields are passed over, escapes undone, each option named once; a line
    that is none is left out.
    """
    mounts = parse_mountinfo(LINES)
    assert len(mounts) == 4
    assert mounts[1] == Mount(
        "/var/lib/far away", "0:45", "btrfs", "/dev/vdb", ("rw", "noatime", "compress=zstd:3"), "/@"
    )
    assert mounts[1].option("compress") == "zstd:3"
    assert mounts[0].option("discard") == ""
    assert mounts[0].option("compress") is None


def test_a_mount_is_read_only_if_either_side_says_so() -> None:
    """A read-only mount of a filesystem that is writable elsewhere does not say `rw` besides."""
    assert parse_mountinfo(LINES)[2].options == ("ro", "relatime", "prjquota")


def test_a_path_is_on_the_deepest_mount_and_there_on_the_last() -> None:
    """A mount hides what was mounted on the same point before; a name that only
    begins alike is another one.
    """
    mounts = parse_mountinfo(LINES)
    held = [
        mount_holding(path, mounts)
        for path in ("/data/x", "/data", "/database", "/var/lib/far away/y")
    ]
    assert [mount and mount.source for mount in held] == [
        "/dev/sda2",
        "/dev/sda2",
        "/dev/vda",
        "/dev/vdb",
    ]
    assert mount_holding("/data", mounts[1:2]) is None


def test_the_table_of_this_machine_is_read(tmp_path: Path) -> None:
    """A symlink is followed; a table that is not there is empty."""
    (tmp_path / "link").symlink_to("/proc")
    assert mounts_of([str(tmp_path / "link")])[str(tmp_path / "link")].type == "proc"
    assert read_mounts(str(tmp_path / "no table")) == ()
    assert mounts_of(["/"], str(tmp_path / "no table")) == {}
