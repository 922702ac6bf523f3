"""`ReleaseBallast`: unlinks the file of the ballast, which needs neither a free byte nor a free inode.

Unlinked is only a file of the configured size, with one name, which is root's and nobody else may write. What else has
that name stays, and the function says so. While a process holds the file open unlinking it frees nothing; the measuring
after the removal shows it, as of any removal. Between the last look at the name and its `unlink` another file can get
that name for some microseconds; only a user who may write the directory can do that, and these are trusted.

Its directory must be one that only trusted users may write (`reclaim.trust`), as whoever writes it could put another
file in its place. A symlink above the file is followed, one in the place of the file is not.

Covers: what the file must be, whether it is there, removing it. Does not cover: making it (`eviction.ballast`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from reclaim.execution.removals import GONE, Ready, Refused, Stage
from reclaim.execution.workers import LOOK_SECONDS, in_time
from reclaim.function import ReclaimFunction
from reclaim.pod_logs.directories import identity_of
from reclaim.pod_logs.names import Identity
from reclaim.trust import directory_refusal, owner_only_refusal
from reclaim.types import Action, Plan, RemovalFailed, RuntimeUnavailable, Verdict
from signals.clock import Clock
from signals.types import FilesystemRole

BALLAST = "ballast"
REASONS = ("set_aside", "replaced")
"""Why it is removed, or kept right before that."""


BLOCK = 512  # the unit of st_blocks, whatever the blocks of the filesystem are
Answer = TypeVar("Answer")


class BallastRefused(RemovalFailed):
    """What is there is not the ballast, or the ballast cannot be made or removed. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class BallastSettings:
    """The absolute path of the file, and its size in bytes, at least 1 MiB: what is smaller may be stored in an inode,
    and relieves nobody."""

    path: str
    size_bytes: int

    @property
    def directory(self) -> str:
        """The directory of the file."""
        return self.path.rpartition("/")[0] or "/"

    @property
    def name(self) -> str:
        """Its name in that directory."""
        return self.path.rpartition("/")[2]


# ---- what is there


@contextmanager
def refused(settings: BallastSettings, what: str) -> Iterator[None]:
    """Raises BallastRefused for any OSError inside: the file cannot be `what`."""
    try:
        yield
    except OSError as error:
        raise BallastRefused(f"{settings.path} cannot be {what}: {error.strerror or error}") from error


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
    problem = _entry_problem(status, settings.size_bytes)
    if problem is not None:
        raise BallastRefused(f"{settings.path} is not the ballast: {problem}")
    return status


def _entry_problem(status: os.stat_result, size_bytes: int) -> str | None:
    """Why an entry with this status is not a file of ballast, as the end of a sentence; None: it is."""
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        name = {stat.S_IFLNK: "a symlink, which is not followed", stat.S_IFDIR: "a directory"}.get(kind, "no file")
        return f"it is {name}"
    if status.st_nlink != 1:
        return f"it has {status.st_nlink} hard links, so unlinking it frees nothing"
    if status.st_size != size_bytes:
        return f"it has {status.st_size} bytes, and the ballast has {size_bytes}"
    return owner_only_refusal("it", status)


def looked_at(
    settings: BallastSettings,
    what: str,
    look: Callable[[int, BallastSettings], Answer],
    seconds: float = LOOK_SECONDS,
) -> Answer:
    """What `look` returns of the opened directory. Raises BallastRefused, also if it takes longer than `seconds`."""

    def read() -> Answer:
        with opened_directory(settings) as directory:
            return look(directory, settings)

    with refused(settings, what):
        return in_time(read, seconds)


def examine(settings: BallastSettings) -> None:
    """Raises BallastRefused unless the ballast can be released on this machine, or is not there now."""
    if looked_at(settings, "looked for", _is_read_only):
        where = f"{settings.directory} is read-only here (systemd: ReadWritePaths=)"
        raise BallastRefused(f"{settings.path} cannot be unlinked: {where}")


def _is_read_only(directory: int, settings: BallastSettings) -> bool:
    status_in(directory, settings)
    return bool(os.fstatvfs(directory).f_flag & os.ST_RDONLY)


def remove_ballast(settings: BallastSettings, planned: Identity | None = None) -> int | None:
    """Unlinks the ballast now; the bytes that were allocated, None if it was not there. `planned`: it has to be this
    file. Raises BallastRefused if something else is there, or it cannot be unlinked."""
    with refused(settings, "unlinked"), opened_directory(settings) as directory:
        found = status_in(directory, settings)
        if found is None:
            return None
        if planned not in (None, identity_of(found)):
            raise BallastRefused(f"{settings.path} is another file now, not the one that was planned")
        os.unlink(settings.name, dir_fd=directory)
        return found.st_blocks * BLOCK


# ---- the function


def release_ballast_function(name: str, settings: BallastSettings, frees: FilesystemRole) -> ReclaimFunction:
    """The entry of the table. `frees`: the filesystem that the file is on."""
    return ReclaimFunction(
        name,
        frees,
        (BALLAST,),
        lambda context: (BallastRelease(settings, context.clock),),
        examine=lambda _, __: examine(settings),
    )


class BallastRelease(Stage):
    """The stage: unlinks the planned file, and no other of its name."""

    def __init__(self, settings: BallastSettings, clock: Clock):
        self._settings = settings
        self._clock = clock
        self._planned: Identity = (0, 0)

    def plan(self) -> Plan | None:
        """The one file; None where there is no ballast. Raises BallastRefused if something else is there."""
        found, path = looked_at(self._settings, "read", status_in), self._settings.path
        if found is None:
            return None
        self._planned = identity_of(found)
        return Plan((Verdict(BALLAST, path, path, Action.REMOVE, "set_aside", found.st_blocks * BLOCK),))

    def check(self, _: Verdict) -> Ready | Refused:
        """Ready if the file is the planned one and is still what ballast must be."""
        read_at = self._clock.monotonic()
        try:
            found = looked_at(self._settings, "read", status_in)
        except BallastRefused:
            return Refused("replaced")
        if found is None:
            return GONE
        return Ready(read_at) if identity_of(found) == self._planned else Refused("replaced")

    def remove(self, _: Verdict) -> bool:
        """Unlinks it; within the same call it looks once more that it is the planned file."""
        return remove_ballast(self._settings, self._planned) is not None

    def present(self, _: Verdict) -> bool:
        """Whether the planned file still has its name. Raises RuntimeUnavailable when that cannot be told."""
        path = self._settings.path
        try:
            return identity_of(in_time(lambda: os.lstat(path))) == self._planned
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RuntimeUnavailable(f"{path} cannot be looked for: {error.strerror or error}") from error
