"""What `check` and `doctor` say of each filesystem, whatever its type and
wherever the roles are.
"""

from __future__ import annotations

import json
from dataclasses import replace

from eviction.records.json_shapes import to_json
from eviction.surface.check import facts_table
from eviction.survey.filesystem_facts import filesystem_facts, paths_that_answer
from signals.mounts import Mount
from signals.types import (
    FilesystemIdentity,
    FilesystemRole,
    FsStats,
    SignalObservations,
    Unavailable,
)
from tests.pure.values import GIB, MIB, observations_of

NODEFS, IMAGEFS, CONTAINERFS = (
    FilesystemRole.NODEFS,
    FilesystemRole.IMAGEFS,
    FilesystemRole.CONTAINERFS,
)


def seen() -> SignalObservations:
    """nodefs and containerfs on an ext4 that reserves 512 MiB, imagefs on an XFS."""
    disk = (
        FilesystemIdentity("/var/lib/kubelet", 1, "/dev/sda1", "ext4"),
        FsStats(GIB, GIB + 512 * MIB, 9 * GIB, 1, 2, 0),
    )
    images = (
        FilesystemIdentity("/images", 2, "/dev/sdb", "xfs"),
        FsStats(GIB, GIB, 9 * GIB, 1, 2, 0),
    )
    return replace(
        observations_of(), filesystems={NODEFS: disk, IMAGEFS: images, CONTAINERFS: disk}
    )


MOUNTS = {
    "/var/lib/kubelet": Mount("/", "8:1", "ext4", "/dev/sda1", ("rw", "relatime")),
    "/images": Mount("/images", "8:16", "xfs", "/dev/sdb", ("rw", "allocsize=64k", "prjquota")),
}


def test_each_filesystem_is_told_once() -> None:
    """With its roles, reserve, the options that matter, what can jump and what
    project quotas do.
    """
    head, disk, images = facts_table(filesystem_facts(seen(), MOUNTS))
    assert head.split() == [
        "FILESYSTEM",
        "TYPE",
        "RESERVE",
        "OPTIONS",
        "WHAT",
        "OF",
        "ITS",
        "NUMBERS",
        "CAN",
        "JUMP",
    ]
    assert (
        disk == "nodefs, containerfs  ext4  512.0MiB  -                       "
        "nothing; delayed allocation is deducted from the free space at once"
    )
    assert images.startswith(
        "imagefs              xfs   0B        allocsize=64k,prjquota  speculative preallocation"
        " takes"
    )
    assert "; project quotas are on (prjquota): a directory can be at its limit" in images


def test_a_type_that_is_not_known_and_a_mount_that_is_not_found() -> None:
    """Nothing is claimed; null in JSON."""
    zfs = FilesystemIdentity("/z", 3, "tank", "zfs"), FsStats(GIB, GIB, 9 * GIB, 1, 2, 0)
    (facts,) = filesystem_facts(replace(observations_of(), filesystems={NODEFS: zfs}), {})
    assert facts_table((facts,))[1].split(maxsplit=4) == [
        "nodefs",
        "zfs",
        "0B",
        "?",
        "not known for this type",
    ]
    assert json.loads(json.dumps(to_json(facts))) == {
        "path": "/z",
        "filesystems": ["nodefs"],
        "type": "zfs",
        "device": "tank",
        "reserve": 0,
        "options": None,
        "jumps": None,
        "note": "",
        "quota": "",
    }
    assert facts_table(()) == []


def test_the_json_has_the_same() -> None:
    """Phrases as lists, options with their values."""
    images = to_json(filesystem_facts(seen(), MOUNTS)[1])
    assert (images["type"], images["options"], images["reserve"]) == (
        "xfs",
        ["allocsize=64k", "prjquota"],
        0,
    )
    assert images["jumps"] is not None
    assert images["jumps"][2] == "the inode total follows the free space"


def test_a_path_that_does_not_answer_is_not_followed() -> None:
    """To look where it leads would block like the reading did."""
    stuck = replace(seen(), unavailable=(Unavailable(IMAGEFS, "no answer within 2 s"),))
    assert tuple(paths_that_answer(seen())) == ("/var/lib/kubelet", "/images")
    assert tuple(paths_that_answer(stuck)) == ("/var/lib/kubelet",)
