"""Removes one named entry of an opened directory with everything below it, safe against symlinks, mounts and races.

* It calls only `unlink` and `rmdir`, always with a name in an opened directory. It creates, truncates and chmods
  nothing, so it works on a filesystem without a free byte or inode.
* It follows no symlink and enters no mount and no other device (`directories`): a symlink is unlinked, a mount is kept
  and reported.
* It does not recurse and never reads a whole directory into memory. Open are the first directory and the lowest one. A
  directory is left through its `..`, which must have the device and the inode of the one it was entered from.
* It abandons a directory that is moved meanwhile: before it lists a directory, and after every `CHECK_EVERY` files,
  that directory and 7 above it must still be where they were entered. A move further up is noticed when that directory
  is left; until then its content, which was planned for removal, is removed. Then it goes down again by the names from
  the first directory, as far as each is still the same one.
* An entry that vanishes meanwhile is no failure. After another error it reports the entry and removes the rest; the
  directories above such an entry are kept.

Covers: removal. Does not cover: whether something may be removed (`plan`, `removers`).
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from reclaim.pod_logs.directories import OpenBeneath, identity_of, open_beneath
from reclaim.pod_logs.names import Identity, is_entry_name, printable

CHECK_EVERY = 64
CHECK_LEVELS = 8  # how many directories, from the lowest up, are compared
BATCH = 1024  # how many subdirectories of one directory are held in memory at a time
DEEPEST = 20_000  # levels: a process that keeps making deeper directories must not occupy this remover for ever
RETRIES = 100  # how often one entry is tried again because it changed, or something appeared in it
UNLINK_ROUNDS = 3

_ABOVE = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_BYTES = 200


@dataclass(frozen=True, slots=True)
class TreeRemoval:
    """How many entries were removed, how many could not be, and for messages the path of the first of these, below the
    opened directory, with the error."""

    removed: int = 0
    failed: int = 0
    failure: str = ""

    @property
    def sentence(self) -> str:
        """The first failure and the number of the others, for messages; empty without a failure."""
        return f"{self.failure}, and {self.failed - 1} more" if self.failed > 1 else self.failure


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
    return _TreeRemover(directory, identity, open_directory).run(name)


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
    failures = [f"{printable(name)}: {error}" for name, error in sorted(errors.items())]
    return TreeRemoval(removed, len(failures), failures[0] if failures else "")


def _is(identity: Identity, name: bytes, directory: int) -> bool:
    """Whether this is now found by a name, or by a path of `..`, from an opened directory."""
    try:
        return identity_of(os.lstat(name, dir_fd=directory)) == identity
    except OSError:
        return False


def _said(error: OSError) -> str:
    return error.strerror or str(error)


class _Moved(Exception):
    """The lowest directory, or one above it, was moved or removed, or something else has its name now."""


@dataclass(slots=True, eq=False)
class _Level:
    """A directory that was entered, and the work left in it.

    `pending`: subdirectories to enter; `list`: whether to list it (again); `failed`: entries that are kept after a
    failure; `retries`: how often each entry was tried again.
    """

    name: bytes
    identity: Identity
    pending: list[bytes] = field(default_factory=list)
    failed: set[bytes] = field(default_factory=set)
    list: bool = True
    retries: Counter[bytes] = field(default_factory=Counter)


class _TreeRemover:
    """One removal. Level 0 is the opened directory, `top`; only the named entry of it is touched."""

    def __init__(self, top: int, expected: Identity | None, open_directory: OpenBeneath):
        self._top = top
        self._expected = expected
        self._open_directory = open_directory
        self._levels = [_Level(b"", identity_of(os.fstat(top)), list=False)]
        self._lowest = os.dup(top)  # the descriptor of the last level
        self._removed = 0
        self._failed = 0
        self._failure = ""

    def run(self, name: bytes) -> TreeRemoval:
        self._levels[0].pending.append(name)
        try:
            while len(self._levels) > 1 or self._levels[0].pending:
                try:
                    self._step(self._levels[-1])
                except _Moved:
                    self._find_again()
        finally:
            os.close(self._lowest)
        return TreeRemoval(self._removed, self._failed, self._failure)

    def _step(self, level: _Level) -> None:
        if level.pending:
            self._enter(level, level.pending.pop())
        elif level.list:
            self._list(level)
        else:
            self._leave(level)

    def _enter(self, level: _Level, name: bytes) -> None:
        """Enters a directory, or unlinks an entry that is not one any more."""
        is_top = len(self._levels) == 1
        try:
            if is_top and self._expected not in (None, identity_of(os.lstat(name, dir_fd=self._lowest))):
                self._fail(level, name, "is another entry now, not the one that was planned")
                return
            if len(self._levels) > DEEPEST:
                self._fail(level, name, f"is more than {DEEPEST} levels deep")
                return
            child = self._open_directory(self._lowest, name)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                self._remove(level, name, os.unlink)
            elif error.errno == errno.EXDEV:
                self._fail(level, name, _said(error))
            else:
                self._remove(level, name, os.rmdir, _said(error))
            return
        self._go_to(child)
        self._levels.append(_Level(name, identity_of(os.fstat(child))))
        if is_top and self._expected not in (None, self._levels[1].identity):
            raise _Moved  # another directory took its name since the `lstat`

    def _list(self, level: _Level) -> None:
        """Unlinks the files of the lowest directory and notes its subdirectories, up to `BATCH`."""
        level.list = False
        self._check()
        unlinked = 0
        try:
            with os.scandir(self._lowest) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if name in level.failed:
                        continue
                    if not entry.is_dir(follow_symlinks=False):
                        self._remove(level, name, os.unlink)
                        unlinked += 1
                        if unlinked % CHECK_EVERY == 0:
                            self._check()
                    elif len(level.pending) < BATCH:
                        level.pending.append(name)
                    else:
                        level.list = True
                        break
        except OSError as error:
            self._fail(level, b"", _said(error))

    def _remove(self, level: _Level, name: bytes, how: Callable[..., None], why: str = "") -> None:
        """Unlinks an entry, or removes a directory that cannot be opened, which works if it is empty. `why`: for the
        failure, if another reason than the error of this call."""
        try:
            how(name, dir_fd=self._lowest)
            self._removed += 1
        except FileNotFoundError:
            pass
        except IsADirectoryError:  # a directory took its name since it was listed
            self._retry(level, name)
        except OSError as error:
            self._fail(level, name, why or _said(error))

    def _leave(self, level: _Level) -> None:
        """Removes the lowest directory, whose entries have been handled, from the one above it. Raises _Moved."""
        self._go_to(self._opened_above())
        self._levels.pop()
        above = self._levels[-1]
        try:
            os.rmdir(level.name, dir_fd=self._lowest)
            self._removed += 1
        except FileNotFoundError:
            pass
        except OSError as error:
            if level.failed:
                above.failed.add(level.name)
            elif error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):  # something appeared in it, or is there
                self._retry(above, level.name)
            else:
                self._fail(above, level.name, _said(error))

    def _check(self) -> None:
        """Raises _Moved when one of the lowest 8 directories has left the directory it was entered from."""
        above = b".."
        for level in self._levels[-2 : -2 - CHECK_LEVELS : -1]:
            if not _is(level.identity, above, self._lowest):
                raise _Moved
            above += b"/.."

    def _opened_above(self) -> int:
        """A descriptor of the directory that the lowest one was entered from. Raises _Moved."""
        try:
            above = os.open("..", _ABOVE, dir_fd=self._lowest)
        except OSError:
            raise _Moved from None
        if identity_of(os.fstat(above)) == self._levels[-2].identity:
            return above
        os.close(above)
        raise _Moved

    def _find_again(self) -> None:
        """Goes down by the names as far as the directories above the lowest one are still there; the entry at which
        that ends is tried anew."""
        levels = self._levels[1:]
        self._go_to(os.dup(self._top))
        del self._levels[1:]
        for level in levels[:-1]:
            try:
                below = self._open_directory(self._lowest, level.name)
            except OSError:
                break
            if identity_of(os.fstat(below)) != level.identity:
                os.close(below)
                break
            self._go_to(below)
            self._levels.append(level)
        self._retry(self._levels[-1], levels[len(self._levels) - 1].name)

    def _go_to(self, descriptor: int) -> None:
        """Makes it the lowest directory."""
        os.close(self._lowest)
        self._lowest = descriptor

    def _retry(self, level: _Level, name: bytes) -> None:
        """Queues an entry of the lowest directory again after it changed; up to `RETRIES` times."""
        if level.retries[name] < RETRIES:
            level.retries[name] += 1
            level.pending.append(name)
        else:
            self._fail(level, name, "keeps changing")

    def _fail(self, level: _Level, name: bytes, error: str) -> None:
        """Notes that an entry of the lowest directory could not be removed; an empty name is the directory itself."""
        level.failed.add(name)
        self._failed += 1
        self._failure = self._failure or f"{printable(self._path(name))}: {error}"

    def _path(self, name: bytes) -> bytes:
        """The path of an entry of the lowest directory, for messages; beyond 200 bytes the middle is cut out."""
        path = b"/".join([*(level.name for level in self._levels[1:]), name]).removesuffix(b"/")
        half = _PATH_BYTES // 2
        return path if len(path) <= _PATH_BYTES else path[:half] + b"..." + path[-half:]
