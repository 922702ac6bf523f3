"""`ReleaseBallast`: unlinks the ballast file, which needs neither a free byte nor a free inode.

Only a file of the configured size, with a single name, that belongs to root and that nobody else
may write is unlinked. Anything else with that name is kept, and the function reports it. While a
process holds the file open, unlinking frees nothing; as after any removal, measuring the disk shows
that. Between the last look and the `unlink`, another file can get the name for some microseconds;
only users who may write to the directory can do that, and they are trusted.

Only trusted users may be able to write to its directory (`reclaim.trust`), as anyone else
could put another file in its place. Symlinks above the file are followed; a symlink in
place of the file is not.

Covers: what the file must be, whether it is there, removing it. Does not cover: creating it
(`eviction.engine.ballast`).
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from reclaim.function import GONE, Ready, ReclaimFunction, Refused, Stage
from reclaim.pod_logs.directories import allocated_bytes
from reclaim.trust import directory_at, directory_refusal, identity_of, owner_only_refusal
from reclaim.types import Action, FileIdentity, Plan, RemovalFailed, RuntimeUnavailable, Verdict
from reclaim.workers import Answer, in_time
from signals.clock import Clock
from signals.quantity import reason_of
from signals.types import FilesystemRole

BALLAST = "ballast"
REASONS = ("set_aside", "replaced")
"""Why it is removed, or kept at the last moment."""


class BallastRefused(RemovalFailed):
    """What is there is not the ballast, or the ballast cannot be created or removed.

    The message is one sentence.
    """


class BallastSettings(NamedTuple):
    """The file's absolute path and its size in bytes, at least 1 MiB: anything smaller may be
    stored in an inode and would relieve nobody."""

    path: str
    size_bytes: int

    @property
    def directory(self) -> str:
        """The file's directory."""
        return os.path.dirname(self.path)

    @property
    def name(self) -> str:
        """The file's name in that directory."""
        return os.path.basename(self.path)


# ---- what is there


@contextmanager
def refused(settings: BallastSettings, what: str) -> Iterator[None]:
    """Turns any OSError inside into BallastRefused: the file cannot be `what`."""
    try:
        yield
    except OSError as error:
        raise BallastRefused(f"{settings.path} cannot be {what}: {reason_of(error)}") from error


@contextmanager
def opened_directory(settings: BallastSettings) -> Iterator[int]:
    """A descriptor of the ballast's directory.

    Raises BallastRefused if others may write to it, and OSError.
    """
    with directory_at(settings.directory) as descriptor:
        refusal = directory_refusal(settings.directory)
        if refusal is not None:
            raise BallastRefused(f"{settings.path} is not used as ballast: {refusal}")
        yield descriptor


def status_in(directory: int, settings: BallastSettings) -> os.stat_result | None:
    """The status of the file in its opened directory; None if there is none. Raises BallastRefused
    if it is not a file of this size, and OSError."""
    try:
        status = os.lstat(settings.name, dir_fd=directory)
    except FileNotFoundError:
        return None
    problem = _entry_problem(status, settings.size_bytes)
    if problem is not None:
        raise BallastRefused(f"{settings.path} is not the ballast: {problem}")
    return status


def _entry_problem(status: os.stat_result, size_bytes: int) -> str | None:
    """Why this entry cannot be the ballast, as the end of a sentence; None if it can."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_nlink != 1:
        return f"it has {status.st_nlink} hard links, so unlinking it frees nothing"
    if status.st_size != size_bytes:
        return f"it has {status.st_size} bytes, and the ballast has {size_bytes}"
    return owner_only_refusal("it", status)


def looked_at(
    settings: BallastSettings, what: str, look: Callable[[int, BallastSettings], Answer]
) -> Answer:
    """The result of `look` in the opened directory.

    Raises BallastRefused, also if it does not answer in time.
    """

    def read() -> Answer:
        with opened_directory(settings) as directory:
            return look(directory, settings)

    with refused(settings, what):
        return in_time(read, of=settings.path)


def examine(settings: BallastSettings) -> None:
    """Raises BallastRefused unless the ballast can be released here, or does not exist now."""
    if looked_at(settings, "looked for", _is_read_only):
        raise BallastRefused(
            f"{settings.path} cannot be unlinked: {settings.directory} is read-only here (systemd:"
            " ReadWritePaths=)"
        )


def _is_read_only(directory: int, settings: BallastSettings) -> bool:
    status_in(directory, settings)
    return bool(os.fstatvfs(directory).f_flag & os.ST_RDONLY)


def remove_ballast(settings: BallastSettings, planned: FileIdentity | None = None) -> int | None:
    """Unlinks the ballast now and returns the bytes that were allocated; None if it was not
    there. `planned`: it must be this file. Raises BallastRefused if something else is there, or
    if it cannot be unlinked."""
    with refused(settings, "unlinked"), opened_directory(settings) as directory:
        found = status_in(directory, settings)
        if found is None:
            return None
        if planned not in (None, identity_of(found)):
            raise BallastRefused(
                f"{settings.path} is another file now, not the one that was planned"
            )
        os.unlink(settings.name, dir_fd=directory)
        return allocated_bytes(found)


# ---- the function


def release_ballast_function(
    name: str, settings: BallastSettings, frees: FilesystemRole
) -> ReclaimFunction:
    """The entry of the table. `frees`: the filesystem that holds the file."""
    return ReclaimFunction(
        name,
        frees,
        (BALLAST,),
        stages=lambda context: (BallastRelease(settings, context.clock),),
        examine=lambda _, __: examine(settings),
    )


class BallastRelease(Stage):
    """The stage: unlinks the planned file, and no other of its name."""

    def __init__(self, settings: BallastSettings, clock: Clock):
        self._settings = settings
        self._clock = clock
        self._planned: FileIdentity = (0, 0)

    def plan(self) -> Plan | None:
        """The one file; None if there is no ballast.

        Raises BallastRefused if something else is there.
        """
        found = looked_at(self._settings, "read", status_in)
        path = self._settings.path
        if found is None:
            return None
        self._planned = identity_of(found)
        return Plan(
            (Verdict(BALLAST, path, path, Action.REMOVE, "set_aside", allocated_bytes(found)),)
        )

    def check(self, _: Verdict) -> Ready | Refused:
        """Ready if the file is the planned one and still qualifies as ballast."""
        read_at = self._clock.monotonic()
        try:
            found = looked_at(self._settings, "read", status_in)
        except BallastRefused:
            return Refused("replaced")
        if found is None:
            return GONE
        return Ready(read_at) if identity_of(found) == self._planned else Refused("replaced")

    def remove(self, _: Verdict) -> bool:
        """Unlinks it, after one more look, within the same call, that it is the planned file."""
        return remove_ballast(self._settings, self._planned) is not None

    def present(self, _: Verdict) -> bool:
        """Whether the planned file still has its name.

        Raises RuntimeUnavailable if that is unknown.
        """
        path = self._settings.path
        try:
            return identity_of(in_time(lambda: os.lstat(path), of=path)) == self._planned
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RuntimeUnavailable(f"{path} cannot be looked for: {reason_of(error)}") from error
