"""Tests of the disk tools: filesystems are created and removed, and fills stop at their mark."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.real_node.fill import fill_bytes, fill_inodes
from tests.real_node.loopfs import LoopFilesystem, mounts_below
from tests.reclaimd_process import came_true

MIB = 1 << 20


@pytest.mark.parametrize(
    ("fstype", "size"), [("ext4", 64 * MIB), ("xfs", 320 * MIB), ("btrfs", 256 * MIB)]
)
def test_filesystems_are_created_and_removed(tmp_path: Path, fstype: str, size: int) -> None:
    """Each type can be written to, and its loop device is detached even when
    the test fails inside.
    """

    def write_and_fail() -> None:
        with LoopFilesystem(tmp_path / "fs", size, fstype) as filesystem:
            (filesystem.mountpoint / "file").write_bytes(b"x" * MIB)
            assert 0 < filesystem.available_bytes() < size
            os.stat(filesystem.mountpoint / "absent")

    with pytest.raises(FileNotFoundError, match="absent"):
        write_and_fail()
    assert mounts_below(tmp_path) == []
    assert list((tmp_path / "fs").iterdir()) == []


@pytest.mark.parametrize("fast", [False, True])
def test_a_byte_fill_stops_at_its_mark(tmp_path: Path, fast: bool) -> None:
    """A fill until 10 MiB are available ends within 1 MiB below that, but for what ext4 then gives
    back of what it had allocated ahead; and removing it frees the bytes."""
    with LoopFilesystem(tmp_path / "fs", 64 * MIB) as filesystem:
        before = filesystem.available_bytes()
        fill = fill_bytes(filesystem.mountpoint / "fill", 10 * MIB, fast=fast)
        amount = fill.wait(60)
        assert 9 * MIB < filesystem.available_bytes() < 10 * MIB + MIB // 16
        assert before - 12 * MIB < amount <= before - 9 * MIB
        assert fill.remove() == amount
        assert filesystem.available_bytes() > before - MIB


def test_a_paced_fill_keeps_its_rate_and_can_be_stopped(tmp_path: Path) -> None:
    """At 10 MiB/s a fill writes no more than that in the time that it took, and `stop` ends it."""
    with LoopFilesystem(tmp_path / "fs", 128 * MIB) as filesystem:
        began = time.monotonic()
        fill = fill_bytes(filesystem.mountpoint / "fill", 0, rate_bytes_per_second=10 * MIB)
        assert came_true(lambda: fill.amount() >= 4 * MIB)
        assert fill.running
        assert 4 * MIB <= fill.stop() <= 10 * MIB * (time.monotonic() - began) + 2 * MIB
        assert not fill.running


def test_an_inode_fill_stops_at_its_mark(tmp_path: Path) -> None:
    """A fill until 50 inodes are free leaves exactly 50."""
    with LoopFilesystem(tmp_path / "fs", 64 * MIB, inodes=2000) as filesystem:
        free = filesystem.inodes_free()
        fill = fill_inodes(filesystem.mountpoint / "fill", 50)
        assert fill.wait(60) == free - 1 - 50  # one inode is the fill's directory
        assert filesystem.inodes_free() == 50
        fill.remove()
