"""Finds where the bytes of a filesystem are, including those that names, sizes and statvfs do not show.

* **Trees.** What directories occupy, counted like `du -x`: allocated bytes, hard-linked files once, one device only.
  Mount points below a tree are skipped by path and never touched.
* **Open files**, from `/proc`. A file that was removed while a process has it open or mapped keeps its bytes until the
  last process lets go: `df` counts them, `du` does not. XFS also allocates space beyond the end of a growing file
  (speculative preallocation), which is nobody's data. A container opens its files through an overlay, under the
  overlay's device number; they count for the filesystem that holds the upper directory. Sources: proc(5), for
  `/proc/pid/fd`, `fdinfo`, `maps`, `map_files` and `cgroup`; ptrace(2) says what may be read of another process
  (`PTRACE_MODE_READ_FSCREDS`); the kernel's `Documentation/filesystems/overlayfs.rst`.
* **What ext4 and btrfs say in sysfs.** Sources: the kernel's `Documentation/ABI/testing/sysfs-fs-ext4`
  (delayed_allocation_blocks), and https://btrfs.readthedocs.io/en/latest/ch-sysfs.html (`allocation`).
* **A thin pool below.** It has fewer blocks than its volumes promise together; once its data device is full, writes
  fail or hang, whatever `statvfs` says. How full it is takes an ioctl as root (`dmsetup status`), so it is not read.
  Sources: the kernel's `Documentation/admin-guide/device-mapper/thin-provisioning.rst`; LVM's
  `lib/misc/lvm-string.c` and `lib/activate/dev_manager.c` for the suffix of the pool's UUID.

Everything is read-only and has a time limit, because a filesystem may never answer. What was not reached is unknown.

Does not cover: what the bytes are used for, and sentences (`attribution`); files on a btrfs subvolume of which no path
is given.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from reclaim.execution.workers import NoThread, ReadingHangs, ReadingsInTime, Workers
from signals.clock import Clock
from signals.mounts import MOUNTS, Mount, filesystem_id, filesystem_of, mount_holding, read_mounts

PROC, SYS = "/proc", "/sys"
MOST_FILES = 10_000  # that are remembered, so that memory stays bounded
SECTOR = 512  # the unit of `st_blocks`, and of `size` of a block device, whatever its blocks are
LVM, POOL_OF_LVM = "LVM-", "-tpool"
FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h
SHOWN_TO_ALL = (None, "", "0", "off")  # of the option hidepid
_DELETED = " (deleted)"
_POD = re.compile(r"/kubepods(?:[^/\n]*-pod([^/\n]+)\.slice|(?:/[^/\n]+)?/pod([^/\n]+))")  # of systemd, of cgroupfs

InTime = Callable[[], bool]


class TimeLimit:
    """Runs a task on its own thread and waits `seconds` for it, plus half a second for the task to notice.

    A task that is stuck in the kernel keeps its thread, and no other task starts until it ends.
    """

    def __init__(self, name: str, clock: Clock, seconds: float):
        self.workers = Workers(name, 1)
        self._clock = clock
        self._seconds = seconds
        self._read = ReadingsInTime(self.workers, seconds + 0.5)

    def run(self, task: Callable[[InTime], None]) -> None:
        """Calls `task` with a function that says whether there is time left; not at all if no thread can be started."""
        until = self._clock.monotonic() + self._seconds
        with suppress(ReadingHangs, NoThread):
            self._read(lambda: task(lambda: self._clock.monotonic() < until))


# ---- Trees


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree to count. `classify` maps the names from below the root down to a file to the class of the file."""

    root: str
    classify: Callable[[Sequence[str]], str] = lambda _: "all"


@dataclass(frozen=True, slots=True)
class SparseFile:
    """A file that takes less on the disk than its size says; bytes."""

    path: str
    size: int
    allocated: int

    @property
    def missing(self) -> int:
        """How much less."""
        return self.size - self.allocated


