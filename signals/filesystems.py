"""Which filesystem is nodefs, imagefs and containerfs, which ones the configuration adds, and what is read of each.
Only this module imports psutil.

nodefs holds the kubelet's root directory; imagefs and containerfs are where the runtime says that its images and
writable layers are (CRI `ImageFsInfo`). Roles share a filesystem exactly when they are on one device.

The kubelet has its numbers from cAdvisor, which asks where a filesystem is mounted and tells filesystems apart by what
was mounted (`fs/fs.go`; `pkg/kubelet/stats/cri_stats_provider.go`). So the subvolumes of a btrfs are one filesystem,
and a project quota on the kubelet's directory, for which `statvfs` answers there, changes nothing for the kubelet.

The kubelet detects the layout once and keeps it until it is restarted. Here it follows from the devices of each
observation, so it changes when a filesystem is mounted or unmounted while the daemon runs.
Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-signals, and for the split
layout Kubernetes' `test/e2e_node/split_disk_test.go` (the first mount points of `ImageFsInfo` differ).

`statvfs` may block for ever; who bears the wait is said in `probe`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import psutil

from signals.mounts import MOUNTS, filesystem_of, index_of_holding, mount_holding, point_asked, read_mounts
from signals.types import FilesystemIdentity, FilesystemRole, FsLayout, FsStats, Poll


@dataclass(frozen=True, slots=True)
class FilesystemPaths:
    """A path on each filesystem of the node. `imagefs` and `containerfs` are None until the runtime has named them;
    `nodefs` is None on a machine without kubelet and runtime. `own`: those that the configuration adds."""

    nodefs: str | None
    imagefs: str | None = None
    containerfs: str | None = None
    own: Mapping[FilesystemRole, str] = field(default_factory=dict)

    def by_role(self) -> dict[FilesystemRole, str | None]:
        """The path of each role; None while it is not known."""
        kubelets = {
            FilesystemRole.NODEFS: self.nodefs,
            FilesystemRole.IMAGEFS: self.imagefs,
            FilesystemRole.CONTAINERFS: self.containerfs,
        }
        return {**(kubelets if self.nodefs is not None else {}), **self.own}

    def distinct(self) -> set[str]:
        """The paths to be read, each once."""
        return {path for path in self.by_role().values() if path is not None}


def paths_of_node(
    root_directory: str,
    image_filesystems: list[str],
    container_filesystems: list[str],
    own: Mapping[FilesystemRole, str] = MappingProxyType({}),
) -> FilesystemPaths:
    """The paths from the kubelet's root directory and the mount points that `ImageFsInfo` lists.

    Only the first of each list counts, as in the kubelet; empty texts are skipped. If no container filesystem is
    listed, the writable layers are where the images are.
    """
    imagefs = next((path for path in image_filesystems if path), None)
    containerfs = next((path for path in container_filesystems if path), imagefs)
    return FilesystemPaths(root_directory, imagefs, containerfs, own)


def layout_of(nodefs_device: int, imagefs_device: int, containerfs_device: int) -> FsLayout:
    """The layout from the devices of the three filesystems.

    Images and writable layers that are apart are `split`, wherever the kubelet's data is. The kubelet asks two
    questions (`pkg/kubelet/stats/provider.go`): HasDedicatedContainerFs is true where the devices of images and
    writable layers differ, and HasDedicatedImageFs then too, also with the images on the kubelet's own device, as the
    numbers of the two filesystems are not equal.
    """
    if imagefs_device != containerfs_device:
        return FsLayout.SPLIT
    return FsLayout.SINGLE if imagefs_device == nodefs_device else FsLayout.DEDICATED_IMAGEFS


def describe(path: str, device_id: int) -> FilesystemIdentity:
    """The filesystem of this number and the mount that holds `path`, by the kernel's table of this process. Never
    raises OSError: what is not known is empty."""
    try:
        real = os.path.realpath(path)
        mounts = psutil.disk_partitions(all=True)
    except OSError:
        return FilesystemIdentity(path, device_id)
    index = index_of_holding(real, [mount.mountpoint for mount in mounts])
    if index is None:
        return FilesystemIdentity(path, device_id)
    return FilesystemIdentity(path, device_id, mounts[index].device, mounts[index].fstype, mounts[index].mountpoint)


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of a filesystem and its device. If another filesystem is mounted, the device changes.

    `device_id`: `st_dev`, but one number for all subvolumes of a btrfs. `polls`: what the last polls of this path have
    read, oldest first: the same for everybody who reads. `in_directory`: the numbers that `statvfs` gives in the
    directory itself, where they are those of a limit (a project quota).
    """

    stats: FsStats
    device_id: int
    polls: tuple[Poll, ...] = ()
    in_directory: FsStats | None = None


