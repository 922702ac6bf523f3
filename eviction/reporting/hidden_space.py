"""What takes space on a filesystem, or keeps it from being used, without showing in names, sizes or statvfs.

* What is written into a container is in the upper directory of an overlay. Source: the kernel's
  `Documentation/filesystems/overlayfs.rst`.
* What ext4 and btrfs say in sysfs about their space. Sources: the kernel's `Documentation/ABI/testing/sysfs-fs-ext4`
  (delayed_allocation_blocks), and https://btrfs.readthedocs.io/en/latest/ch-sysfs.html (`allocation`).
* A thin pool among the block devices below: it has fewer blocks than its volumes promise together, and when its data
  are full, writes fail or hang, whatever `statvfs` says. How full it is cannot be read here: that is an ioctl of root
  (`dmsetup status`). Sources: the kernel's `Documentation/admin-guide/device-mapper/thin-provisioning.rst`; LVM's
  `lib/misc/lvm-string.c` and `lib/activate/dev_manager.c` for the suffix of the pool's UUID.
* What open files take (`open_files`).

Covers: one look at `/proc` and `/sys` within a time limit, on a thread of its own, as a filesystem may never answer;
the mounts of this process's mount namespace. Does not cover: counting trees (`disk_usage`), sentences (`remarks`),
which container a mount belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eviction.reporting.disk_usage import BoundedThread
from eviction.reporting.open_files import PROC, OpenFiles, OpenFilesScan, ProcessesSeen, Watched
from signals.clock import Clock
from signals.mounts import MOUNTS, Mount, filesystem_of, mount_holding, read_mounts

SYS = "/sys"
OVERLAY = "overlay"
SECTOR = 512  # the unit of `size` of a block device, whatever its blocks are
MOST_DEVICES = 64
LVM, POOL_OF_LVM = "LVM-", "-tpool"
FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h
NONE_OPEN = OpenFiles()
SHOWN_TO_ALL = (None, "", "0", "off")  # of the option hidepid


@dataclass(frozen=True, slots=True)
class WritableOverlay:
    """One overlay that can be written to: where it is mounted first, the `st_dev` of its files, its upper directory."""

    point: str
    device_id: int
    upper: str


def writable_overlays(mounts: Iterable[Mount]) -> tuple[WritableOverlay, ...]:
    """Each overlay with an upper directory once, however often it is mounted; one with a relative path is left out."""
    found: dict[str, WritableOverlay] = {}
    for mount in mounts:
        upper = mount.option("upperdir") if mount.type == OVERLAY else None
        major, _, minor = mount.device.partition(":")
        if upper is not None and upper.startswith("/") and upper not in found:
            found[upper] = WritableOverlay(mount.point, os.makedev(int(major), int(minor)), upper)
    return tuple(found.values())


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


def delayed_allocation_bytes(device: str, block_size: int, sys: str = SYS) -> int | None:
    """Bytes of an ext4 that are written but have no place on the disk yet; None where the kernel does not say."""
    blocks = number_of(os.path.join(sys, "fs", "ext4", device, "delayed_allocation_blocks"))
    return None if blocks is None else blocks * block_size


def btrfs_allocation(device: str, sys: str = SYS) -> BtrfsAllocation | None:
    """The allocation of the btrfs that has this device (kernel name); None where the kernel does not say."""
    root = os.path.join(sys, "fs", "btrfs")
    for uuid in names_in(root):
        directory = os.path.join(root, uuid)
        devices = names_in(os.path.join(directory, "devices"))
        if device in devices:
            sizes = [number_of(os.path.join(directory, "devices", each, "size")) for each in devices]
            return _allocation(os.path.join(directory, "allocation"), sizes)
    return None


def _allocation(directory: str, sectors: list[int | None]) -> BtrfsAllocation | None:
    chunks = {}
    for kind in names_in(directory):
        numbers = [
            number_of(os.path.join(directory, kind, name)) for name in ("total_bytes", "bytes_used", "disk_total")
        ]
        total, used, on_disk = numbers
        if total is not None and used is not None and on_disk is not None:
            chunks[kind] = ChunkUse(total, used, on_disk)
    if not chunks:
        return None
    known = [size * SECTOR for size in sectors if size is not None]
    given_out = sum(use.on_disk for use in chunks.values())
    unallocated = max(sum(known) - given_out, 0) if len(known) == len(sectors) else None
    of_data = os.path.join(directory, "data")
    delayed = sum(number_of(os.path.join(of_data, name)) or 0 for name in ("bytes_may_use", "bytes_reserved"))
    return BtrfsAllocation(chunks, unallocated, delayed)


@dataclass(frozen=True, slots=True)
class ThinPool:
    """A device-mapper device that is a thin pool. `sure`: LVM's UUID says so; else its name does."""

    name: str
    sure: bool


