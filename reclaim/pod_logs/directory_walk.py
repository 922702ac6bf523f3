"""Descends from an opened directory through its subdirectories, safe against directories that move meanwhile.

* Each directory is opened by its name relative to the one above it. `..` is compared, never entered.
* Few descriptors: of n directories from the top to the lowest about 4 log2(n) are open, the last 8 among them.
* A directory that was closed is opened again by name from the nearest open one above it. Each step must reach the same
  device and inode as before.

Covers: entering and leaving directories. Does not cover: what is done in a directory (`remove_tree`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from reclaim.pod_logs.names import Identity
from reclaim.pod_logs.openat2 import OpenBeneath

CHECK_LEVELS = 8  # how many directories, from the lowest up, `check` compares; as many stay open
_PATH_BYTES = 200


class DirectoryMoved(Exception):
    """The directory at this depth was moved or removed, or something else has its name now."""

    def __init__(self, depth: int):
        super().__init__(depth)
        self.depth = depth


@dataclass(frozen=True, slots=True)
class _Step:
    name: bytes
    identity: Identity


def identity_of(status: os.stat_result) -> Identity:
    """Device and inode of a status."""
    return status.st_dev, status.st_ino


def _stays_open(depth: int, lowest: int) -> bool:
    """Whether the descriptor at `depth` is kept while the lowest directory is at depth `lowest`.

    The last 8 are kept, and above them ever fewer: a depth that 2**n divides is kept for 8 * 2**n levels. So an open
    directory is always near, and climbing n levels costs about n log2(n) steps in all.
    """
    return depth == 0 or lowest - depth <= CHECK_LEVELS * (depth & -depth)


class DirectoryWalk:
    """The directories from an opened one (depth 0, which the caller closes) to the lowest one that was entered."""

    def __init__(self, directory: int, open_directory: OpenBeneath):
        self._open_directory = open_directory
        self._steps = [_Step(b"", identity_of(os.fstat(directory)))]
        self._open = {0: directory}

    @property
    def depth(self) -> int:
        """The depth of the lowest directory: how many were entered below the opened one."""
        return len(self._steps) - 1

    def name(self, depth: int) -> bytes:
        """The name by which the directory at `depth` was entered."""
        return self._steps[depth].name

    def identity(self, depth: int) -> Identity:
        """Device and inode of the directory at `depth` when it was entered."""
        return self._steps[depth].identity

    def path(self, name: bytes = b"") -> bytes:
        """The path of the lowest directory or an entry of it, for messages; beyond 200 bytes the middle is cut out."""
        names = [step.name for step in self._steps[1:]]
        path = b"/".join([*names, name] if name else names)
        half = _PATH_BYTES // 2
        return path if len(path) <= _PATH_BYTES else path[:half] + b"..." + path[-half:]

    def enter(self, name: bytes) -> None:
        """Enters a subdirectory of the lowest directory. Raises OSError as `OpenBeneath` does, and DirectoryMoved."""
        child = self._open_directory(self.descriptor(self.depth), name)
        self._steps.append(_Step(name, identity_of(os.fstat(child))))
        self._open[self.depth] = child
        self._close([depth for depth in self._open if not _stays_open(depth, self.depth)])

    def descriptor(self, depth: int) -> int:
        """The descriptor of the directory at `depth`, valid until the next call; this object closes it.

        Raises DirectoryMoved when that directory, or one above it, is no longer found by its name.
        """
        at = depth
        while at not in self._open:
            at -= 1
        while at < depth:
            above, at = at, at + 1
            try:
                child = self._open_directory(self._open[above], self._steps[at].name)
            except OSError:
                raise DirectoryMoved(at) from None
            self._open[at] = child
            if identity_of(os.fstat(child)) != self._steps[at].identity:
                raise DirectoryMoved(at)
            if not _stays_open(above, depth):
                self._close([above])
        return self._open[depth]

    def check(self) -> None:
        """Raises DirectoryMoved when one of the lowest 8 directories has left the directory it was entered from."""
        for depth in range(max(self.depth - CHECK_LEVELS, 0) + 1, self.depth + 1):
            try:
                above = os.stat("..", dir_fd=self.descriptor(depth))
            except OSError:
                raise DirectoryMoved(depth) from None
            if identity_of(above) != self._steps[depth - 1].identity:
                raise DirectoryMoved(depth)

    def leave(self, depth: int) -> None:
        """Closes and forgets the directories from `depth` (at least 1) down."""
        self._close([entered for entered in self._open if entered >= depth])
        del self._steps[depth:]

    def _close(self, depths: list[int]) -> None:
        for depth in depths:
            os.close(self._open.pop(depth))
