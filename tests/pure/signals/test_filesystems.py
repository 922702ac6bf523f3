"""Which filesystem each role is on, as the kubelet sees it, and what an observation says of it. A
filesystem is read and polled on a thread of its own: one that hangs costs that thread, and delays
nobody."""

import os
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.survey.filesystem_facts import filesystem_facts
from signals.ahead import GrowingFiles, ahead_on
from signals.clock import SystemClock
from signals.filesystems import (
    FilesystemPaths,
    FilesystemReader,
    KubeletsReader,
    Reading,
    describe,
    layout_of,
    paths_of_node,
    read_statvfs,
)
from signals.interval import WatchedLevels
from signals.mounts import Mount, mount_holding, mounts_of, parse_mountinfo, read_mounts
from signals.samplers import MOST_ORDERS, Sample, Samplers
from signals.summary import NodeSummary, PublishedReadings, answered, asked, observations_of
from signals.types import (
    KUBELET_ROLES,
    KUBELET_SIGNALS,
    FilesystemIdentity,
    FilesystemRole,
    FsLayout,
    FsStats,
    Signal,
    SignalObservations,
    in_order,
)
from tests.pure.values import GIB, SteppedClock, on_new_thread, stats
from tests.rows import rows, rows_of
from tests.thread_limit import no_thread_starts

SINGLE, DEDICATED, SPLIT = FsLayout.SINGLE, FsLayout.DEDICATED_IMAGEFS, FsLayout.SPLIT
NODEFS, IMAGEFS, CONTAINERFS = KUBELET_ROLES
NODE, IMAGES, KUBELET, CACHE = "/node", "/images", "/data/kubelet", "/data/cache"
PATHS = FilesystemPaths(NODE, IMAGES, IMAGES)
A, B, DISK = 0x801, 0x802, os.makedev(8, 1)
MOUNTS = r"""
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
90 27 0:45 /@ /var/lib/far\040away rw,noatime shared:2 master:1 - btrfs /dev/vdb rw,compress=zstd:3
91 27 8:1 / /data ro,relatime - xfs /dev/sda1 rw,prjquota
92 27 8:2 / /data rw,relatime - ext4 /dev/sda2 rw
what is no line of it
""".strip().splitlines(keepends=True)


class Disks:
    """Filesystems in memory: what a path says is its device, and how much of it is available."""

    def __init__(self, **paths: tuple[int, int, int]) -> None:
        self.paths = {f"/{path}".replace("_", "/"): told for path, told in paths.items()}
        self.inodes_total = 1000
        self.reads: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self, path: str, now: float) -> Reading:
        """One reading, during which `meanwhile` happens. Raises OSError if there is no such
        path."""
        self.reads.append(path)
        self.meanwhile()
        if path not in self.paths:
            raise FileNotFoundError(2, "No such file or directory")
        device, available, capacity = self.paths[path]
        inodes_free = min(400, self.inodes_total)
        return Reading(
            FsStats(available, available + 1, capacity, inodes_free, self.inodes_total, now), device
        )


def two_disks() -> Disks:
    """The kubelet's, and one of the images."""
    return Disks(node=(A, 5 * GIB, 10 * GIB), images=(B, 2 * GIB, 10 * GIB))


def summary_of(
    disks: FilesystemReader, paths: FilesystemPaths = PATHS, clock: SteppedClock | None = None
) -> NodeSummary:
    """Whoever observes these paths."""
    clock = clock or SteppedClock(at=50.0)
    return NodeSummary(paths, Samplers(clock, disks, on_new_thread), clock)


def available(seen: SignalObservations) -> dict[str, int]:
    """What each signal says."""
    return {str(signal): each.available for signal, each in seen.signals.items()}


# ---- roles, signals and layouts


@given(st.tuples(*[st.integers(0, 2)] * 3), st.integers())
def test_the_layout_follows_from_which_devices_are_the_same(
    devices: tuple[int, int, int], offset: int
) -> None:
    """Apart from images, writable layers make it split, wherever the kubelet's data is."""
    nodefs, imagefs, containerfs = (device + offset for device in devices)
    expected = {1: SINGLE, 2: DEDICATED if imagefs == containerfs else SPLIT, 3: SPLIT}
    assert layout_of(nodefs, imagefs, containerfs) is expected[len({*devices})]


