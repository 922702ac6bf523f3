"""The way down from an opened directory: each directory by the one it was entered from, few of them open, none left by
`..`.

* Depth costs few descriptors: of n directories on the way about 4 log2(n) are open, the last 8 among them.
* A directory that was closed is reached again by name from the nearest open one above it, and each step must lead to
  the same device and inode as before.
* Whether a directory is still where it was entered is asked by comparing what `..` is; it is never entered.

Covers: the way. Does not cover: what is done in a directory (`tree`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from reclaim.pod_logs.openat2 import OpenBeneath

CHECK_LEVELS = 8  # so many directories, from the lowest up, are looked at by `check`; as many stay open
_PATH_BYTES = 200

Identity = tuple[int, int]
"""Device and inode."""


class Displaced(Exception):
    """The directory at this depth is no longer where it was entered: moved, removed, or something else has its name."""

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
    """Whether a descriptor is kept while the lowest directory is at `lowest`: the last 8, then ever fewer.

    A depth that 2**n divides is kept for 8 * 2**n levels. So from anywhere the nearest open one above is near, and to
    climb n levels costs about n log2(n) steps in all.
    """
    return depth == 0 or lowest - depth <= CHECK_LEVELS * (depth & -depth)


class Descent:
    """The directories from an opened one (depth 0, which stays the caller's to close) to the lowest entered."""

    def __init__(self, directory: int, open_directory: OpenBeneath):
        self._open_directory = open_directory
        self._steps = [_Step(b"", identity_of(os.fstat(directory)))]
        self._open = {0: directory}

    @property
    def depth(self) -> int:
        """How many directories were entered."""
        return len(self._steps) - 1

    def name(self, depth: int) -> bytes:
        """By what name the directory at `depth` was entered."""
        return self._steps[depth].name

    def identity(self, depth: int) -> Identity:
        """Device and inode that it had."""
        return self._steps[depth].identity

    def path(self, name: bytes = b"") -> bytes:
        """The names on the way to the lowest directory, or to an entry of it; the middle left out beyond 200 bytes."""
        names = [step.name for step in self._steps[1:]]
        path = b"/".join([*names, name] if name else names)
        half = _PATH_BYTES // 2
        return path if len(path) <= _PATH_BYTES else path[:half] + b"..." + path[-half:]

    def enter(self, name: bytes) -> None:
        """Enters a directory beneath the lowest. Raises OSError as `OpenBeneath` does, and Displaced."""
        child = self._open_directory(self.descriptor(self.depth), name)
        self._steps.append(_Step(name, identity_of(os.fstat(child))))
        self._open[self.depth] = child
        self._close([depth for depth in self._open if not _stays_open(depth, self.depth)])

    def descriptor(self, depth: int) -> int:
        """The descriptor of a directory on the way, until the next call. Raises Displaced when the way leads elsewhere.

        It stays this object's to close.
        """
        at = depth
        while at not in self._open:
            at -= 1
        while at < depth:
            above, at = at, at + 1
            try:
                child = self._open_directory(self._open[above], self._steps[at].name)
            except OSError:
                raise Displaced(at) from None
            self._open[at] = child
            if identity_of(os.fstat(child)) != self._steps[at].identity:
                raise Displaced(at)
            if not _stays_open(above, depth):
                self._close([above])
        return self._open[depth]

    def check(self) -> None:
        """Raises Displaced when one of the lowest 8 directories is not in the one that it was entered from any more."""
        for depth in range(max(self.depth - CHECK_LEVELS, 0) + 1, self.depth + 1):
            try:
                above = os.stat("..", dir_fd=self.descriptor(depth))
            except OSError:
                raise Displaced(depth) from None
            if identity_of(above) != self._steps[depth - 1].identity:
                raise Displaced(depth)

    def leave(self, depth: int) -> None:
        """Forgets the directories from `depth` (at least 1) down."""
        self._close([entered for entered in self._open if entered >= depth])
        del self._steps[depth:]

    def _close(self, depths: list[int]) -> None:
        for depth in depths:
            os.close(self._open.pop(depth))
