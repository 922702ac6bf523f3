"""Small filesystems of this test process: a tmpfs with limits, a bind mount, one that never answers."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

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


def bound(source: str, target: str, *, read_only: bool = False) -> None:
    """A bind mount of a file or directory on another that exists; `unmount` removes it."""
    need_mounts()
    for flags in (_MS_BIND, _MS_BIND | _MS_REMOUNT_READ_ONLY) if read_only else (_MS_BIND,):
        if libc.mount(os.fsencode(source), os.fsencode(target), None, flags, None) != 0:
            pytest.skip(f"needs a bind mount on {target}: {os.strerror(ctypes.get_errno())}")


@contextmanager
def dead_filesystem(directory: str) -> Iterator[None]:
    """A FUSE filesystem on `directory` whose program never answers: every access
    blocks, as on a dead NFS server.

    When the block ends, the calls that hang fail with ENOTCONN, and it is unmounted.
    """
    need_mounts()
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"needs /dev/fuse: {error.strerror}")
    try:
        _mount(directory, "fuse", f"fd={device},rootmode=40000,user_id=0,group_id=0")
        yield
    finally:
        os.close(device)
        unmount(directory)


def _mount(directory: str, kind: str, options: str) -> None:
    if libc.mount(kind.encode(), os.fsencode(directory), kind.encode(), 0, options.encode()) != 0:
        pytest.skip(f"needs a {kind} on {directory}: {os.strerror(ctypes.get_errno())}")