@rows("""
    images   | containers | imagefs | containerfs
             |            |         |
    ,/i,/j   | ,/c,/d     | /i      | /c
    /i       |            | /i      | /i
             | /c         |         | /c
""")
def test_the_first_mount_point_of_each_list_counts_and_each_path_once(
    images: str, containers: str, imagefs: str | None, containerfs: str | None
) -> None:
    """Without a container filesystem of its own the writable layers are where the images are."""
    found = paths_of_node("/k", images.split(","), containers.split(","), own={})
    assert found == FilesystemPaths("/k", imagefs, containerfs)
    assert found.distinct() == {"/k", imagefs, containerfs} - {None}


def test_signals_are_the_kubelets_six_and_those_of_filesystems_of_the_configuration() -> None:
    """Bytes and inodes of each filesystem; one object of each, the kubelet's first. What is not
    exactly of the kubelet's form is none."""
    own = [Signal(name) for name in ("aaa.available", "aaa.inodesFree", "zzz.available")]
    ordered = in_order([*reversed(own), *reversed(KUBELET_SIGNALS)])
    assert [f"{one} {one.filesystem} {one.counts_inodes}" for one in ordered] == [
        f"{role}.{unit} {role} {unit == 'inodesFree'}"
        for role in ("nodefs", "imagefs", "containerfs", "aaa", "zzz")
        for unit in ("available", "inodesFree")
    ][:-1]
    assert Signal("aaa.available") is own[0]
    assert own[0].filesystem is FilesystemRole("aaa")
    assert [one.filesystem.kubelets for one in ordered] == [True] * 6 + [False] * 3
    for name in [
        "nodefs.inodesfree",
        "Nodefs.available",
        "nodefs.available ",
        "nodefs",
        ".available",
        "",
    ]:
        with pytest.raises(ValueError, match=r"is not a (signal|filesystem name)"):
            Signal(name)


# ---- mounts


def test_a_line_of_the_kernels_table_is_a_mount_with_the_options_of_both_sides(
    tmp_path: Path,
) -> None:
    """Optional fields are passed over, escapes undone, each option named once, `rw` not where
    either side is read-only; a line that is none is left out, and so is a table."""
    mounts = parse_mountinfo(MOUNTS)
    assert mounts[1] == Mount(
        "/var/lib/far away", "0:45", "btrfs", "/dev/vdb", ("rw", "noatime", "compress=zstd:3"), "/@"
    )
    assert [each.option("compress") for each in mounts] == [None, "zstd:3", None, None]
    assert mounts[0].option("discard") == ""
    assert mounts[2].options == ("ro", "relatime", "prjquota")
    assert read_mounts(str(tmp_path / "no table")) == ()
    assert mounts_of(["/"], str(tmp_path / "no table")) == {}


def test_only_on_xfs_are_files_looked_for_that_take_steps() -> None:
    """On another filesystem a file may have blocks behind its end, too."""
    on = {kind: ahead_on(Mount("/", "8:1", kind, "/dev/sda1", ()), 1) for kind in ("xfs", "ext4")}
    assert [kind for kind, tells in on.items() if isinstance(tells, GrowingFiles)] == ["xfs"]
    assert ahead_on(None, 1)(stats()) == stats()


def test_a_path_is_on_the_deepest_mount_and_there_on_the_last(tmp_path: Path) -> None:
    """A mount hides what was mounted on the same point before; a name that only begins alike is
    another one, and a symlink is followed. Describing a mount never fails."""
    mounts = parse_mountinfo(MOUNTS)
    held = {"/data/x": "sda2", "/data": "sda2", "/database": "vda", "/var/lib/far away/y": "vdb"}
    for path, source in held.items():
        mount = mount_holding(path, mounts)
        assert mount is not None
        assert mount.source == f"/dev/{source}"
    assert mount_holding("/data", mounts[1:2]) is None
    link = tmp_path / "link"
    link.symlink_to("/proc")
    assert mounts_of([str(link)])[str(link)].type == describe(str(link), 7).type == "proc"
    assert describe("", 7).path == ""


# ---- what the kubelet sees


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A filesystem at /data, and before it a part of it as a container sees one."""
    path = tmp_path / "mountinfo"
    path.write_text(
        """\
