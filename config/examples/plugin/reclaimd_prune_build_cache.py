"""A reclaim function for reclaimd: prunes a build cache, least recently used files first.

For a cache of independent files, each of which may vanish at any time: ccache, the Go build cache, Bazel's disk cache.
Not for a store with an index of its own, such as BuildKit's.

It removes only regular files in the directory or below it; it follows no symlink and enters no other filesystem.
Directories are kept, as a build may be about to write into one.
"""

from __future__ import annotations

import errno
import heapq
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from reclaim.plugins import MOST_OBJECTS, Found

DEEPEST = 100  # levels, each of which is opened anew for each directory below it
LONGEST = 3800  # characters of a directory's path: with a file's name it is an id, which has at most 4096
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PruneBuildCache:
    """The files of `directory` that were neither written nor read for `olderThan`."""

    kinds = ("cache_file",)

    def __init__(self, options: Mapping[str, Any]):
        unknown = sorted(map(str, options.keys() - {"directory", "olderThan"}))
        if unknown:
            raise ValueError(f"{unknown[0]} is not an option; allowed are directory and olderThan")
        directory, older_than = str(options.get("directory", "")), str(options.get("olderThan", ""))
        if not os.path.isabs(directory) or os.path.normpath(directory) != directory or directory == "/":
            raise ValueError(f"directory is {directory!r}; allowed is an absolute path other than /, without . and ..")
        match = re.fullmatch(r"([0-9]{1,6})([smhd])", older_than, re.ASCII)
        if match is None:
            raise ValueError(f"olderThan is {older_than!r}; allowed is a number with s, m, h or d, such as 36h")
        self._directory = directory
        self._older_than = int(match[1]) * UNITS[match[2]]

    def plan(self) -> Iterator[Found]:
        """Every file, the least recently used first. Raises OSError if the directory cannot be read."""
        yield from heapq.nsmallest(MOST_OBJECTS, self._files(), key=lambda found: -(found.age_seconds or 0))

    def _files(self) -> Iterator[Found]:
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            parents = waiting.pop()
            try:
                with self._opened(parents) as directory, os.scandir(directory) as entries:
                    for entry in entries:
                        path = (*parents, entry.name)
                        if entry.is_dir(follow_symlinks=False):
                            if len(path) <= DEEPEST and len(self._id(path)) <= LONGEST:
                                waiting.append(path)
                            else:
                                yield Found(self._id(path), remove=False, reason="too_deep")
                        elif (found := self._found(path, entry)) is not None:
                            yield found
            except (FileNotFoundError, NotADirectoryError):
                if not parents:
                    raise
            except OSError:
                if not parents:
                    raise
                yield Found(self._id(parents), remove=False, reason="unreadable")

    def _found(self, path: tuple[str, ...], entry: os.DirEntry[str]) -> Found | None:
        """A file with its verdict; None for a symlink, a socket and the like, and for a file that has just vanished."""
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        age = _age(status)
        if age < self._older_than:
            reason = "too_young"
        elif status.st_nlink > 1:
            reason = "has_other_links"  # removing one of several names frees nothing
        else:
            reason = "not_used_lately"
        return Found(
            id=self._id(path),
            remove=reason == "not_used_lately",
            reason=reason,
            size_bytes=status.st_blocks * 512,
            age_seconds=age,
            eligible_in_seconds=self._older_than - age if reason == "too_young" else None,
            data=(path, _identity(status)),
        )

    def _id(self, path: Sequence[str]) -> str:
        return os.path.join(self._directory, *path)

    def check(self, found: Found) -> bool | str:
        """Whether it is the same file, and still old enough."""
        status = self._status(found)
        if status is None:
            return False
        if _identity(status) != found.data[1]:
            return "changed"
        return True if _age(status) >= self._older_than else "used_meanwhile"

    def remove(self, found: Found) -> bool:
        """Unlinks it. Raises OSError."""
        *parents, name = found.data[0]
        try:
            with self._opened(parents) as directory:
                os.unlink(name, dir_fd=directory)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def present(self, found: Found) -> bool:
        """Whether this very file still exists. Raises OSError if that cannot be determined."""
        status = self._status(found)
        return status is not None and _identity(status) == found.data[1]

    def _status(self, found: Found) -> os.stat_result | None:
        """The status of what has the file's name now; None if nothing has. Raises OSError."""
        *parents, name = found.data[0]
        try:
            with self._opened(parents) as directory:
                return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    @contextmanager
    def _opened(self, names: Sequence[str]) -> Iterator[int]:
        """A directory below, opened name by name, so that no symlink leads elsewhere. Raises OSError."""
        directory = os.open(self._directory, DIRECTORY)
        try:
            device = os.fstat(directory).st_dev
            for name in names:
                below = os.open(name, DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = below
                if os.fstat(directory).st_dev != device:
                    raise OSError(errno.EXDEV, "is on another filesystem", name)
            yield directory
        finally:
            os.close(directory)


def _age(status: os.stat_result) -> float:
    """Seconds since it was last written or read. (Where the filesystem is mounted with `relatime`, a read may not show
    for a day.)"""
    return max(time.time() - max(status.st_mtime, status.st_atime), 0.0)


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    """Which file it is, whatever its name. A new one often gets the inode of a removed one, but not its time."""
    return status.st_dev, status.st_ino, status.st_mtime_ns
