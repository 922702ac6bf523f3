"""What takes space on a filesystem, or keeps it from being used, without showing in names, sizes or statvfs.

Covers: one look at `/proc` and `/sys` within a time limit, on a thread of its own, as a filesystem may never answer.
Does not cover: counting trees (`disk_usage`), sentences.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from signals.allocation import BtrfsAllocation, btrfs_allocation, delayed_allocation_bytes
from signals.block_devices import ThinPool, kernel_name, thin_pool_below
from signals.bounded_thread import BoundedThread
from signals.clock import Clock
from signals.mount_table import MOUNTS, filesystem_of, read_mounts
from signals.mounts import Mount, mount_holding
from signals.open_files import PROC, OpenFiles, OpenFilesScan, ProcessesSeen, Watched
from signals.overlays import WritableOverlay, writable_overlays
from signals.sysfs import SYS

FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h
NONE_OPEN = OpenFiles()
SHOWN_TO_ALL = (None, "", "0", "off")  # of the option hidepid


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
