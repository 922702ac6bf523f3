"""What a drill that was killed together with its helper left in a directory: found by its name, and removed."""

from __future__ import annotations

import fcntl
import os
import stat

from eviction.drill.pressure.real_fill_program import PREFIX
from eviction.types import EvictionError
from reclaim.pod_logs.directory_walk import identity_of
from reclaim.pod_logs.remove_tree import remove_tree


class DrillGoesOn(EvictionError):
    """Another drill fills the same directory. The message is one sentence."""


def remove_leftovers(directory: str) -> int:
    """Removes what drills have left in a directory; how many entries, with everything below them.

    Only entries of our name that belong to our own user and that no living drill has locked. Raises DrillGoesOn where
    one has, and OSError.
    """
    removed = 0
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in sorted(os.listdir(descriptor)):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if not name.startswith(PREFIX) or found.st_uid != os.geteuid() or stat.S_ISLNK(found.st_mode):
                continue
            if stat.S_ISDIR(found.st_mode):
                _refuse_living(directory, descriptor, name)
            removed += remove_tree(descriptor, os.fsencode(name), identity_of(found)).removed
    finally:
        os.close(descriptor)
    return removed


def _refuse_living(directory: str, descriptor: int, name: str) -> None:
    """A lock is free only when its holder is dead."""
    left = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
    try:
        fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DrillGoesOn(f"another drill fills {directory}: it holds {name}") from None
    finally:
        os.close(left)
