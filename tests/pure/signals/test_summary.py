"""One observation of the node: its signals, what is stale, what is missing, and the layout."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from signals.filesystems import FilesystemPaths, FilesystemReader, Reading
from signals.interval import WatchedLevels
from signals.samplers import Sample, Samplers
from signals.summary import (
    NodeSummary,
    PublishedReadings,
    answered,
    asked,
    observations_of,
    signals_of,
)
from signals.types import (
    KUBELET_ROLES,
    FilesystemIdentity,
    FilesystemRole,
    FsLayout,
    FsStats,
    Poll,
    Signal,
)
from tests.pure.values import GIB, SteppedClock, on_new_thread

DISK_A, DISK_B = 0x801, 0x802
NODE, IMAGES = "/node", "/images"


class Disks:
    """A reader of filesystems in memory: path -> device, and device ->
    available bytes; a path may fail.
    """

    def __init__(self, devices: dict[str, int]):
        self.devices = devices
        self.available: dict[int, int] = dict.fromkeys(devices.values(), 5 * GIB)
        self.capacity = 10 * GIB
        self.inodes_total = 1000
        self.failing: set[str] = set()
        self.reads: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self, path: str, now: float) -> Reading:
        """One reading, during which `meanwhile` happens.

        Raises OSError if the path fails or does not exist.
        """
        self.reads.append(path)
        self.meanwhile()
        if path in self.failing:
            raise OSError(5, "Input/output error")
        device = self.devices.get(path)
        if device is None:
            raise FileNotFoundError(2, "No such file or directory")
        available = self.available.setdefault(device, 5 * GIB)
        return Reading(
            FsStats(
                available,
                available + 1,
                self.capacity,
                min(400, self.inodes_total),
                self.inodes_total,
                now,
            ),
            device,
        )


def node(disks: FilesystemReader, clock: SteppedClock, imagefs: str | None = IMAGES) -> NodeSummary:
    """A summary of a node whose kubelet is at /node and whose images and layers
    are at `imagefs`.
    """
    return NodeSummary(
        FilesystemPaths(NODE, imagefs, imagefs), Samplers(clock, disks, on_new_thread), clock
    )


def test_an_observation_turns_two_filesystems_into_six_signals() -> None:
    """Each role has bytes and inodes; the time is that of the reading."""
    clock = SteppedClock(at=50.0)
    disks = Disks({NODE: DISK_A, IMAGES: DISK_B})
    disks.available[DISK_B] = 2 * GIB
    seen = node(disks, clock).observe()
    assert {signal: (o.available, o.capacity) for signal, o in seen.signals.items()} == {
        Signal.NODEFS_AVAILABLE: (5 * GIB, 10 * GIB),
        Signal.NODEFS_INODES_FREE: (400, 1000),
        Signal.IMAGEFS_AVAILABLE: (2 * GIB, 10 * GIB),
        Signal.IMAGEFS_INODES_FREE: (400, 1000),
        Signal.CONTAINERFS_AVAILABLE: (2 * GIB, 10 * GIB),
        Signal.CONTAINERFS_INODES_FREE: (400, 1000),
    }
    assert {o.time for o in seen.signals.values()} == {50.0}
    assert seen.layout is FsLayout.DEDICATED_IMAGEFS
    assert seen.unavailable == ()
    assert sorted(disks.reads) == [IMAGES, NODE]  # each path once, though /images has two roles


def test_two_paths_on_one_filesystem_have_the_numbers_of_the_later_reading() -> None:
    """A fill between the two readings must not make the signals of one filesystem differ."""
    readings: PublishedReadings = {}
    for path, available, at in ((IMAGES, 4 * GIB, 50.0), (NODE, 3 * GIB, 50.25)):
        reading = Reading(FsStats(available, available, 10 * GIB, 400, 1000, at), DISK_A)
        readings = answered(readings, Sample(path, at, reading, FilesystemIdentity(path, DISK_A)))
    seen = observations_of(
        FilesystemPaths(NODE, IMAGES, IMAGES), readings, 51.0, wall=0.0, imagefs_problem=""
    )
    assert {o.available for s, o in seen.signals.items() if str(s).endswith(".available")} == {
        3 * GIB
    }
    assert {o.time for o in seen.signals.values()} == {50.25}


def test_two_sizes_on_one_device_are_two_numbers() -> None:
    """A project quota answers `statvfs` for its directory alone, on the
    device of the whole filesystem.
    """
    sizes = {NODE: 10 * GIB, IMAGES: 2 * GIB}

    def read(path: str, now: float) -> Reading:
        return Reading(
            FsStats(sizes[path] // 2, sizes[path] // 2, sizes[path], 10, 20, now), DISK_A
        )

    seen = node(read, SteppedClock()).observe()
    assert seen.signals[Signal.IMAGEFS_AVAILABLE].available == GIB
    assert seen.signals[Signal.NODEFS_AVAILABLE].available == 5 * GIB


def test_a_filesystem_that_counts_no_inodes_has_no_inode_signal() -> None:
    """On btrfs `f_files` is 0: there is no signal, rather than one with 0 % free."""
    disks = Disks({NODE: DISK_A})
    disks.inodes_total = 0
    seen = node(disks, SteppedClock(), imagefs=NODE).observe()
    assert set(seen.signals) == {
        Signal.NODEFS_AVAILABLE,
        Signal.IMAGEFS_AVAILABLE,
        Signal.CONTAINERFS_AVAILABLE,
    }


@pytest.mark.parametrize(
    ("role", "inodes_total", "names"),
    [
        (FilesystemRole.NODEFS, 10, {"nodefs.available", "nodefs.inodesFree"}),
        (FilesystemRole.IMAGEFS, 10, {"imagefs.available", "imagefs.inodesFree"}),
        (FilesystemRole.CONTAINERFS, 10, {"containerfs.available", "containerfs.inodesFree"}),
        (FilesystemRole.IMAGEFS, 0, {"imagefs.available"}),
    ],
)
def test_the_signals_of_a_role_carry_its_name(
    role: FilesystemRole, inodes_total: int, names: set[str]
) -> None:
    """Available counts `f_bavail`, not `f_bfree`; both signals name their filesystem."""
    where = FilesystemIdentity("/x", DISK_A)
    found = signals_of(role, where, FsStats(1, 2, 3, 4, inodes_total, 7.0), stale=True)
    assert {str(signal) for signal in found} == names
    assert found[Signal(f"{role}.available")].available == 1
    assert all(o.filesystem is where and o.stale and o.time == 7.0 for o in found.values())


def test_a_reading_that_fails_keeps_the_last_numbers_marked_stale() -> None:
    """10 s later the images cannot be read: their last numbers stay, stale, with their old
    time and a reason, until they are read again."""
    paths = FilesystemPaths(NODE, IMAGES, IMAGES)
    readings: PublishedReadings = {}
    for path, device, at in ((NODE, DISK_A, 50.0), (IMAGES, DISK_B, 50.0), (NODE, DISK_A, 60.0)):
        readings = answered(readings, sample_of(path, device, at))
    failed = answered(readings, Sample(IMAGES, 60.0, problem="/images: Input/output error"))
    seen = observations_of(paths, failed, 60.0, wall=0.0, imagefs_problem="")
    images, nodefs = seen.signals[Signal.IMAGEFS_AVAILABLE], seen.signals[Signal.NODEFS_AVAILABLE]
    assert (images.stale, images.available, images.time) == (True, 5 * GIB, 50.0)
    assert (nodefs.stale, nodefs.time) == (False, 60.0)
    assert [(u.role, u.reason) for u in seen.unavailable] == [
        (FilesystemRole.IMAGEFS, "/images: Input/output error"),
        (FilesystemRole.CONTAINERFS, "/images: Input/output error"),
    ]
    assert seen.layout is FsLayout.DEDICATED_IMAGEFS
    again = answered(failed, sample_of(IMAGES, DISK_B, 61.0))
    seen = observations_of(paths, again, 61.0, wall=0.0, imagefs_problem="")
    assert not any(observation.stale for observation in seen.signals.values())
    assert seen.unavailable == ()


@pytest.mark.regression
def test_a_filesystem_that_does_not_answer_for_two_seconds_is_stale_and_no_other_one_is() -> None:
    """Its last numbers stay; the first question that was not answered counts; with an
    answer it is fresh again.
    """
    paths = FilesystemPaths(NODE, IMAGES, IMAGES)
    readings: PublishedReadings = {}
    for path, device in ((NODE, DISK_A), (IMAGES, DISK_B)):
        readings = answered(asked(readings, [path], 50.0), sample_of(path, device, 50.0))
    readings = asked(readings, [NODE, IMAGES], 60.0)
    readings = answered(readings, sample_of(NODE, DISK_A, 60.0))
    readings = asked(readings, [IMAGES], 61.0)
    for now, problems in (
        (61.999, set()),
        (62.0, {"/images: the filesystem did not answer statvfs within 2 s"}),
    ):
        seen = observations_of(paths, readings, now, wall=0.0, imagefs_problem="")
        assert {each.reason for each in seen.unavailable} == problems
        assert seen.signals[Signal.IMAGEFS_AVAILABLE].stale is bool(problems)
        assert (seen.signals[Signal.NODEFS_AVAILABLE].stale, seen.layout) == (
            False,
            FsLayout.DEDICATED_IMAGEFS,
        )
    seen = observations_of(
        paths,
        answered(readings, sample_of(IMAGES, DISK_B, 62.5)),
        63.0,
        wall=0.0,
        imagefs_problem="",
    )
    assert (seen.signals[Signal.IMAGEFS_AVAILABLE].stale, seen.unavailable) == (False, ())


def test_what_was_never_read_is_no_signal_until_it_is() -> None:
    """Whether an answer is awaited or not."""
    paths = FilesystemPaths(NODE, NODE, NODE)
    assert observations_of(paths, {}, 1.0, wall=0.0, imagefs_problem="").signals == {}
    seen = observations_of(paths, asked({}, [NODE], 1.0), 1.0, wall=0.0, imagefs_problem="")
    assert {each.reason for each in seen.unavailable} == {"/node: it has not been read yet"}


def sample_of(path: str, device: int, now: float) -> Sample:
    """A reading of 5 GiB available of 10."""
    return Sample(path, now, Reading(FsStats(5 * GIB, 5 * GIB, 10 * GIB, 400, 1000, now), device))


def test_without_earlier_numbers_a_signal_is_left_out() -> None:
    """A filesystem that never answered has no signal, only a reason; the layout stays unknown."""
    disks = Disks({NODE: DISK_A, IMAGES: DISK_B})
    disks.failing.add(NODE)
    seen = node(disks, SteppedClock()).observe()
    assert Signal.NODEFS_AVAILABLE not in seen.signals
    assert Signal.IMAGEFS_AVAILABLE in seen.signals
    assert [u.role for u in seen.unavailable] == [FilesystemRole.NODEFS]
    assert seen.layout is None


def test_until_the_runtime_says_where_images_are_the_layout_is_unknown() -> None:
    """nodefs alone is read; imagefs and containerfs are unavailable with the
    reason that was set.
    """
    summary = node(Disks({NODE: DISK_A}), SteppedClock(), imagefs=None)
    seen = summary.observe()
    assert set(seen.signals) == {Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE}
    assert seen.layout is None
    assert [(u.role, u.reason) for u in seen.unavailable] == [
        (FilesystemRole.IMAGEFS, "the container runtime has not said where its images are"),
        (FilesystemRole.CONTAINERFS, "the container runtime has not said where its images are"),
    ]


def test_the_layout_changes_when_a_mount_changes() -> None:
    """A disk that is mounted for the images makes the layout dedicated at the next
    observation; unmounted, single.
    """
    disks = Disks({NODE: DISK_A, IMAGES: DISK_A})
    summary = node(disks, SteppedClock())
    layouts = []
    for device in (DISK_A, DISK_B, DISK_A):
        disks.devices[IMAGES] = device
        layouts.append(summary.observe().layout)
    assert layouts == [FsLayout.SINGLE, FsLayout.DEDICATED_IMAGEFS, FsLayout.SINGLE]


def test_writable_layers_with_the_kubelets_data_are_the_split_layout() -> None:
    """Images alone on a disk, layers on the kubelet's."""
    clock, disks = SteppedClock(), Disks({NODE: DISK_A, IMAGES: DISK_B, "/layers": DISK_A})
    summary = NodeSummary(
        FilesystemPaths(NODE, IMAGES, "/layers"), Samplers(clock, disks, on_new_thread), clock
    )
    assert summary.observe().layout is FsLayout.SPLIT


