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

MOUNTS = "/proc/self/mountinfo"
ENTRIES_PER_CLOCK_CHECK = 256

Classify = Callable[[Sequence[str]], str]
"""The names from below the root of the tree down to the file -> the class of the file."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree to be measured: its root directory, and what tells the class of each file in it."""

    root: str
    classify: Classify


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """What a tree occupies: allocated bytes by class of file, and inodes, both without the root itself.

    `device_id` (`st_dev`) is None if the root does not exist or was not reached. `complete`: everything was counted;
    else the numbers are lower bounds.
    """

    device_id: int | None = None
    bytes_by_class: tuple[tuple[str, int], ...] = ()
    inodes: int = 0
    complete: bool = False

    @property
    def total_bytes(self) -> int:
        """The allocated bytes of all classes."""
        return sum(amount for _, amount in self.bytes_by_class)


class TreeMeter:
    """Measures trees one after another, for at most `limit_seconds` plus half a second altogether.

    A measurement that is stuck in the kernel keeps its thread; until it ends, no other one is started. `mounts`: the
    table of mounts of this process (`/proc/self/mountinfo`).
    """

    def __init__(self, clock: Clock, limit_seconds: float, mounts: str = MOUNTS):
        self._clock = clock
        self._limit_seconds = limit_seconds
        self._mounts = mounts
        self._running: threading.Thread | None = None
        self.threads_not_started = 0

    def measure(self, trees: Sequence[Tree]) -> tuple[TreeUsage, ...]:
        """The usage of each tree, in the same order. Never raises OSError; what cannot be read is left out.

        While an earlier measurement is stuck, and without a thread, all are empty and incomplete.
        """
        if self._running is not None and self._running.is_alive():
            return tuple(TreeUsage() for _ in trees)
        until = self._clock.monotonic() + self._limit_seconds
        walks = [_Walk(tree, until, self._clock, self._mounts) for tree in trees]

        def run() -> None:
            for walk in walks:
                walk.run()

        thread = threading.Thread(target=run, name="tree usage", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self.threads_not_started += 1
            return tuple(TreeUsage() for _ in trees)
        self._running = thread
        thread.join(self._limit_seconds + 0.5)
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

    def usage(self) -> TreeUsage:
        counted = tuple(sorted(self._bytes.copy().items()))
        return TreeUsage(self._device_id, counted, self._inodes, self._complete)

    def run(self) -> None:
        root = os.path.realpath(self._tree.root)
        try:
            self._device_id = os.stat(root).st_dev
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
                        if found.st_dev != self._device_id:
                            continue
                        here = (*names, entry.name)
                        self._count(found, here)
                        if stat.S_ISDIR(found.st_mode):
                            pending.append((path, here))
            except FileNotFoundError:  # removed while it was counted
                continue
            except OSError:
                complete = False
        self._complete = complete

    def _count(self, found: os.stat_result, names: tuple[str, ...]) -> None:
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if found.st_ino in self._seen:
                return
            self._seen.add(found.st_ino)
        group = self._tree.classify(names)
        self._bytes[group] = self._bytes.get(group, 0) + found.st_blocks * 512
        self._inodes += 1

    def _in_time(self) -> bool:
        self._entries += 1
        return bool(self._entries % ENTRIES_PER_CLOCK_CHECK) or self._clock.monotonic() < self._until


def mounts_below(root: str, mounts: str = MOUNTS) -> frozenset[str]:
    """The mount points below a directory, from the kernel's table; none if it cannot be read.

    Source: proc(5), `/proc/pid/mountinfo`: the mount point is the fifth field, with octal escapes.
    """
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as table:
            points = [_unescaped(fields[4]) for line in table if len(fields := line.split(" ")) > 4]
    except OSError:
        return frozenset()
    prefix = root.rstrip("/") + "/"
    return frozenset(point for point in points if point.startswith(prefix))


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
