"""Which filesystems are nodefs, imagefs and containerfs, which ones the configuration adds, and how
each is read.

nodefs holds the kubelet's root directory. imagefs and containerfs are where the runtime keeps
its images and writable layers (CRI `ImageFsInfo`). Two roles share a filesystem exactly when
they are on the same device.

The kubelet gets its numbers from cAdvisor, which reads a filesystem at its mount point and
identifies it by the source of the mount (`fs/fs.go`; `pkg/kubelet/stats/cri_stats_provider.go`). So
all subvolumes of a btrfs are one filesystem, and a project quota on the kubelet's directory, which
changes what `statvfs` returns there, makes no difference to the kubelet.

The kubelet detects the layout once and keeps it until it restarts. Here the layout follows from
the devices in each observation, so it changes when a filesystem is mounted or unmounted while
the daemon runs. Source:
https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-signals,
and for the split layout Kubernetes' `test/e2e_node/split_disk_test.go` (the first mount points
of `ImageFsInfo` differ).

`statvfs` can block forever; `samplers` makes sure that it blocks only its own thread.
"""

import os
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from signals.ahead import Ahead, ahead_on
from signals.mounts import MOUNTS, filesystem_of, mount_holding, mounts_of, point_asked, read_mounts
from signals.types import FilesystemIdentity, FilesystemRole, FsLayout, FsStats


class FilesystemPaths(NamedTuple):
    """A path on each filesystem of the node.

    `imagefs` and `containerfs` are None until the runtime has reported them; `nodefs` is None on a
    machine without a kubelet and a runtime. `own`: the filesystems that the configuration adds.
    """

    nodefs: str | None
    imagefs: str | None = None
    containerfs: str | None = None
    own: Mapping[FilesystemRole, str] = {}

    def by_role(self) -> dict[FilesystemRole, str | None]:
        """The path of each role; None while it is unknown."""
        if self.nodefs is None:
            return dict(self.own)
        return {
            FilesystemRole.NODEFS: self.nodefs,
            FilesystemRole.IMAGEFS: self.imagefs,
            FilesystemRole.CONTAINERFS: self.containerfs,
            **self.own,
        }

    def distinct(self) -> set[str]:
        """The paths to read, without duplicates."""
        return {path for path in self.by_role().values() if path is not None}


def paths_of_node(
    root_directory: str,
    image_filesystems: Sequence[str],
    container_filesystems: Sequence[str],
    *,
    own: Mapping[FilesystemRole, str],
) -> FilesystemPaths:
    """The paths, given the kubelet's root directory and the mount points that `ImageFsInfo` lists.

    Only the first entry of each list counts, as in the kubelet; empty strings are skipped. If no
    container filesystem is listed, the writable layers are where the images are.
    """
    imagefs = next(filter(None, image_filesystems), None)
    containerfs = next(filter(None, container_filesystems), imagefs)
    return FilesystemPaths(root_directory, imagefs, containerfs, own=own)


def layout_of(nodefs_device: int, imagefs_device: int, containerfs_device: int) -> FsLayout:
    """The layout, given the devices of the three filesystems.

    It is `split` whenever images and writable layers are on different devices, wherever the
    kubelet's data is. The kubelet checks two things (`pkg/kubelet/stats/provider.go`):
    HasDedicatedContainerFs is true if images and writable layers are on different devices, and
    HasDedicatedImageFs is then true as well, even if the images are on the kubelet's own device,
    because the numbers of the two filesystems differ.
    """
    if imagefs_device != containerfs_device:
        return FsLayout.SPLIT
    return FsLayout.SINGLE if imagefs_device == nodefs_device else FsLayout.DEDICATED_IMAGEFS


def describe(path: str, device_id: int) -> FilesystemIdentity:
    """The filesystem with this device number and the mount that holds `path`, from this process's
    mount table. Never raises OSError: what is unknown is empty."""
    mount = mounts_of([path]).get(path)
    if mount is None:
        return FilesystemIdentity(path, device_id)
    return FilesystemIdentity(
        path, device_id, device=mount.source, type=mount.type, mount_point=mount.point
    )


class Reading(NamedTuple):
    """The numbers of a filesystem and its device, which changes with what is mounted.

    `device_id`: `st_dev`, except that all subvolumes of a btrfs share one number. `polls`: what the
    last polls of this path read, oldest first, the same for every reader. `in_directory`: what
    `statvfs` returns in the directory itself, if a project quota limits it.
    """

    stats: FsStats
    device_id: int
    polls: tuple[FsStats, ...] = ()
    in_directory: FsStats | None = None


FilesystemReader = Callable[[str, float], Reading]
"""Reads the filesystem that holds a path. The second argument is the time of the reading (monotonic
seconds). May block; raises OSError."""


def read_statvfs(path: str, now: float) -> Reading:
    """A full reading, with `statvfs` and `stat`. Raises OSError."""
    status = os.statvfs(path)
    return Reading(
        FsStats(
            available_bytes=status.f_bavail * status.f_frsize,
            free_bytes=status.f_bfree * status.f_frsize,
            capacity_bytes=status.f_blocks * status.f_frsize,
            inodes_free=status.f_ffree,
            inodes_total=status.f_files,
            time=now,
        ),
        os.stat(path).st_dev,
    )


@dataclass(eq=False)
class KubeletsReader:
    """Reads filesystems as the kubelet sees them.

    That is at the mount point, and as one filesystem however many subvolumes it has; what is coming
    is added (`signals.ahead`). `directories`:
    paths that no kubelet looks at; they are read in place, within any quota. `reader` reads one
    path; `table` is this process's mount table. Any thread may call. May block; raises OSError.
    """

    directories: Container[str] = ()
    reader: FilesystemReader = read_statvfs
    table: str = MOUNTS

    def __post_init__(self) -> None:
        self._places: dict[str, _Place] = {}

    def __call__(self, path: str, now: float) -> Reading:
        """One reading.

        If the mount point cannot be read, or is another device by now, the path itself is read.
        """
        here = self.reader(path, now)
        place = self._places.get(path)
        if place is None or place.st_dev != here.device_id:
            place = self._places[path] = self._place(path, here.device_id)
        there = here
        if place.point != path:
            with suppress(OSError):
                there = self.reader(place.point, now)
        if there.device_id != here.device_id:
            there = here
        limited = here.stats.capacity_bytes < there.stats.capacity_bytes
        return Reading(
            place.ahead(there.stats), place.device_id, in_directory=here.stats if limited else None
        )

    def _place(self, path: str, st_dev: int) -> "_Place":
        real = os.path.realpath(path)
        mounts = read_mounts(self.table)
        mount = mount_holding(real, mounts)
        asked = path if mount is None or path in self.directories else point_asked(mount, mounts)
        return _Place(
            st_dev, filesystem_of(st_dev, real, mounts), asked, ahead=ahead_on(mount, st_dev)
        )


class _Place(NamedTuple):
    """Where a path is read while its `st_dev` stays the same, and its filesystem."""

    st_dev: int
    device_id: int
    point: str
    ahead: Ahead