1 0 0:23 / / rw - tmpfs none rw
90 1 8:1 /kubelet/pods/u/hosts /etc/hosts rw - xfs /dev/sda1 rw,prjquota
91 1 8:1 / /data rw,relatime - xfs /dev/sda1 rw,prjquota
"""
    )
    return str(path)


def quotas() -> Disks:
    """40 GiB of 100 are available at /data, less in directories with project quotas."""
    limits = {"data_kubelet": 10, "data_images": 20, "data_cache": 10}
    return Disks(
        data=(DISK, 40 * GIB, 100 * GIB),
        **{path: (DISK, limit * GIB // 10, limit * GIB) for path, limit in limits.items()},
    )


def test_a_project_quota_is_not_what_the_kubelet_sees(table: str) -> None:
    """It asks the mount point: 40 GiB of 100 are available, and the 1 GiB that its directory may
    still write is a remark. Of a filesystem of the configuration the limit is what can be filled.
    Polls read the same, or a directory at its limit would be observed again and again."""
    cache, polled, clock = FilesystemRole("cache"), Event(), SteppedClock()
    paths = FilesystemPaths(KUBELET, "/data/images", "/data/images", {cache: CACHE})
    samplers = Samplers(clock, KubeletsReader([CACHE], quotas(), table), on_new_thread)
    summary = NodeSummary(paths, samplers, clock)
    seen = summary.observe()
    told = available(seen)
    assert told["nodefs.available"] == told["imagefs.available"] == 40 * GIB
    assert told["cache.available"] == GIB
    facts = filesystem_facts(seen, mounts_of([KUBELET, "/data/images"], table))[0]
    assert facts.quota.endswith(
        "returns the limit's numbers; 1.0GiB of 10.0GiB are available within that of /data/kubelet,"
        " which the kubelet does not look at; 2.0GiB of 20.0GiB are available within that of"
        " /data/images, which the kubelet does not look at"
    )
    samplers.watch(KUBELET, WatchedLevels((41 * GIB, None), (1.0, 1.0), 1.0, 1.0), polled.set)
    assert polled.wait(60.0)
    assert [poll.available_bytes for poll in summary.observe().polls[NODEFS]] == [40 * GIB]
    samplers.close()


@pytest.mark.parametrize("told", [None, (DISK + 1, 7, 8)])
def test_a_mount_point_that_does_not_answer_for_the_path_is_not_believed(
    table: str, told: tuple[int, int, int] | None
) -> None:
    """It fails, or something else was mounted over it: then the path answers."""
    disks = quotas()
    del disks.paths["/data"]
    if told:
        disks.paths["/data"] = told
    assert KubeletsReader(reader=disks, table=table)(KUBELET, 1.0).stats.available_bytes == GIB


def test_another_filesystem_at_the_path_is_looked_up_anew(table: str) -> None:
    """The kubelet's directory gets a disk of its own while the daemon runs."""
    disks, other = quotas(), os.makedev(8, 2)
    reader = KubeletsReader(reader=disks, table=table)
    assert reader(KUBELET, 1.0).device_id == DISK
    with open(table, "a", encoding="utf-8") as file:
        file.write(f"92 91 8:2 / {KUBELET} rw - ext4 /dev/sda2 rw\n")
    disks.paths[KUBELET] = (other, GIB, 10 * GIB)
    found = reader(KUBELET, 2.0)
    assert (found.device_id, found.stats.available_bytes, found.in_directory) == (other, GIB, None)


def test_subvolumes_are_one_filesystem_whatever_their_st_dev(tmp_path: Path) -> None:
    """Two that are mounted, and one below that is not: the mount that holds each says which
    filesystem it is."""
    path = tmp_path / "mountinfo"
    path.write_text(
        """\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:45 /@kubelet /kubelet rw - btrfs /dev/sdb rw,subvol=/@kubelet
3 1 0:45 /@containerd /containerd rw - btrfs /dev/sdb rw,subvol=/@containerd
"""
    )
    told = "kubelet 50, containerd 51, containerd_images 51, kubelet_layers 52"
    devices = {name: int(device) for name, device in map(str.split, told.split(", "))}
    devices["home"] = DISK
    disks = Disks(**{name: (device, GIB, 10 * GIB) for name, device in devices.items()})
    reader = KubeletsReader(reader=disks, table=str(path))
    below = "/kubelet", "/containerd/images", "/kubelet/layers"
    assert {reader(each, 1.0).device_id for each in below} == {os.makedev(0, 45)}
    assert reader("/home", 1.0) == disks("/home", 1.0)._replace(device_id=DISK)