def thin_pool(name: str, uuid: str) -> ThinPool | None:
    """The pool that a device-mapper device is, from its name and UUID; None for any other device.

    Where LVM has made it, the UUID ends in `-tpool`. Others (containerd's devmapper snapshotter, Docker's) set a UUID
    of their own or none, and the name is what an administrator or they chose: one that ends in `pool` counts.
    """
    if uuid.startswith(LVM):
        return ThinPool(name, sure=True) if uuid.endswith(POOL_OF_LVM) else None
    return ThinPool(name, sure=False) if name.endswith("pool") else None


def kernel_name(mount: Mount, sys: str = SYS) -> str | None:
    """The kernel's name (`sda2`, `dm-0`) of the block device that was mounted; None where there is none.

    By the number of the filesystem's device, else by what was mounted, which a btrfs needs, as its number is no
    device's.
    """
    by_number = os.path.join(sys, "dev", "block", mount.device)
    if os.path.exists(by_number):
        return os.path.basename(os.path.realpath(by_number))
    named = os.path.basename(os.path.realpath(mount.source))
    if os.path.exists(os.path.join(sys, "class", "block", named)):
        return named
    wanted = os.path.basename(mount.source)
    for device in names_in(os.path.join(sys, "block")):
        if device.startswith("dm-") and text_of(os.path.join(sys, "block", device, "dm", "name")) == wanted:
            return device
    return None


def thin_pool_below(device: str, sys: str = SYS) -> ThinPool | None:
    """The first thin pool among the devices that a device consists of (`slaves`), itself included."""
    pending, seen = [device], {device}
    while pending and len(seen) <= MOST_DEVICES:
        entry = os.path.realpath(os.path.join(sys, "class", "block", pending.pop(0)))
        name = text_of(os.path.join(entry, "dm", "name"))
        pool = thin_pool(name, text_of(os.path.join(entry, "dm", "uuid"))) if name else None
        if pool is not None:
            return pool
        below = [slave for slave in names_in(os.path.join(entry, "slaves")) if slave not in seen]
        seen.update(below)
        pending += below
    return None


@dataclass(frozen=True, slots=True)
class HiddenSpace:
    """What was found on one filesystem. None: not known, or it has no such thing.

    `overlays`: those that write to it. `delayed`: bytes of an ext4 that have no place on the disk yet.
    """

    mount: Mount | None = None
    open_files: OpenFiles = NONE_OPEN
    overlays: tuple[WritableOverlay, ...] = ()
    delayed: int | None = None
    btrfs: BtrfsAllocation | None = None
    thin_pool: ThinPool | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """Filesystems by their number (`types.FilesystemIdentity`), and how much was seen of the processes of the node.

    `others_hidden`: `/proc` may hide processes (hidepid), or is that of a PID namespace which is not the node's.
    """

    filesystems: Mapping[int, HiddenSpace]
    processes: ProcessesSeen
    others_hidden: bool = False


class HiddenSpaceMeter:
    """Looks for at most `limit_seconds` plus half a second. `proc`, `sys`, `mounts`: where the kernel tells."""

    def __init__(self, clock: Clock, limit_seconds: float, proc: str = PROC, sys: str = SYS, mounts: str = MOUNTS):
        self._clock = clock
        self._limit_seconds = limit_seconds
        self._proc = proc
        self._sys = sys
        self._mounts = mounts
        self._thread = BoundedThread("hidden space")

    @property
    def threads_not_started(self) -> int:
        """How many starts of a thread have failed."""
        return self._thread.not_started

    def measure(self, paths: Mapping[str, int]) -> Survey:
        """What is on the filesystems of these paths, each with the number of its filesystem; of a btrfs the files in
        the subvolumes of all of them are looked for.

        Never raises OSError. What was not reached within the limit, and everything while an earlier look is stuck, is
        unknown.
        """
        look = _Look(paths, self._clock.monotonic() + self._limit_seconds, self._clock)
        self._thread.run(lambda: look.run(self._proc, self._sys, self._mounts), self._limit_seconds + 0.5)
        return look.survey()


