"""What goes as a whole, a directory or a file: measured, looked at, hidden, and removed.

A unit is first renamed to a hidden name beside it, looked at once more, renamed back if somebody
has it now, and then removed: nobody finds half a unit. What was interrupted is under its hidden
name, and goes first in the next pass. Every directory is opened beneath the one above it
(`pod_logs.directories`): no symlink is followed and no mount is entered.

How long a unit is unused: since the newest time of access, modification or change of anything in
it. With `relatime`, as most disks are mounted, a read is noted once a day at least; with `noatime`
never. What a process has open, mapped, locked or as its directory stays in any case.
"""

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

from reclaim.evidence.files_in_use import FilesInUse, files_in_use
from reclaim.function import GONE, Ready, Refused, Stage
from reclaim.pod_logs.directories import (
    allocated_bytes,
    examine_directory,
    open_beneath,
    opened,
    remove_tree,
)
from reclaim.pod_logs.names import printable
from reclaim.trust import identity_of
from reclaim.types import (
    Action,
    FileIdentity,
    Reason,
    ReclaimError,
    RemovalFailed,
    Rule,
    Runtime,
    RuntimeUnavailable,
    Verdict,
)
from signals.clock import Clock
from signals.mounts import filesystem_id

OPEN, REPLACED, MOUNTED, USED_LATELY = "open", "replaced", "mounted", "used_lately"
INTERRUPTED = "interrupted"
REASONS = (OPEN, REPLACED, MOUNTED, USED_LATELY, INTERRUPTED)
"""Why a unit is removed or kept, besides those of its function."""
HIDDEN = b".reclaimd-removes-"
DEEPEST = 48  # levels in a unit
CHECK_FRESH_SECONDS = 5.0  # how old a check may be: `remove` looks again itself


class Unit(NamedTuple):
    """What goes as a whole. `names`: its path below `root`. `size_bytes`: allocated, without what
    has other links. `used_at`: wall seconds. `problem`: why it is kept whatever its age; empty: for
    nothing."""

    root: str
    names: tuple[bytes, ...]
    identity: FileIdentity = (0, 0)
    size_bytes: int = 0
    used_at: float = 0.0
    problem: str = ""

    @property
    def below(self) -> str:
        """Its path below its root, as text."""
        return "/".join(map(printable, self.names))

    @property
    def id(self) -> str:
        """Its path."""
        return f"{self.root.rstrip('/')}/{self.below}"

    @property
    def hidden_name(self) -> bytes:
        """The name that it gets before it is removed."""
        return HIDDEN + str(self.identity[1]).encode()

    @property
    def left_behind(self) -> bool:
        """Whether an interrupted removal has left it."""
        return self.names[-1].startswith(HIDDEN)

    def verdict(self, kind: str, why: str, goes: str, *, age: float, min_age: float) -> Verdict:
        """It stays for the reason `why`; if that is empty, it goes for the reason `goes`.

        `age`: seconds since it was used. `min_age`: what it must have, if that is why it stays.
        """
        return Verdict(
            kind,
            self.id,
            self.id,
            Action.KEEP if why else Action.REMOVE,
            why or (INTERRUPTED if self.left_behind else goes),
            self.size_bytes,
            age,
            eligible_in_seconds=min_age - age if why == USED_LATELY else None,
            rule=Rule.GUARD,
        )


def examine_roots(roots: Iterable[str], what: str, runtime: Runtime) -> None:
    """Raises ReclaimError unless `what` can be removed below each of these directories."""
    for path in roots:
        examine_directory(path, what)
    files_in_use(runtime.runtime_path)


