"""What is on a disk before a drill fills it: leftovers of earlier drills, and data of others."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from eviction.drill.pressure.foreign_data import mount_point, other_data
from eviction.drill.pressure.leftovers import DrillGoesOn, remove_leftovers
from eviction.drill.pressure.real_fill_program import PREFIX
from tests.sockets.mounts import mounted_tmpfs, unmount


def left(directory: Path, name: str) -> Path:
    """A directory of files as a drill leaves it."""
    made = directory / f"{PREFIX}{name}"
    made.mkdir()
    for number in range(3):
        (made / f"f{number}").touch()
    return made


def test_leftovers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    """Only what has the name of a drill goes; what a link of that name leads to stays, and so does the link."""
    left(tmp_path, "1-a")
    (tmp_path / f"{PREFIX}2").touch()
    target = tmp_path / "data"
    target.mkdir()
    (target / "precious").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(target)
    assert remove_leftovers(str(tmp_path)) == 5
    assert sorted(os.listdir(tmp_path)) == [f"{PREFIX}link", "data"]
    assert (target / "precious").exists()


def test_what_a_living_drill_holds_is_left_alone(tmp_path: Path) -> None:
    """Its lock says that it lives; nothing of it goes."""
    held = left(tmp_path, "1-a")
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(DrillGoesOn, match="another drill"):
        remove_leftovers(str(tmp_path))
    os.close(descriptor)
    assert len(os.listdir(held)) == 3
    assert remove_leftovers(str(tmp_path)) == 4


def test_data_of_others_is_what_is_neither_the_nodes_nor_on_the_way_to_it(tmp_path: Path) -> None:
    """A filesystem with the kubelet's, the runtime's and the drill's directories alone holds no other data."""
    disk = tmp_path / "disk"
    mounted_tmpfs(str(disk), 1 << 20, 100)
    try:
        for path in ("lib/kubelet/pods", "lib/containerd/snapshots", "drill", "lost+found", f"{PREFIX}1-a"):
            (disk / path).mkdir(parents=True)
        own = [str(disk / "lib" / "kubelet"), str(disk / "lib" / "containerd"), "/nowhere/else"]
        assert mount_point(str(disk / "drill")) == str(disk)
        assert other_data(str(disk / "drill"), own) == []
        (disk / "lib" / "postgres").mkdir()
        (disk / "home").symlink_to("lib")
        assert other_data(str(disk / "drill"), own) == [str(disk / "home"), str(disk / "lib" / "postgres")]
    finally:
        unmount(str(disk))
