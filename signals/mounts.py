"""The kernel's mount table: which mount holds a path, and which filesystem a file is on.

Source: proc(5), `/proc/pid/mountinfo`; the kernel's `Documentation/filesystems/proc.rst`, 3.5. What
the options mean is in `eviction.survey.filesystem_facts`.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from signals.open_files import text_of

MOUNTS = "/proc/self/mountinfo"
_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One mount.

    `device`: the filesystem's `major:minor`, which on btrfs is not the `st_dev` of its files.
    `source`: what is mounted, such as `/dev/sda2`. `options`: those of the mount and of the
    filesystem, without duplicates. `root`: the directory of the filesystem that is mounted.
    """

    point: str
    device: str
    type: str
    source: str
    options: tuple[str, ...]
    root: str = "/"

    def option(self, name: str) -> str | None:
        """The value of `name=value`; empty for an option without a value, None if it is not set."""
        for option in self.options:
            key, _, value = option.partition("=")
            if key == name:
                return value
        return None


def parse_mountinfo(lines: Iterable[str]) -> tuple[Mount, ...]:
    """The mounts in the lines of a `mountinfo` file; malformed lines are skipped."""
    mounts = []
    for line in lines:
        fields = line.rstrip("\n").split(" ")
        try:
            end = fields.index("-", 6)
            kind, source, of_filesystem = fields[end + 1 : end + 4]
        except ValueError:
            continue
        options = dict.fromkeys([*fields[5].split(","), *of_filesystem.split(",")])
        # Read-only if either the mount or the filesystem is: the other one still says `rw`.
        if "ro" in options:
            options.pop("rw", None)
        mounts.append(
            Mount(
                point=_unescaped(fields[4]),
                device=fields[2],
                type=kind,
                source=_unescaped(source),
                options=tuple(map(_unescaped, options)),
                root=_unescaped(fields[3]),
            )
        )
    return tuple(mounts)


def mount_holding(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that holds a path without symlinks: the deepest, the last on one point.

    `mounts`: in the kernel's order.
    """
    holding = [
        mount
        for mount in reversed(mounts)
        if path == mount.point or path.startswith(f"{mount.point.rstrip('/')}/")
    ]
    return max(holding, key=lambda mount: len(mount.point), default=None)


def point_asked(mount: Mount, mounts: Iterable[Mount]) -> str:
    """Where the kubelet reads the numbers of a mount's filesystem. cAdvisor (`fs/fs.go`,
    processMounts) uses the first mount of a source. This uses the first one that shows most of the
    filesystem, because a container sees bind mounts before it."""
    same = [other for other in mounts if other.device == mount.device]
    return min(same, key=lambda other: len(other.root), default=mount).point


def read_mounts(table: str = MOUNTS) -> tuple[Mount, ...]:
    """The mounts that this process sees, in the kernel's order; none if unreadable."""
    return parse_mountinfo(text_of(table).split("\n"))


def mounts_of(paths: Iterable[str], table: str = MOUNTS) -> dict[str, Mount]:
    """The mount of each path for which one is found.

    Follows symlinks, so it blocks where a path does.
    """
    mounts = read_mounts(table)
    return {
        path: mount
        for path in paths
        if (mount := mount_holding(os.path.realpath(path), mounts)) is not None
    }


def filesystem_of(st_dev: int, path: str, mounts: Sequence[Mount]) -> int:
    """The filesystem of a file as one number, given its `st_dev` and its path without symlinks.

    It is `st_dev` if that is the number of a mounted filesystem. On btrfs it never is, because each
    subvolume has its own `st_dev`; then the mount that holds the path decides, as in cAdvisor
    (`fs/fs.go`, GetDirFsDevice).
    """
    if any(device_of(mount) == st_dev for mount in mounts):
        return st_dev
    mount = mount_holding(path, mounts)
    return st_dev if mount is None else device_of(mount)


def filesystem_id(path: str, table: str = MOUNTS) -> int:
    """The filesystem that a path is on: one number for all subvolumes of a btrfs.

    Raises OSError.
    """
    return filesystem_of(os.stat(path).st_dev, os.path.realpath(path), read_mounts(table))


def device_of(mount: Mount) -> int:
    """The number of the mount's filesystem, in the form of `st_dev`."""
    major, _, minor = mount.device.partition(":")
    return os.makedev(int(major), int(minor))


def overlays_on(filesystem: int, mounts: Sequence[Mount]) -> Iterator[int]:
    """The devices of the overlays whose files are written to this filesystem: their upper directory
    is on it (the kernel's Documentation/filesystems/overlayfs.rst)."""
    # each once, however often it is mounted
    for mount in {mount.device: mount for mount in mounts if mount.type == "overlay"}.values():
        upper = mount.option("upperdir") or ""
        with suppress(OSError):  # it cannot be reached
            if upper.startswith("/") and filesystem == filesystem_of(
                os.stat(upper).st_dev, os.path.realpath(upper), mounts
            ):
                yield device_of(mount)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda code: chr(int(code[1], 8)), text)
