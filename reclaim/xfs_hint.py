"""The extent size hint of a directory on XFS, which what is made below it inherits.

XFS allocates ahead of a growing file as much again as the file has. With a hint it allocates units
of the hint's size instead, and nothing ahead. Files and directories inherit it when they are made,
through overlayfs too.

What is there already keeps its own: XFS gives a file with data no other hint, and the directories
of a pod or snapshot belong to those who run in it, so nobody walks through them.

Sources: include/uapi/linux/fs.h (struct fsxattr), fs/xfs/xfs_ioctl.c, and ioctl_xfs_fsgetxattr(2).
"""

import os
from fcntl import ioctl
from struct import Struct

from reclaim.trust import directory_at, directory_refusal
from reclaim.types import ReclaimError

GET_ATTRIBUTES = 0x801C581F  # FS_IOC_FSGETXATTR
SET_ATTRIBUTES = 0x401C5820  # FS_IOC_FSSETXATTR
INHERIT = 0x1000  # FS_XFLAG_EXTSZINHERIT
ATTRIBUTES = Struct("=5I8x")  # flags, hint, number of extents, project, hint for shared extents


class HintRefused(ReclaimError):
    """A directory cannot have the hint."""


def inherited_hint(directory: str) -> int:
    """In bytes; 0 if there is none. Raises OSError, also for most filesystems without hints."""
    with directory_at(directory) as descriptor:
        return _attributes(descriptor)[1]


def set_inherited_hint(
    directory: str, size_bytes: int, filesystem_type: str, *, dry_run: bool = False
) -> int:
    """Gives a directory this hint, or none for 0, and returns the one that it had, in bytes.

    `filesystem_type`: by the table of mounts. `dry_run`: nothing changes. Raises HintRefused unless
    it is a directory on XFS that only trusted users may write or replace, and the hint a multiple
    of its block size.
    """
    try:
        with directory_at(directory) as descriptor:
            block_bytes = os.fstatvfs(descriptor).f_frsize
            if (refusal := directory_refusal(directory)) is not None:
                raise HintRefused(f"{directory} is not trusted: {refusal}")
            if filesystem_type != "xfs":
                raise HintRefused(f"{directory} is on {filesystem_type}; allowed is XFS")
            if size_bytes % block_bytes:
                raise HintRefused(
                    f"{directory}: the hint is {size_bytes} bytes; allowed are multiples of its"
                    f" block size, {block_bytes} bytes"
                )
            flags, before, _, *others = _attributes(descriptor)
            if not dry_run and before != size_bytes:
                flags = flags | INHERIT if size_bytes else flags & ~INHERIT
                ioctl(descriptor, SET_ATTRIBUTES, ATTRIBUTES.pack(flags, size_bytes, 0, *others))
            return before
    except OSError as error:
        raise HintRefused(
            f"{directory} cannot have the hint: {error.strerror}; allowed is a directory on an XFS"
            " that is mounted writable"
        ) from error


def _attributes(descriptor: int) -> tuple[int, ...]:
    """The fields of ATTRIBUTES. Raises OSError."""
    return ATTRIBUTES.unpack(ioctl(descriptor, GET_ATTRIBUTES, bytes(ATTRIBUTES.size)))
