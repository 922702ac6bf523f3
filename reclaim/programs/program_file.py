"""Opens the file of a program, if nobody untrusted could have put it there: what was checked is what is started.

The path is walked from the root, name by name, without following a symlink. Every directory and the file itself have to
belong to root, or to the user of this process, and to be writable by their owner only. What was opened stays the same
file when the path leads elsewhere later, and it is started by its descriptor.

A sticky directory (`/tmp`) may be above, as nobody else can replace a directory in it; it may not hold the program
itself, as a hard link to another program could be put there.

What the file starts is its owner's matter: the interpreter of a script, libraries, other programs.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from reclaim.execution.readings import in_time
from reclaim.programs.settings import ProgramSettings, ProgramUser
from reclaim.trust import Credentials, owner_only_refusal, this_process
from reclaim.types import RemovalFailed

_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_CAP_SETGID, _CAP_SETUID = 6, 7


class ProgramRefused(RemovalFailed):
    """A program that is not started. The message is one sentence that names it."""


@contextmanager
def opened_program(path: str, credentials: Credentials | None = None) -> Iterator[int]:
    """A descriptor (`O_PATH`) of the program at an absolute path. Raises ProgramRefused, also where its filesystem does
    not answer."""
    opening = _Opening(path, credentials or this_process())
    try:
        try:
            program = in_time(opening)
        except OSError as error:
            raise _unusable(path, error) from error
        yield program
    finally:
        opening.close()


class _Opening:
    """Opens one program, on a thread that may be left behind. What it opens after `close` it closes at once."""

    def __init__(self, path: str, credentials: Credentials):
        self._path = path
        self._credentials = credentials
        self._lock = threading.Lock()
        self._closed = False
        self._program = -1

    def __call__(self) -> int:
        """Its descriptor. Raises ProgramRefused and OSError."""
        with ExitStack() as opened:
            program = os.dup(_walked(self._path, self._credentials, opened))
        with self._lock:
            self._program = program
            if self._closed:
                os.close(program)
        return program

    def close(self) -> None:
        """The descriptor is not needed any more, or never was."""
        with self._lock:
            self._closed = True
            if self._program >= 0:
                os.close(self._program)


def problem_of(settings: ProgramSettings, credentials: Credentials | None = None) -> str | None:
    """Why the program would not be started now, as a sentence; None: it would be."""
    path, credentials = settings.argv[0], credentials or this_process()

    def look() -> str | None:
        with ExitStack() as opened:
            return _execution_problem(path, _walked(path, credentials, opened), settings.user)

    try:
        return in_time(look)
    except ProgramRefused as error:
        return str(error)
    except OSError as error:
        return str(_unusable(path, error))


def _unusable(path: str, error: OSError) -> ProgramRefused:
    return ProgramRefused(f"the program {path} cannot be used: {error.strerror or error}")


def own_user(user: ProgramUser | None) -> bool:
    """Whether a program runs as the user of this process, so that nothing is switched."""
    return user is None or (user.uid, user.gid) == (os.geteuid(), os.getegid())


def _walked(path: str, credentials: Credentials, opened: ExitStack) -> int:
    """Raises ProgramRefused and OSError."""
    names = path.split("/")[1:]
    if not path.startswith("/") or "\0" in path or {"", ".", ".."} & set(names):
        raise ProgramRefused(f"the program {path!r} is not named by an absolute path without '.', '..' and '//'")
    so_far, place = "/", os.open("/", _FLAGS | os.O_DIRECTORY)
    opened.callback(os.close, place)
    for number, name in enumerate(names, 1):
        _check_directory(path, so_far, os.fstat(place), credentials, holds_it=number == len(names))
        so_far = os.path.join(so_far, name)
        place = os.open(name, _FLAGS, dir_fd=place)
        opened.callback(os.close, place)
        if stat.S_ISLNK(os.fstat(place).st_mode):
            leads_to = os.path.realpath(path)
            raise ProgramRefused(
                f"the program {path} is refused: {so_far} is a symlink; the path without it: {leads_to}"
            )
    status = os.fstat(place)
    if not stat.S_ISREG(status.st_mode):
        raise ProgramRefused(f"the program {path} is refused: it is not a regular file")
    if (refusal := owner_only_refusal("it", status, credentials)) is not None:
        raise ProgramRefused(f"the program {path} is refused: {refusal}")
    if not status.st_mode & 0o111:
        raise ProgramRefused(
            f"the program {path} is refused: it is not executable (mode {status.st_mode & 0o7777:04o})"
        )
    return place


def _check_directory(
    path: str, directory: str, status: os.stat_result, credentials: Credentials, *, holds_it: bool
) -> None:
    """Raises ProgramRefused and OSError."""
    if not stat.S_ISDIR(status.st_mode):
        raise ProgramRefused(f"the program {path} is refused: {directory} is not a directory")
    if status.st_mode & stat.S_ISVTX and not holds_it and credentials.trusts(status.st_uid):
        return
    if (refusal := owner_only_refusal(f"the directory {directory}", status, credentials)) is not None:
        raise ProgramRefused(f"the program {path} is refused: {refusal}")


def _execution_problem(path: str, program: int, user: ProgramUser | None) -> str | None:
    if own_user(user) or user is None:
        if not os.access(f"/proc/self/fd/{program}", os.X_OK, effective_ids=True):
            return f"the program {path} may not be executed by uid {os.geteuid()}, or its filesystem is mounted noexec"
        return None
    if not _may_switch():
        return f"the program {path} cannot be started as uid {user.uid}: this process may not become another user"
    status = os.fstat(program)
    bit = 0o100 if user.uid == status.st_uid else 0o010 if user.gid == status.st_gid else 0o001
    if user.uid and not status.st_mode & bit:
        mode = f"{status.st_mode & 0o7777:04o}"
        return f"the program {path} may not be executed by uid {user.uid}, gid {user.gid} (mode {mode})"
    return None


def _may_switch() -> bool:
    """Whether this process may change its user and groups. Raises OSError."""
    with open("/proc/self/status") as status:
        effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    return bool(effective >> _CAP_SETUID & effective >> _CAP_SETGID & 1)