FilesystemReader = Callable[[str, float], Reading]
"""Reads the filesystem that holds a path at a time (monotonic seconds), that of the reading. May block; raises OSError.
"""


def read_statvfs(path: str, now: float) -> Reading:
    """A whole reading by `statvfs` and `stat`. Raises OSError."""
    found = os.statvfs(path)
    return Reading(
        FsStats(
            available_bytes=found.f_bavail * found.f_frsize,
            free_bytes=found.f_bfree * found.f_frsize,
            capacity_bytes=found.f_blocks * found.f_frsize,
            inodes_free=found.f_ffree,
            inodes_total=found.f_files,
            time=now,
        ),
        os.stat(path).st_dev,
    )


def available_and_inodes_free(path: str) -> tuple[int, int]:
    """Bytes available and inodes free by `statvfs` alone, for a poll. Raises OSError. It costs 2 µs, and a whole
    reading at a mount point 21: a daemon at rest close to its marks would take half as much again of a core."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_ffree


class KubeletsReader:
    """Reads a filesystem as the kubelet sees it: at a mount point, and by one number however many subvolumes it has.

    `directories`: paths that no kubelet looks at, read where they are, the numbers of a limit included. `reader` reads
    one place, `table` is the table of mounts of this process. Any thread may call; may block, raises OSError.
    """

    def __init__(
        self, directories: Iterable[str] = (), reader: FilesystemReader = read_statvfs, table: str = MOUNTS
    ) -> None:
        self._directories = frozenset(directories)
        self._reader = reader
        self._quick_reader = quick_reader_of(reader)
        self._table = table
        self._places: dict[str, _Place] = {}

    def __call__(self, path: str, now: float) -> Reading:
        """One reading. Where the mount point cannot be read, or is another device by now, that of the path."""
        here = self._reader(path, now)
        place = self._places.get(path)
        if place is None or place.st_dev != here.device_id:
            place = self._places[path] = self._place(path, here.device_id)
        found = replace(here, device_id=place.device_id)
        if place.point == path:
            return found
        try:
            there = self._reader(place.point, now)
        except OSError:
            there = None
        if there is None or there.device_id != here.device_id:
            self._places[path] = replace(place, point=path)
            return found
        limited = here.stats.capacity_bytes < there.stats.capacity_bytes
        return replace(found, stats=there.stats, in_directory=here.stats if limited else None)

    def quick(self, path: str) -> tuple[int, int]:
        """Bytes available and inodes free where the path was last read."""
        place = self._places.get(path)
        return self._quick_reader(path if place is None else place.point)

    def _place(self, path: str, st_dev: int) -> _Place:
        real, mounts = os.path.realpath(path), read_mounts(self._table)
        mount = mount_holding(real, mounts)
        asked = path if mount is None or path in self._directories else point_asked(mount, mounts)
        return _Place(st_dev, filesystem_of(st_dev, real, mounts), asked)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a path is read, as long as its `st_dev` stays: the filesystem, and the point at which it is asked."""

    st_dev: int
    device_id: int
    point: str


def quick_reader_of(reader: FilesystemReader) -> Callable[[str], tuple[int, int]]:
    """What agrees with `reader` in bytes available and inodes free, and costs less where it reads by `statvfs`."""
    if isinstance(reader, KubeletsReader):
        return reader.quick
    if reader is read_statvfs:
        return available_and_inodes_free

    def read_both(path: str) -> tuple[int, int]:
        stats = reader(path, 0.0).stats
        return stats.available_bytes, stats.inodes_free

    return read_both