@dataclass(slots=True)
class TreeUsage:
    """What a tree occupies: allocated bytes by class of file, and inodes, both without the root itself.

    `device_id`: as in `types.FilesystemIdentity`, None if the root does not exist or was not reached. `complete`:
    everything was counted; else the numbers are lower bounds. `sparsest`: the file that takes least of what its size
    says, None where none is sparse.
    """

    device_id: int | None = None
    bytes_by_class: dict[str, int] = field(default_factory=dict)
    inodes: int = 0
    complete: bool = False
    sparsest: SparseFile | None = None

    @property
    def total_bytes(self) -> int:
        """The allocated bytes of all classes."""
        return sum(self.bytes_by_class.values())


def count_trees(trees: Sequence[Tree], limit: TimeLimit, mounts: str = MOUNTS) -> list[TreeUsage]:
    """The usage of each tree, in the same order. What cannot be read is left out; never raises OSError."""
    usages = [TreeUsage() for _ in trees]

    def count(in_time: InTime) -> None:
        for tree, usage in zip(trees, usages, strict=True):
            _count_tree(tree, usage, in_time, mounts)

    limit.run(count)
    return [replace(usage, bytes_by_class=usage.bytes_by_class.copy()) for usage in usages]


def _count_tree(tree: Tree, usage: TreeUsage, in_time: InTime, mounts: str) -> None:
    try:
        st_dev = os.stat(tree.root).st_dev
        usage.device_id = filesystem_id(tree.root, mounts)
    except OSError:
        return
    root = os.path.realpath(tree.root)
    mounted = mounts_below(root, mounts)
    linked: set[int] = set()
    pending: list[tuple[str, tuple[str, ...]]] = [(root, ())]
    complete = True
    while pending:
        directory, above = pending.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    path, names = os.path.join(directory, entry.name), (*above, entry.name)
                    found = None if path in mounted else entry.stat(follow_symlinks=False)
                    if found is not None and found.st_dev == st_dev:
                        if stat.S_ISDIR(found.st_mode):
                            pending.append((path, names))
                        _count_file(usage, tree.classify(names), path, found, linked)
                    if not in_time():
                        return
        except FileNotFoundError:  # removed while it was counted
            continue
        except OSError:
            complete = False
    usage.complete = complete


def _count_file(usage: TreeUsage, group: str, path: str, found: os.stat_result, linked: set[int]) -> None:
    if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
        if found.st_ino in linked:
            return
        linked.add(found.st_ino)
    allocated = found.st_blocks * SECTOR
    usage.bytes_by_class[group] = usage.bytes_by_class.get(group, 0) + allocated
    usage.inodes += 1
    sparse = SparseFile(path, found.st_size, allocated)
    if stat.S_ISREG(found.st_mode) and sparse.missing > (usage.sparsest.missing if usage.sparsest else 0):
        usage.sparsest = sparse


def mounts_below(root: str, mounts: str = MOUNTS) -> frozenset[str]:
    """The mount points below a directory, from the kernel's table; none if it cannot be read."""
    prefix = root.rstrip("/") + "/"
    return frozenset(mount.point for mount in read_mounts(mounts) if mount.point.startswith(prefix))


# ---- Open files


@dataclass(frozen=True, slots=True)
class OpenFile:
    """Either a `deleted` file and the bytes that it takes while it is open, or a file that is open for writing and the
    bytes that are allocated beyond its end.

    `path`: the last one of a deleted file. `pid` and `process`: the first process that has it open; `pod_uid`: empty if
    that process is in no pod.
    """

    path: str
    pid: int
    process: str
    pod_uid: str
    bytes: int
    deleted: bool


@dataclass(slots=True)
class ProcessesSeen:
    """How much of `/proc` was scanned: all processes, those whose files could not be seen, and whether time and memory
    were enough for the others.

    `others_hidden`: this `/proc` may hide processes (hidepid), or belongs to another PID namespace than the node's.
    """

    processes: int = 0
    unreadable: int = 0
    complete: bool = False
    others_hidden: bool = False


