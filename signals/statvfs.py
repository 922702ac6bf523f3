"""What is read of a filesystem: a whole reading for an observation, two numbers for a poll.

`statvfs` may block for ever; who bears the wait is said in `probe`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from signals.types import FsStats, Poll


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of a filesystem and its device (`st_dev`). If another filesystem is mounted, the device changes.

    `polls`: what the last polls of this path have read, oldest first: the same for everybody who reads.
    """

    stats: FsStats
    device_id: int
    polls: tuple[Poll, ...] = ()


class FilesystemReader(Protocol):
    """Reads the filesystem that holds `path`. May block; raises OSError."""

    def __call__(self, path: str, now: float) -> Reading:
        """One reading; `now` is in monotonic seconds and becomes its time."""


QuickReader = Callable[[str], tuple[int, int]]
"""Bytes available and inodes free of the filesystem that holds a path. May block; raises OSError."""


def read_statvfs(path: str, now: float) -> Reading:
    """A whole reading by `statvfs` and `stat`. Raises OSError."""
    found = os.statvfs(path)
    return Reading(
        FsStats(
            available_bytes=found.f_bavail * found.f_frsize,
            free_bytes=found.f_bfree * found.f_frsize,
            capacity_bytes=found.f_blocks * found.f_frsize,
            inodes_free=found.f_ffree,
            inodes_total=found.f_files,
            time=now,
        ),
        os.stat(path).st_dev,
    )


def available_and_inodes_free(path: str) -> tuple[int, int]:
    """Bytes available and inodes free by `statvfs`; costs a fifth of a whole reading. Raises OSError."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_ffree


def quick_reader_of(reader: FilesystemReader) -> QuickReader:
    """The quick reader that agrees with `reader`: of `read_statvfs` the cheap one, else a whole reading each time."""
    if reader is read_statvfs:
        return available_and_inodes_free

    def read_both(path: str) -> tuple[int, int]:
        stats = reader(path, 0.0).stats
        return stats.available_bytes, stats.inodes_free

    return read_both
