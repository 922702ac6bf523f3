"""Reads the extents of a file: where its bytes are on the disk, by FS_IOC_FIEMAP.

Of tmpfs, NFS, ZFS and other filesystems without that call nothing is known but how many blocks a file takes.

Source: the kernel's Documentation/filesystems/fiemap.rst, include/uapi/linux/fiemap.h.
"""

from __future__ import annotations

import errno
import fcntl
import struct
from collections.abc import Iterator

from reclaim.ballast.plan import Extent

_FS_IOC_FIEMAP = 0xC020660B  # _IOWR('f', 11, struct fiemap), the same on every architecture that Kubernetes runs on
_SYNC = 0x1
_LAST = 0x1
_UNKNOWN, _DELALLOC = 0x2, 0x4
_ENCODED, _ENCRYPTED = 0x8, 0x80
_INLINE, _TAIL = 0x200, 0x400
_SHARED = 0x2000
_HEAD = struct.Struct("=QQIIII")  # start, length, flags, mapped extents, room for extents, reserved
_EXTENT = struct.Struct("=QQQ16xI12x")  # logical, physical, length, flags
_AT_A_TIME = 256
_WHOLE_FILE = (1 << 64) - 1
_NOT_OFFERED = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS)


def extents_of(descriptor: int) -> tuple[Extent, ...] | None:
    """The extents of an opened file, in its order, after what it has in memory was written out; None where the
    filesystem does not tell. Raises OSError."""
    try:
        return tuple(_extents(descriptor))
    except OSError as error:
        if error.errno in _NOT_OFFERED:
            return None
        raise


def _extents(descriptor: int) -> Iterator[Extent]:
    start = 0
    while True:
        buffer = bytearray(_HEAD.size + _AT_A_TIME * _EXTENT.size)
        _HEAD.pack_into(buffer, 0, start, _WHOLE_FILE - start, _SYNC, 0, _AT_A_TIME, 0)
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, buffer)
        count = _HEAD.unpack_from(buffer)[3]
        for number in range(count):
            logical, _, length, flags = _EXTENT.unpack_from(buffer, _HEAD.size + number * _EXTENT.size)
            yield _extent(logical, length, flags)
            if flags & _LAST:
                return
            start = logical + length
        if not count:
            return


def _extent(logical: int, length: int, flags: int) -> Extent:
    return Extent(
        logical,
        length,
        placed=not flags & (_DELALLOC | _UNKNOWN),
        shared=bool(flags & _SHARED),
        inline=bool(flags & (_INLINE | _TAIL)),
        compressed=bool(flags & _ENCODED) and not flags & (_ENCRYPTED | _DELALLOC | _UNKNOWN),
    )