def test_numbers_of_paths_that_were_replaced_are_forgotten() -> None:
    """A path that is no longer observed leaves no stale numbers behind."""
    clock, disks = SteppedClock(), Disks({NODE: DISK_A, IMAGES: DISK_B})
    summary = node(disks, clock)
    summary.observe()
    summary.locate(FilesystemPaths(NODE, "/elsewhere", "/elsewhere"))
    seen = summary.observe()
    assert summary.paths.imagefs == "/elsewhere"
    assert Signal.IMAGEFS_AVAILABLE not in seen.signals
    assert seen.layout is None
    assert seen.unavailable[0].reason == "/elsewhere: cannot be read: No such file or directory"


def test_paths_that_are_set_during_an_observation_count_from_the_next_one() -> None:
    """The runtime says where its images are while nodefs is read: this
    observation is made without them.
    """
    disks = Disks({NODE: DISK_A, IMAGES: DISK_B})
    summary = node(disks, SteppedClock(), imagefs=None)
    disks.meanwhile = lambda: summary.locate(FilesystemPaths(NODE, IMAGES, IMAGES))
    seen = summary.observe()
    assert set(seen.signals) == {Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE}
    assert seen.layout is None
    assert [u.role for u in seen.unavailable] == [
        FilesystemRole.IMAGEFS,
        FilesystemRole.CONTAINERFS,
    ]
    assert summary.observe().layout is FsLayout.DEDICATED_IMAGEFS