class OpenFilesScan:
    """One scan of all processes. Another thread may ask for the result at any time.

    `filesystems`: the filesystem of each `st_dev` that files on it have, including those of overlays. `block_sizes`: of
    the filesystems that allocate space beyond the end of growing files.
    """

    def __init__(self, proc: str = PROC):
        self.filesystems: dict[int, int] = {}
        self.block_sizes: dict[int, int] = {}
        self.seen = ProcessesSeen()
        self._proc = proc
        self._found: dict[tuple[int, int], OpenFile] = {}  # by filesystem and inode
        self._forgotten = False

    def run(self, in_time: InTime) -> None:
        """Scans every process, in the order of their numbers. Never raises OSError."""
        pids = sorted(int(name) for name in names_in(self._proc) if name.isdigit())
        self.seen.processes = len(pids)
        self.seen.complete = all(self._process(pid, in_time) for pid in pids) and bool(pids) and not self._forgotten

    def found(self, device_id: int) -> tuple[OpenFile, ...]:
        """What was found on a filesystem; each inode once."""
        return tuple(file for (filesystem, _), file in list(self._found.items()) if filesystem == device_id)

    def _process(self, pid: int, in_time: InTime) -> bool:
        """Scans one process; false when time is up."""
        try:
            for link, info in self._links(pid):
                if not in_time():
                    return False
                self._look(link, info, pid)
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            self.seen.processes -= 1
        except OSError:
            self.seen.unreadable += 1
        return True

    def _links(self, pid: int) -> Iterator[tuple[str, str]]:
        """The links to the files a process has open, each with its `fdinfo`, and to the deleted ones it has mapped."""
        directory = f"{self._proc}/{pid}"
        for name in os.listdir(f"{directory}/fd"):
            yield f"{directory}/fd/{name}", f"{directory}/fdinfo/{name}"
        with open(f"{directory}/maps", encoding="utf-8", errors="surrogateescape") as lines:
            for mapping in deleted_mappings(lines):
                yield f"{directory}/map_files/{mapping}", ""

    def _look(self, link: str, info: str, pid: int) -> None:
        """Looks at one open or mapped file. Raises PermissionError if it may not be seen; skips a closed one."""
        try:
            path = os.readlink(link)
            if not path.startswith("/"):  # a socket, a pipe
                return
            file = os.stat(link)
            device_id = self.filesystems.get(file.st_dev)
            if device_id is None or not stat.S_ISREG(file.st_mode):
                return
            allocated, block_size = file.st_blocks * SECTOR, self.block_sizes.get(device_id)
            if file.st_nlink == 0:
                self._remember(device_id, file.st_ino, pid, path.removesuffix(_DELETED), allocated, deleted=True)
            elif block_size is not None and info:
                beyond = allocated - -(-file.st_size // block_size) * block_size
                if beyond > 0 and _open_for_writing(info):
                    self._remember(device_id, file.st_ino, pid, path, beyond, deleted=False)
        except PermissionError:
            raise
        except OSError:
            return

    def _remember(self, device_id: int, inode: int, pid: int, path: str, size: int, *, deleted: bool) -> None:
        if (device_id, inode) in self._found:
            return
        if len(self._found) == MOST_FILES:
            self._forgotten = True
            return
        process, pod_uid = text_of(f"{self._proc}/{pid}/comm") or "?", pod_uid_of(text_of(f"{self._proc}/{pid}/cgroup"))
        self._found[device_id, inode] = OpenFile(path, pid, process, pod_uid, size, deleted)


def pod_uid_of(cgroups: str) -> str:
    """The UID of the pod that a process belongs to, from its `/proc/pid/cgroup`; empty for a process of no pod.

    Source: Kubernetes v1.36.0, `pkg/kubelet/cm/pod_container_manager_linux.go` (`pod<UID>`) and
    `cgroup_manager_linux.go` (with the systemd driver a `-` in a name becomes `_`).
    """
    found = _POD.search(cgroups)
    if found is None:
        return ""
    return found[1].replace("_", "-") if found[1] else found[2]


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


# ---- Overlays, and what the kernel says of a filesystem


@dataclass(frozen=True, slots=True)
class WritableOverlay:
    """A writable overlay: where it is first mounted, the `st_dev` of its files, and its upper directory."""

    point: str
    device_id: int
    upper: str


def overlays_by_filesystem(mounts: Sequence[Mount]) -> dict[int, list[WritableOverlay]]:
    """The overlays that write to each filesystem, each once however often it is mounted.

    Those whose upper directory cannot be reached, or has a relative path, are left out.
    """
    uppers: set[str] = set()
    found: dict[int, list[WritableOverlay]] = {}
    for mount in mounts:
        upper = mount.option("upperdir") if mount.type == "overlay" else None
        if upper is None or not upper.startswith("/") or upper in uppers:
            continue
        uppers.add(upper)
        with suppress(OSError):
            filesystem = filesystem_of(os.stat(upper).st_dev, os.path.realpath(upper), mounts)
            major, _, minor = mount.device.partition(":")
            overlay = WritableOverlay(mount.point, os.makedev(int(major), int(minor)), upper)
            found.setdefault(filesystem, []).append(overlay)
    return found


@dataclass(frozen=True, slots=True)
class ChunkUse:
    """The chunks of one kind; bytes. `total` and `used` as files see them; `on_disk`: `total` with its copies."""

    total: int
    used: int
    on_disk: int


@dataclass(frozen=True, slots=True)
class BtrfsAllocation:
    """How a btrfs has given out its devices: by kind (`data`, `metadata`, `system`, `mixed`); bytes.

    `unallocated`: of the devices, not in any chunk yet; None if their size is not known. `delayed`: of data, written
    and without a place yet, or on their way to it (`bytes_may_use`, `bytes_reserved`): statvfs shows them as free.
    """

    chunks: Mapping[str, ChunkUse] = field(default_factory=dict)
    unallocated: int | None = None
    delayed: int = 0


def btrfs_allocation(device: str, sys: str = SYS) -> BtrfsAllocation | None:
    """The allocation of the btrfs that has this device (kernel name); None where the kernel does not say."""
    root = f"{sys}/fs/btrfs"
    directory = next((f"{root}/{uuid}" for uuid in names_in(root) if device in names_in(f"{root}/{uuid}/devices")), "")
    allocation = f"{directory}/allocation"
    chunks = {}
    for kind in names_in(allocation) if directory else ():
        total, used, on_disk = (
            number_of(f"{allocation}/{kind}/{name}") for name in ("total_bytes", "bytes_used", "disk_total")
        )
        if total is not None and used is not None and on_disk is not None:
            chunks[kind] = ChunkUse(total, used, on_disk)
    if not chunks:
        return None
    given_out = sum(use.on_disk for use in chunks.values())
    sectors = [number_of(f"{directory}/devices/{each}/size") for each in names_in(f"{directory}/devices")]
    known = [size * SECTOR for size in sectors if size is not None]
    unallocated = max(sum(known) - given_out, 0) if len(known) == len(sectors) else None
    delayed = sum(number_of(f"{allocation}/data/{name}") or 0 for name in ("bytes_may_use", "bytes_reserved"))
    return BtrfsAllocation(chunks, unallocated, delayed)


def delayed_allocation_bytes(device: str, block_size: int, sys: str = SYS) -> int | None:
    """Bytes of an ext4 that are written but have no place on the disk yet; None where the kernel does not say."""
    blocks = number_of(f"{sys}/fs/ext4/{device}/delayed_allocation_blocks")
    return None if blocks is None else blocks * block_size


def thin_pool(name: str, uuid: str) -> str | None:
    """What to call the thin pool that a device-mapper device is, from its name and UUID; None for any other device.

    Where LVM has made it, the UUID ends in `-tpool`. Others (containerd's devmapper snapshotter, Docker's) set a UUID
    of their own or none, and the name is what an administrator or they chose: one that ends in `pool` counts.
    """
    if uuid.startswith(LVM):
        return f"the thin pool {name}" if uuid.endswith(POOL_OF_LVM) else None
    return f"{name}, by its name a thin pool" if name.endswith("pool") else None


def thin_pool_below(device: str, sys: str = SYS) -> str | None:
    """The first thin pool among the devices that a device consists of (`slaves`), itself included."""
    pending, seen = [device], {device}
    while pending:
        entry = os.path.realpath(f"{sys}/class/block/{pending.pop(0)}")
        pool = thin_pool(text_of(f"{entry}/dm/name"), text_of(f"{entry}/dm/uuid"))
        if pool is not None:
            return pool
        below = [slave for slave in names_in(f"{entry}/slaves") if slave not in seen]
        seen.update(below)
        pending += below
    return None


def kernel_name(mount: Mount, sys: str = SYS) -> str | None:
    """The kernel's name (`sda2`, `dm-0`) of the block device that was mounted; None where there is none.

    By the number of the filesystem's device, else by what was mounted, which a btrfs needs, as its number is no
    device's.
    """
    by_number = f"{sys}/dev/block/{mount.device}"
    if os.path.exists(by_number):
        return os.path.basename(os.path.realpath(by_number))
    named = os.path.basename(os.path.realpath(mount.source))
    if os.path.exists(f"{sys}/class/block/{named}"):
        return named
    wanted = os.path.basename(mount.source)
    mapped = [device for device in names_in(f"{sys}/block") if device.startswith("dm-")]
    return next((device for device in mapped if text_of(f"{sys}/block/{device}/dm/name") == wanted), None)


# ---- One look


@dataclass(frozen=True, slots=True)
class HiddenSpace:
    """What was found on one filesystem. None: not known, or it has no such thing.

    `overlays`: those that write to it. `delayed`: bytes of an ext4 that have no place on the disk yet.
    """

    mount: Mount | None = None
    open_files: Sequence[OpenFile] = ()
    overlays: Sequence[WritableOverlay] = ()
    delayed: int | None = None
    btrfs: BtrfsAllocation | None = None
    thin_pool: str | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """Filesystems by their number (`types.FilesystemIdentity`), and how much was seen of the processes of the node."""

    filesystems: Mapping[int, HiddenSpace] = field(default_factory=dict)
    processes: ProcessesSeen = field(default_factory=ProcessesSeen)


def look(paths: Mapping[str, int], limit: TimeLimit, proc: str = PROC, sys: str = SYS, mounts: str = MOUNTS) -> Survey:
    """Looks at the filesystems of these paths, each given with the number of its filesystem. Of a btrfs, only files in
    the subvolumes of these paths are found. Never raises OSError."""
    known: dict[int, HiddenSpace] = {}
    scan = OpenFilesScan(proc)

    def see(in_time: InTime) -> None:
        table = read_mounts(mounts)
        overlays = overlays_by_filesystem(table)
        for path, device_id in paths.items():
            try:
                st_dev, block_size = os.stat(path).st_dev, os.statvfs(path).f_bsize
            except OSError:
                continue
            mount, mine = mount_holding(os.path.realpath(path), table), overlays.get(device_id, [])
            if device_id not in known:
                known[device_id] = _told_by_the_kernel(mount, block_size, mine, sys)
            if mount is not None and mount.type == "xfs":
                scan.block_sizes[device_id] = block_size
            scan.filesystems |= dict.fromkeys((st_dev, *(overlay.device_id for overlay in mine)), device_id)
        scan.seen.others_hidden = _hides_processes(table, proc)
        scan.run(in_time)

    limit.run(see)
    found = {device_id: replace(space, open_files=scan.found(device_id)) for device_id, space in list(known.items())}
    return Survey(found, scan.seen)


def _told_by_the_kernel(
    mount: Mount | None, block_size: int, overlays: Sequence[WritableOverlay], sys: str
) -> HiddenSpace:
    device = None if mount is None else kernel_name(mount, sys)
    if device is None:
        return HiddenSpace(mount, (), overlays)
    delayed, btrfs = delayed_allocation_bytes(device, block_size, sys), btrfs_allocation(device, sys)
    return HiddenSpace(mount, (), overlays, delayed, btrfs, thin_pool_below(device, sys))


def _hides_processes(mounts: Sequence[Mount], proc: str) -> bool:
    mount = mount_holding(proc, mounts)
    if mount is not None and mount.option("hidepid") not in SHOWN_TO_ALL:
        return True
    try:
        return os.readlink(f"{proc}/self/ns/pid") != FIRST_PID_NAMESPACE
    except OSError:
        return True


def names_in(directory: str) -> list[str]:
    """The names in a directory, sorted; none where it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def text_of(path: str) -> str:
    """The text of an attribute without the line's end; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:
        return ""


def number_of(path: str) -> int | None:
    """The number in an attribute; None where there is none."""
    try:
        return int(text_of(path))
    except ValueError:
        return None
