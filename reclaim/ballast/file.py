"""The file of the ballast as it is: whether it is there, is one that may be unlinked, and holds its bytes.

Its directory must be one that only trusted users may write (`reclaim.trust`), as whoever writes it could put another
file in its place. A symlink above the file is followed, one in the place of the file is not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from reclaim.ballast.extents import extents_of
from reclaim.ballast.plan import BallastSettings, allocation_problem, extents_problem, own_bytes
from reclaim.execution.readings import in_time
from reclaim.trust import directory_refusal, this_process
from reclaim.types import ReclaimError

BLOCK = 512  # the unit of st_blocks, whatever the blocks of the filesystem are
MODE = 0o600
WRITTEN_OUT_SECONDS = 30.0
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Identity = tuple[int, int]
"""Device and inode of a file."""


class BallastRefused(ReclaimError):
    """What is there is not the ballast, or the ballast cannot be made or removed. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Ballast:
    """A file of ballast that is there.

    `allocated_bytes`: how many of its bytes are allocated for it alone. `extents`: in how many pieces; None where the
    filesystem does not tell. `problem`: why it does not hold its bytes, as the end of a sentence; empty if it does.
    """

    path: str
    size_bytes: int
    allocated_bytes: int
    extents: int | None
    problem: str = ""


def identity_of(status: os.stat_result) -> Identity:
    """Device and inode of a status."""
    return status.st_dev, status.st_ino


def failed(settings: BallastSettings, what: str, error: OSError) -> BallastRefused:
    """What could not be done with the file, as an error of one sentence."""
    return BallastRefused(f"{settings.path} cannot be {what}: {error.strerror or error}")


@contextmanager
def opened_directory(settings: BallastSettings) -> Iterator[int]:
    """The descriptor of the directory of the ballast. Raises BallastRefused for one that others may write, OSError."""
    descriptor = os.open(settings.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        refusal = directory_refusal(settings.directory)
        if refusal is not None:
            raise BallastRefused(f"{settings.path} is not used as ballast: {refusal}")
        yield descriptor
    finally:
        os.close(descriptor)


def status_in(directory: int, settings: BallastSettings) -> os.stat_result | None:
    """The status of the file in its opened directory; None if there is none. Raises BallastRefused for anything that
    is not a file of this size, OSError."""
    try:
        status = os.lstat(settings.name, dir_fd=directory)
    except FileNotFoundError:
        return None
    problem = entry_problem(status, settings.size_bytes)
    if problem is not None:
        raise BallastRefused(f"{settings.path} is not the ballast: {problem}")
    return status


def entry_problem(status: os.stat_result, size_bytes: int | None) -> str | None:
    """Why an entry with this status is not a file of ballast, as the end of a sentence; None: it may be.

    `size_bytes`: which it must have; None: any, as that of a file that is being made.
    """
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        name = {stat.S_IFLNK: "a symlink, which is not followed", stat.S_IFDIR: "a directory"}.get(kind, "no file")
        return f"it is {name}"
    if not this_process().trusts(status.st_uid):
        return f"it belongs to uid {status.st_uid}; allowed is root's"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write it (mode {stat.S_IMODE(status.st_mode):04o}); allowed is {MODE:04o}"
    if status.st_nlink != 1:
        return f"it has {status.st_nlink} hard links, so unlinking it frees nothing"
    if size_bytes is not None and status.st_size != size_bytes:
        return f"it has {status.st_size} bytes, and the ballast has {size_bytes}"
    return None


def ballast_in(descriptor: int, settings: BallastSettings) -> Ballast:
    """What an opened file holds. Raises OSError."""
    extents = extents_of(descriptor)
    if extents is None:
        allocated = os.fstat(descriptor).st_blocks * BLOCK
        problem = allocation_problem(allocated, settings.size_bytes)
    else:
        allocated = own_bytes(extents, settings.size_bytes)
        problem = extents_problem(extents, settings.size_bytes)
    count = None if extents is None else len(extents)
    return Ballast(settings.path, settings.size_bytes, allocated, count, problem or "")


def read_ballast(settings: BallastSettings) -> Ballast | None:
    """The ballast as it is; None if it is not there. Writes out what of it is in memory, so not for a full disk.

    Raises BallastRefused if something else is there, or it cannot be read within `WRITTEN_OUT_SECONDS`.
    """

    def read() -> Ballast | None:
        with opened_directory(settings) as directory:
            return ballast_of(directory, settings)

    try:
        return in_time(read, WRITTEN_OUT_SECONDS)
    except OSError as error:
        raise failed(settings, "read", error) from error


def ballast_of(directory: int, settings: BallastSettings) -> Ballast | None:
    """The same, of an opened directory. Raises BallastRefused, OSError."""
    if status_in(directory, settings) is None:
        return None
    try:
        descriptor = os.open(settings.name, OPEN_FILE, dir_fd=directory)
    except FileNotFoundError:
        return None
    try:
        problem = entry_problem(os.fstat(descriptor), settings.size_bytes)
        if problem is not None:  # another took its name since
            raise BallastRefused(f"{settings.path} is not the ballast: {problem}")
        return ballast_in(descriptor, settings)
    finally:
        os.close(descriptor)
