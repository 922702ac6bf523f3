"""Reads the kernel's table of mounts, as this process sees it, and says which filesystem a file is on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from signals.mounts import Mount, mount_holding, parse_mountinfo

MOUNTS = "/proc/self/mountinfo"


def read_mounts(table: str = MOUNTS) -> tuple[Mount, ...]:
    """The mounts that this process sees, in the order of the kernel; none if the table cannot be read."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            return parse_mountinfo(file)
    except OSError:
        return ()


def mounts_of(paths: Iterable[str], table: str = MOUNTS) -> dict[str, Mount]:
    """The mount that each path is on, as far as it is found. Follows symlinks, so it blocks where a path does."""
    mounts = read_mounts(table)
    found = {path: mount_holding(os.path.realpath(path), mounts) for path in paths}
    return {path: mount for path, mount in found.items() if mount is not None}


def filesystem_of(st_dev: int, path: str, mounts: Sequence[Mount]) -> int:
    """The filesystem of a file, as one number: from its `st_dev` and its path without symlinks.

    It is `st_dev` where that is the number of a mounted filesystem. On btrfs it never is, as each subvolume has an
    `st_dev` of its own; then the mount that holds the path says it, as in cAdvisor (`fs/fs.go`, GetDirFsDevice).
    """
    if any(_device_id(mount) == st_dev for mount in mounts):
        return st_dev
    mount = mount_holding(path, mounts)
    return st_dev if mount is None else _device_id(mount)


def filesystem_id(path: str, table: str = MOUNTS) -> int:
    """The filesystem that a path is on, one number for all subvolumes of a btrfs. Raises OSError."""
    return filesystem_of(os.stat(path).st_dev, os.path.realpath(path), read_mounts(table))


def _device_id(mount: Mount) -> int:
    """The number of its filesystem, in the form of `st_dev`."""
    major, _, minor = mount.device.partition(":")
    return os.makedev(int(major), int(minor))
