"""Which filesystem is nodefs, imagefs and containerfs, and which layout they form; which ones the configuration adds.
Only this module imports psutil.

nodefs holds the kubelet's root directory; imagefs and containerfs are where the runtime says that its images and
writable layers are (CRI `ImageFsInfo`). Roles share a filesystem exactly when they are on one device; the subvolumes of
a btrfs are on one (`mount_table.filesystem_of`).

The kubelet detects the layout once and keeps it until it is restarted. Here it follows from the devices of each
observation, so it changes when a filesystem is mounted or unmounted while the daemon runs.
Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-signals, and for the split
layout Kubernetes' `test/e2e_node/split_disk_test.go` (the first mount points of `ImageFsInfo` differ).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import psutil

from signals.types import FilesystemRole, FsLayout


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


@dataclass(frozen=True, slots=True)
class Mount:
    """The mount that holds a path, by the kernel's table of this process; empty texts if unknown."""

    device: str = ""
    type: str = ""
    mount_point: str = ""
    options: tuple[str, ...] = ()


def describe_mount(path: str) -> Mount:
    """The mount that holds `path`. Never raises OSError."""
    try:
        real = os.path.realpath(path)
        mounts = psutil.disk_partitions(all=True)
    except OSError:
        return Mount()
    holding = [mount for mount in mounts if _is_below(real, mount.mountpoint)]
    if not holding:
        return Mount()
    # Of several mounts on one path the last one is visible; of nested paths the longest one holds `path`.
    nearest = max(enumerate(holding), key=lambda item: (len(item[1].mountpoint), item[0]))[1]
    return Mount(nearest.device, nearest.fstype, nearest.mountpoint, tuple(nearest.opts.split(",")))


def _is_below(path: str, mountpoint: str) -> bool:
    return path == mountpoint or path.startswith(mountpoint.rstrip("/") + "/")
