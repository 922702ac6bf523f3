"""What a drill finds in a directory before it fills it: files of other drills, foreign data."""

from __future__ import annotations

from pathlib import Path

from eviction.drill.pressure.fill_program import PREFIX
from eviction.drill.run.real import (
    foreign_entries,
    mount_point,
    traces,
)
from eviction.drill.runtime.private_mounts import unmount
from tests.sockets.mounts import mounted_tmpfs


def test_the_files_of_another_drill_are_found_by_their_prefix(tmp_path: Path) -> None:
    """Whether it runs or was killed; nothing else is one."""
    for name in (f"{PREFIX}2", f"{PREFIX}1-a", "data"):
        (tmp_path / name).mkdir()
    assert traces(str(tmp_path)) == [f"{PREFIX}1-a", f"{PREFIX}2"]


def test_foreign_data_is_what_does_not_belong_to_the_node(tmp_path: Path) -> None:
    """The directories of the kubelet, the runtime and the drill, and those
    above them, are not foreign.
    """
    disk = tmp_path / "disk"
    mounted_tmpfs(str(disk), 1 << 20, 100)
    try:
        for path in (
            "lib/kubelet/pods",
            "lib/containerd/snapshots",
            "drill",
            "lost+found",
            f"{PREFIX}1-a",
        ):
            (disk / path).mkdir(parents=True)
        own = [str(disk / "lib" / "kubelet"), str(disk / "lib" / "containerd"), "/nowhere/else"]
        assert mount_point(str(disk / "drill")) == str(disk)
        assert foreign_entries(str(disk / "drill"), own) == []
        (disk / "lib" / "postgres").mkdir()
        (disk / "home").symlink_to("lib")
        assert foreign_entries(str(disk / "drill"), own) == [
            str(disk / "home"),
            str(disk / "lib" / "postgres"),
        ]
    finally:
        unmount(str(disk))
