"""What directory trees occupy, counted like `du -x`: allocated bytes, hard-linked files once, one
device only.

Mount points below a tree are skipped by path and never touched. Everything has a time limit, as a
filesystem may never answer; what was not reached is unknown.
"""

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from reclaim.pod_logs.directories import allocated_bytes
from reclaim.workers import NoThread, ReadingHangs, ReadingsInTime, Workers
from signals.clock import Clock
from signals.mounts import MOUNTS, filesystem_id, mount_holding, read_mounts

TO_NOTICE_SECONDS = 0.5  # that a task has once its time is up

InTime = Callable[[], bool]


class TimeLimit:
    """Runs a task on a thread, and waits for it for so many seconds.

    A task that is stuck in the kernel keeps its thread; no other task starts until it ends.
    """

    def __init__(self, workers: Workers, clock: Clock, seconds: float):
        self._clock = clock
        self._seconds = seconds
        self._read = ReadingsInTime(workers, seconds + TO_NOTICE_SECONDS)

    def run(self, task: Callable[[InTime], None]) -> None:
        """Calls `task` with a function that says whether there is time left.

        Does nothing if no thread can start.
        """
        until = self._clock.monotonic() + self._seconds
        with suppress(ReadingHangs, NoThread):
            self._read(lambda: task(lambda: self._clock.monotonic() < until))


class Tree(NamedTuple):
    """A tree to count."""

    root: str
    classify: Callable[[Sequence[str]], str] = lambda _: "all"
    """From the components of a file's path below the root to the class of the file."""


@dataclass(slots=True)
class TreeUsage:
    """What a tree occupies, without the root itself."""

    device_id: int | None = None
    """As in `FilesystemIdentity`; None if the root does not exist or was not reached."""
    bytes_by_class: dict[str, int] = field(default_factory=dict)
    """The allocated bytes by class of file."""
    complete: bool = False
    """Whether everything was counted; otherwise the numbers are lower bounds."""

    @property
    def partial(self) -> bool:
        """Whether only a part was counted."""
        return self.device_id is not None and not self.complete

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes_by_class.values())


def count_trees(trees: Sequence[Tree], limit: TimeLimit, mounts: str = MOUNTS) -> list[TreeUsage]:
    """The usage of each tree, in the same order.

    Files that cannot be read are left out; never raises OSError.
    """
    usages = [TreeUsage() for _ in trees]

    def count(in_time: InTime) -> None:
        for tree, usage in zip(trees, usages, strict=True):
            with suppress(OSError):  # there is no root
                _count_tree(tree, usage, in_time, mounts=mounts)

    limit.run(count)
    # copied, as a thread that was left behind may still be counting
    return [replace(usage, bytes_by_class=usage.bytes_by_class.copy()) for usage in usages]


def _count_tree(tree: Tree, usage: TreeUsage, in_time: InTime, *, mounts: str) -> None:
    """Raises OSError if there is no root."""
    st_dev = os.stat(tree.root).st_dev
    usage.device_id = filesystem_id(tree.root, mounts)
    root = os.path.realpath(tree.root)
    mounted = mounts_below(root, mounts)
    linked: set[int] = set()
    pending = [root]
    complete = True
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if not in_time():
                        return
                    if entry.path in mounted:
                        continue
                    status = entry.stat(follow_symlinks=False)
                    if status.st_dev != st_dev or status.st_ino in linked:
                        continue
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(entry.path)
                    elif status.st_nlink > 1:
                        linked.add(status.st_ino)
                    group = tree.classify(entry.path.removeprefix(root).strip("/").split("/"))
                    size = usage.bytes_by_class.get(group, 0) + allocated_bytes(status)
                    usage.bytes_by_class[group] = size
        except FileNotFoundError:  # removed while it was counted
            continue
        except OSError:
            complete = False
    usage.complete = complete


def mounts_below(root: str, mounts: str = MOUNTS) -> frozenset[str]:
    """The mount points below a directory, from the kernel's table; none if it cannot be read. A
    directory that is mounted on itself, as CRI-O does with its layers, holds nothing else than
    the tree and is left out."""
    table = read_mounts(mounts)
    outer = mount_holding(root, table)
    # of several at one point, the last one is seen
    below = {
        mount.point: mount for mount in table if mount.point.startswith(root.rstrip("/") + "/")
    }
    return frozenset(
        point
        for point, mount in below.items()
        if outer is None
        or (mount.device, mount.root)
        != (outer.device, os.path.join(outer.root, os.path.relpath(point, outer.point)))
    )
