"""Removes one named entry of an opened directory with everything below it, safe against symlinks, mounts and races.

* It calls only `unlink` and `rmdir`, always with a name in an opened directory. It creates, truncates and chmods
  nothing, so it works on a filesystem without a free byte or inode.
* It follows no symlink and enters no mount and no other device (`openat2`): a symlink is unlinked, a mount is kept and
  reported.
* It does not recurse, holds few descriptors (`directory_walk`) and never reads a whole directory into memory.
* It abandons a directory that is moved meanwhile: before it lists a directory, and after every `CHECK_EVERY` files,
  that directory and 7 above it must still be where they were entered. A move further up is noticed when that directory
  is next needed; until then its content, which was planned for removal, is removed.
* An entry that vanishes meanwhile is no failure. After another error it reports the entry and removes the rest; the
  directories above such an entry are kept.

Covers: removal. Does not cover: whether something may be removed (`plan`, `removers`).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

from reclaim.pod_logs.directory_walk import DirectoryMoved, DirectoryWalk, identity_of
from reclaim.pod_logs.names import Identity, is_entry_name, printable
from reclaim.pod_logs.openat2 import OpenBeneath, open_beneath

CHECK_EVERY = 64
BATCH = 1024  # how many subdirectories of one directory are held in memory at a time
DEEPEST = 20_000  # levels: a process that keeps making deeper directories must not occupy this remover for ever
RETRIES = 100  # how often one directory is listed again because something appeared or changed in it
FAILURES_LISTED = 16
UNLINK_ROUNDS = 3

_NOT_A_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True)
class Failure:
    """An entry that could not be removed: its path below the opened directory, for messages, and the error."""

    path: str
    error: str


@dataclass(frozen=True, slots=True)
class TreeRemoval:
    """How many entries were removed, how many could not be, and the first `FAILURES_LISTED` of these."""

    removed: int = 0
    failed: int = 0
    failures: tuple[Failure, ...] = ()

    @property
    def sentence(self) -> str:
        """The first failure and the number of the others, for messages; empty without a failure."""
        if not self.failures:
            return ""
        more = f", and {self.failed - 1} more" if self.failed > 1 else ""
        return f"{self.failures[0].path}: {self.failures[0].error}{more}"


def remove_tree(
    directory: int, name: bytes, identity: Identity | None = None, open_directory: OpenBeneath = open_beneath
) -> TreeRemoval:
    """Removes the entry `name` of an opened directory, and everything below it if it is a directory itself.

    `identity`: device and inode that it must have; another entry of that name is kept and reported as a failure. A
    missing entry is no failure. Raises ValueError when `name` cannot be the name of an entry, OSError only when the
    descriptor of the directory is bad.
    """
    if not is_entry_name(name):
        raise ValueError(f"{name!r} is not the name of an entry of a directory")
    return _TreeRemover(DirectoryWalk(directory, open_directory), identity).run(name)


def unlink_files(directory: int, prefix: bytes) -> TreeRemoval:
    """Unlinks the entries of an opened directory whose names begin with the literal `prefix`; keeps directories.

    Lists the directory up to 3 times, until nothing more is removed: meanwhile a file may be renamed to another such
    name. Raises ValueError when the prefix cannot begin a name, or is empty.
    """
    if not is_entry_name(prefix):
        raise ValueError(f"{prefix!r} cannot begin the name of a file")
    removed, errors = 0, dict[bytes, str]()
    for _ in range(UNLINK_ROUNDS):
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
    return TreeRemoval(removed, len(failures), tuple(failures[:FAILURES_LISTED]))


def _said(error: OSError) -> str:
    return error.strerror or str(error)


@dataclass(slots=True, eq=False)
class _Level:
    """The work left in one entered directory. `pending`: subdirectories to enter; `list`: whether to list it (again);
    `failed`: entries that are kept after a failure; `retries`: how often something changed in it."""

    pending: list[bytes] = field(default_factory=list)
    failed: set[bytes] = field(default_factory=set)
    list: bool = True
    retries: int = 0


class _TreeRemover:
    """One removal. Level 0 is the opened directory; only the named entry of it is touched."""

    def __init__(self, walk: DirectoryWalk, expected: Identity | None):
        self._walk = walk
        self._expected = expected
        self._levels: list[_Level] = []
        self._removed = 0
        self._failed = 0
        self._failures: list[Failure] = []

    def run(self, name: bytes) -> TreeRemoval:
        self._levels.append(_Level([name], list=False))
        try:
            while len(self._levels) > 1 or self._levels[0].pending:
                try:
                    self._step(self._levels[-1])
                except DirectoryMoved as moved:
                    self._retry_directory(moved.depth)
        finally:
            self._forget(1)
        return TreeRemoval(self._removed, self._failed, tuple(self._failures))

    def _step(self, level: _Level) -> None:
        if level.pending:
            self._enter(level, level.pending.pop())
        elif level.list:
            self._list(level)
        else:
            self._remove_lowest(level)

    def _enter(self, level: _Level, name: bytes) -> None:
        """Enters a directory, or unlinks an entry that is not one any more."""
        parent = self._walk.descriptor(self._walk.depth)
        try:
            if self._is_another(parent, name):
                return
            if self._walk.depth == DEEPEST:
                self._fail(level, name, f"is more than {DEEPEST} levels deep")
                return
            self._walk.enter(name)
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
        if self._walk.depth == 1 and self._expected not in (None, self._walk.identity(1)):
            self._retry_directory(1)  # another directory took its name since the `lstat`

    def _is_another(self, parent: int, name: bytes) -> bool:
        """Whether the entry to remove is not the expected one; notes that as a failure. Raises OSError."""
        if self._expected is None or self._walk.depth:
            return False
        if identity_of(os.lstat(name, dir_fd=parent)) == self._expected:
            return False
        self._fail(self._levels[0], name, "is another entry now, not the one that was planned")
        return True

    def _list(self, level: _Level) -> None:
        """Unlinks the files of the lowest directory and notes its subdirectories, up to `BATCH`."""
        level.list = False
        self._walk.check()
        descriptor = self._walk.descriptor(self._walk.depth)
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
                            self._walk.check()
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
        except IsADirectoryError:  # a directory took its name since it was listed
            self._retry_entry(level, name)
        except OSError as error:
            self._fail(level, name, _said(error))

    def _remove_unopened(self, level: _Level, parent: int, name: bytes, why: str) -> None:
        """Removes a directory that cannot be opened, which works if it is empty."""
        try:
            os.rmdir(name, dir_fd=parent)
            self._removed += 1
        except FileNotFoundError:
            pass
        except OSError:
            self._fail(level, name, why)

    def _remove_lowest(self, level: _Level) -> None:
        """Removes the lowest directory, whose entries have been handled, from the one above it."""
        depth = self._walk.depth
        name, above = self._walk.name(depth), self._levels[depth - 1]
        parent = self._walk.descriptor(depth - 1)
        try:
            os.rmdir(name, dir_fd=parent)
            self._removed += 1
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                if not self._is_there(parent, depth):
                    raise DirectoryMoved(depth) from None
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
            status = os.lstat(self._walk.name(depth), dir_fd=parent)
        except OSError:
            return False
        return identity_of(status) == self._walk.identity(depth)

    def _retry_directory(self, depth: int) -> None:
        """Abandons the entered directory at `depth`, which was moved or replaced, and retries the entry of its name."""
        name = self._walk.name(depth)
        self._forget(depth)
        self._retry_entry(self._levels[-1], name)

    def _retry_entry(self, level: _Level, name: bytes) -> None:
        """Queues an entry of the lowest directory again after it changed; up to `RETRIES` times."""
        if level.retries < RETRIES:
            level.retries += 1
            level.pending.append(name)
        else:
            self._fail(level, name, "keeps changing")

    def _forget(self, depth: int) -> None:
        self._walk.leave(depth)
        del self._levels[depth:]

    def _fail(self, level: _Level, name: bytes, error: str) -> None:
        """Notes that an entry of the lowest directory could not be removed; an empty name is the directory itself."""
        level.failed.add(name)
        self._failed += 1
        if len(self._failures) < FAILURES_LISTED:
            self._failures.append(Failure(printable(self._walk.path(name)), error))
