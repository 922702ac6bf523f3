"""Removes the files that an earlier drill left in a directory when it was killed together with its fill process."""

from __future__ import annotations

import fcntl
import os
import stat

from eviction.drill.pressure.real_fill_program import PREFIX
from eviction.types import EvictionError
from reclaim.pod_logs.directories import identity_of, remove_tree


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
