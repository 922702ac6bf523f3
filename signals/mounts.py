"""What is mounted: the lines of the kernel's table of mounts as values.

Source: proc(5), `/proc/pid/mountinfo`; the kernel's `Documentation/filesystems/proc.rst`, 3.5.

Covers: parsing, which mount holds a path, where the kubelet asks for the numbers of a filesystem. Does not cover:
reading the table (`mount_table`), what an option means (`filesystem_traits`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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


def mount_holding(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that a path without symlinks is on: of nested ones the deepest, of several on one point the last."""
    holding = [mount for mount in mounts if path == mount.point or path.startswith(mount.point.rstrip("/") + "/")]
    if not holding:
        return None
    return max(enumerate(holding), key=lambda numbered: (len(numbered[1].point), numbered[0]))[1]


def point_asked(mount: Mount, mounts: Iterable[Mount]) -> str:
    """Where the kubelet asks for the numbers of the filesystem of a mount: cAdvisor (`fs/fs.go`, processMounts) goes by
    the first mount of a source. Here the first one that shows most of the filesystem, as a container sees bind mounts
    before it.
    """
    same = [other for other in mounts if other.device == mount.device]
    return min(same, key=lambda other: len(other.root), default=mount).point


def _unescaped(text: str) -> str:
    for code, character in _ESCAPES:
        text = text.replace(code, character)
    return text
