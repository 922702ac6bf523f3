"""What is mounted, from the kernel's table of mounts: which mount holds a path, and which filesystem a file is on.

Source: proc(5), `/proc/pid/mountinfo`; the kernel's `Documentation/filesystems/proc.rst`, 3.5.

Covers: reading the table as this process sees it, parsing it, where the kubelet asks for the numbers of a filesystem.
Does not cover: what an option means (`eviction.reporting.filesystem_facts`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOUNTS = "/proc/self/mountinfo"
_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))
_SEPARATOR = "-"


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount. `device`: `major:minor` of the filesystem, which on btrfs is not the `st_dev` of its files.

    `source`: what was mounted, `/dev/sda2` say. `options`: those of the mount and those of the filesystem, each once.
    `root`: which directory of the filesystem is mounted there.
    """

    point: str
    device: str
    type: str
    source: str
    options: tuple[str, ...]
    root: str = "/"

    def option(self, name: str) -> str | None:
        """The value of `name=value`; an empty text for an option without a value, None where it is not there."""
        for option in self.options:
            key, _, value = option.partition("=")
            if key == name:
                return value
        return None


def parse_mountinfo(lines: Iterable[str]) -> tuple[Mount, ...]:
    """The mounts in the lines of a `mountinfo`; a line that is not one is left out."""
    found = []
    for line in lines:
        fields = line.rstrip("\n").split(" ")
        try:
            end = fields.index(_SEPARATOR, 6)
            kind, source, of_filesystem = fields[end + 1 : end + 4]
        except ValueError:
            continue
        options = dict.fromkeys([*fields[5].split(","), *of_filesystem.split(",")])
        # Read-only counts if the mount or the filesystem is: the other one still says `rw`.
        if "ro" in options:
            options.pop("rw", None)
        point, root = _unescaped(fields[4]), _unescaped(fields[3])
        found.append(Mount(point, fields[2], kind, _unescaped(source), tuple(map(_unescaped, options)), root))
    return tuple(found)


def mount_holding(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that a path without symlinks is on: of nested ones the deepest, of several on one point the last."""
    index = index_of_holding(path, [mount.point for mount in mounts])
    return None if index is None else mounts[index]


def index_of_holding(path: str, points: Sequence[str]) -> int | None:
    """Which of these mount points, in the order of the kernel, a path without symlinks is on."""
    holding = [
        (len(point), index)
        for index, point in enumerate(points)
        if path == point or path.startswith(point.rstrip("/") + "/")
    ]
    return max(holding)[1] if holding else None


def point_asked(mount: Mount, mounts: Iterable[Mount]) -> str:
    """Where the kubelet asks for the numbers of the filesystem of a mount: cAdvisor (`fs/fs.go`, processMounts) goes by
    the first mount of a source. Here the first one that shows most of the filesystem, as a container sees bind mounts
    before it.
    """
    same = [other for other in mounts if other.device == mount.device]
    return min(same, key=lambda other: len(other.root), default=mount).point


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


def _unescaped(text: str) -> str:
    for code, character in _ESCAPES:
        text = text.replace(code, character)
    return text
