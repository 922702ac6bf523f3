"""A size-limited view of a directory: what a drill falls back to where no filesystem can be mounted.

The files are real and deletions are real; only the size is not: what is available is the limit less what the tree
takes. Every report says `simulated`.
"""

from __future__ import annotations

import os

from signals.statvfs import Reading
from signals.types import FsStats


class SizedDirectory:
    """Reads any path below `root` as if `root` were a filesystem of `size_bytes` and `inodes`."""

    def __init__(self, root: str, size_bytes: int, inodes: int):
        self._root = root
        self._size_bytes = size_bytes
        self._inodes = inodes

    def __call__(self, path: str, now: float) -> Reading:
        """One reading of the whole tree; blocks are counted as the filesystem below counts them. Raises OSError."""
        device = os.stat(path).st_dev
        used_bytes = used_inodes = 0
        pending = [self._root]
        while pending:
            try:
                with os.scandir(pending.pop()) as entries:
                    for entry in entries:
                        used_inodes += 1
                        used_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
            except FileNotFoundError:  # removed while we looked
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
            device,
        )
