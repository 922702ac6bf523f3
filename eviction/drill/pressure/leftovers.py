"""What is in a directory before a drill fills it: files that an earlier drill left when it was killed together with its
fill process, and data that belongs neither to the kubelet nor to the runtime."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable

from eviction.drill.pressure.fill_program import PREFIX
from eviction.types import EvictionError
from reclaim.pod_logs.directories import identity_of, remove_tree

LARGEST_FOUND = 3  # a message names no more


class DrillStillRunning(EvictionError):
    """Another drill is filling the same directory. The message is one sentence."""


def remove_leftovers(directory: str) -> int:
    """Removes what earlier drills left in a directory. Returns the number of entries removed, those below included.

    Removes only entries with the drill's prefix that belong to our own user. Raises DrillStillRunning if a running
    drill has locked one of them, and OSError.
    """
    removed = 0
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in sorted(os.listdir(descriptor)):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if not name.startswith(PREFIX) or found.st_uid != os.geteuid() or stat.S_ISLNK(found.st_mode):
                continue
            if stat.S_ISDIR(found.st_mode):
                _refuse_if_locked(directory, descriptor, name)
            removed += remove_tree(descriptor, os.fsencode(name), identity_of(found)).removed
    finally:
        os.close(descriptor)
    return removed


def _refuse_if_locked(directory: str, descriptor: int, name: str) -> None:
    """Raises DrillStillRunning if the directory is locked: the kernel frees the lock when its process ends."""
    left = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
    try:
        fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DrillStillRunning(f"another drill fills {directory}: it has locked {name}") from None
    finally:
        os.close(left)


def mount_point(directory: str) -> str:
    """The highest directory above `directory` on the same filesystem."""
    path = os.path.realpath(directory)
    device = os.stat(path).st_dev
    while path != "/" and os.stat(os.path.dirname(path)).st_dev == device:
        path = os.path.dirname(path)
    return path


def foreign_entries(directory: str, own: Iterable[str]) -> list[str]:
    """Paths of the first few entries on the directory's filesystem that are neither in `own` nor on the way to them.

    Raises OSError if a directory cannot be read.
    """
    known = {os.path.realpath(path) for path in (*own, directory)}
    top = mount_point(directory)
    found: list[str] = []
    pending = [top]
    while pending and len(found) < LARGEST_FOUND:
        at = pending.pop()
        for name in sorted(os.listdir(at)):
            path = os.path.join(at, name)
            if path in known or (at == top and name == "lost+found") or name.startswith(PREFIX):
                continue
            if any(each.startswith(f"{path}/") for each in known) and not os.path.islink(path):
                pending.append(path)
            else:
                found.append(path)
    return found[:LARGEST_FOUND]
