"""A size-limited view of a directory: the drill uses it where no filesystem can be mounted.

Files and deletions are real. Only the size is simulated: available is the limit minus what the tree takes. Every report
says `simulated`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from signals.filesystems import FilesystemReader, Reading, read_statvfs
from signals.types import FsStats


class SizedDirectory:
    """Reads any path below `root` as if `root` were a filesystem of `size_bytes` and `inodes`."""

    def __init__(self, root: str, size_bytes: int, inodes: int):
        self.root = root
        self._size_bytes = size_bytes
        self._inodes = inodes

    def __call__(self, path: str, now: float) -> Reading:
        """One reading of the whole tree; blocks are counted as the filesystem below counts them. Raises OSError."""
        os.stat(path)
        root = os.stat(self.root)
        used_bytes = used_inodes = 0
        pending = [self.root]
        while pending:
            try:
                with os.scandir(pending.pop()) as entries:
                    for entry in entries:
                        used_inodes += 1
                        used_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
            except FileNotFoundError:  # removed meanwhile
                continue
        free_bytes = max(self._size_bytes - used_bytes, 0)
        return Reading(
            FsStats(
                available_bytes=free_bytes,
                free_bytes=free_bytes,
                capacity_bytes=self._size_bytes,
                inodes_free=max(self._inodes - used_inodes, 0),
                inodes_total=self._inodes,
                time=now,
            ),
            root.st_dev << 64 | root.st_ino,  # a device of its own, so that two directories are two filesystems
        )


def reader_of(directories: Sequence[SizedDirectory]) -> FilesystemReader:
    """Reads what is below one of the directories as that filesystem, and everything else with statvfs."""

    def read(path: str, now: float) -> Reading:
        for directory in directories:
            if os.path.commonpath([directory.root, path]) == directory.root:
                return directory(path, now)
        return read_statvfs(path, now)

    return read
