"""`ReleaseBallast`: unlinks the file of the ballast, which needs neither a free byte nor a free inode; and the keeper,
which makes it again later, never at pressure.

Unlinked is only a file of the configured size, with one name, which is root's and nobody else may write. What else has
that name stays, and the function says so. While a process holds the file open unlinking it frees nothing; the measuring
after the removal shows it, as of any removal.

Between the last look at the name and its `unlink` another file can get that name for some microseconds; only a user who
may write the directory can do that, and these are trusted.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from reclaim.ballast.file import (
    BLOCK,
    Ballast,
    BallastRefused,
    BallastSettings,
    Identity,
    create_ballast,
    identity_of,
    opened_directory,
    refused,
    room_problem,
    status_in,
)
from reclaim.execution.readings import in_time
from reclaim.execution.remover import GONE, STATUS_FRESH_SECONDS, Ready, Refused
from reclaim.execution.workers import NoThread, Task
from reclaim.function import ReclaimFunction
from reclaim.services import Clock
from reclaim.types import Action, Plan, RemovalFailed, RuntimeUnavailable, Verdict

BALLAST = "ballast"
REASONS = ("set_aside", "replaced")
"""Why it is removed, or kept right before that."""

RETRY_SECONDS = 300.0  # between two attempts to make it again


def release_ballast_function(name: str, settings: BallastSettings, frees: str) -> ReclaimFunction:
    """The entry of the table. `frees`: the filesystem that the file is on."""
    return ReclaimFunction(name, frees, (BALLAST,), lambda context: (BallastRelease(settings, context.clock),))


def examine(settings: BallastSettings) -> None:
    """Raises BallastRefused unless the ballast can be released on this machine, or is not there now."""

    def is_read_only() -> int:
        with opened_directory(settings) as directory:
            status_in(directory, settings)
            return os.fstatvfs(directory).f_flag & os.ST_RDONLY

    with refused(settings, "looked for"):
        read_only = in_time(is_read_only)
    if read_only:
        where = f"{settings.directory} is read-only here (systemd: ReadWritePaths=)"
        raise BallastRefused(f"{settings.path} cannot be unlinked: {where}")


class BallastRelease:
    """The stage: unlinks the planned file, and no other of its name."""

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = False
    patience_seconds: float | None = None

    def __init__(self, settings: BallastSettings, clock: Clock):
        self._settings = settings
        self._clock = clock
        self._planned: Identity = (0, 0)

    def plan(self) -> Plan | None:
        """The one file; None where there is no ballast. Raises BallastRefused if something else is there."""
        found, path = self._read(), self._settings.path
        if found is None:
            return None
        self._planned = identity_of(found)
        size = found.st_blocks * BLOCK
        return Plan((Verdict(BALLAST, path, path, Action.REMOVE, "set_aside", size_bytes=size),))

    def check(self, _: Verdict) -> Ready | Refused:
        """Ready if the file is the planned one and is still what ballast must be."""
        read_at = self._clock.monotonic()
        try:
            found = self._read()
        except BallastRefused:
            return Refused("replaced")
        if found is None:
            return GONE
        return Ready(read_at) if identity_of(found) == self._planned else Refused("replaced")

    def remove(self, _: Verdict) -> bool:
        """Unlinks it; within the same call it looks once more that it is the planned file."""
        settings = self._settings
        try:
            with opened_directory(settings) as directory:
                found = status_in(directory, settings)
                if found is None:
                    return False
                if identity_of(found) != self._planned:
                    raise RemovalFailed(f"{settings.path} is another file now, not the one that was planned")
                os.unlink(settings.name, dir_fd=directory)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RemovalFailed(f"{settings.path} cannot be unlinked: {error.strerror or error}") from error
        except BallastRefused as error:
            raise RemovalFailed(str(error)) from error
        return True

    def present(self, _: Verdict) -> bool:
        """Whether the planned file still has its name. Raises RuntimeUnavailable when that cannot be told."""
        path = self._settings.path
        try:
            return identity_of(in_time(lambda: os.lstat(path))) == self._planned
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RuntimeUnavailable(f"{path} cannot be looked for: {error.strerror or error}") from error

    def _read(self) -> os.stat_result | None:
        """The status of the file; None if there is none. Raises BallastRefused, also if it does not answer in time."""

        def read() -> os.stat_result | None:
            with opened_directory(self._settings) as directory:
                return status_in(directory, self._settings)

        with refused(self._settings, "read"):
            return in_time(read)


class BallastKeeper:
    """Keeps one file of ballast in place. `restore_if_room` and `close` are for one thread.

    The look at the file and its making are done on a thread that is handed in: a disk may hang. When pressure comes
    while it is made, what there is of it is removed. `run`: has a thread do a task; raises NoThread (`Workers.run`).
    `report`: called on that thread after an attempt that made the ballast, with it, or that could not make it, with one
    sentence why; not if it was there.
    """

    def __init__(
        self,
        settings: BallastSettings,
        run: Callable[[Task], object],
        report: Callable[[Ballast | str], object],
    ):
        self._settings = settings
        self._run = run
        self._report = report
        self._next = float("-inf")
        self._being_made = threading.Event()
        self._abandoned = threading.Event()

    def restore_if_room(self, available_bytes: int, mark_bytes: int, now: float, *, under_pressure: bool) -> bool:
        """Has the ballast made again if it is missing: not under pressure, not while one is made, each 5 minutes at
        most, and with room for it twice over above the mark. Whether a thread has begun to look. Returns at once, never
        raises.

        `available_bytes`: of its filesystem, as last read. `mark_bytes`: the highest mark of that filesystem, with what
        is reclaimed at least. `now`: monotonic seconds. `under_pressure`: a threshold is met on any filesystem, or a
        condition is reported.
        """
        if under_pressure:
            self._abandoned.set()
            return False
        if self._being_made.is_set() or now < self._next:
            return False
        if room_problem(available_bytes, self._settings, mark_bytes) is not None:
            return False
        self._next = now + RETRY_SECONDS
        self._abandoned.clear()
        self._being_made.set()
        try:
            self._run(lambda: self._restore(mark_bytes))
        except NoThread:
            self._being_made.clear()
            return False
        return True

    def close(self) -> None:
        """Gives up a file that is being made; its thread removes what there is of it."""
        self._abandoned.set()

    def _restore(self, mark_bytes: int) -> None:
        try:
            ballast, made = create_ballast(self._settings, mark_bytes, self._abandoned.is_set)
            if made:
                self._report(ballast)
        except BallastRefused as error:
            self._report(str(error))
        finally:
            self._being_made.clear()