# ---- one observation


def test_an_observation_turns_two_filesystems_into_six_signals() -> None:
    """Each role has bytes (`f_bavail`) and inodes; each path is read once, though /images has two
    roles."""
    disks = two_disks()
    summary = summary_of(disks)
    seen = summary.observe()
    assert (
        "\n".join(
            f"{signal} {each.available} of {each.capacity} at {each.time:g}"
            for signal, each in seen.signals.items()
        )
        == f"""\
nodefs.available {5 * GIB} of {10 * GIB} at 50
nodefs.inodesFree 400 of 1000 at 50
imagefs.available {2 * GIB} of {10 * GIB} at 50
imagefs.inodesFree 400 of 1000 at 50
containerfs.available {2 * GIB} of {10 * GIB} at 50
containerfs.inodesFree 400 of 1000 at 50"""
    )
    assert (seen.layout, seen.unavailable, sorted(disks.reads)) == (DEDICATED, (), [IMAGES, NODE])
    disks.paths[IMAGES] = disks.paths[NODE]
    assert summary.observe().layout is SINGLE, "it follows what is mounted"


def sample_of(path: str, device: int, at: float, left: int = 5 * GIB) -> Sample:
    """A reading of 10 GiB."""
    stats = FsStats(left, left, 10 * GIB, 400, 1000, at)
    return Sample(path, at, Reading(stats, device), FilesystemIdentity(path, device))


def seen_at(
    now: float, readings: PublishedReadings, paths: FilesystemPaths = PATHS
) -> SignalObservations:
    """What is observed of these readings."""
    return observations_of(paths, readings, now, wall=0.0, imagefs_problem="")


def test_two_paths_on_one_filesystem_have_the_numbers_of_the_later_reading() -> None:
    """A fill between the two must not make the signals of one filesystem differ; but of two sizes
    on one device, as a project quota answers, each has its own."""
    readings = answered({}, sample_of(IMAGES, A, 50.0, 4 * GIB))
    seen = seen_at(51.0, answered(readings, sample_of(NODE, A, 50.25, 3 * GIB)))
    assert {each.time for each in seen.signals.values()} == {50.25}
    assert {*available(seen).values()} == {3 * GIB, 400}
    sizes = Disks(node=(A, 5 * GIB, 10 * GIB), images=(A, GIB, 2 * GIB))
    told = available(summary_of(sizes).observe())
    assert (told["nodefs.available"], told["imagefs.available"]) == (5 * GIB, GIB)


def test_a_filesystem_that_does_not_answer_for_two_seconds_is_stale_and_no_other_one_is() -> None:
    """Its last numbers stay, with their old time and a reason, as if it could not be read; the
    first question that was not answered counts; with an answer it is fresh again."""
    readings: PublishedReadings = {}
    for row in rows_of("""
        at     | asked         | answers       | fails   | read at | why
        50     | /node /images | /node /images |         | 50      |
        60     | /node /images | /node         |         | 50      |
        61     | /images       |               |         | 50      |
        61.999 |               |               |         | 50      |
        62     |               |               |         | 50      | /images: the filesystem did not answer statvfs within 2 s
        62.5   |               | /images       |         | 62.5    |
        63     |               |               |         | 62.5    |
        70     | /images       |               | /images | 62.5    | it is broken
        71     | /images       | /images       |         | 71      |
    """):
        now = float(row["at"])
        readings = asked(readings, row["asked"].split(), now)
        for path in row["answers"].split():
            readings = answered(readings, sample_of(path, A if path == NODE else B, now))
        for path in row["fails"].split():
            readings = answered(readings, Sample(path, now, problem=row["why"]))
        seen = seen_at(now, readings)
        stale = {signal.filesystem for signal, each in seen.signals.items() if each.stale}
        assert stale == {each.role for each in seen.unavailable}
        assert stale == ({IMAGEFS, CONTAINERFS} if row["why"] else set())
        assert {each.reason for each in seen.unavailable} <= {row["why"]}
        images = seen.signals[Signal.IMAGEFS_AVAILABLE]
        assert (images.available, images.time) == (5 * GIB, float(row["read at"]))
        assert seen.layout is DEDICATED


