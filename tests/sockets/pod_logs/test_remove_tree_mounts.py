"""`remove_tree` and mounts: it never enters one, and needs no free byte or inode of
the filesystem it works on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eviction.drill.runtime.private_mounts import unmount
from reclaim.pod_logs.directories import (
    TreeRemoval,
    open_beneath,
    unlink_files,
)
from tests.sockets.mounts import bound, mounted_tmpfs
from tests.sockets.pod_logs.trees import Canary, contents, opened, plant, removed

CROSSING = "is not known to be on the same filesystem and mount"
MIB = 1 << 20


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Undone after the test, the last first: mounts."""
    with ExitStack() as made:
        yield made


def tmpfs(stack: ExitStack, directory: Path, size_bytes: int = MIB, inodes: int = 100) -> Path:
    """A tmpfs for the length of the test."""
    mounted_tmpfs(str(directory), size_bytes, inodes)
    stack.callback(unmount, str(directory))
    return directory


def fill(directory: Path) -> None:
    """Takes every page and every inode of the filesystem."""
    with contextlib.suppress(OSError), open(directory / "app/0.log", "wb", buffering=0) as log:
        while log.write(bytes(4096)):
            pass
    with contextlib.suppress(OSError):
        for number in itertools.count():
            os.mkfifo(directory / f"side/{number}")


def test_another_filesystem_in_the_tree_is_left_unchanged(tmp_path: Path, stack: ExitStack) -> None:
    """A tmpfs two levels down: it is kept as it is with the directories above it, 3
    other entries are removed.
    """
    plant(tmp_path, "top/a/file", "top/z/file")
    canary = Canary(tmpfs(stack, tmp_path / "top/a/mounted"))
    assert removed(tmp_path, "top") == TreeRemoval(3, 1, f"top/a/mounted: {CROSSING}")
    assert canary.unharmed


def test_a_bind_mount_of_the_same_filesystem_is_left_alone(
    tmp_path: Path, stack: ExitStack
) -> None:
    """Device and inodes are those of plain directories: only the mount id differs."""
    canary = Canary(tmp_path / "canary")
    plant(tmp_path, "top/a/mounted/", "top/z/file")
    bound(str(canary.path), str(tmp_path / "top/a/mounted"))
    stack.callback(unmount, str(tmp_path / "top/a/mounted"))
    assert (tmp_path / "top/a/mounted").stat().st_dev == (tmp_path / "top").stat().st_dev
    assert removed(tmp_path, "top") == TreeRemoval(2, 1, f"top/a/mounted: {CROSSING}")
    assert canary.unharmed


def test_a_mount_that_appears_on_the_way_back_is_not_entered(
    tmp_path: Path, stack: ExitStack
) -> None:
    """Something is mounted on `top/a` while `top/a/b` is emptied:

    `..` leads into it, and is not followed.
    """
    plant(tmp_path, "top/a/b/file", "top/z")
    canary = Canary(tmp_path / "canary")

    def mounting(directory: int, name: bytes) -> int:
        descriptor = open_beneath(directory, name)
        if name == b"b":
            bound(str(canary.path), str(tmp_path / "top/a"))
            stack.callback(unmount, str(tmp_path / "top/a"))
        return descriptor

    assert removed(tmp_path, "top", mounting).failure == f"top/a: {CROSSING}"
    assert canary.unharmed


def test_a_file_that_is_mounted_on_is_kept(tmp_path: Path, stack: ExitStack) -> None:
    """The kernel refuses to unlink it; the file that is mounted there keeps its content."""
    plant(tmp_path, "canary", "top/file", "top/other")
    bound(str(tmp_path / "canary"), str(tmp_path / "top/file"))
    stack.callback(unmount, str(tmp_path / "top/file"))
    result = removed(tmp_path, "top")
    assert (result.removed, result.failed) == (1, 1)
    assert result.failure.startswith("top/file: ")
    assert (tmp_path / "canary").read_text() == "canary"


def test_an_entry_that_is_a_mount_is_kept(tmp_path: Path, stack: ExitStack) -> None:
    """The named entry itself."""
    canary = Canary(tmpfs(stack, tmp_path / "top"))
    assert removed(tmp_path, "top") == TreeRemoval(0, 1, f"top: {CROSSING}")
    assert canary.unharmed


def test_a_tree_on_a_mount_of_its_own_is_removed(tmp_path: Path, stack: ExitStack) -> None:
    """A log root that is a filesystem of its own, or a bind mount, is where the removal
    begins: no mount is crossed.
    """
    root = tmpfs(stack, tmp_path / "root")
    bound(str(root), str(root))
    stack.callback(unmount, str(root))
    plant(root, "pod/app/0.log")
    assert removed(root, "pod") == TreeRemoval(3)


def test_without_a_free_byte_or_inode_it_works(tmp_path: Path, stack: ExitStack) -> None:
    """A tmpfs filled to the last page and inode: trees and single files are removed,
    and the space is free again.
    """
    disk = tmpfs(stack, tmp_path / "disk", MIB, 64)
    plant(disk, "pod/app/0.log", "pod/app/0.log.20261121-101112", "pod/side/")
    fill(disk / "pod")
    full = os.statvfs(disk)
    assert (full.f_bavail, full.f_favail) == (0, 0)
    with opened(disk / "pod/app") as directory:
        assert unlink_files(directory, b"0.log.2") == TreeRemoval(1)
    assert os.statvfs(disk).f_favail == 1
    (disk / "again").touch()
    result = removed(disk, "pod")
    assert result.failed == 0
    assert contents(disk) == {"again": ""}
    assert os.statvfs(disk).f_bavail == full.f_blocks
