"""What of the numbers of a filesystem can jump, and which mount options matter, by its type: a table.

A number *jumps* where `statvfs` changes by more than was written or removed. Sources: the kernel's
`Documentation/admin-guide/xfs.rst` (allocsize), `fs/xfs/libxfs/xfs_bmap.c` (xfs_bmap_worst_indlen),
`Documentation/filesystems/ext4/` and `Documentation/admin-guide/ext4.rst` (delalloc),
https://btrfs.readthedocs.io/en/latest/ (btrfs-filesystem: df, usage), `Documentation/filesystems/tmpfs.rst`.

Covers: facts. Does not cover: what to do about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from signals.mounts import Mount


@dataclass(frozen=True, slots=True)
class Traits:
    """One type of filesystem. `jumps`: what of its numbers can jump or deceive, a phrase each; none: nothing does.

    `note`: what else one has to know to read its numbers. `options`: the mount options that matter for its numbers,
    besides `ro`. `instead`: the phrase in place of the first of `jumps` where an option is set.
    """

    jumps: tuple[str, ...] = ()
    note: str = ""
    options: tuple[str, ...] = ()
    instead: Mapping[str, str] = field(default_factory=dict)


PROJECT_QUOTA = ("prjquota", "pquota")
_EXT = Traits(
    note="delayed allocation is taken off the free space at once",
    options=("nodelalloc", *PROJECT_QUOTA),
)
TRAITS: Mapping[str, Traits] = {
    "ext2": Traits(),
    "ext3": _EXT,
    "ext4": _EXT,
    "xfs": Traits(
        jumps=(
            "speculative preallocation takes up to as much again as a growing file has, and gives it back later",
            "small files take more than twice their size until they are written back",
            "the inode total follows the free space",
        ),
        options=("allocsize", *PROJECT_QUOTA),
        instead={"allocsize": "speculative preallocation takes allocsize behind a growing file, given back later"},
    ),
    "btrfs": Traits(
        jumps=(
            "what is written is taken off late, with its writeback, and what is removed comes back late, with a commit",
            "space is given out in chunks",
        ),
        note="it counts no inodes; metadata can be full while bytes are available",
        options=("compress", "compress-force", "discard", "nodatacow"),
    ),
    "tmpfs": Traits(
        jumps=("what is available is memory and swap, which others can use up first",),
        options=("size", "nr_inodes"),
    ),
}
"""By the type that the kernel's table of mounts says."""


def traits_of(kind: str) -> Traits | None:
    """The traits of a type; None where they are not known here."""
    return TRAITS.get(kind)


def jumps_of(kind: str, options: Iterable[str]) -> tuple[str, ...] | None:
    """What of the numbers can jump with these mount options; None where the type is not known here."""
    traits = traits_of(kind)
    if traits is None:
        return None
    names = {option.partition("=")[0] for option in options}
    changed = [phrase for option, phrase in traits.instead.items() if option in names]
    return (*changed, *traits.jumps[1:]) if changed else traits.jumps


def options_that_matter(mount: Mount) -> tuple[str, ...]:
    """Of the options of a mount those that matter for its numbers, as the kernel's table has them."""
    traits = traits_of(mount.type) or Traits()
    names = {"ro", *traits.options}
    return tuple(option for option in mount.options if option.partition("=")[0] in names)


def project_quota(mount: Mount) -> str | None:
    """The option by which project quotas are on, or None."""
    return next((name for name in PROJECT_QUOTA if mount.option(name) is not None), None)
