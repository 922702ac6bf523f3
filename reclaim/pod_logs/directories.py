"""Opens log directories and removes what is in them, safely against symlinks, mounts and races.

Opening beneath a directory follows no symlink and no `..`, and crosses no filesystem or mount
(`open_beneath`). `remove_tree` removes one named entry of an opened directory, with everything
below it.

* It calls only `unlink` and `rmdir`, always with a name in an opened directory. It creates,
  truncates and chmods nothing, so it works on a filesystem without a free byte or inode.
* A symlink is unlinked; a mount is kept and reported.
* It does not recurse, and never reads a whole directory into memory. Only the first and the lowest
  directory are open. It leaves a directory through its `..`, which must have the device and inode
  of the directory it came from.
* It abandons a directory that is moved meanwhile: before it lists a directory, and after every
  `CHECK_EVERY` files, that directory and the 7 above it must still be where they were entered. A
  move further up is noticed when that directory is left; until then its content, which was
  planned for removal, is removed.
* If something was moved, exchanged or refilled during the walk, it walks the tree again from the
  first directory, to find what is still there; at most `ROUNDS` times.
* An entry that vanishes meanwhile is not a failure. On any other error it reports the entry and
  removes the rest; the directories above such an entry are kept.

Does not cover: whether something may be removed (`containers`, `unused_containers`).
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from reclaim.pod_logs.names import is_entry_name, printable
from reclaim.trust import identity_of
from reclaim.types import FileIdentity, ReclaimError
from reclaim.workers import in_time
from signals.quantity import reason_of

OpenBeneath = Callable[[int, bytes], int]
"""Opens the directory of this name beneath an opened directory and returns a descriptor,
which the caller must close.

