"""Small filesystems of this test process: a tmpfs with limits, a bind mount."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eviction.drill.private_mounts import libc, mount_tmpfs, unmount
from tests.conftest import MOUNTS

_MS_BIND = 0x1000
_MS_REMOUNT_READ_ONLY = 0x20 | 0x1


def need_mounts() -> None:
    """Skips the test, with the reason, where no filesystem can be mounted."""
    if not MOUNTS.available:
        pytest.skip(f"needs a mount namespace of its own: {MOUNTS.reason}")


def mounted_tmpfs(directory: str, size_bytes: int, inodes: int) -> None:
    """A tmpfs on a new or existing directory; `unmount` removes it. With 0 inodes it counts none, as
    btrfs: statvfs reports 0 of 0."""
    need_mounts()
    os.makedirs(directory, exist_ok=True)
    mount_tmpfs(directory, size_bytes, inodes)


@contextmanager
def tmpfs(directory: Path, size_bytes: int, inodes: int) -> Iterator[Path]:
    """The same while the `with` block lasts; the directory."""
    mounted_tmpfs(str(directory), size_bytes, inodes)
    try:
        yield directory
    finally:
        unmount(str(directory))


def bound(source: str, target: str, *, read_only: bool = False) -> None:
    """A bind mount of a file or directory on another that exists; `unmount` removes it."""
    need_mounts()
    for flags in (_MS_BIND, _MS_BIND | _MS_REMOUNT_READ_ONLY) if read_only else (_MS_BIND,):
        if libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None) != 0:
            pytest.skip(f"needs a bind mount on {target}: {os.strerror(ctypes.get_errno())}")
