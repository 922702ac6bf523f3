"""What a drill finds in a directory before it fills it: leftovers of earlier
drills, and foreign data.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from eviction.drill.pressure.fill_program import PREFIX
from eviction.drill.run.real import (
    DrillStillRunning,
    foreign_entries,
    mount_point,
    remove_leftovers,
)
from tests.sockets.mounts import mounted_tmpfs, unmount


def left(directory: Path, name: str) -> Path:
    """A directory of files as a killed drill leaves it."""
    made = directory / f"{PREFIX}{name}"
    made.mkdir()
    for number in range(3):
        (made / f"f{number}").touch()
    return made


def test_leftovers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    """Only entries with the drill's prefix are removed; a symlink with that
    prefix and its target stay.
    """
    left(tmp_path, "1-a")
    (tmp_path / f"{PREFIX}2").touch()
    target = tmp_path / "data"
    target.mkdir()
    (target / "precious").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(target)
    assert remove_leftovers(str(tmp_path)) == 5
    assert sorted(os.listdir(tmp_path)) == [f"{PREFIX}link", "data"]
    assert (target / "precious").exists()


def test_files_of_a_running_drill_are_not_removed(tmp_path: Path) -> None:
    """They are locked while it runs."""
    held = left(tmp_path, "1-a")
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(DrillStillRunning, match="another drill"):
        remove_leftovers(str(tmp_path))
    os.close(descriptor)
    assert len(os.listdir(held)) == 3
    assert remove_leftovers(str(tmp_path)) == 4


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
