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
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

from reclaim.execution.readings import in_time
from reclaim.trust import Credentials, owner_only_refusal, this_process
from reclaim.types import RemovalFailed

_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_CAP_SETGID, _CAP_SETUID = 6, 7


class ProgramUser(NamedTuple):
    """The user and the one group that a program runs as, as numbers."""

    uid: int
    gid: int


class ProgramRefused(RemovalFailed):
    """A program that is not started. The message is one sentence that names it."""


class _Descriptor:
    """A descriptor that is closed at the latest when nobody holds it: a thread that hung may have opened it late."""

    def __init__(self, number: int):
        self.number = number

    def close(self) -> None:
        """May be called twice."""
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    __del__ = close


@contextmanager
def opened_program(path: str, credentials: Credentials | None = None) -> Iterator[int]:
    """A descriptor (`O_PATH`) of the program at an absolute path. Raises ProgramRefused, also where its filesystem does
    not answer."""
    with _refused(path):
        program = in_time(lambda: _opened(path, credentials or this_process()))
    with closing(program):
        yield program.number


def examine(path: str, user: ProgramUser | None, credentials: Credentials | None = None) -> None:
    """Raises ProgramRefused if the program would not be started now as this user."""

    def look() -> None:
        with closing(_opened(path, credentials or this_process())) as program:
            _refuse_execution(path, program.number, user)

    with _refused(path):
        in_time(look)


def own_user(user: ProgramUser | None) -> bool:
    """Whether a program runs as the user of this process, so that nothing is switched."""
    return user is None or user == (os.geteuid(), os.getegid())


@contextmanager
def _refused(path: str) -> Iterator[None]:
    """Raises ProgramRefused for any OSError inside."""
    try:
        yield
    except OSError as error:
        raise ProgramRefused(f"the program {path} cannot be used: {error.strerror or error}") from error


def _opened(path: str, credentials: Credentials) -> _Descriptor:
    """Raises ProgramRefused and OSError."""
    names = path.split("/")[1:]
    if not path.startswith("/") or "\0" in path or {"", ".", ".."} & set(names):
        raise ProgramRefused(f"the program {path!r} is not named by an absolute path without '.', '..' and '//'")

    def refuse_for(refusal: str | None) -> None:
        if refusal is not None:
            raise ProgramRefused(f"the program {path} is refused: {refusal}")

    with ExitStack() as opened:
        so_far, place = "/", os.open("/", _FLAGS | os.O_DIRECTORY)
        opened.callback(os.close, place)
        for number, name in enumerate(names, 1):
            refuse_for(_directory_refusal(so_far, os.fstat(place), credentials, holds_it=number == len(names)))
            so_far = os.path.join(so_far, name)
            place = os.open(name, _FLAGS, dir_fd=place)
            opened.callback(os.close, place)
            if stat.S_ISLNK(os.fstat(place).st_mode):
                refuse_for(f"{so_far} is a symlink; the path without it: {os.path.realpath(path)}")
        refuse_for(_file_refusal(os.fstat(place), credentials))
        return _Descriptor(os.dup(place))


def _directory_refusal(path: str, status: os.stat_result, credentials: Credentials, *, holds_it: bool) -> str | None:
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is not a directory"
    if status.st_mode & stat.S_ISVTX and not holds_it and credentials.trusts(status.st_uid):
        return None
    return owner_only_refusal(f"the directory {path}", status, credentials)


def _file_refusal(status: os.stat_result, credentials: Credentials) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    refusal = owner_only_refusal("it", status, credentials)
    if refusal is None and not status.st_mode & 0o111:
        return f"it is not executable (mode {status.st_mode & 0o7777:04o})"
    return refusal


def _refuse_execution(path: str, program: int, user: ProgramUser | None) -> None:
    """Raises ProgramRefused unless the user may execute it. OSError."""
    why = ""
    if user is None or own_user(user):
        if not os.access(f"/proc/self/fd/{program}", os.X_OK, effective_ids=True):
            why = f"may not be executed by uid {os.geteuid()}, or its filesystem is mounted noexec"
    elif not _may_switch():
        why = f"cannot be started as uid {user.uid}: this process may not become another user"
    else:
        status = os.fstat(program)
        bit = 0o100 if user.uid == status.st_uid else 0o010 if user.gid == status.st_gid else 0o001
        if user.uid and not status.st_mode & bit:
            mode = f"{status.st_mode & 0o7777:04o}"
            why = f"may not be executed by uid {user.uid}, gid {user.gid} (mode {mode})"
    if why:
        raise ProgramRefused(f"the program {path} {why}")


def _may_switch() -> bool:
    """Whether this process may change its user and groups. Raises OSError."""
    with open("/proc/self/status") as status:
        effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    return bool(effective >> _CAP_SETUID & effective >> _CAP_SETGID & 1)