def test_without_earlier_numbers_a_signal_is_left_out_with_a_reason() -> None:
    """Whether an answer is awaited, or there is none, or the runtime has not said where its images
    are; the layout is unknown then. Numbers of paths that were replaced are forgotten."""
    assert seen_at(1.0, {}).signals == {}
    assert {each.reason for each in seen_at(1.0, asked({}, [NODE], 1.0)).unavailable} == {
        "/node: it has not been read yet",
        "/images: it has not been read yet",
    }
    summary = summary_of(two_disks())
    for imagefs, reason in (
        ("/elsewhere", "/elsewhere: cannot be read: No such file or directory"),
        (None, "the container runtime has not said where its images are"),
    ):
        summary.locate(FilesystemPaths(NODE, imagefs, imagefs))
        seen = summary.observe()
        assert [*available(seen)] == ["nodefs.available", "nodefs.inodesFree"]
        assert [*seen.unavailable] == [(role, reason) for role in (IMAGEFS, CONTAINERFS)]
        assert seen.layout is None


def test_paths_that_are_set_during_an_observation_count_from_the_next_one() -> None:
    """The runtime says where its images are while nodefs is read."""
    disks = two_disks()
    summary = summary_of(disks, FilesystemPaths(NODE))
    disks.meanwhile = lambda: summary.locate(PATHS)
    assert [summary.observe().layout for _ in range(2)] == [None, DEDICATED]


SOON = 60.0  # seconds in which something happens that must; alone it takes milliseconds
A_WHILE = 0.05  # seconds in which many polls would happen
HANGING, SOUND, GONE = "/hanging", "/sound", "/gone"
CLOSED = ": is no longer observed"


class Node:
    """Samplers of filesystems that say what the test wants, each reading counted; `/hanging` does
    not answer while it is held."""

    def __init__(self) -> None:
        self.available: dict[str, int | Exception] = {}
        self.read: dict[str, threading.Semaphore] = defaultdict(partial(threading.Semaphore, 0))
        self.threads: dict[str, set[threading.Thread]] = defaultdict(set)
        self.answering = threading.Event()
        self.answering.set()
        self.answers = queue.SimpleQueue[Sample]()
        self.samplers = Samplers(SystemClock(), self.reading, on_new_thread)

    def reading(self, path: str, now: float) -> Reading:
        """100 bytes available, unless the test says otherwise. Raises what it says."""
        self.threads[path].add(threading.current_thread())
        self.read[path].release()
        if path == HANGING:
            assert self.answering.wait(SOON)
        found = self.available.get(path, 100)
        if isinstance(found, Exception):
            raise found
        return Reading(stats(available_bytes=found, time=now), 7)

    def ask(self, path: str) -> Sample:
        """What is answered next."""
        self.samplers.ask([path], self.answers.put)
        return self.answers.get(timeout=SOON)

    def hold(self, *paths: str) -> None:
        """Reads these once, and lets the hanging one hang from then on."""
        for path in paths:
            self.ask(path)
        self.forget(*paths)
        self.answering.clear()

    def begins(self, path: str) -> bool:
        """Whether a reading of it begins."""
        return self.read[path].acquire(timeout=SOON)

    def is_quiet(self, path: str) -> bool:
        """Whether it is left alone for a while."""
        return not self.read[path].acquire(timeout=A_WHILE)

    def watch(
        self, path: str, level: int, notify: Callable[[], None], every: float = 0.001
    ) -> None:
        """Polls that often, whatever is available."""
        levels = WatchedLevels((level, None), (1e12, 1e12), every, every)
        self.samplers.watch(path, levels, notify)

    def forget(self, *paths: str) -> None:
        """Counts from here on."""
        for path in paths:
            while self.read[path].acquire(blocking=False):
                pass

    def has_ended(self, path: str) -> bool:
        """Whether the threads that read it end."""
        for thread in self.threads[path]:
            thread.join(SOON)
        return not any(thread.is_alive() for thread in self.threads[path])


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.answering.set()
    made.samplers.close()
    assert all(map(made.has_ended, list(made.threads)))


class Notified(threading.Semaphore):
    """Counts notifications."""

    def __init__(self) -> None:
        super().__init__(0)

    def __call__(self) -> None:
        self.release()


@pytest.fixture
def notified() -> Notified:
    """Released by each notification."""
    return Notified()