Raises OSError: ENOENT; ENOTDIR or ELOOP if it is not a directory (a symlink is not one); EXDEV if
it is on another filesystem or mount; or another error from the kernel. Raises ValueError if the
name cannot be that of an entry.
"""

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def allocated_bytes(status: os.stat_result) -> int:
    """What a file takes on the disk.

    The unit of `st_blocks` is 512 bytes, whatever the filesystem's own blocks are.
    """
    return status.st_blocks * 512


@contextmanager
def opened(directory: str, *beneath: bytes) -> Iterator[int]:
    """A descriptor of one of the two configured directories, or of the directory
    reached from it by these names.

    Raises OSError if it cannot be opened; beneath, as an `OpenBeneath`. A symlink in place of
    the configured directory is not followed, whoever put it there: the directory counts as
    missing (FileNotFoundError).
    """
    try:
        descriptor = os.open(directory, DIRECTORY)
    except NotADirectoryError:
        if os.path.islink(directory):
            raise FileNotFoundError(
                errno.ENOENT, "it is a symlink, which is not followed", directory
            ) from None
        raise
    try:
        for name in beneath:
            above = descriptor
            descriptor = open_beneath(descriptor, name)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def names_in(directory: int) -> list[bytes]:
    """The names of what is in an opened directory, in order. Raises OSError."""
    return sorted(map(os.fsencode, os.listdir(directory)))


def examine_directory(path: str, what: str) -> None:
    """Raises ReclaimError unless `what` can be removed below this configured directory."""

    def is_read_only() -> int:
        with opened(path) as root:
            return os.fstatvfs(root).f_flag & os.ST_RDONLY

    try:
        problem = "it is read-only here (systemd: ReadWritePaths=)" if in_time(is_read_only) else ""
    except OSError as error:
        problem = reason_of(error)
    if problem:
        raise ReclaimError(f"{what} below {path} cannot be removed: {problem}")


def open_beneath(directory: int, name: bytes) -> int:
    """An `OpenBeneath`, which compares device and mount id of both descriptors.

    The mount id distinguishes a bind mount of the same filesystem from a plain directory; a btrfs
    subvolume has a device of its own, but is not a mount. (openat2(2) does the same in one call,
    but not on every kernel and under every seccomp profile.)
    """
    if not is_entry_name(name):
        raise ValueError(f"{name!r} is not the name of an entry of a directory")
    descriptor = os.open(name, DIRECTORY, dir_fd=directory)
    mount = _mount_id(descriptor)
    same_device = os.fstat(directory).st_dev == os.fstat(descriptor).st_dev
    if mount is not None and mount == _mount_id(directory) and same_device:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EXDEV, "is not known to be on the same filesystem and mount", name)


def _mount_id(descriptor: int) -> bytes | None:
    """The kernel's id of the mount that a descriptor was opened on (proc_pid_fdinfo(5)); None if
    unknown."""
    with suppress(OSError), open(f"/proc/self/fdinfo/{descriptor}", "rb", buffering=0) as info:
        for line in info.read().splitlines():
            if line.startswith(b"mnt_id:"):
                return line
    return None


# ---- removing

CHECK_EVERY = 64
CHECK_LEVELS = 8  # how many directories, from the lowest up, are compared
BATCH = 1024  # how many subdirectories of one directory are held in memory at a time
# levels: a process that keeps making deeper directories must not occupy us forever
DEEPEST = 20_000
ROUNDS = 200  # nor must one that keeps changing what is there

_SHOWN_BYTES = 100  # of each end of a path
_NOT_AS_SEEN = (errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST)


class TreeRemoval(NamedTuple):
    """How many entries were removed, how many could not be, and, for messages, the path of the
    first of those below the opened directory, with the error."""

    removed: int = 0
    failed: int = 0
    failure: str = ""

    @property
    def sentence(self) -> str:
        """The first failure and the number of others, for messages; empty without one."""
        return f"{self.failure}, and {self.failed - 1} more" if self.failed > 1 else self.failure


def remove_tree(
    directory: int,
    name: bytes,
    identity: FileIdentity | None = None,
    *,
    open_directory: OpenBeneath = open_beneath,
) -> TreeRemoval:
    """Removes the entry `name` of an opened directory, and everything below it if it is a
    directory.

    `identity`: the device and inode it must have; a different entry of that name is kept and
    reported as a failure. A missing entry is not a failure. Raises ValueError if `name` cannot be
    the name of an entry, and OSError only if the directory's descriptor is bad.
    """
    if not is_entry_name(name):
        raise ValueError(f"{name!r} is not the name of an entry of a directory")
    removed = 0
    rounds = 0
    while True:
        walk = _Walk(directory, name, identity, open_directory=open_directory)
        walk.run()
        removed += walk.removed
        rounds += 1
        if not walk.changed or rounds == ROUNDS:
            return TreeRemoval(removed, walk.failed, walk.failure)


def unlink_files(directory: int, prefix: bytes) -> TreeRemoval:
    """Unlinks the entries of an opened directory whose names begin with the literal
    `prefix`; keeps directories.

    Raises ValueError if the prefix cannot begin a name or is empty, and OSError if the
    directory cannot be listed.
    """
    if not is_entry_name(prefix):
        raise ValueError(f"{prefix!r} cannot begin the name of a file")
    removed = 0
    failures: list[str] = []
    for name in names_in(directory):
        if not name.startswith(prefix):
            continue
        try:
            os.unlink(name, dir_fd=directory)
            removed += 1
        except (FileNotFoundError, IsADirectoryError):
            pass
        except OSError as error:
            failures.append(f"{printable(name)}: {error.strerror}")
    return TreeRemoval(removed, len(failures), failures[0] if failures else "")


class _Moved(Exception):
    """One of the directories was moved or removed, or something else has its name now."""


@dataclass(slots=True, eq=False)
class _Level:
    """A directory that was entered, and the work left in it.

    `pending`: subdirectories to enter; `to_list`: whether to list it (again); `failed`:
    entries kept after a failure.
    """

    name: bytes
    identity: FileIdentity
    pending: list[bytes] = field(default_factory=list)
    to_list: bool = True
    failed: set[bytes] = field(default_factory=set)


class _Walk:
    """One walk through what is there.

    Level 0 is the opened directory, of which only the named entry is touched.
    """

    def __init__(
        self, top: int, name: bytes, expected: FileIdentity | None, *, open_directory: OpenBeneath
    ):
        self._expected = expected
        self._open_directory = open_directory
        self._levels = [_Level(b"", identity_of(os.fstat(top)), [name], to_list=False)]
        self._lowest = os.dup(top)  # the descriptor of the last level
        self.removed = 0
        self.failed = 0
        self.failure = ""
        self.changed = False  # an entry was no longer what it had been, so another walk is needed

    def run(self) -> None:
        try:
            while len(self._levels) > 1 or self._levels[0].pending:
                level = self._levels[-1]
                if level.pending:
                    self._enter(level, level.pending.pop())
                elif level.to_list:
                    self._list(level)
                else:
                    self._leave(level)
        except _Moved:
            self._fail_for_now(self._levels[-1], b"")
        finally:
            os.close(self._lowest)

    def _enter(self, level: _Level, name: bytes) -> None:
        """Enters a directory, or unlinks an entry that is no longer one."""
        expected = self._expected if len(self._levels) == 1 else None
        try:
            if (
                expected is not None
                and identity_of(os.lstat(name, dir_fd=self._lowest)) != expected
            ):
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
                self._fail(level, name, error.strerror)
            else:
                self._remove(level, name, os.rmdir, why=error.strerror)
            return
        self._go_to(child)
        self._levels.append(_Level(name, identity_of(os.fstat(child))))
        if expected not in (None, self._levels[-1].identity):
            raise _Moved  # another directory took its name since the `lstat`

    def _list(self, level: _Level) -> None:
        """Unlinks the files in the lowest directory and notes its subdirectories, up to `BATCH`."""
        level.to_list = False
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
                        level.to_list = True
                        break
        except OSError as error:
            self._fail(level, b"", error.strerror)

    def _leave(self, level: _Level) -> None:
        """Removes the lowest directory, whose entries have been handled, from the one above it."""
        try:
            self._go_to(os.open("..", DIRECTORY, dir_fd=self._lowest))
        except OSError:
            raise _Moved from None
        self._levels.pop()
        above = self._levels[-1]
        if identity_of(os.fstat(self._lowest)) != above.identity:
            raise _Moved
        if level.failed:
            above.failed.add(level.name)
        else:
            self._remove(above, level.name, os.rmdir)

    def _remove(
        self, level: _Level, name: bytes, how: Callable[..., None], *, why: str | None = None
    ) -> None:
        """Unlinks an entry of the lowest directory, or removes a directory that is empty. `why`:
        the failure to report for a directory that could not be opened."""
        try:
            how(name, dir_fd=self._lowest)
            self.removed += 1
        except FileNotFoundError:
            pass
        except OSError as error:
            # something took its name, or appeared in it
            if why is None and error.errno in _NOT_AS_SEEN:
                self._fail_for_now(level, name)
            else:
                self._fail(level, name, why or error.strerror)

    def _check(self) -> None:
        """Raises _Moved if one of the lowest 8 directories is no longer where it was entered."""
        above = b".."
        for level in self._levels[-2 : -2 - CHECK_LEVELS : -1]:
            try:
                identity = identity_of(os.lstat(above, dir_fd=self._lowest))
            except OSError:
                raise _Moved from None
            if identity != level.identity:
                raise _Moved
            above += b"/.."

    def _go_to(self, descriptor: int) -> None:
        """Makes this the lowest directory."""
        os.close(self._lowest)
        self._lowest = descriptor

    def _fail_for_now(self, level: _Level, name: bytes) -> None:
        self.changed = True
        self._fail(level, name, "keeps changing")

    def _fail(self, level: _Level, name: bytes, error: str | None) -> None:
        """Notes that an entry of the lowest directory could not be removed; an empty name stands
        for the directory itself."""
        level.failed.add(name)
        self.failed += 1
        if not self.failure:
            path = b"/".join([*(above.name for above in self._levels[1:]), name]).removesuffix(b"/")
            if len(path) > 2 * _SHOWN_BYTES:
                path = path[:_SHOWN_BYTES] + b"..." + path[-_SHOWN_BYTES:]
            self.failure = f"{printable(path)}: {error}"
