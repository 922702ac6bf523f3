"""Which filesystem is nodefs, imagefs and containerfs, and which layout they form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signals.filesystems import FilesystemPaths, describe, layout_of, paths_of_node
from signals.types import KUBELET_SIGNALS, FilesystemRole, FsLayout, Signal, in_order

DISK_A, DISK_B, DISK_C = 0x801, 0x802, 0x803


@pytest.mark.parametrize(
    ("nodefs", "imagefs", "containerfs", "layout"),
    [
        (DISK_A, DISK_A, DISK_A, FsLayout.SINGLE),
        (DISK_A, DISK_B, DISK_B, FsLayout.DEDICATED_IMAGEFS),
        (DISK_A, DISK_B, DISK_A, FsLayout.SPLIT),
        # HasDedicatedImageFs: the numbers of the two differ
        (DISK_A, DISK_A, DISK_B, FsLayout.SPLIT),
        (DISK_A, DISK_B, DISK_C, FsLayout.SPLIT),
    ],
)
@pytest.mark.regression
def test_the_layout_follows_from_the_devices(
    nodefs: int, imagefs: int, containerfs: int, layout: FsLayout
) -> None:
    """Apart from images, writable layers make it split, wherever the kubelet's data is."""
    assert layout_of(nodefs, imagefs, containerfs) is layout


@given(st.integers(), st.integers(), st.integers(), st.integers())
def test_only_the_equality_of_devices_matters(
    nodefs: int, imagefs: int, containerfs: int, offset: int
) -> None:
    """The numbers of the devices mean nothing by themselves."""
    assert layout_of(nodefs, imagefs, containerfs) is layout_of(
        nodefs + offset, imagefs + offset, containerfs + offset
    )


@pytest.mark.parametrize(
    ("images", "containers", "imagefs", "containerfs"),
    [
        ([], [], None, None),
        (["/i"], [], "/i", "/i"),
        (["/i"], ["/c"], "/i", "/c"),
        (["/i", "/j"], ["/c", "/d"], "/i", "/c"),
        ([""], [""], None, None),
        (["", "/i"], ["", "/c"], "/i", "/c"),
        ([], ["/c"], None, "/c"),
    ],
)
def test_the_first_mount_point_of_each_list_counts(
    images: list[str], containers: list[str], imagefs: str | None, containerfs: str | None
) -> None:
    """Without a container filesystem of its own the writable layers are where the images are."""
    assert paths_of_node("/var/lib/kubelet", images, containers) == FilesystemPaths(
        "/var/lib/kubelet", imagefs, containerfs
    )


@pytest.mark.parametrize(
    ("paths", "distinct"),
    [
        (FilesystemPaths("/k"), {"/k"}),
        (FilesystemPaths("/k", "/i", "/i"), {"/k", "/i"}),
        (FilesystemPaths("/k", "/i", "/c"), {"/k", "/i", "/c"}),
        (FilesystemPaths("/k", "/k", "/k"), {"/k"}),
    ],
)
def test_each_path_is_read_once(paths: FilesystemPaths, distinct: set[str]) -> None:
    """Roles that share a path share a reading; a path that is not known is not read."""
    assert paths.distinct() == distinct


@pytest.mark.parametrize(
    ("signal", "role", "counts_inodes"),
    [
        (Signal.NODEFS_AVAILABLE, FilesystemRole.NODEFS, False),
        (Signal.NODEFS_INODES_FREE, FilesystemRole.NODEFS, True),
        (Signal.IMAGEFS_AVAILABLE, FilesystemRole.IMAGEFS, False),
        (Signal.IMAGEFS_INODES_FREE, FilesystemRole.IMAGEFS, True),
        (Signal.CONTAINERFS_AVAILABLE, FilesystemRole.CONTAINERFS, False),
        (Signal.CONTAINERFS_INODES_FREE, FilesystemRole.CONTAINERFS, True),
    ],
)
def test_a_signal_is_about_one_filesystem_in_one_unit(
    signal: Signal, role: FilesystemRole, counts_inodes: bool
) -> None:
    """Six signals: bytes and inodes of three filesystems."""
    assert (signal.filesystem, signal.counts_inodes) == (role, counts_inodes)


@pytest.mark.parametrize(
    "name",
    ["nodefs.inodesfree", "Nodefs.available", "nodefs.available ", "nodefs", ".available", ""],
)
def test_signal_names_are_compared_byte_for_byte(name: str) -> None:
    """A name that is not exactly of the kubelet's form is no signal."""
    with pytest.raises(
        ValueError,
        match=r"is not a signal; a signal ends with|is not a filesystem name; allowed are",
    ):
        Signal(name)


def test_there_is_one_object_of_each_signal_and_role() -> None:
    """So `is` compares them, also those that the configuration adds."""
    assert Signal("nodefs.available") is Signal.NODEFS_AVAILABLE
    assert Signal("buildcache.inodesFree") is Signal("buildcache.inodesFree")
    assert Signal("buildcache.inodesFree").filesystem is FilesystemRole("buildcache")
    assert Signal("buildcache.inodesFree").counts_inodes
    assert not FilesystemRole("buildcache").kubelets


def test_signals_are_ordered_with_the_kubelets_first() -> None:
    """The kubelet's in its order, the others by name, bytes before inodes."""
    own = [
        Signal(f"{role}.{unit}") for role in ("aaa", "zzz") for unit in ("available", "inodesFree")
    ]
    assert in_order([*reversed(own), *reversed(KUBELET_SIGNALS)]) == (*KUBELET_SIGNALS, *own)


@pytest.mark.parametrize("path", ["relative", ""])
def test_describing_a_mount_never_fails(path: str) -> None:
    """Whatever the path, the texts are there, and may be empty."""
    mount = describe(path, 7)
    assert (mount.path, mount.device_id) == (path, 7)
    assert all(isinstance(text, str) for text in (mount.device, mount.type, mount.mount_point))
