"""What directory trees occupy on their filesystem, by class of file, within a time limit: `du -x` with a deadline.

Reads only. Bytes are the allocated ones (`st_blocks`), a file with several hard links counts once, and no other device
is entered. What is mounted below a tree is left out by its path and never touched, as the filesystem at a mount point
may never answer. Everything runs on a thread of its own: if a filesystem does not answer, the caller waits until the
limit, and gets what was counted by then, marked as incomplete.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from signals.clock import Clock
from signals.mounts import MOUNTS, filesystem_id, read_mounts

ENTRIES_PER_CLOCK_CHECK = 256

Classify = Callable[[Sequence[str]], str]
"""The names from below the root of the tree down to the file -> the class of the file."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree to be measured: its root directory, and what tells the class of each file in it."""

    root: str
    classify: Classify


@dataclass(frozen=True, slots=True)
class SparseFile:
    """A file that takes less on the disk than its size says; bytes."""

    path: str
    size: int
    allocated: int

    @property
    def missing(self) -> int:
        """How much less."""
        return self.size - self.allocated


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """What a tree occupies: allocated bytes by class of file, and inodes, both without the root itself.

    `device_id`: as in `types.FilesystemIdentity`, None if the root does not exist or was not reached. `complete`:
    everything was counted; else the numbers are lower bounds. `sparsest`: the file that takes least of what its size
    says, None where none is sparse.
    """

    device_id: int | None = None
    bytes_by_class: tuple[tuple[str, int], ...] = ()
    inodes: int = 0
    complete: bool = False
    sparsest: SparseFile | None = None

    @property
    def total_bytes(self) -> int:
        """The allocated bytes of all classes."""
        return sum(amount for _, amount in self.bytes_by_class)


class BoundedThread:
    """One task at a time on a thread of its own, waited for no longer than a limit: what it reads may never answer.

    A task that is stuck in the kernel keeps its thread; until it ends, no other one is begun.
    `not_started`: how many starts of a thread have failed.
    """

    def __init__(self, name: str):
        self._name = name
        self._running: threading.Thread | None = None
        self.not_started = 0

    def run(self, task: Callable[[], object], seconds: float) -> bool:
        """Has the task done, and waits for its end for at most so long. False if it was not begun."""
        if self._running is not None and self._running.is_alive():
            return False
        thread = threading.Thread(target=task, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self.not_started += 1
            return False
        self._running = thread
        thread.join(seconds)
        return True


class TreeMeter:
    """Measures trees one after another, for at most `limit_seconds` plus half a second altogether.

    A measurement that is stuck in the kernel keeps its thread; until it ends, no other one is started. `mounts`: the
    table of mounts of this process (`/proc/self/mountinfo`).
    """

    def __init__(self, clock: Clock, limit_seconds: float, mounts: str = MOUNTS):
        self._clock = clock
        self._limit_seconds = limit_seconds
        self._mounts = mounts
        self._thread = BoundedThread("tree usage")

    @property
    def threads_not_started(self) -> int:
        """How many starts of a thread have failed."""
        return self._thread.not_started

    def measure(self, trees: Sequence[Tree]) -> tuple[TreeUsage, ...]:
        """The usage of each tree, in the same order. Never raises OSError; what cannot be read is left out.

        While an earlier measurement is stuck, and without a thread, all are empty and incomplete.
        """
        until = self._clock.monotonic() + self._limit_seconds
        walks = [_Walk(tree, until, self._clock, self._mounts) for tree in trees]

        def run() -> None:
            for walk in walks:
                walk.run()

        self._thread.run(run, self._limit_seconds + 0.5)
        return tuple(walk.usage() for walk in walks)


class _Walk:
    """One tree being measured. Another thread may call `usage` at any time."""

    def __init__(self, tree: Tree, until: float, clock: Clock, mounts: str):
        self._tree = tree
        self._until = until
        self._clock = clock
        self._mounts = mounts
        self._device_id: int | None = None
        self._bytes: dict[str, int] = {}
        self._inodes = 0
        self._seen: set[int] = set()
        self._entries = 0
        self._complete = False
        self._sparsest: SparseFile | None = None

    def usage(self) -> TreeUsage:
        counted = tuple(sorted(self._bytes.copy().items()))
        return TreeUsage(self._device_id, counted, self._inodes, self._complete, self._sparsest)

    def run(self) -> None:
        root = os.path.realpath(self._tree.root)
        try:
            st_dev = os.stat(root).st_dev
            self._device_id = filesystem_id(root, self._mounts)
        except OSError:
            return
        mounted = mounts_below(root, self._mounts)
        pending: list[tuple[str, tuple[str, ...]]] = [(root, ())]
        complete = True
        while pending:
            directory, names = pending.pop()
            try:
                with os.scandir(directory) as entries:
                    for entry in entries:
                        if not self._in_time():
                            return
                        path = os.path.join(directory, entry.name)
                        if path in mounted:
                            continue
                        found = entry.stat(follow_symlinks=False)
                        if found.st_dev != st_dev:
                            continue
                        here = (*names, entry.name)
                        self._count(found, path, here)
                        if stat.S_ISDIR(found.st_mode):
                            pending.append((path, here))
            except FileNotFoundError:  # removed while it was counted
                continue
            except OSError:
                complete = False
        self._complete = complete

    def _count(self, found: os.stat_result, path: str, names: tuple[str, ...]) -> None:
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if found.st_ino in self._seen:
                return
            self._seen.add(found.st_ino)
        group = self._tree.classify(names)
        self._bytes[group] = self._bytes.get(group, 0) + found.st_blocks * 512
        self._inodes += 1
        missing = found.st_size - found.st_blocks * 512
        if missing > (0 if self._sparsest is None else self._sparsest.missing) and stat.S_ISREG(found.st_mode):
            self._sparsest = SparseFile(path, found.st_size, found.st_blocks * 512)

    def _in_time(self) -> bool:
        self._entries += 1
        return bool(self._entries % ENTRIES_PER_CLOCK_CHECK) or self._clock.monotonic() < self._until


def mounts_below(root: str, mounts: str = MOUNTS) -> frozenset[str]:
    """The mount points below a directory, from the kernel's table; none if it cannot be read."""
    prefix = root.rstrip("/") + "/"
    return frozenset(mount.point for mount in read_mounts(mounts) if mount.point.startswith(prefix))
