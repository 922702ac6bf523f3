"""The ballast file: whether it holds its bytes, and how it is created. `reclaim.ballast` releases it.

Its bytes are really allocated, and it is never created where space is short:

* It gets its name only when it is complete and on the disk (O_TMPFILE), so a process that dies leaves nothing behind,
  and nothing is overwritten. If two processes create it at the same time, only one of them succeeds; as each requires
  twice its size above the mark, both together do not go below the mark.
* `fallocate` is tried first. It may only set the size (ZFS), or write zeros that are compressed away. So the extents
  are read (FS_IOC_FIEMAP), and if any are missing, the file is filled with incompressible bytes. On tmpfs, NFS, ZFS and
  other filesystems without that call only the number of a file's blocks is known.
* A file that is sparse, shared or compressed even then is removed and refused.

Sources: open(2) and linkat(2) for a file without a name; posix_fallocate(3), whose emulation writes a byte into each
block; the kernel's Documentation/filesystems/fiemap.rst and include/uapi/linux/fiemap.h.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from eviction.reporting.json_shapes import LEFT_OUT, Count, LeftOut, Versioned
from reclaim.ballast import BLOCK, BallastRefused, BallastSettings, looked_at, opened_directory, refused, status_in
from reclaim.pod_logs.directories import identity_of

MODE = 0o600
CHUNK = 1 << 20
WRITTEN_OUT_SECONDS = 30.0
COUNTED_SECONDS = 10.0  # ZFS counts the blocks of a file seconds after they were written (zfs_txg_timeout is 5 s)
COUNTED_POLL_SECONDS = 0.25

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV)
_NO_FIEMAP = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS)
_FS_IOC_FIEMAP = 0xC020660B  # _IOWR('f', 11, struct fiemap), the same on every architecture that Kubernetes runs on
_HEAD = struct.Struct("=QQIIII")  # start, length, flags, mapped extents, room for extents, reserved
_EXTENT = struct.Struct("=Q8xQ16xI12x")  # logical, length, flags
_WHOLE_FILE = (1 << 64) - 1
_SYNC = 0x1
UNPLACED = 0x2 | 0x4  # its location is unknown, or will be chosen when it is written out
ENCODED, ENCRYPTED = 0x8, 0x80  # compressed: the first without the second
INLINE = 0x200 | 0x400  # in the metadata, or in a block shared with other data
SHARED = 0x2000

Allocate = Callable[[int, int, int], None]
"""Allocates bytes of an open file (descriptor, offset, length), as `os.posix_fallocate` does. Raises OSError."""


class Ballast(Versioned):
    """The file that is removed when the disk is full: the answer of `reclaimd ballast`."""

    kind: Literal["Ballast"] = "Ballast"
    file: str
    """Its path."""
    size_bytes: Count
    """Its size as configured."""
    there: bool
    """Whether it exists."""
    whole: bool
    """Whether all of its bytes are allocated."""
    allocated_bytes: Count = 0
    """The bytes that it takes on the disk."""
    extents: Count | None = None
    """The number of its extents; null if the filesystem does not report them."""
    problem: str = ""
    """What is wrong with it; empty if nothing is."""
    removed_bytes: Count | LeftOut | None = LEFT_OUT
    """After `remove`: the bytes that it took on the disk; null if it did not exist."""


class Extent(NamedTuple):
    """An extent of a file, in bytes; `flags` are those of the kernel's `struct fiemap_extent`."""

    logical: int
    length: int
    flags: int = 0


def room_problem(available_bytes: int, settings: BallastSettings, mark_bytes: int = 0) -> str | None:
    """Why there is no room for the ballast, as one sentence; None if twice its size is available above the mark.

    `mark_bytes`: the highest mark of the filesystem.
    """
    wanted = 2 * settings.size_bytes + mark_bytes
    if available_bytes >= wanted:
        return None
    needs = f"it needs twice its size above the mark of {mark_bytes} bytes, {wanted} bytes"
    return f"{settings.path} is not made: {needs}, and {available_bytes} bytes are available"


def read_ballast(settings: BallastSettings) -> Ballast | None:
    """The ballast as it is; None if it does not exist. Flushes the file, so do not call it on a full disk.

    Raises BallastRefused if something else is there, or it cannot be read within `WRITTEN_OUT_SECONDS`.
    """
    return looked_at(settings, "read", _ballast_in, WRITTEN_OUT_SECONDS)


def _ballast_in(directory: int, settings: BallastSettings) -> Ballast | None:
    """The same, in an open directory. Raises BallastRefused, OSError."""
    status = status_in(directory, settings)
    if status is None:
        return None
    descriptor = os.open(settings.name, _OPEN, dir_fd=directory)
    try:
        if identity_of(os.fstat(descriptor)) != identity_of(status):
            raise BallastRefused(f"{settings.path} is not the ballast: another file has just taken its name")
        return _held(descriptor, settings)
    finally:
        os.close(descriptor)


def _held(descriptor: int, settings: BallastSettings) -> Ballast:
    """Raises OSError."""
    extents, size_bytes = extents_of(descriptor), settings.size_bytes
    allocated = os.fstat(descriptor).st_blocks * BLOCK if extents is None else own_bytes(extents, size_bytes)
    problem = _sparse(allocated, size_bytes) if extents is None else extents_problem(extents, size_bytes)
    return Ballast(
        file=settings.path,
        size_bytes=size_bytes,
        there=True,
        whole=not problem,
        allocated_bytes=allocated,
        extents=None if extents is None else len(extents),
        problem=problem,
    )


