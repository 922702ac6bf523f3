"""What each filesystem of the signals is, and which of its numbers can jump. Decides nothing.

A number *jumps* if `statvfs` changes by more than was written or removed. Sources of `TRAITS`: the
kernel's `Documentation/admin-guide/xfs.rst` (allocsize), `fs/xfs/libxfs/xfs_bmap.c`
(xfs_bmap_worst_indlen), `Documentation/filesystems/ext4/` and `Documentation/admin-guide/ext4.rst`
(delalloc), https://btrfs.readthedocs.io/en/latest/ (btrfs-filesystem: df, usage),
`Documentation/filesystems/tmpfs.rst`.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from eviction.records.json_shapes import Count, Document, RoleName
from signals.mounts import Mount
from signals.quantity import format_bytes
from signals.types import FilesystemRole, SignalObservations


class Traits(NamedTuple):
    """One type of filesystem."""

    jumps: tuple[str, ...] | None = ()
    """Phrases about numbers that can jump or mislead; None if that is not known."""
    note: str = ""
    """What else its numbers mean."""
    options: tuple[str, ...] = ()
    """The mount options that affect its numbers, besides `ro`."""


PROJECT_QUOTA = ("prjquota", "pquota")
_EXT = Traits(
    note="delayed allocation is deducted from the free space at once",
    options=("nodelalloc", *PROJECT_QUOTA),
)
TRAITS: Mapping[str, Traits] = {
    "ext2": Traits(),
    "ext3": _EXT,
    "ext4": _EXT,
    "xfs": Traits(
        jumps=(
            (
                "speculative preallocation takes up to as much again as a growing file has, and"
                " frees it later"
            ),
            "small files take more than twice their size until they are written back",
            "the inode total follows the free space",
        ),
        options=("allocsize", *PROJECT_QUOTA),
    ),
    "btrfs": Traits(
        jumps=(
            (
                "written data is deducted late, at writeback, and removed data is freed late, at a"
                " commit"
            ),
            "space is allocated in chunks",
        ),
        note="it counts no inodes; metadata can be full while bytes are available",
        options=("compress", "compress-force", "discard", "nodatacow"),
    ),
    "tmpfs": Traits(
        jumps=("what is available is memory and swap, which others can use up first",),
        options=("size", "nr_inodes"),
    ),
}
"""By the type in the kernel's table of mounts."""


def traits_of(mount: Mount) -> Traits:
    """What is known of a mount: its type, and of the options only those that it has."""
    traits = TRAITS.get(mount.type, Traits(jumps=None))
    names = ("ro", *traits.options)
    jumps = traits.jumps
    if jumps and mount.type == "xfs" and mount.option("allocsize") is not None:
        jumps = (
            "speculative preallocation takes allocsize behind a growing file, and frees it later",
            *jumps[1:],
        )
    return traits._replace(
        jumps=jumps,
        options=tuple(option for option in mount.options if option.partition("=")[0] in names),
    )


class FilesystemFacts(Document):
    """What a filesystem of the signals is."""

    path: str
    """Where it is mounted, or read."""
    filesystems: tuple[RoleName, ...]
    """Its roles."""
    type: str
    """The kernel's name for its type, such as ext4 or xfs."""
    device: str
    """What is mounted there."""
    reserve: Count
    """Free bytes that no pod can use."""
    options: tuple[str, ...] | None
    """The mount options that affect its numbers; null if they are not known."""
    jumps: tuple[str, ...] | None
    """Which of its numbers can jump, and how; null if that is not known for its type."""
    note: str
    """What else to know about its numbers."""
    quota: str
    """How project quotas affect them, as a sentence; empty if there are none."""

    @property
    def phrase(self) -> str:
        """`jumps`, `note` and `quota` as one phrase."""
        if self.jumps is None:
            return "not known for this type"
        return "; ".join(filter(None, (*(self.jumps or ("nothing",)), self.note, self.quota)))


def paths_that_answer(observations: SignalObservations) -> dict[str, int]:
    """The paths of the filesystems that were read just now, each with its `device_id`; no other
    path is touched, as it may hang.
    """
    stuck = {unavailable.role for unavailable in observations.unavailable}
    return {
        identity.path: identity.device_id
        for role, (identity, _) in observations.filesystems.items()
        if role not in stuck
    }


def roles_by_device(observations: SignalObservations) -> dict[int, tuple[FilesystemRole, ...]]:
    roles: dict[int, tuple[FilesystemRole, ...]] = {}
    for role, (identity, _) in observations.filesystems.items():
        roles[identity.device_id] = (*roles.get(identity.device_id, ()), role)
    return roles


def filesystem_facts(
    observations: SignalObservations, mounts: Mapping[str, Mount]
) -> tuple[FilesystemFacts, ...]:
    """The facts of each device. `mounts`: the known mounts by observed path."""
    facts = []
    for roles in roles_by_device(observations).values():
        identity, stats = observations.filesystems[roles[0]]
        found = mounts.get(identity.path)
        mount = found or Mount("", "", identity.type, source=identity.device, options=())
        traits = traits_of(mount)
        facts.append(
            FilesystemFacts.of(
                mount,
                identity,
                traits,
                filesystems=roles,
                device=mount.source,
                reserve=max(stats.free_bytes - stats.available_bytes, 0),
                options=None if found is None else traits.options,
                quota=project_quota_sentence(mount, observations, roles),
            )
        )
    return tuple(facts)


def project_quota_sentence(
    mount: Mount | None, observations: SignalObservations, roles: Iterable[FilesystemRole]
) -> str:
    """How project quotas affect a filesystem of these roles; empty if there are none."""
    on = [name for name in PROJECT_QUOTA if mount is not None and mount.option(name) is not None]
    within = dict.fromkeys(
        f"{format_bytes(limit.available_bytes)} of {format_bytes(limit.capacity_bytes)} are"
        f" available within that of {observations.filesystems[role][0].path}, which the kubelet"
        " does not look at"
        for role in roles
        if (limit := observations.limits.get(role)) is not None
    )
    if not on and not within:
        return ""
    text = (
        f"project quotas are on{f' ({on[0]})' if on else ''}: a directory can be at its limit while"
        " the filesystem has room, and statvfs in it returns the limit's numbers"
    )
    return "; ".join([text, *within])
