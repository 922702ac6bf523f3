"""`ReleaseBallast`: unlinks the file of the ballast, which needs neither a free byte nor a free inode.

Unlinked is only a file of the configured size, with one name, which is root's and nobody else may write. What else has
that name stays, and the function says so. While a process holds the file open unlinking it frees nothing; the measuring
after the removal shows it, as of any removal.

Between the last look at the name and its `unlink` another file can get that name for some microseconds; only a user who
may write the directory can do that, and these are trusted.
"""

from __future__ import annotations

import os

from reclaim.ballast.file import (
    BLOCK,
    BallastRefused,
    Identity,
    failed,
    identity_of,
    opened_directory,
    status_in,
)
from reclaim.ballast.plan import BALLAST, BallastReason, BallastSettings, plan_ballast
from reclaim.clock import Clock
from reclaim.execution.readings import in_time
from reclaim.execution.remover import GONE, STATUS_FRESH_SECONDS, Ready, Refused
from reclaim.execution.stages import Stage, StagePlan, Stopwatch
from reclaim.functions import ReclaimContext, ReclaimFunction
from reclaim.types import MeasureDisk, RemovalFailed, RuntimeUnavailable, Verdict


def release_ballast_function(name: str, settings: BallastSettings, frees: str) -> ReclaimFunction:
    """The entry of the table. `frees`: the filesystem that the file is on."""

    def stages(context: ReclaimContext) -> tuple[Stage, ...]:
        def release(_: MeasureDisk) -> StagePlan | None:
            return plan_release(settings, context.clock)

        return (release,)

    return ReclaimFunction(name, frees, (BALLAST,), stages)


def plan_release(settings: BallastSettings, clock: Clock) -> StagePlan | None:
    """The stage; None where there is no ballast. Raises BallastRefused if something else is there."""
    watch = Stopwatch(clock)
    found = watch.time(lambda: _read(settings))
    if found is None:
        return None
    plan = plan_ballast(settings, found.st_blocks * BLOCK)
    return StagePlan(plan, BallastRemover(settings, identity_of(found), clock), list_seconds=watch.seconds)


def problem_of(settings: BallastSettings) -> str | None:
    """What is wrong with the settings on this machine, as one sentence; None: the ballast can be released, or is not
    there now. For the start and for `doctor`."""

    def is_read_only() -> int:
        with opened_directory(settings) as directory:
            status_in(directory, settings)
            return os.fstatvfs(directory).f_flag & os.ST_RDONLY

    try:
        read_only = in_time(is_read_only)
    except OSError as error:
        return str(failed(settings, "looked for", error))
    except BallastRefused as error:
        return str(error)
    if read_only:
        return f"{settings.path} cannot be unlinked: {settings.directory} is read-only here (systemd: ReadWritePaths=)"
    return None


def _read(settings: BallastSettings) -> os.stat_result | None:
    """The status of the file; None if there is none. Raises BallastRefused, also where it does not answer in time."""

    def read() -> os.stat_result | None:
        with opened_directory(settings) as directory:
            return status_in(directory, settings)

    try:
        return in_time(read)
    except OSError as error:
        raise failed(settings, "read", error) from error


def remove_ballast(settings: BallastSettings) -> int | None:
    """Unlinks the ballast now, as a person asks for it; the bytes that were allocated, None if it was not there. Raises
    BallastRefused if something else is there, or it cannot be unlinked."""
    try:
        with opened_directory(settings) as directory:
            found = status_in(directory, settings)
            if found is None:
                return None
            os.unlink(settings.name, dir_fd=directory)
            return found.st_blocks * BLOCK
    except FileNotFoundError:
        return None
    except OSError as error:
        raise failed(settings, "unlinked", error) from error


class BallastRemover:
    """Unlinks the planned file, and no other of its name. A `Remover`."""

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = False

    def __init__(self, settings: BallastSettings, planned: Identity, clock: Clock):
        self._settings = settings
        self._planned = planned
        self._clock = clock

    def check(self, verdict: Verdict) -> Ready | Refused:
        """Ready if the file is the planned one and is still what ballast must be."""
        del verdict
        read_at = self._clock.monotonic()
        try:
            found = _read(self._settings)
        except BallastRefused:
            return Refused(BallastReason.REPLACED)
        if found is None:
            return GONE
        return Ready(read_at) if identity_of(found) == self._planned else Refused(BallastReason.REPLACED)

    def remove(self, verdict: Verdict) -> bool:
        """Unlinks it; within the same call it looks once more that it is the planned file."""
        del verdict
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
            raise RemovalFailed(str(failed(settings, "unlinked", error))) from error
        except BallastRefused as error:
            raise RemovalFailed(str(error)) from error
        return True

    def present(self, verdict: Verdict) -> bool:
        """Whether the planned file still has its name. Raises RuntimeUnavailable when that cannot be told."""
        del verdict
        settings = self._settings

        def is_there() -> bool:
            with opened_directory(settings) as directory:
                return identity_of(os.lstat(settings.name, dir_fd=directory)) == self._planned

        try:
            return in_time(is_there)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RuntimeUnavailable(str(failed(settings, "looked for", error))) from error
        except BallastRefused as error:
            raise RuntimeUnavailable(str(error)) from error
