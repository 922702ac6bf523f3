"""What open files take of filesystems beyond what their names and sizes show, from `/proc`, within a time limit.

* A file that was removed while a process has it open, or has it mapped, keeps its bytes until the last one lets it go:
  `du` does not find it, `df` counts it.
* XFS allocates behind the end of a file that grows (speculative preallocation). What is there is nobody's data.

A file of a container is open through an overlay, with the device number of the overlay; it counts for the filesystem
that its upper directory is on. Sources: proc(5), `/proc/pid/fd`, `fdinfo`, `maps`, `map_files`, `cgroup`; what may be
read of another process is what ptrace(2) allows (`PTRACE_MODE_READ_FSCREDS`).

Covers: regular files of given filesystems. Does not cover: files of a subvolume of a btrfs whose device number is
not given.
"""

from __future__ import annotations

import heapq
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

PROC = "/proc"
MOST_FILES = 10_000  # that are remembered of each kind, so that memory stays bounded
MOST_HOLDERS = 5
FILES_PER_CLOCK_CHECK = 64
_DELETED = " (deleted)"
_OF_CGROUPFS = re.compile(r"/kubepods(?:/[^/]+)?/pod([^/]+)")
_OF_SYSTEMD = re.compile(r"/kubepods[^/]*-pod([^/]+)\.slice")


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds deleted files open: how many, their allocated bytes, and the largest by its last name.

    `pod_uid`: empty for a process of no pod. A file that several processes hold counts for the first of them.
    """

    pid: int
    name: str
    pod_uid: str
    files: int
    bytes: int
    largest: str


@dataclass(frozen=True, slots=True)
class GrowingFile:
    """A file that is open for writing; `beyond`: allocated bytes behind its end."""

    path: str
    pid: int
    name: str
    beyond: int


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Of one filesystem. Bytes are allocated ones, each inode counts once.

    `holders`: those of the most bytes, at most `MOST_HOLDERS`; `deleted_bytes`, `deleted_files` and `all_holders` are
    of all. `beyond_end`: what files that are open for writing have behind their ends; `growing`: the one with most.
    """

    deleted_bytes: int = 0
    deleted_files: int = 0
    all_holders: int = 0
    holders: tuple[Holder, ...] = ()
    beyond_end: int = 0
    growing_files: int = 0
    growing: GrowingFile | None = None


@dataclass(frozen=True, slots=True)
class ProcessesSeen:
    """How much of `/proc` was looked at: processes in all, those whose files could not be seen, and whether time and
    memory sufficed for the others."""

    processes: int = 0
    unreadable: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Watched:
    """A filesystem whose open files are looked for. `block_size`: of a filesystem with space behind the ends of files
    that grow, None for any other one."""

    device_id: int
    block_size: int | None = None


@dataclass(slots=True)
class _Found:
    deleted: dict[int, tuple[int, str, int]] = field(default_factory=dict)  # inode -> bytes, path, pid
    growing: dict[int, GrowingFile] = field(default_factory=dict)  # by inode