# ---- readings


def test_a_filesystem_that_hangs_costs_one_thread_and_delays_nobody(node: Node) -> None:
    """Whoever asks goes on, and so do the others, up to so many of them; when it answers at last, a
    reading that begins then serves all who have asked meanwhile: it does not get the late
    answer."""
    node.answering.clear()
    node.samplers.ask([HANGING], node.answers.put)
    assert node.begins(HANGING)
    for _ in range(MOST_ORDERS):
        node.samplers.ask([HANGING], node.answers.put)
    late = node.ask(HANGING)
    assert (late.path, type(late.begun_at)) == (HANGING, float)
    assert late.problem == "/hanging: the filesystem has not answered an earlier statvfs yet"
    assert node.ask(SOUND).reading is not None
    assert node.is_quiet(HANGING)
    node.answering.set()
    first, *others = (node.answers.get(timeout=SOON) for _ in range(MOST_ORDERS + 1))
    assert {each.reading is not None and each.begun_at > first.begun_at for each in others} == {
        True
    }
    assert node.begins(HANGING)
    assert len(node.threads[HANGING]) == 1


def test_a_filesystem_that_fails_says_why_and_is_read_again(node: Node) -> None:
    """An error of the operating system becomes a sentence, whatever a reader raises; its thread
    goes on serving. An answer has the reading, its filesystem, and when it began."""
    failures = {
        OSError(13, "Permission denied"): "/sound: cannot be read: Permission denied",
        OSError(): "/sound: cannot be read: OSError",
        ValueError("embedded null"): "/sound: cannot be read: ValueError: embedded null",
    }
    for error, problem in failures.items():
        node.available[SOUND] = error
        sample = node.ask(SOUND)
        assert (sample.problem, sample.reading) == (problem, None)
    node.available[SOUND] = 50
    sample = node.ask(SOUND)
    assert sample.reading == Reading(stats(available_bytes=50, time=sample.begun_at), 7)
    assert sample.identity is not None
    assert (sample.identity.path, sample.identity.device_id) == (SOUND, 7)
    assert len(node.threads[SOUND]) == 1


def test_a_filesystem_without_a_thread_is_not_readable_until_there_is_one(tmp_path: Path) -> None:
    """A sentence in place of a defect, and the next reading tries again; threads that were prepared
    are there. What no filesystem has is no reading of 0 bytes."""
    answers = queue.SimpleQueue[Sample]()
    samplers = Samplers(SystemClock(), read_statvfs, on_new_thread)

    def told(path: str) -> Sample:
        samplers.ask([path], answers.put)
        return answers.get(timeout=SOON)

    here = str(tmp_path)
    with no_thread_starts():
        assert "there is no thread to read it on" in told(here).problem
        with pytest.raises(RuntimeError):
            samplers.prepare([here])
    samplers.prepare([here])
    with no_thread_starts():
        reading = told(here).reading
    assert reading is not None
    assert reading.device_id == tmp_path.stat().st_dev
    found = reading.stats
    assert 0 <= found.available_bytes <= found.free_bytes <= found.capacity_bytes
    assert 0 <= found.inodes_free <= found.inodes_total
    for path, problem in (("missing", "No such file or directory"), ("a\0b", "null")):
        sample = told(f"{here}/{path}")
        assert problem in sample.problem
        assert sample.reading is None
    samplers.close()


# ---- what is no longer observed


def test_only_what_is_observed_is_read_and_polled(node: Node, notified: Notified) -> None:
    """What is no longer observed loses its thread; the others keep theirs. What was never read is
    not polled."""
    node.hold(SOUND, GONE)
    for path in (SOUND, GONE, "/never-read"):
        node.watch(path, 50, notified)
    node.samplers.keep_only({SOUND})
    assert node.has_ended(GONE)
    node.forget(SOUND, GONE)
    node.watch(GONE, 500, notified)
    assert node.begins(SOUND)
    assert node.is_quiet(GONE)
    assert "/never-read" not in node.read
    assert not notified.acquire(blocking=False)
    assert len(node.threads[SOUND]) == 1