def test_capacity_is_read_anew_for_each_observation() -> None:
    """A percentage follows a filesystem that grows.

    An observation holds the readings themselves too, by role.
    """
    clock, disks = SteppedClock(at=5.0), Disks({NODE: DISK_A})
    summary = node(disks, clock, imagefs=NODE)
    assert summary.observe().signals[Signal.NODEFS_AVAILABLE].capacity == 10 * GIB
    disks.available[DISK_A], disks.capacity = 3 * GIB, 20 * GIB
    assert summary.observe().signals[Signal.NODEFS_AVAILABLE].capacity == 20 * GIB
    clock.step(1.0)
    identity, reading = summary.observe().filesystems[FilesystemRole.IMAGEFS]
    assert (identity.path, identity.device_id, reading.available_bytes, reading.time) == (
        NODE,
        DISK_A,
        3 * GIB,
        6.0,
    )


def test_what_one_path_of_a_filesystem_has_polled_counts_for_all_its_roles() -> None:
    """One of the paths is polled, and that the other one is read later loses
    nothing, whoever observes.
    """
    disks, clock, polled = (
        Disks({NODE: DISK_A, IMAGES: DISK_A}),
        SteppedClock(at=50.0),
        threading.Event(),
    )
    samplers = Samplers(clock, disks, on_new_thread)
    summary = NodeSummary(FilesystemPaths(NODE, IMAGES, IMAGES), samplers, clock)
    assert set(summary.observe().polls.values()) == {()}
    disks.available[DISK_A] = 4 * GIB
    samplers.watch(IMAGES, WatchedLevels((5 * GIB, None), (1.0, 1.0), 1.0, 1.0), polled.set)
    assert polled.wait(60.0)
    clock.step(1.0)
    for _ in ("a check", "the loop"):
        assert summary.observe().polls == dict.fromkeys(KUBELET_ROLES, (Poll(50.0, 4 * GIB, 400),))
    samplers.close()
