"""One instance a node: a lock on a directory that only root can enter.

The lock is the kernel's (flock(2)) on the directory itself: no file is created, and it is released with the process. A
lock on a directory that others may open could be taken by any local user, forever; so the directory has mode 0700 and
belongs to root or to the user that the program runs as. A missing directory is created with that mode.

A directory that others could open is replaced by a new one, as somebody may already hold a lock on it. Where it can be
neither made nor opened (not an inode left in /run, for example), relief is worth more than exclusion: the daemon
goes on without the lock and says so. Two instances are still guarded by the checks that come before each removal.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from eviction.cli.options import exit_with
from eviction.configuration.effective import Configuration
from eviction.exit_codes import EXIT_HELD, EXIT_USAGE
from eviction.reporting.log import Log
from eviction.types import EvictionError
from reclaim.execution.workers import in_time
from reclaim.trust import own_directory_refusal

MODE = 0o700
FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
TRIES = 10  # the directory may be replaced between opening and locking it


def hold_node(configuration: Configuration, log: Log) -> NodeLock:
    """Locks the node, or goes on without the lock, with a warning.

    Exits with 2 when the kubelet's directory cannot be opened or the lock is not trusted, and with 75 when another
    instance holds the lock.
    """
    root = configuration.root_directory
    if configuration.has_runtime:
        try:
            in_time(lambda: os.close(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)))
        except TimeoutError as error:  # its readings will tell, and other filesystems are looked at
            log.warning(f"rootDirectory: {root}: {error.strerror}")
        except OSError as error:
            exit_with(EXIT_USAGE, f"rootDirectory: {root}: {error.strerror}; it must be the kubelet's directory")
    try:
        lock = NodeLock(configuration.lock_directory)
    except NodeHeld as held:
        exit_with(EXIT_HELD, str(held))
    except LockRefused as refused:
        exit_with(EXIT_USAGE, str(refused))
    if lock.problem is not None:
        log.warning(f"no lock of the node, so another instance is not kept away: {lock.problem}")
    return lock


class NodeHeld(EvictionError):
    """Another instance holds the lock. The message is one sentence."""


class LockRefused(EvictionError):
    """Others could take the lock. The message is one sentence."""


class NodeLock:
    """The lock, held until `close`. `problem`: why the daemon runs without it, None if it is held."""

    def __init__(self, directory: str):
        """Takes the lock. Raises NodeHeld and LockRefused."""
        self.problem: str | None = None
        self._descriptor = -1
        try:
            for _ in range(TRIES):
                if self._taken(directory):
                    return
            self.problem = f"{directory} is replaced again and again"
        except OSError as error:
            self.problem = f"{directory}: {error.strerror or error}"

    def close(self) -> None:
        """Releases the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _taken(self, directory: str) -> bool:
        """False if the directory is no longer at the path: a lock on it would exclude nobody. Raises OSError."""
        try:
            descriptor = os.open(directory, FLAGS)
        except FileNotFoundError:
            for missing in (os.path.dirname(directory), directory):
                os.makedirs(missing, MODE, exist_ok=True)
            descriptor = os.open(directory, FLAGS)
        try:
            refusal = own_directory_refusal(directory, os.fstat(descriptor))
            if refusal is not None:
                raise LockRefused(f"lockDirectory: {directory} is not trusted: {refusal}")
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != MODE:
                _remove(directory)
                return False
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.lstat(directory), os.fstat(descriptor)):
                self._descriptor, descriptor = descriptor, -1
                return True
        except FileNotFoundError:  # it was removed meanwhile
            pass
        except BlockingIOError:
            raise NodeHeld(f"another instance holds the node ({directory} is locked)") from None
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return False


def _remove(directory: str) -> None:
    """Removes a directory that others could open. Raises LockRefused when something is in it, OSError."""
    try:
        os.rmdir(directory)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        raise LockRefused(
            f"lockDirectory: {directory} is not trusted: others may open it, and it is not empty"
        ) from None
