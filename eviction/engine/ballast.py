"""The ballast file: whether it holds its bytes, and how it is created.
`reclaim.functions.ballast` releases it.

Its bytes are really allocated, and it is never created where space is short:

* It gets its name only when it is complete and on the disk (O_TMPFILE), so a process that dies
  leaves nothing behind, and nothing is overwritten. If two processes create it at the same
  time, only one of them succeeds; as each requires twice its size above the mark, both together
  do not go below the mark.
* `fallocate` takes its bytes, and the blocks of the file must show that it did: it
  may only set the size (ZFS).
* Where blocks prove nothing it is refused: btrfs counts those of a compressed file as if
  it were not, and snapshots share them. XFS shares them only if somebody clones the
  file, which nobody looks for.

Sources: open(2) and linkat(2) for a file without a name; posix_fallocate(3), whose emulation writes
a byte into each block; https://btrfs.readthedocs.io/en/latest/Compression.html.
"""

import os
from collections.abc import Callable

from eviction.records.json_shapes import LEFT_OUT, Count, LeftOut, Versioned
from reclaim.functions.ballast import (
    BallastRefused,
    BallastSettings,
    looked_at,
    opened_directory,
    refused,
    status_in,
)
from reclaim.pod_logs.directories import allocated_bytes
from signals.mounts import mount_holding, read_mounts
from signals.quantity import format_bytes

MODE = 0o600
# types of filesystems where the blocks of a file are not what unlinking it frees
UNPROVED = ("btrfs", "bcachefs")


class Ballast(Versioned):
    """The file that is removed when the disk is full: the answer of `reclaimd ballast`."""

    file: str
    """Its path."""
    size_bytes: Count
    """Its size as configured."""
    there: bool
    """Whether it exists."""
    whole: bool
    """Whether all of its bytes are allocated."""
    allocated_bytes: Count = 0
    """The bytes that it takes on the disk."""
    problem: str = ""
    """What is wrong with it; empty if nothing is."""
    removed_bytes: Count | LeftOut | None = LEFT_OUT
    """After `remove`: the bytes that it took on the disk; null if it did not exist."""


def room_problem(
    available_bytes: int, settings: BallastSettings, mark_bytes: int = 0
) -> str | None:
    """Why there is no room for the ballast, as one sentence; None if twice its size is
    available above the mark.

    `mark_bytes`: the highest mark of the filesystem.
    """
    wanted = 2 * settings.size_bytes + mark_bytes
    if available_bytes >= wanted:
        return None
    mark, needed, available = map(format_bytes, (mark_bytes, wanted, available_bytes))
    needs = f"it needs twice its size above the mark of {mark}, {needed}"
    return f"{settings.path} is not made: {needs}, and {available} are available"


def read_ballast(settings: BallastSettings) -> Ballast | None:
    """The ballast as it is; None if it does not exist. Raises BallastRefused if something else is
    there, or it cannot be read in time."""
    return looked_at(settings, "read", _ballast_in)


def _ballast_in(directory: int, settings: BallastSettings) -> Ballast | None:
    """The same, in an open directory. Raises BallastRefused, OSError."""
    status = status_in(directory, settings)
    return None if status is None else _held(status, settings)


def _held(status: os.stat_result, settings: BallastSettings) -> Ballast:
    """What a file with this status, in the ballast's directory, takes."""
    size_bytes = settings.size_bytes
    allocated = min(allocated_bytes(status), size_bytes)
    mount = mount_holding(os.path.realpath(settings.directory), read_mounts())
    problem = ""
    if mount is not None and mount.type in UNPROVED:
        problem = (
            f"the blocks of a file on {mount.type} do not show what unlinking it frees: use another"
            " filesystem"
        )
    elif allocated < size_bytes:
        problem = f"it is sparse: {allocated} of its {size_bytes} bytes are allocated"
    return Ballast(
        file=settings.path,
        size_bytes=size_bytes,
        there=True,
        whole=not problem,
        allocated_bytes=allocated,
        problem=problem,
    )


# ---- creating it


def create_ballast(
    settings: BallastSettings,
    mark_bytes: int = 0,
    abandoned: Callable[[], bool] = lambda: False,
    *,
    allocate: Callable[[int, int, int], None] = os.posix_fallocate,
) -> tuple[Ballast, bool]:
    """The complete ballast, and whether it was created now.

    `mark_bytes`: the highest mark of the filesystem. `abandoned`: called before it gets its name;
    true if the file is no longer wanted. `allocate`: allocates bytes of an open file (descriptor,
    offset, length); raises OSError.

    Raises BallastRefused, with nothing left behind, if something else is there, space is short, the
    filesystem does not allocate the bytes, or the file was abandoned.
    """
    with refused(settings, "made"), opened_directory(settings) as directory:
        there = _ballast_in(directory, settings)
        if there is not None and there.problem:
            raise BallastRefused(f"{settings.path} is not the ballast: {there.problem}")
        if there is not None:
            return there, False
        problem = room_problem(_available_bytes(directory), settings, mark_bytes)
        if problem is not None:
            raise BallastRefused(problem)
        descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, MODE, dir_fd=directory)
        with open(descriptor, "wb", buffering=0):
            os.fchmod(descriptor, MODE)  # whatever the umask
            allocate(descriptor, 0, settings.size_bytes)
            os.fsync(descriptor)
            ballast = _held(os.fstat(descriptor), settings)
            problem = ballast.problem
            if abandoned():
                problem = problem or "the disk came under pressure meanwhile"
            elif _available_bytes(directory) < mark_bytes:
                problem = problem or "others took the space meanwhile"
            if problem:
                raise BallastRefused(f"{settings.path} is not made: {problem}")
            os.link(f"/proc/self/fd/{descriptor}", settings.name, dst_dir_fd=directory)
            os.fsync(directory)
    return ballast, True


def _available_bytes(directory: int) -> int:
    filesystem = os.fstatvfs(directory)
    return filesystem.f_bavail * filesystem.f_frsize