class OpenFilesScan:
    """One look at all processes. Another thread may ask for what was found at any time.

    `filesystems`: by `st_dev` of the files that are on them, those of overlays among them. `in_time`: asked every
    `FILES_PER_CLOCK_CHECK` files; false ends the scan.
    """

    def __init__(self, filesystems: Mapping[int, Watched], in_time: Callable[[], bool], proc: str = PROC):
        self._filesystems = filesystems
        self._in_time = in_time
        self._proc = proc
        self._found = {watched.device_id: _Found() for watched in filesystems.values()}
        self._processes = 0
        self._unreadable = 0
        self._forgotten = False
        self._complete = False
        self._looked_at = 0

    def run(self) -> None:
        """Looks at every process, in the order of their numbers. Never raises OSError."""
        try:
            pids = sorted(int(name) for name in os.listdir(self._proc) if name.isdigit())
        except OSError:
            return
        self._processes = len(pids)
        self._complete = all(self._process(pid) for pid in pids)

    def seen(self) -> ProcessesSeen:
        """How much was looked at."""
        return ProcessesSeen(self._processes, self._unreadable, self._complete and not self._forgotten)

    def found(self, device_id: int) -> OpenFiles:
        """What was found on a filesystem."""
        found = self._found.get(device_id, _Found())
        deleted, growing = list(found.deleted.values()), list(found.growing.values())
        of_pid: dict[int, list[tuple[int, str, int]]] = {}
        for file in deleted:
            of_pid.setdefault(file[2], []).append(file)
        sums = {pid: sum(size for size, _, _ in files) for pid, files in of_pid.items()}
        holders = []
        for pid in heapq.nlargest(MOST_HOLDERS, sums, key=sums.__getitem__):
            files = of_pid[pid]
            name, pod_uid = self._name(pid), pod_uid_of(self._text(pid, "cgroup"))
            holders.append(Holder(pid, name, pod_uid, len(files), sums[pid], max(files)[1]))
        return OpenFiles(
            sum(sums.values()),
            len(deleted),
            len(of_pid),
            tuple(holders),
            sum(file.beyond for file in growing),
            len(growing),
            max(growing, key=lambda file: file.beyond, default=None),
        )

    def _process(self, pid: int) -> bool:
        """Looks at one process; false when time is up."""
        directory = f"{self._proc}/{pid}/fd"
        try:
            for name in os.listdir(directory):
                if not self._next_in_time():
                    return False
                self._look(f"{directory}/{name}", pid, f"{self._proc}/{pid}/fdinfo/{name}")
            with open(f"{self._proc}/{pid}/maps", encoding="utf-8", errors="surrogateescape") as lines:
                for mapping in deleted_mappings(lines):
                    if not self._next_in_time():
                        return False
                    self._look(f"{self._proc}/{pid}/map_files/{mapping}", pid)
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            self._processes -= 1
        except OSError:
            self._unreadable += 1
        return True

    def _look(self, link: str, pid: int, info: str = "") -> None:
        """Looks at one open or mapped file. Raises PermissionError if it may not be seen; another one has closed."""
        try:
            path = os.readlink(link)
            if not path.startswith("/"):  # a socket, a pipe
                return
            file = os.stat(link)
            watched = self._filesystems.get(file.st_dev)
            if watched is None or not stat.S_ISREG(file.st_mode):
                return
            found = self._found[watched.device_id]
            allocated = file.st_blocks * 512
            if file.st_nlink == 0:
                if self._room(found.deleted, file.st_ino):
                    found.deleted.setdefault(file.st_ino, (allocated, path.removesuffix(_DELETED), pid))
            elif watched.block_size is not None and info:
                beyond = allocated - -(-file.st_size // watched.block_size) * watched.block_size
                if beyond > 0 and self._room(found.growing, file.st_ino) and _open_for_writing(info):
                    found.growing.setdefault(file.st_ino, GrowingFile(path, pid, self._name(pid), beyond))
        except PermissionError:
            raise
        except OSError:
            return

    def _room(self, files: Mapping[int, object], inode: int) -> bool:
        if len(files) < MOST_FILES or inode in files:
            return True
        self._forgotten = True
        return False

    def _next_in_time(self) -> bool:
        self._looked_at += 1
        return bool(self._looked_at % FILES_PER_CLOCK_CHECK) or self._in_time()

    def _name(self, pid: int) -> str:
        return self._text(pid, "comm").rstrip("\n") or "?"

    def _text(self, pid: int, name: str) -> str:
        try:
            with open(f"{self._proc}/{pid}/{name}", encoding="utf-8", errors="surrogateescape") as file:
                return file.read()
        except OSError:
            return ""


def pod_uid_of(cgroups: str) -> str:
    """The UID of the pod that a process belongs to, from its `/proc/pid/cgroup`; empty for a process of no pod.

    Source: Kubernetes v1.36.0, `pkg/kubelet/cm/pod_container_manager_linux.go` (`pod<UID>`) and
    `cgroup_manager_linux.go` (with the systemd driver a `-` in a name becomes `_`).
    """
    for line in cgroups.splitlines():
        path = line.rpartition(":")[2]
        if found := _OF_SYSTEMD.search(path):
            return found[1].replace("_", "-")
        if found := _OF_CGROUPFS.search(path):
            return found[1]
    return ""


def deleted_mappings(lines: Iterable[str]) -> Sequence[str]:
    """The names in `map_files` of the mapped files that are deleted, each file once, from the lines of `maps`."""
    found: dict[tuple[str, str], str] = {}
    for line in lines:
        fields = line.rstrip("\n").split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/") and fields[5].endswith(_DELETED):
            low, _, high = fields[0].partition("-")
            found.setdefault((fields[3], fields[4]), f"{int(low, 16):x}-{int(high, 16):x}")
    return tuple(found.values())


def _open_for_writing(info: str) -> bool:
    """Whether a descriptor is open for writing, from its `fdinfo`; raises OSError."""
    with open(info, encoding="ascii") as lines:
        flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
