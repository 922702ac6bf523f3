"""The thresholds of containerfs are derived from those of the filesystem with the writable layers.

Source: kubelet, `pkg/kubelet/eviction/helpers.go` (UpdateContainerFsThresholds).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.synchronize import EvictionConfig
from eviction.decision.thresholds import update_container_fs_thresholds
from eviction.types import Threshold
from signals.types import KUBELET_SIGNALS, FilesystemRole, FsLayout, Signal
from tests.pure.values import threshold

NODEFS, NODEFS_INODES = Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE
IMAGEFS, IMAGEFS_INODES = Signal.IMAGEFS_AVAILABLE, Signal.IMAGEFS_INODES_FREE
CONTAINERFS, CONTAINERFS_INODES = Signal.CONTAINERFS_AVAILABLE, Signal.CONTAINERFS_INODES_FREE
SOURCES = [
    (FsLayout.SINGLE, NODEFS, NODEFS_INODES),
    (FsLayout.SPLIT, NODEFS, NODEFS_INODES),
    (FsLayout.DEDICATED_IMAGEFS, IMAGEFS, IMAGEFS_INODES),
]
ALL = (
    threshold(NODEFS, "10%", min_reclaim="1Gi"),
    threshold(NODEFS_INODES, "11%", min_reclaim="2k"),
    threshold(IMAGEFS, "15%", min_reclaim="3Gi"),
    threshold(IMAGEFS_INODES, "16%", min_reclaim="4k"),
    threshold(NODEFS, "20%", grace_seconds=60.0, min_reclaim="1Gi"),
    threshold(NODEFS_INODES, "21%", grace_seconds=61.0),
    threshold(IMAGEFS, "25%", grace_seconds=62.0, min_reclaim="3Gi"),
    threshold(IMAGEFS_INODES, "26%", grace_seconds=63.0),
)


def derived(thresholds: tuple[Threshold, ...], layout: FsLayout) -> list[Threshold]:
    """The thresholds of containerfs after the override."""
    found = update_container_fs_thresholds(thresholds, layout)
    return [one for one in found if one.signal.filesystem is FilesystemRole.CONTAINERFS]


def content(one: Threshold) -> tuple[object, ...]:
    """All but signal and origin."""
    return one.value, one.grace_seconds, one.min_reclaim, one.margin


@pytest.mark.parametrize(("layout", "space", "inodes"), SOURCES)
def test_update_container_fs_thresholds_copies_by_unit_and_hardness(
    layout: FsLayout, space: Signal, inodes: Signal
) -> None:
    """Value, minimum reclaim and grace of nodefs, or of imagefs where it is dedicated:
    four entries, hard first.
    """
    found = derived(ALL, layout)
    sources = [
        next(one for one in ALL if one.signal is signal and one.hard is hard)
        for hard in (True, False)
        for signal in (space, inodes)
    ]
    assert [one.signal for one in found] == [CONTAINERFS, CONTAINERFS_INODES] * 2
    assert [content(one) for one in found] == [content(source) for source in sources]
    assert [one.origin for one in found] == [f"derived from {source.signal}" for source in sources]


@pytest.mark.parametrize("layout", FsLayout)
def test_update_container_fs_thresholds_leaves_the_others_as_they_are(layout: FsLayout) -> None:
    """They come first, in their order."""
    assert update_container_fs_thresholds(ALL, layout)[: len(ALL)] == ALL


@pytest.mark.parametrize(("layout", "space", "inodes"), SOURCES)
def test_update_container_fs_thresholds_overrides_what_a_user_set(
    layout: FsLayout, space: Signal, inodes: Signal
) -> None:
    """A user's entry is replaced where there is something to copy."""
    users = (threshold(CONTAINERFS, "50%"), threshold(CONTAINERFS_INODES, "51%", grace_seconds=5.0))
    source = threshold(space, "10%", min_reclaim="1Gi")
    assert [content(one) for one in derived((*users, source), layout)] == [content(source)]


@pytest.mark.parametrize("layout", FsLayout)
def test_update_container_fs_thresholds_drops_a_users_entry_where_there_is_nothing_to_copy(
    layout: FsLayout,
) -> None:
    """The kubelet leaves an entry that can never be met; leaving it out is the same."""
    users = (threshold(CONTAINERFS, "50%"), threshold(CONTAINERFS_INODES, "51%", grace_seconds=5.0))
    assert update_container_fs_thresholds(users, layout) == ()
    other = threshold(NODEFS if layout is FsLayout.DEDICATED_IMAGEFS else IMAGEFS, "10%")
    assert update_container_fs_thresholds((*users, other), layout) == (other,)


def test_update_container_fs_thresholds_takes_the_last_of_several() -> None:
    """Two hard entries on one signal: the later one."""
    first, last = threshold(NODEFS, "10%"), threshold(NODEFS, "1Gi")
    assert [content(one) for one in derived((first, last), FsLayout.SINGLE)] == [content(last)]
    assert [content(one) for one in derived((last, first), FsLayout.SINGLE)] == [content(first)]


def test_a_soft_threshold_with_a_grace_of_0_counts_as_hard() -> None:
    """A hard threshold is one with a grace of 0."""
    hard, soft = threshold(NODEFS, "10%"), threshold(NODEFS, "20%", grace_seconds=0.0)
    assert [content(one) for one in derived((hard, soft), FsLayout.SINGLE)] == [content(soft)]


def test_as_long_as_the_layout_is_unknown_nothing_is_derived() -> None:
    """The list is the one configured."""
    assert EvictionConfig(ALL).in_layout(None) == ALL
    assert EvictionConfig(ALL).in_layout(FsLayout.SINGLE) == update_container_fs_thresholds(
        ALL, FsLayout.SINGLE
    )


anything = st.lists(
    st.builds(
        threshold,
        st.sampled_from(KUBELET_SIGNALS),
        st.sampled_from(["1Gi", "10%"]),
        grace_seconds=st.sampled_from([0.0, 60.0]),
    ),
    max_size=8,
).map(tuple)


@given(anything, st.sampled_from(FsLayout))
def test_deriving_again_changes_nothing(
    thresholds: tuple[Threshold, ...], layout: FsLayout
) -> None:
    """The derived entries are themselves a user's entries to the next derivation."""
    once = update_container_fs_thresholds(thresholds, layout)
    assert update_container_fs_thresholds(once, layout) == once