def test_closing_waits_for_no_filesystem(node: Node, notified: Notified) -> None:
    """A thread that hangs ends when the filesystem answers, and sends no notification: who has
    asked gets what was read, who asked after that the sentence. Nothing is polled any more."""
    node.hold(HANGING, SOUND)
    node.samplers.ask([HANGING], node.answers.put)
    assert node.begins(HANGING)
    node.watch(HANGING, 500, notified)
    node.samplers.ask([HANGING], node.answers.put)
    node.samplers.close()
    node.watch(SOUND, 500, notified)
    node.answering.set()
    assert [node.answers.get(timeout=SOON).problem for _ in range(2)] == ["", HANGING + CLOSED]
    assert node.has_ended(HANGING)
    assert node.has_ended(SOUND)
    assert not notified.acquire(blocking=False)


# ---- polls


def test_a_crossing_notifies_once_and_ends_the_polls(node: Node, notified: Notified) -> None:
    """By itself, and again only when levels are set again, which the notification may do."""
    node.hold(SOUND)
    node.watch(SOUND, 50, notified)
    assert all(node.begins(SOUND) for _ in range(3))
    assert not notified.acquire(timeout=A_WHILE)
    node.available[SOUND] = 49
    assert notified.acquire(timeout=SOON)
    node.forget(SOUND)
    assert node.is_quiet(SOUND)
    assert not notified.acquire(blocking=False)

    def again() -> None:
        notified.release()
        node.watch(SOUND, 50, again)

    again()
    assert all(notified.acquire(timeout=SOON) for _ in range(4))
    node.available[SOUND] = 100


def test_neither_a_reading_nor_the_same_levels_end_or_hasten_the_polls(
    node: Node, notified: Notified
) -> None:
    """A poll that is due in 10 s stays due then; other levels are polled at once."""
    node.hold(SOUND)
    for level, polled in ((50, True), (50, False), (51, True)):
        node.watch(SOUND, level, notified, 10.0)
        assert not polled or node.begins(SOUND)
        assert node.is_quiet(SOUND)
    node.ask(SOUND)
    assert node.begins(SOUND), "the reading itself"
    assert node.is_quiet(SOUND)
    node.watch(SOUND, 52, notified)
    node.ask(SOUND)
    assert all(node.begins(SOUND) for _ in range(4))
    assert not notified.acquire(blocking=False)


def test_every_reading_carries_what_was_polled_last(node: Node, notified: Notified) -> None:
    """The last ones, in their order. Whoever reads first takes nothing from the others."""
    node.hold(SOUND)
    node.watch(SOUND, 50, notified)
    for available in (100, 90, 49):
        node.available[SOUND] = available
        node.forget(SOUND)
        # one that has begun may still read the amount before
        assert all(node.begins(SOUND) for _ in range(4 if available >= 50 else 1))
    assert notified.acquire(timeout=SOON)
    first, second = (node.ask(SOUND).reading for _ in range(2))
    assert first is not None
    assert second is not None
    assert second.polls == first.polls
    amounts = [poll.available_bytes for poll in first.polls]
    assert (amounts, amounts[-2:]) == (sorted(amounts, reverse=True), [90, 49])
    assert [*first.polls] == sorted(first.polls, key=lambda poll: poll.time)


def test_a_poll_that_fails_notifies(node: Node, notified: Notified) -> None:
    """The observation that follows says why the filesystem cannot be read."""
    node.hold(SOUND)
    node.available[SOUND] = OSError(5, "Input/output error")
    node.watch(SOUND, 50, notified)
    assert notified.acquire(timeout=SOON)


def test_a_poll_that_hangs_delays_no_other_filesystem(node: Node, notified: Notified) -> None:
    """Each crossing of the other one is notified. The one that hangs is asked by no second thread;
    when it answers at last, its crossing is notified once, for the levels that were set last, and
    it is read again on the same thread."""
    of_the_hanging = Notified()
    node.hold(HANGING, SOUND)
    node.watch(HANGING, 50, of_the_hanging)
    assert node.begins(HANGING)
    node.available |= {SOUND: 10, HANGING: 51}
    for changed in range(3):
        node.watch(SOUND, 50, notified)
        assert notified.acquire(timeout=SOON)
        node.watch(HANGING, 50 + changed, of_the_hanging)
    assert node.is_quiet(HANGING)
    node.answering.set()
    assert of_the_hanging.acquire(timeout=SOON)
    assert node.ask(HANGING).reading is not None
    assert len(node.threads[HANGING]) == 1
    assert not of_the_hanging.acquire(blocking=False)