class _Look:
    """One look. Another thread may call `survey` at any time."""

    def __init__(self, paths: Mapping[str, int], until: float, clock: Clock):
        self._paths = paths
        self._until = until
        self._clock = clock
        self._known: dict[int, HiddenSpace] = {}
        self._scan: OpenFilesScan | None = None
        self._others_hidden = False

    def survey(self) -> Survey:
        scan, known = self._scan, self._known.copy()
        if scan is None:
            return Survey(known, ProcessesSeen())
        found = {
            device_id: HiddenSpace(
                space.mount, scan.found(device_id), space.overlays, space.delayed, space.btrfs, space.thin_pool
            )
            for device_id, space in known.items()
        }
        return Survey(found, scan.seen(), self._others_hidden)

    def run(self, proc: str, sys: str, table: str) -> None:
        mounts = read_mounts(table)
        overlays = _overlays_by_device(writable_overlays(mounts), mounts)
        watched: dict[int, Watched] = {}
        for path, device_id in self._paths.items():
            mount = mount_holding(os.path.realpath(path), mounts)
            block_size = _block_size(path)
            mine = tuple(overlays.get(device_id, ()))
            if device_id not in self._known:
                self._known[device_id] = _of_kernel(mount, block_size, mine, sys)
            grows_ahead = mount is not None and mount.type == "xfs"
            filesystem = Watched(device_id, block_size if grows_ahead else None)
            of_files = (_st_dev(path) or device_id, *(overlay.device_id for overlay in mine))
            watched |= dict.fromkeys(of_files, filesystem)
        self._others_hidden = _hides_processes(mounts, proc)
        self._scan = OpenFilesScan(watched, lambda: self._clock.monotonic() < self._until, proc)
        self._scan.run()


def _of_kernel(
    mount: Mount | None, block_size: int | None, overlays: tuple[WritableOverlay, ...], sys: str
) -> HiddenSpace:
    device = None if mount is None else kernel_name(mount, sys)
    if mount is None or device is None:
        return HiddenSpace(mount, overlays=overlays)
    known_size = mount.type == "ext4" and block_size is not None
    return HiddenSpace(
        mount,
        overlays=overlays,
        delayed=delayed_allocation_bytes(device, block_size or 0, sys) if known_size else None,
        btrfs=btrfs_allocation(device, sys) if mount.type == "btrfs" else None,
        thin_pool=thin_pool_below(device, sys),
    )


def _overlays_by_device(
    overlays: tuple[WritableOverlay, ...], mounts: tuple[Mount, ...]
) -> dict[int, list[WritableOverlay]]:
    """By the filesystem that each writes to; without those whose upper directory is not reached."""
    found: dict[int, list[WritableOverlay]] = {}
    for overlay in overlays:
        st_dev = _st_dev(overlay.upper)
        if st_dev is not None:
            filesystem = filesystem_of(st_dev, os.path.realpath(overlay.upper), mounts)
            found.setdefault(filesystem, []).append(overlay)
    return found


def _st_dev(path: str) -> int | None:
    try:
        return os.stat(path).st_dev
    except OSError:
        return None


def _block_size(path: str) -> int | None:
    try:
        return os.statvfs(path).f_bsize
    except OSError:
        return None


def _hides_processes(mounts: tuple[Mount, ...], proc: str) -> bool:
    mount = mount_holding(proc, mounts)
    if mount is not None and mount.option("hidepid") not in SHOWN_TO_ALL:
        return True
    try:
        return os.readlink(os.path.join(proc, "self", "ns", "pid")) != FIRST_PID_NAMESPACE
    except OSError:
        return True


def names_in(directory: str) -> list[str]:
    """The names in a directory, sorted."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def text_of(path: str) -> str:
    """The text of an attribute without the line's end."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:
        return ""


def number_of(path: str) -> int | None:
    """The number in an attribute."""
    try:
        return int(text_of(path))
    except ValueError:
        return None