# ---- its extents


def extents_of(descriptor: int) -> tuple[Extent, ...] | None:
    """The extents of an open file in order, after flushing it; None if the filesystem does not report them. Raises
    OSError."""
    try:
        count, _ = _extents(descriptor, room=0)
        return _extents(descriptor, room=count)[1]
    except OSError as error:
        if error.errno in _NO_FIEMAP:
            return None
        raise


def _extents(descriptor: int, room: int) -> tuple[int, tuple[Extent, ...]]:
    """The number of extents, and the first `room` of them. Raises OSError."""
    buffer = bytearray(_HEAD.size + room * _EXTENT.size)
    _HEAD.pack_into(buffer, 0, 0, _WHOLE_FILE, _SYNC, 0, room, 0)
    fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, buffer)
    count = _HEAD.unpack_from(buffer)[3]
    return count, tuple(map(Extent._make, _EXTENT.iter_unpack(buffer[_HEAD.size :])))[:count]


def own_bytes(extents: Sequence[Extent], size_bytes: int) -> int:
    """The bytes that are freed when the file is unlinked; what is allocated beyond its end does not count."""
    own = [each for each in extents if not each.flags & (UNPLACED | INLINE | SHARED) and not _compressed(each)]
    return sum(max(min(each.logical + each.length, size_bytes) - each.logical, 0) for each in own)


def extents_problem(extents: Sequence[Extent], size_bytes: int) -> str:
    """Why a file with these extents does not hold `size_bytes`, as the end of a sentence; empty if it does."""
    if any(each.flags & SHARED for each in extents):
        return "it shares extents with another file, so unlinking it does not free them"
    if any(each.flags & INLINE for each in extents):
        return "it is stored in the metadata, not in blocks of its own"
    if any(_compressed(each) for each in extents):
        return "it is compressed"
    return _sparse(own_bytes(extents, size_bytes), size_bytes)


def _compressed(extent: Extent) -> bool:
    return bool(extent.flags & ENCODED) and not extent.flags & (ENCRYPTED | UNPLACED)


def _sparse(allocated_bytes: int, size_bytes: int) -> str:
    if allocated_bytes >= size_bytes:
        return ""
    return f"it is sparse: {allocated_bytes} of its {size_bytes} bytes are allocated"


# ---- creating it


def create_ballast(
    settings: BallastSettings,
    mark_bytes: int = 0,
    abandoned: Callable[[], bool] = lambda: False,
    allocate: Allocate = os.posix_fallocate,
) -> tuple[Ballast, bool]:
    """The complete ballast, and whether it was created now.

    `mark_bytes`: the highest mark of the filesystem. `abandoned`: called now and then; true if the file is no longer
    wanted.

    Raises BallastRefused, with nothing left behind, if something else is there, space is short, the filesystem does not
    allocate the bytes, or the file was abandoned.
    """

    def go_on() -> None:
        if abandoned():
            raise BallastRefused(f"{settings.path} is not made: the disk came under pressure meanwhile")

    with refused(settings, "made"), opened_directory(settings) as directory:
        there = _ballast_in(directory, settings)
        if there is not None and there.problem:
            raise BallastRefused(f"{settings.path} is not the ballast: {there.problem}")
        if there is not None:
            return there, False
        problem = room_problem(_available_bytes(directory), settings, mark_bytes)
        if problem is not None:
            raise BallastRefused(problem)
        descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, MODE, dir_fd=directory)
        with open(descriptor, "wb", buffering=0):
            os.fchmod(descriptor, MODE)  # whatever the umask
            try:
                allocate(descriptor, 0, settings.size_bytes)
            except OSError as error:
                if error.errno not in _NO_FALLOCATE:
                    raise
            os.fsync(descriptor)
            ballast = _held(descriptor, settings)
            if ballast.problem:
                ballast = _written(descriptor, settings, go_on)
            if ballast.problem:
                why = f"this filesystem does not allocate its bytes: {ballast.problem}"
                raise BallastRefused(f"{settings.path} is not made, as {why}")
            go_on()
            if _available_bytes(directory) < mark_bytes:
                raise BallastRefused(f"{settings.path} is not made: others took the space meanwhile")
            os.link(f"/proc/self/fd/{descriptor}", settings.name, dst_dir_fd=directory)
            os.fsync(directory)
    return ballast, True


def _written(descriptor: int, settings: BallastSettings, go_on: Callable[[], None]) -> Ballast:
    left = settings.size_bytes
    while left:
        go_on()
        left -= os.write(descriptor, os.urandom(min(CHUNK, left)))
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # nobody will read it
    deadline = time.monotonic() + COUNTED_SECONDS
    ballast = _held(descriptor, settings)
    while ballast.problem and ballast.extents is None and time.monotonic() < deadline:
        go_on()
        time.sleep(COUNTED_POLL_SECONDS)
        ballast = _held(descriptor, settings)
    return ballast


def _available_bytes(directory: int) -> int:
    found = os.fstatvfs(directory)
    return found.f_bavail * found.f_frsize
