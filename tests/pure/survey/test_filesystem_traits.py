"""What of a filesystem's numbers can jump, and which of its mount options are named."""

from __future__ import annotations

import pytest

from eviction.survey.filesystem_facts import (
    TRAITS,
    project_quota_sentence,
    traits_of,
)
from signals.mounts import Mount
from tests.pure.values import observations_of


def mounted(kind: str, *options: str) -> Mount:
    return Mount("/data", "8:1", kind, "/dev/sda1", options)


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [
        ("ext4", ("rw", "relatime", "nodelalloc", "prjquota"), ("nodelalloc", "prjquota")),
        ("ext4", ("ro", "relatime"), ("ro",)),
        ("xfs", ("rw", "allocsize=64k", "noquota", "pquota"), ("allocsize=64k", "pquota")),
        (
            "btrfs",
            ("rw", "compress=zstd:3", "discard=async", "space_cache=v2"),
            ("compress=zstd:3", "discard=async"),
        ),
        (
            "tmpfs",
            ("rw", "size=16384k", "nr_inodes=4000", "mode=755"),
            ("size=16384k", "nr_inodes=4000"),
        ),
        ("zfs", ("ro", "size=1"), ("ro",)),
    ],
)
def test_the_options_that_matter_are_named_and_no_others(
    kind: str, options: tuple[str, ...], named: tuple[str, ...]
) -> None:
    """With their values; read-only matters everywhere, also where nothing else is known."""
    assert traits_of(mounted(kind, *options)).options == named


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("prjquota",), "are on (prjquota): "),
        (("pquota",), "are on (pquota): "),
        (("noquota", "usrquota"), None),
    ],
)
def test_project_quotas_show_in_the_options(options: tuple[str, ...], said: str | None) -> None:
    """Those of users and groups do not change what statvfs says of a directory."""
    sentence = project_quota_sentence(mounted("xfs", *options), observations_of(), ())
    assert said in sentence if said else sentence == ""


def test_a_fixed_preallocation_jumps_by_what_was_fixed() -> None:
    """Not by as much as the file has; the rest stays."""
    free, *others = traits_of(mounted("xfs", "rw")).jumps or ()
    fixed, *same = traits_of(mounted("xfs", "rw", "allocsize=64k")).jumps or ()
    assert "as much again" in free
    assert "allocsize" in fixed
    assert same == others
    assert traits_of(mounted("ext4", "allocsize=1")).jumps == ()
    assert traits_of(mounted("zfs")).jumps is None


def test_what_jumps_is_known_of_the_types_of_a_node_only() -> None:
    """XFS, btrfs and tmpfs deceive, ext4 does not; of others nothing is claimed."""
    assert {kind for kind, traits in TRAITS.items() if traits.jumps} == {"xfs", "btrfs", "tmpfs"}
    assert "zfs" not in TRAITS