class UnitStage(Stage):
    """A stage of units. Its `plan` fills `units`."""

    fresh_seconds = CHECK_FRESH_SECONDS

    def __init__(self, runtime: Runtime, clock: Clock):
        self.runtime = runtime
        self._clock = clock
        self.units: dict[str, Unit] = {}

    def still_kept(self, unit: Unit) -> str:
        """Why the unit may not go now, besides what `measured` finds; empty if it may. Raises
        OSError, and FileNotFoundError if it is not what was planned any more."""
        raise NotImplementedError

    def check(self, verdict: Verdict) -> Ready | Refused:
        """Ready if it is the planned unit, and nobody has used it since."""
        read_at = self._clock.monotonic()
        unit = self.units[verdict.id]
        try:
            why = self.still_kept(unit)
            with directory_of(unit) as directory:
                found = measured(directory, unit, files_in_use(self.runtime.runtime_path))
        except OSError as error:
            return GONE if error.errno == errno.ENOENT else Refused(Reason.UNREADABLE)
        except ReclaimError as error:
            return Refused(error=str(error))
        why = why or reason_to_keep(unit, found)
        return Refused(why) if why else Ready(read_at)

    def remove(self, verdict: Verdict) -> bool:
        """Hides it, looks once more, and removes it; what somebody has now gets its name back."""
        unit = self.units[verdict.id]
        try:
            with directory_of(unit) as directory:
                if identity_of(os.lstat(unit.names[-1], dir_fd=directory)) != unit.identity:
                    raise RemovalFailed(f"{unit.id} was replaced at the last moment")
                hidden = unit._replace(names=(*unit.names[:-1], hide(directory, unit)))
                try:
                    found = measured(
                        directory, hidden, files_in_use(self.runtime.runtime_path), was_renamed=True
                    )
                    why = self.still_kept(unit) or reason_to_keep(unit, found)
                except (ReclaimError, OSError) as error:  # whatever it is, it must not stay hidden
                    why = str(error)
                if why:
                    give_back(directory, hidden, unit)
                    raise RemovalFailed(f"{unit.id} changed at the last moment: {why}")
                removal = remove_tree(directory, hidden.names[-1], unit.identity)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RemovalFailed(f"{unit.id}: {error.strerror}") from error
        if removal.failed:
            raise RemovalFailed(f"{unit.id}: {removal.sentence}")
        return True

    def present(self, verdict: Verdict) -> bool:
        """Whether the planned unit is there, hidden or not. Raises RuntimeUnavailable if that is
        unknown."""
        unit = self.units[verdict.id]
        try:
            with directory_of(unit) as directory:
                for name in (unit.names[-1], unit.hidden_name):
                    with suppress(FileNotFoundError):
                        if identity_of(os.lstat(name, dir_fd=directory)) == unit.identity:
                            return True
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RuntimeUnavailable(f"{unit.id}: {error.strerror}") from error
        return False


def reason_to_keep(planned: Unit, found: Unit) -> str:
    """Why it may not go any more; empty if it may."""
    if found.identity != planned.identity:
        return REPLACED
    used = found.used_at > planned.used_at and not planned.left_behind
    return found.problem or (USED_LATELY if used else "")


def hide(directory: int, unit: Unit) -> bytes:
    """Gives the unit its hidden name, unless there is no room for another name; its name then."""
    try:
        os.rename(unit.names[-1], unit.hidden_name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return unit.names[-1]
    return unit.hidden_name


def give_back(directory: int, hidden: Unit, unit: Unit) -> None:
    """Gives the unit its name back, unless something else has it. Raises OSError."""
    name, of_unit = hidden.names[-1], unit.names[-1]
    if name == of_unit:
        return
    if stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
        os.rename(name, of_unit, src_dir_fd=directory, dst_dir_fd=directory)
    else:  # where a rename would replace a file that is there
        os.link(name, of_unit, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        os.unlink(name, dir_fd=directory)


def directory_of(unit: Unit) -> AbstractContextManager[int]:
    """The opened directory in which the unit lies. Raises OSError."""
    return opened(unit.root, *unit.names[:-1])


def measured(directory: int, unit: Unit, used: FilesInUse, *, was_renamed: bool = False) -> Unit:
    """The unit as it is now, in its opened directory. `was_renamed`: a moment ago, which changed
    it. Raises OSError if it is not there."""
    tree = _Tree(used, filesystem_id(unit.root))
    tree.add(directory, unit.names[-1])
    used_at = tree.used_at if was_renamed else max(tree.used_at, tree.changed_at)
    return unit._replace(
        identity=tree.identity, size_bytes=tree.bytes, used_at=used_at, problem=tree.problem
    )


class _Tree:
    """What a unit is found to have."""

    def __init__(self, used: FilesInUse, device: int) -> None:
        self._used = used
        self._device = device
        self._links: dict[int, int] = {}  # by inode: how many of its names have not been seen
        self.identity: FileIdentity = (0, 0)
        self.bytes = 0
        self.used_at = 0.0
        self.changed_at = 0.0  # the entry itself
        self.problem = ""

    def add(self, directory: int, name: bytes, depth: int = 0) -> None:
        """Counts an entry of an opened directory, and everything below it."""
        status = os.lstat(name, dir_fd=directory)
        is_directory = stat.S_ISDIR(status.st_mode)
        if depth:
            self.used_at = max(self.used_at, status.st_ctime)
        else:
            self.identity, self.changed_at = identity_of(status), status.st_ctime
        if self._used.has(status, self._device):
            self.problem = OPEN
        # to list a directory, as is done here, is no use of it
        read_at = 0.0 if is_directory else status.st_atime
        self.used_at = max(self.used_at, status.st_mtime, read_at)
        left = self._links.get(status.st_ino, status.st_nlink) - 1
        self._links[status.st_ino] = left
        if is_directory or left == 0:
            self.bytes += allocated_bytes(status)
        if not is_directory:
            return
        if depth >= DEEPEST:
            self.problem = Reason.UNREADABLE
            return
        try:
            child = open_beneath(directory, name)
            try:
                with os.scandir(child) as entries:
                    for entry in entries:
                        with suppress(FileNotFoundError):
                            self.add(child, os.fsencode(entry.name), depth + 1)
            finally:
                os.close(child)
        except OSError as error:
            self.problem = MOUNTED if error.errno == errno.EXDEV else Reason.UNREADABLE
