"""Makes the file of the ballast, so that its bytes are really taken, and never where room is short.

* It is made under a temporary name, which is locked while it is made, and renamed when it is whole and on the disk. A
  temporary file that nobody holds locked was left by a process that died, and is removed.
* `fallocate` is tried first. It may do nothing but set the size (ZFS), or write zeros that are compressed away. So the
  extents are read, and where they are not all there, the file is written with bytes that nothing can compress.
* What is sparse, shared or compressed even then is removed again and refused.

Source: posix_fallocate(3), whose emulation writes a byte into each block; flock(2).
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress

from reclaim.ballast.file import (
    MODE,
    OPEN_FILE,
    Ballast,
    BallastRefused,
    ballast_in,
    ballast_of,
    entry_problem,
    failed,
    identity_of,
    opened_directory,
)
from reclaim.ballast.plan import BallastSettings, room_problem

CHUNK = 1 << 20
COUNTED_SECONDS = 10.0  # ZFS counts the blocks of a file some seconds after they were written (zfs_txg_timeout is 5 s)
COUNTED_POLL_SECONDS = 0.25
_NO_FALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV)

Allocate = Callable[[int, int, int], None]
"""Allocates so many bytes of an opened file from an offset on, as `os.posix_fallocate`. Raises OSError."""


def never_abandoned() -> bool:
    """For a caller that waits to the end."""
    return False


def create_ballast(
    settings: BallastSettings,
    mark_bytes: int = 0,
    abandoned: Callable[[], bool] = never_abandoned,
    allocate: Allocate = os.posix_fallocate,
) -> tuple[Ballast, bool]:
    """The ballast, made now or there already, whole; and whether it was made now.

    `mark_bytes`: what must stay available of the filesystem besides twice the size. `abandoned`: asked now and then;
    True: the file is not needed any more, and what there is of it is removed.

    Raises BallastRefused if something else is there, the room is short, the filesystem does not take the bytes, or it
    was abandoned; then nothing of it is left.
    """
    try:
        with opened_directory(settings) as directory:
            _remove_torn(directory, settings)
            there = ballast_of(directory, settings)
            if there is None:
                return _Making(directory, settings, mark_bytes, abandoned, allocate).made(), True
    except OSError as error:
        raise failed(settings, "made", error) from error
    if there.problem:
        raise BallastRefused(f"{settings.path} is not the ballast: {there.problem}")
    return there, False


def _remove_torn(directory: int, settings: BallastSettings) -> None:
    """Removes what a process that died while it made the file has left. Raises BallastRefused if another makes it
    now, or if what has the temporary name is no such file; OSError."""
    name = settings.temporary_name
    try:
        status = os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return
    problem = entry_problem(status, None)
    if problem is not None:
        where = os.path.join(settings.directory, name)
        raise BallastRefused(f"{settings.path} is not made: {where} has the name of its temporary file, and {problem}")
    descriptor = os.open(name, OPEN_FILE, dir_fd=directory)
    try:
        lock_temporary(descriptor, directory, settings)
        os.unlink(name, dir_fd=directory)
    finally:
        os.close(descriptor)


def lock_temporary(descriptor: int, directory: int, settings: BallastSettings) -> None:
    """Locks the temporary file until its descriptor is closed, and makes sure that it still has the name. Who holds
    the lock is the only one to rename or unlink it. Raises BallastRefused if another has it; OSError."""
    other = BallastRefused(f"{settings.path} is being made by another process")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if identity_of(os.lstat(settings.temporary_name, dir_fd=directory)) != identity_of(os.fstat(descriptor)):
            raise other
    except (BlockingIOError, FileNotFoundError):
        raise other from None


class _Making:
    """One attempt to make the file in its opened directory."""

    def __init__(
        self,
        directory: int,
        settings: BallastSettings,
        mark_bytes: int,
        abandoned: Callable[[], bool],
        allocate: Allocate,
    ):
        self._directory = directory
        self._settings = settings
        self._mark_bytes = mark_bytes
        self._abandoned = abandoned
        self._allocate = allocate

    def made(self) -> Ballast:
        """The file, whole and under its name. Raises BallastRefused, OSError; then nothing of it is left."""
        settings = self._settings
        problem = room_problem(self._available_bytes(), settings, self._mark_bytes)
        if problem is not None:
            raise BallastRefused(problem)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(settings.temporary_name, flags, MODE, dir_fd=self._directory)
        try:
            lock_temporary(descriptor, self._directory, settings)
            try:
                return self._filled(descriptor)
            except BaseException:
                with suppress(FileNotFoundError):  # it was renamed, and is whole
                    os.unlink(settings.temporary_name, dir_fd=self._directory)
                raise
        finally:
            os.close(descriptor)

    def _filled(self, descriptor: int) -> Ballast:
        settings = self._settings
        os.fchmod(descriptor, MODE)  # whatever the umask left of it
        ballast = self._by_allocation(descriptor)
        if ballast.problem:
            ballast = self._by_writing(descriptor)
        if ballast.problem:
            raise BallastRefused(
                f"{settings.path} is not made, as this filesystem does not take its bytes: {ballast.problem}"
            )
        self._go_on()
        if self._available_bytes() < self._mark_bytes:
            raise BallastRefused(f"{settings.path} is not made: the room was taken by others meanwhile")
        if ballast_of(self._directory, settings) is not None:
            raise BallastRefused(f"{settings.path} was made by another process meanwhile")
        os.rename(settings.temporary_name, settings.name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        os.fsync(self._directory)
        return ballast

    def _by_allocation(self, descriptor: int) -> Ballast:
        try:
            self._allocate(descriptor, 0, self._settings.size_bytes)
        except OSError as error:
            if error.errno not in _NO_FALLOCATE:
                raise
        os.fsync(descriptor)
        return ballast_in(descriptor, self._settings)

    def _by_writing(self, descriptor: int) -> Ballast:
        left = self._settings.size_bytes
        while left:
            self._go_on()
            left -= os.write(descriptor, os.urandom(min(CHUNK, left)))
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # nobody reads it: it needs no memory
        deadline = time.monotonic() + COUNTED_SECONDS
        ballast = ballast_in(descriptor, self._settings)
        while ballast.problem and ballast.extents is None and time.monotonic() < deadline:
            self._go_on()
            time.sleep(COUNTED_POLL_SECONDS)
            ballast = ballast_in(descriptor, self._settings)
        return ballast

    def _go_on(self) -> None:
        if self._abandoned():
            raise BallastRefused(f"{self._settings.path} is not made: the disk came under pressure meanwhile")

    def _available_bytes(self) -> int:
        found = os.fstatvfs(self._directory)
        return found.f_bavail * found.f_frsize
