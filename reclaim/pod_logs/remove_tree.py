"""The remover that cannot be led astray: takes away one named entry of an opened directory, and all below it.

* Only `unlink` and `rmdir`, always of a name in an opened directory. Nothing is created, truncated or made writable, so
  it works on a filesystem without a free byte or inode.
* No symlink is followed, no mount and no other device entered (`beneath`): a symlink goes as an entry, a mount stays
  and is reported.
* No recursion, few descriptors and no way up (`descent`). No directory is read into memory whole.
* A directory that is moved meanwhile is left alone from then on: before it is listed, and after every `CHECK_EVERY`
  files, it must still be in the directory it was entered from, and so must 7 above it. That a directory further up was
  moved is noticed when it is next needed: until then its content, which was to go, goes.
* What vanishes meanwhile is fine. Another error is reported and the rest still goes; what holds the rest stays.

Covers: removal. Does not cover: whether something may go (`pod_logs`, `log_removers`).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

from reclaim.pod_logs.directory_walk import Descent, Displaced, Identity, identity_of
from reclaim.pod_logs.openat2 import OpenBeneath, is_entry_name, open_beneath

CHECK_EVERY = 64
BATCH = 1024  # subdirectories of one directory that are remembered at a time
DEEPEST = 20_000  # levels: someone who digs faster than this remover climbs must not hold it for ever
RETRIES = 100  # how often one directory is gone through again because something appeared or changed in it
FAILURES_TOLD = 16
LOOKS_FOR_FILES = 3

_NOT_A_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True)
class Failure:
    """An entry that could not be removed: its path below the opened directory, for people, and the error."""

    path: str
    error: str


@dataclass(frozen=True, slots=True)
class Removal:
    """What went: how many entries. What did not: how many could not, and the first `FAILURES_TOLD` of them."""

    removed: int = 0
    failed: int = 0
    failures: tuple[Failure, ...] = ()

    @property
    def sentence(self) -> str:
        """For people: what failed first, and how much else; empty when nothing did."""
        if not self.failures:
            return ""
        more = f", and {self.failed - 1} more" if self.failed > 1 else ""
        return f"{self.failures[0].path}: {self.failures[0].error}{more}"


def printable(name: bytes) -> str:
    """A name as text, told apart from every other name: bytes that are not UTF-8 as `\\xNN`, a backslash doubled."""
    return name.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def remove_tree(
    directory: int, name: bytes, identity: Identity | None = None, open_directory: OpenBeneath = open_beneath
) -> Removal:
    """Removes the entry `name` of an opened directory, and everything below it if it is a directory itself.

    `identity`: device and inode that it must have; anything else by that name stays and is a failure. An entry that is
    not there is nothing removed. Raises ValueError when `name` is not the name of an entry, OSError only when the
    descriptor of the directory is bad.
    """
    if not is_entry_name(name):
        raise ValueError(f"{name!r} is not the name of an entry of a directory")
    return _Walk(Descent(directory, open_directory), identity).run(name)


def unlink_files(directory: int, prefix: bytes) -> Removal:
    """Unlinks the entries of an opened directory whose names begin with `prefix`, literally; directories stay.

    Looks up to 3 times until nothing of the name is left: a file may be renamed within the prefix meanwhile. Raises
    ValueError when the prefix cannot begin a name, or is empty.
    """
    if not is_entry_name(prefix):
        raise ValueError(f"{prefix!r} cannot begin the name of a file")
    removed, errors = 0, dict[bytes, str]()
    for _ in range(LOOKS_FOR_FILES):
        before = removed
        try:
            with os.scandir(directory) as entries:
                names = [name for name in (os.fsencode(entry.name) for entry in entries) if name.startswith(prefix)]
        except OSError as error:
            errors[prefix] = _said(error)
            break
        for name in names:
            try:
                os.unlink(name, dir_fd=directory)
                removed += 1
            except (FileNotFoundError, IsADirectoryError):
                pass
            except OSError as error:
                errors[name] = _said(error)
        if removed == before:
            break
    failures = [Failure(printable(name), error) for name, error in sorted(errors.items())]
    return Removal(removed, len(failures), tuple(failures[:FAILURES_TOLD]))


def _said(error: OSError) -> str:
    return error.strerror or str(error)


@dataclass(slots=True, eq=False)
class _Level:
    """What is to be done in one directory on the way. `pending`: subdirectories that are still to be entered; `list`:
    it is to be listed (again); `failed`: entries that stay; `retries`: how often something changed in it."""

    pending: list[bytes] = field(default_factory=list)
    failed: set[bytes] = field(default_factory=set)
    list: bool = True
    retries: int = 0


class _Walk:
    """One removal. Level 0 is the opened directory, of which nothing but the named entry is looked at."""

    def __init__(self, descent: Descent, expected: Identity | None):
        self._descent = descent
        self._expected = expected
        self._levels: list[_Level] = []
        self._removed = 0
        self._failed = 0
        self._failures: list[Failure] = []

    def run(self, name: bytes) -> Removal:
        self._levels.append(_Level([name], list=False))
        try:
            while len(self._levels) > 1 or self._levels[0].pending:
                try:
                    self._step(self._levels[-1])
                except Displaced as displaced:
                    self._again(displaced.depth)
        finally:
            self._forget(1)
        return Removal(self._removed, self._failed, tuple(self._failures))

    def _step(self, level: _Level) -> None:
        if level.pending:
            self._enter(level, level.pending.pop())
        elif level.list:
            self._list(level)
        else:
            self._leave(level)

    def _enter(self, level: _Level, name: bytes) -> None:
        """Enters a directory, or unlinks what has turned out not to be one."""
        parent = self._descent.descriptor(self._descent.depth)
        try:
            if self._is_another(parent, name):
                return
            if self._descent.depth == DEEPEST:
                self._fail(level, name, f"is more than {DEEPEST} levels deep")
                return
            self._descent.enter(name)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in _NOT_A_DIRECTORY:
                self._unlink(level, parent, name)
            elif error.errno == errno.EXDEV:
                self._fail(level, name, _said(error))
            else:
                self._remove_unopened(level, parent, name, _said(error))
            return
        self._levels.append(_Level())
        if self._descent.depth == 1 and self._expected not in (None, self._descent.identity(1)):
            self._again(1)  # exchanged since the look at it

    def _is_another(self, parent: int, name: bytes) -> bool:
        """Whether the entry to be removed is not the expected one, which is then a failure. Raises OSError."""
        if self._expected is None or self._descent.depth:
            return False
        if identity_of(os.lstat(name, dir_fd=parent)) == self._expected:
            return False
        self._fail(self._levels[0], name, "is not the entry any more that was to go")
        return True

    def _list(self, level: _Level) -> None:
        """Unlinks the files of the lowest directory and notes its subdirectories, up to `BATCH`."""
        level.list = False
        self._descent.check()
        descriptor = self._descent.descriptor(self._descent.depth)
        unlinked = 0
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if name in level.failed:
                        continue
                    if not entry.is_dir(follow_symlinks=False):
                        self._unlink(level, descriptor, name)
                        unlinked += 1
                        if unlinked % CHECK_EVERY == 0:
                            self._descent.check()
                    elif len(level.pending) < BATCH:
                        level.pending.append(name)
                    else:
                        level.list = True
                        break
        except OSError as error:
            self._fail(level, b"", _said(error))

    def _unlink(self, level: _Level, parent: int, name: bytes) -> None:
        try:
            os.unlink(name, dir_fd=parent)
            self._removed += 1
        except FileNotFoundError:
            pass
        except IsADirectoryError:  # exchanged since it was listed
            self._once_more(level, name)
        except OSError as error:
            self._fail(level, name, _said(error))

    def _remove_unopened(self, level: _Level, parent: int, name: bytes, why: str) -> None:
        """A directory that may not be read goes all the same if it is empty."""
        try:
            os.rmdir(name, dir_fd=parent)
            self._removed += 1
        except FileNotFoundError:
            pass
        except OSError:
            self._fail(level, name, why)

    def _leave(self, level: _Level) -> None:
        """Removes the lowest directory, which was gone through, from the one above it."""
        depth = self._descent.depth
        name, above = self._descent.name(depth), self._levels[depth - 1]
        parent = self._descent.descriptor(depth - 1)
        try:
            os.rmdir(name, dir_fd=parent)
            self._removed += 1
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                if not self._is_there(parent, depth):
                    raise Displaced(depth) from None
                if not level.failed and level.retries < RETRIES:  # something appeared in it
                    level.retries += 1
                    level.list = True
                    return
            self._forget(depth)
            if level.failed:
                above.failed.add(name)
            else:
                self._fail(above, name, _said(error))
            return
        self._forget(depth)

    def _is_there(self, parent: int, depth: int) -> bool:
        try:
            status = os.lstat(self._descent.name(depth), dir_fd=parent)
        except OSError:
            return False
        return identity_of(status) == self._descent.identity(depth)

    def _again(self, depth: int) -> None:
        """A directory on the way was moved or replaced: leaves it alone, and looks at what has its name now."""
        name = self._descent.name(depth)
        self._forget(depth)
        self._once_more(self._levels[-1], name)

    def _once_more(self, level: _Level, name: bytes) -> None:
        """Has an entry of the lowest directory that changed under our hands looked at again, but not for ever."""
        if level.retries < RETRIES:
            level.retries += 1
            level.pending.append(name)
        else:
            self._fail(level, name, "keeps changing")

    def _forget(self, depth: int) -> None:
        self._descent.leave(depth)
        del self._levels[depth:]

    def _fail(self, level: _Level, name: bytes, error: str) -> None:
        """Notes an entry of the lowest directory that stays; an empty name is the directory itself."""
        level.failed.add(name)
        self._failed += 1
        if len(self._failures) < FAILURES_TOLD:
            self._failures.append(Failure(printable(self._descent.path(name)), error))
