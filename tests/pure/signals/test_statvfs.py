"""A filesystem as the kubelet sees it: at its mount point, and as one whatever its subvolumes."""

from __future__ import annotations

import os
import queue
from dataclasses import replace
from pathlib import Path

import pytest

from eviction.survey.filesystem_facts import filesystem_facts
from signals.filesystems import FilesystemPaths, KubeletsReader, Reading
from signals.interval import WatchedLevels
from signals.mounts import mounts_of
from signals.samplers import Sample, Samplers
from signals.summary import NodeSummary
from signals.types import FilesystemRole, FsLayout, FsStats, Signal
from tests.pure.values import GIB, MIB, SteppedClock, on_new_thread
from tests.reclaimd_process import came_true

DISK = os.makedev(8, 1)
KUBELET, IMAGES, BUILD_CACHE = "/data/kubelet", "/data/images", "/data/build"


class Quotas:
    """A filesystem of 100 GiB at /data, 40 of them available, on which
    directories have project quotas.

    `limits`: what `statvfs` says in a directory, bytes available and in all; everywhere
    else it tells of the disk.
    """

    def __init__(self, limits: dict[str, tuple[int, int]]) -> None:
        self.limits = limits
        self.devices: dict[str, int] = {}
        self.failing: set[str] = set()
        self.disk = (40 * GIB, 100 * GIB)

    def __call__(self, path: str, now: float) -> Reading:
        """One reading. Raises OSError if the path fails."""
        if path in self.failing:
            raise OSError(5, "Input/output error")
        available, capacity = self.limits.get(path, self.disk)
        return Reading(
            FsStats(available, available, capacity, 10, 20, now), self.devices.get(path, DISK)
        )


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table of mounts with that filesystem at /data, and before it a part of
    it as a container sees one.
    """
    path = tmp_path / "mountinfo"
    path.write_text(
        "1 0 0:23 / / rw - tmpfs none rw\n"
        "90 1 8:1 /kubelet/pods/u/hosts /etc/hosts rw - xfs /dev/sda1 rw,prjquota\n"
        "91 1 8:1 / /data rw,relatime - xfs /dev/sda1 rw,prjquota\n"
    )
    return str(path)


def test_a_project_quota_is_not_what_the_kubelet_sees(table: str) -> None:
    """The kubelet asks the mount point: 40 GiB of 100 are available, and the 1 GiB that its
    directory may still write is a remark."""
    reader = KubeletsReader(
        reader=Quotas({KUBELET: (GIB, 10 * GIB), IMAGES: (2 * GIB, 20 * GIB)}), table=table
    )
    clock = SteppedClock()
    summary = NodeSummary(
        FilesystemPaths(KUBELET, IMAGES, IMAGES), Samplers(clock, reader, on_new_thread), clock
    )
    seen = summary.observe()
    assert seen.layout is FsLayout.SINGLE
    available = {
        str(signal): (each.available, each.capacity) for signal, each in seen.signals.items()
    }
    assert available["nodefs.available"] == available["imagefs.available"] == (40 * GIB, 100 * GIB)
    (facts,) = filesystem_facts(seen, mounts_of([KUBELET, IMAGES], table))
    assert (
        facts.quota
        == "project quotas are on (prjquota): a directory can be at its limit while the filesystem"
        " has room, and statvfs in it returns the limit's numbers; 1.0GiB of 10.0GiB are"
        " available within that of /data/kubelet, which the kubelet does not look at; 2.0GiB of"
        " 20.0GiB are available within that of /data/images, which the kubelet does not look at"
    )


def test_polls_read_what_the_observation_has_read(table: str) -> None:
    """A directory at its limit is no filesystem below its mark: it would be
    observed again and again.
    """
    reader = KubeletsReader(reader=Quotas({KUBELET: (0, 10 * GIB)}), table=table)
    samplers = Samplers(SteppedClock(), reader, on_new_thread)

    def read() -> Reading:
        answers = queue.SimpleQueue[Sample]()
        samplers.ask([KUBELET], answers.put)
        reading = answers.get(timeout=60.0).reading
        assert reading is not None
        return reading

    assert read().stats.available_bytes == 40 * GIB
    samplers.watch(
        KUBELET, WatchedLevels((GIB, None), (500.0 * MIB, 20_000.0), 0.01, 10.0), lambda: None
    )
    assert came_true(lambda: bool(read().polls))
    assert {poll.available_bytes for poll in read().polls} == {40 * GIB}
    samplers.close()


def test_a_filesystem_of_the_configuration_is_read_where_it_is(table: str) -> None:
    """No kubelet looks at it, and its limit is what can be filled."""
    clock, cache = SteppedClock(), FilesystemRole("buildcache")
    reader = KubeletsReader([BUILD_CACHE], Quotas({BUILD_CACHE: (GIB, 10 * GIB)}), table)
    paths = FilesystemPaths(KUBELET, IMAGES, IMAGES, {cache: BUILD_CACHE})
    seen = NodeSummary(paths, Samplers(clock, reader, on_new_thread), clock).observe()
    assert seen.signals[Signal("buildcache.available")].available == GIB
    assert seen.signals[Signal.NODEFS_AVAILABLE].available == 40 * GIB
    assert not seen.limits


@pytest.mark.parametrize("why", ["fails", "is another filesystem by now"])
def test_a_mount_point_that_does_not_answer_for_the_path_is_not_believed(
    table: str, why: str
) -> None:
    """Something else was mounted over it, say: then the path answers, for
    observations and polls.
    """
    disk = Quotas({KUBELET: (GIB, 10 * GIB), "/data": (7, 8)})
    if why == "fails":
        disk.failing.add("/data")
    else:
        disk.devices["/data"] = DISK + 1
    reader = KubeletsReader(reader=disk, table=table)
    assert reader(KUBELET, 1.0).stats.available_bytes == GIB


def test_another_filesystem_at_the_path_is_looked_up_anew(table: str) -> None:
    """The kubelet's directory gets a disk of its own while the daemon runs."""
    disk = Quotas({KUBELET: (GIB, 10 * GIB)})
    reader = KubeletsReader(reader=disk, table=table)
    assert reader(KUBELET, 1.0).device_id == DISK
    with open(table, "a", encoding="utf-8") as file:
        file.write(f"92 91 8:2 / {KUBELET} rw - ext4 /dev/sda2 rw\n")
    disk.devices[KUBELET] = os.makedev(8, 2)
    found = reader(KUBELET, 2.0)
    assert (found.device_id, found.stats.available_bytes, found.in_directory) == (
        os.makedev(8, 2),
        GIB,
        None,
    )


def test_subvolumes_are_one_filesystem_whatever_their_st_dev(tmp_path: Path) -> None:
    """Two that are mounted, and one below that is not: the mount that holds each
    says which filesystem it is.
    """
    path = tmp_path / "mountinfo"
    path.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:45 /@kubelet /var/lib/kubelet rw - btrfs /dev/sdb rw,subvol=/@kubelet\n"
        "3 1 0:45 /@containerd /var/lib/containerd rw - btrfs /dev/sdb rw,subvol=/@containerd\n"
    )
    disk = Quotas({})
    paths = "/var/lib/kubelet", "/var/lib/containerd/images", "/var/lib/kubelet/nested/layers"
    disk.devices = {
        "/var/lib/kubelet": 50,
        "/var/lib/containerd": 51,
        paths[1]: 51,
        paths[2]: 52,
        "/": DISK,
    }
    reader = KubeletsReader(reader=disk, table=str(path))
    assert {reader(each, 1.0).device_id for each in paths} == {os.makedev(0, 45)}
    assert reader("/home", 1.0) == replace(disk("/home", 1.0), device_id=DISK)
