"""What a filesystem will take and does not show yet.

btrfs promises space to a write at once, and `statvfs` shows it half a minute later, when it is
written back. The kernel tells what is promised: `bytes_may_use` and `bytes_reserved` of its data
(`fs/btrfs/sysfs.c`, `fs/btrfs/space-info.h`), which can be read in a container, too.

XFS allocates space behind the end of a growing file, as much again as the file has, up to 8 GiB,
less on a disk that is nearly full (`fs/xfs/xfs_iomap.c`, xfs_iomap_prealloc_size). `statvfs` shows
that at once as used, and then nothing until it is used up. So after a step, the next one and the
bytes until then are known from the file. Which files grow is looked up among the open ones, once
after each step, on a thread of its own, as a file may be on a mount that never answers; what may
not be seen there has no next step. A file with an extent size hint has none either: its steps are
as small as the hint.

Other filesystems subtract what is written at once.
"""

import fcntl
import math
import os
import stat
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from signals.mounts import Mount, overlays_on, read_mounts
from signals.open_files import open_files, processes
from signals.types import FsStats

BTRFS_IOC_FS_INFO = 0x8400941F
BTRFS_IOC_FS_INFO_BYTES = 1024
SMALLEST_STEP_BYTES = 32 << 20  # smaller ones are not worth a look at all processes
LARGEST_STEP_BYTES = 8 << 30
BLOCKS_OF_AN_EXTENT_LIST = 250  # a step takes one more block for so many (xfs_bmap_worst_indlen)
LOOK_SECONDS = 1.0  # between two looks at all processes at least: one takes tens of milliseconds

Ahead = Callable[[FsStats], FsStats]
"""Adds to a reading what is coming. Does not raise."""


def ahead_on(mount: Mount | None, st_dev: int) -> Ahead:
    """What tells what is coming on the filesystem of a mount, whose files have this `st_dev`."""
    with suppress(OSError):
        if mount is not None and mount.type == "btrfs":
            return PromisedByBtrfs(mount.point)
        if mount is not None and mount.type == "xfs":
            return GrowingFiles(st_dev)
    return lambda stats: stats


class PromisedByBtrfs:
    """What a btrfs has promised to writes. Raises OSError if the kernel does not tell its id."""

    def __init__(self, point: str) -> None:
        information = bytearray(BTRFS_IOC_FS_INFO_BYTES)
        descriptor = os.open(point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, BTRFS_IOC_FS_INFO, information)
        finally:
            os.close(descriptor)
        allocation = f"/sys/fs/btrfs/{uuid.UUID(bytes=bytes(information[16:32]))}/allocation"
        self._files = [
            f"{allocation}/{group}/{name}"
            for group in ("data", "mixed")
            for name in ("bytes_may_use", "bytes_reserved")
        ]

    def __call__(self, stats: FsStats) -> FsStats:
        """The reading without what is promised."""
        promised = 0
        for path in self._files:
            with suppress(OSError, ValueError), open(path, "rb", buffering=0) as file:
                promised += int(file.read())
        promised = min(promised, stats.available_bytes)
        return replace(
            stats,
            available_bytes=stats.available_bytes - promised,
            free_bytes=stats.free_bytes - promised,
            promised_bytes=promised,
        )


class GrowingFiles:
    """The files that grow on an XFS. One thread at a time may call."""

    def __init__(self, st_dev: int) -> None:
        self._st_dev = st_dev
        self._links: Sequence[str] = ()  # replaced by the thread that looks
        self._look = threading.Thread()
        self._look_due = False
        self._looked_at = -math.inf
        self._available = 0

    def __call__(self, stats: FsStats) -> FsStats:
        """The reading with what is preallocated, and the next step."""
        self._look_due |= self._available - stats.available_bytes >= SMALLEST_STEP_BYTES
        self._available = stats.available_bytes
        rested = stats.time - self._looked_at >= LOOK_SECONDS
        if self._look_due and rested and not self._look.is_alive():
            self._look_due = False
            self._looked_at = stats.time
            self._look = threading.Thread(target=self._look_up, name="open files", daemon=True)
            with suppress(RuntimeError):  # there is no thread: no next step is known
                self._look.start()
        preallocated = 0
        step = 0
        for link in self._links:
            with suppress(OSError):  # it was closed
                status = os.stat(link)
                preallocated += behind_end(status)
                step = max(step, next_step(status, stats))
        return replace(stats, preallocated_bytes=preallocated, step_bytes=step)

    def _look_up(self) -> None:
        """Finds the files with much behind their end."""
        devices = {self._st_dev, *overlays_on(self._st_dev, read_mounts())}
        links: dict[tuple[int, int], str] = {}
        with suppress(OSError):  # `/proc` cannot be read
            for pid in processes():
                with suppress(OSError):  # it has ended, or may not be looked at
                    for link, status in open_files(pid):
                        is_file = status.st_dev in devices and stat.S_ISREG(status.st_mode)
                        if is_file and behind_end(status) >= SMALLEST_STEP_BYTES / 2:
                            links[status.st_dev, status.st_ino] = link
        self._links = [*links.values()]


def behind_end(status: os.stat_result) -> int:
    """Bytes that a file has behind its end."""
    return max(status.st_blocks * 512 - status.st_size, 0)


def next_step(status: os.stat_result, stats: FsStats) -> int:
    """How much XFS will allocate at once when a file has used up what it has."""
    free_percent = stats.free_bytes * 100 // max(stats.capacity_bytes, 1)
    shift = 6 - free_percent if free_percent < 5 else 0
    step = min(status.st_blocks * 512, LARGEST_STEP_BYTES) >> shift
    return step + step // BLOCKS_OF_AN_EXTENT_LIST
