"""What real filesystems hide, foresee, reserve and give back: each is made, found and told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eviction.configuration.effective import eviction_config, load
from eviction.engine.ballast import create_ballast, read_ballast
from eviction.engine.effects import Request
from eviction.engine.fold import booked
from eviction.engine.step import new_pass
from eviction.engine.view import NodeView
from eviction.records.attribution import About, Remark
from eviction.records.passes import Trigger
from eviction.records.store import HistoryStore, HistoryUnusable, contents_of
from eviction.survey.space import (
    DiskSurvey,
    HiddenSpace,
    Places,
    TimeLimit,
    Tree,
    count_trees,
    look,
    remarks_of,
)
from reclaim.evidence.states import PodStates
from reclaim.functions.ballast import BallastRefused, BallastRelease, BallastSettings
from reclaim.removals import write_back
from reclaim.types import Usage
from reclaim.workers import Workers
from signals.clock import SystemClock
from signals.filesystems import FilesystemPaths, read_statvfs
from signals.mounts import filesystem_id
from signals.types import FilesystemRole, FsLayout, Signal, SignalObservations
from tests.full_disk import full
from tests.inline import NOTHING_DECIDED, Inline
from tests.pure.values import SteppedClock
from tests.real_node.fill import fill_bytes, fill_inodes
from tests.real_node.loopfs import (
    MIB,
    LoopFilesystem,
    mounted,
    overlay_on,
    run_tool,
    unmount,
)
from tests.reclaimd_process import came_true
from tests.repository import ROOT

ALL_TYPES = ("ext4", "xfs", "btrfs", "tmpfs")
BALLAST_BYTES = 16 * MIB
LAPS = 900  # records of 3 000 bytes: three times around a ring of 1 MiB
WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
HOLDER = (
    "import os, sys\n"
    "file = open(sys.argv[1], 'wb')\n"
    "file.write(os.urandom(int(sys.argv[2])))\n"
    "file.flush()\n"
    "os.fsync(file.fileno())\n"
    "os.unlink(sys.argv[1])\n"
    "print('gone', flush=True)\n"
    "sys.stdin.read()\n"
)
LOOKER = (
    "import sys; sys.path.insert(0, sys.argv[2])\n"
    "from tests.real_node.test_filesystems import looked_at\n"
    "from pathlib import Path\n"
    "space, unseen = looked_at(Path(sys.argv[1]))\n"
    "print(sum(file.bytes for file in space.open_files if file.deleted), unseen.sentence)\n"
)


@contextmanager
def held_open(file: Path, size_bytes: int, *before: str) -> Iterator[int]:
    """A process that writes a file, removes it, and keeps it open; its number.

    `before`: what runs it.
    """
    command = [*before, sys.executable, "-c", HOLDER, str(file), str(size_bytes)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "gone\n"
        yield process.pid
        process.communicate()


def time_limit() -> TimeLimit:
    """More than any of these needs."""
    return TimeLimit(Workers("test", 1), SystemClock(), 20.0)


def looked_at(path: Path) -> tuple[HiddenSpace, Remark | None]:
    """What is found on the filesystem of a path, and who was not looked at."""
    device_id = filesystem_id(str(path))
    found, unseen = look({str(path): device_id}, time_limit())
    return found[device_id], unseen


def told(path: Path) -> dict[About, Remark]:
    """The remarks about the filesystem of a path; of several about the same thing the first."""
    stats = read_statvfs(str(path), 0.0).stats
    remarks = remarks_of(stats, looked_at(path)[0], "")
    return {remark.about: remark for remark in reversed(remarks)}


# ---- what takes space without showing


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_what_a_process_holds_open_is_found_with_its_bytes(tmp_path: Path, kind: str) -> None:
    """`du` does not find them, `df` counts them, the mount has its type; once the process has
    ended, they are free and nothing is told."""
    with mounted(tmp_path, kind) as disk:
        with held_open(disk / "gone.log", 12 * MIB) as pid:
            used = os.statvfs(disk)
            remark, mount = told(disk)[About.DELETED_OPEN], looked_at(disk)[0].mount
            assert count_trees([Tree(str(disk))], time_limit())[0].total_bytes < MIB
            assert remark.bytes is not None  # with what XFS has allocated ahead
            assert 12 * MIB <= remark.bytes <= (used.f_blocks - used.f_bfree) * used.f_frsize
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            assert f"{name} (pid {pid})" in remark.sentence
            assert f"{disk}/gone.log" in remark.sentence
        assert mount is not None
        assert (mount.type, mount.point) == (kind, str(disk))
        assert About.DELETED_OPEN not in told(disk)


def test_what_a_container_holds_open_counts_for_the_disk_below(tmp_path: Path) -> None:
    """Its file has the device number of its overlay."""
    with mounted(tmp_path, "ext4") as disk, overlay_on(disk) as merged:
        (merged / "written").write_bytes(b"x")
        with held_open(merged / "gone.log", 8 * MIB):
            assert (merged / "written").stat().st_dev != disk.stat().st_dev
            assert told(disk)[About.DELETED_OPEN].bytes == pytest.approx(8 * MIB, abs=MIB)


@pytest.mark.parametrize("kind", ["ext4", "btrfs", "tmpfs"])
def test_what_other_filesystems_than_xfs_have_behind_an_end_is_no_speculation(
    tmp_path: Path, kind: str
) -> None:
    """Whoever asks for space ahead (fallocate) has it on purpose. Of ext4, 5 percent are root's."""
    options = ("-m", "5") if kind == "ext4" else ()
    with mounted(tmp_path, kind, *options) as disk, (disk / "ahead").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 * MIB)
        os.truncate(disk / "ahead", MIB)
        stats, found = read_statvfs(str(disk), 0.0).stats, told(disk)
        assert About.PREALLOCATED not in found
        if kind == "ext4":
            reserve = stats.free_bytes - stats.available_bytes
            assert found[About.RESERVE].bytes == reserve > 5 * MIB


@pytest.mark.parametrize("holder", [(), WITHOUT_CAPABILITIES], ids=["with", "without"])
def test_without_a_capability_it_says_whom_it_did_not_see(
    tmp_path: Path, holder: tuple[str, ...]
) -> None:
    """As the service runs: a file that a process with capabilities holds is not
    found, and the line says why; that of another without any is.
    """
    command = (*WITHOUT_CAPABILITIES, sys.executable, "-c", LOOKER)
    with mounted(tmp_path, "ext4") as disk, held_open(disk / "hidden", 8 * MIB, *holder):
        arguments = [*command, str(disk), str(ROOT)]
        said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    seen, _, sentence = said.partition(" ")
    assert int(seen) == pytest.approx(8 * MIB if holder else 0, abs=MIB)
    assert sentence.startswith("files that processes hold open: ")
    assert "could not be looked at (CAP_SYS_PTRACE)" in sentence


# ---- btrfs: subvolumes, and what it has promised


class Subvolumes:
    """A mounted btrfs: the kubelet's directory on one subvolume, the images on
    another, the logs on a third.
    """

    def __init__(self, kubelet: Path, images: Path, logs: Path) -> None:
        self.kubelet, self.images, self.logs = kubelet, images, logs
        fields = {"rootDirectory": str(kubelet), "evictionHard": {"nodefs.available": "10%"}}
        self.view = NodeView(load(None, {}, fields))
        self.view.summary.locate(FilesystemPaths(str(kubelet), str(images), str(images)))

    def observe(self) -> SignalObservations:
        """One observation, after everything written has its place."""
        run_tool("sync", "-f", self.images)
        return self.view.summary.observe()


@pytest.fixture(params=["mounted", "directories"])
def subvolumes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subvolumes]:
    """Each subvolume mounted at a point of its own, or all as directories of the
    filesystem, mounted once.
    """
    with mounted(tmp_path / "fs", "btrfs") as disk:
        points = [disk / name for name in ("kubelet", "images", "logs")]
        for point in points:
            run_tool("btrfs", "subvolume", "create", point)
        if request.param == "mounted":
            (device,) = run_tool("findmnt", "-no", "SOURCE", "-T", disk).split()
            points = [tmp_path / point.name for point in points]
            for point in points:
                point.mkdir()
                run_tool("mount", "-t", "btrfs", "-o", f"subvol={point.name}", device, point)
        made = Subvolumes(*points)
        try:
            yield made
        finally:
            made.view.close()
            for point in points:
                unmount(point)


def test_subvolumes_are_one_filesystem(subvolumes: Subvolumes) -> None:
    """The layout is single, so the threshold of nodefs has a row: containers, then images. What
    is freed counts once, on however many subvolumes the roles are."""
    devices = {path.stat().st_dev for path in (subvolumes.kubelet, subvolumes.images)}
    assert len(devices) == 2, "the kernel tells them apart"
    file = subvolumes.images / "layer"
    file.write_bytes(os.urandom(24 * MIB))
    before = subvolumes.observe()
    assert before.layout is FsLayout.SINGLE
    assert {identity.type for identity, _ in before.filesystems.values()} == {"btrfs"}
    row = eviction_config(subvolumes.view.configuration).row(Signal.NODEFS_AVAILABLE, before)
    assert row == ("DeleteAllUnusedContainers", "DeleteUnusedImages")
    engine = Inline(SteppedClock(), {}, lambda _: pytest.fail("nothing is planned"))
    world, the = new_pass(engine.world, Trigger.REQUEST, Request(), decision=NOTHING_DECIDED)
    device = before.filesystems[FilesystemRole.NODEFS][0].device_id
    world = world._replace(passes={the.id: the}, booked_to={device: the.id})
    file.unlink()

    def gained() -> int:
        seen = world._replace(observations=subvolumes.observe())
        return booked(seen, before).passes[the.id].gained.gained_since(Usage())[0]

    assert came_true(lambda: gained() >= 23 * MIB), "what is removed comes back with a commit"
    assert gained() == pytest.approx(24 * MIB, rel=0.2)


def test_bytes_of_every_subvolume_are_attributed(subvolumes: Subvolumes) -> None:
    """Logs on a third subvolume, and a deleted file held open on that of the images:
    parts of the one filesystem.
    """
    log = subvolumes.logs / "default_web_uid-web" / "app" / "0.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(os.urandom(24 * MIB))
    places = Places(str(subvolumes.kubelet), str(subvolumes.logs), (str(subvolumes.images),))
    survey = DiskSurvey(subvolumes.observe, lambda: places, PodStates, lambda: None, SystemClock())
    with held_open(subvolumes.images / "gone.log", 12 * MIB) as pid:
        (found,) = survey.survey(subvolumes.observe(), ())
    shares = {str(share.use): share.bytes for share in found.shares}
    assert shares["logs_live"] == pytest.approx(24 * MIB, abs=MIB)
    assert shares["deleted_open"] == pytest.approx(12 * MIB, abs=MIB)
    (remark,) = [remark for remark in found.remarks if remark.about is About.DELETED_OPEN]
    assert f"(pid {pid})" in remark.sentence


def test_what_waits_is_written_back_where_the_kernel_would_soon_do_so(tmp_path: Path) -> None:
    """Not before: what ext4 has not allocated yet, no removal waits for."""
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("nr_dirty 1000\nnr_dirty_background_threshold 2000\n")
    with mounted(tmp_path, "ext4") as disk:
        (disk / "file").write_bytes(os.urandom(16 * MIB))
        for waiting, is_written in ((0, False), (8 * MIB, True)):
            write_back(str(disk), waiting, str(vmstat))
            assert ("delalloc" not in run_tool("filefrag", "-v", disk / "file")) is is_written


# ---- the ballast


def free_bytes(disk: Path) -> int:
    """What is free, after what is pending was written."""
    run_tool("sync", "-f", disk)
    return read_statvfs(str(disk), 0.0).stats.free_bytes


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_ballast_is_taken_and_comes_back_on_a_disk_without_a_free_byte(
    tmp_path: Path, kind: str
) -> None:
    """Blocks for all of it, and that much less is free; planned and unlinked at 0 bytes."""
    with mounted(tmp_path, kind) as disk:
        settings = BallastSettings(str(disk / "ballast"), BALLAST_BYTES)
        before = free_bytes(disk)
        ballast, _ = create_ballast(settings)
        assert (ballast.problem, ballast.whole) == ("", True)
        assert BALLAST_BYTES <= before - free_bytes(disk) < BALLAST_BYTES + 2 * MIB
        with full(disk, inodes=False):
            before = free_bytes(disk)
            stage = BallastRelease(settings, SystemClock())
            plan = stage.plan()
            assert plan is not None
            assert stage.remove(plan.remove[0]) is True
            # xfs frees in the background
            assert came_true(lambda: free_bytes(disk) - before >= BALLAST_BYTES - MIB)


def test_where_blocks_prove_nothing_it_is_refused_and_a_file_of_its_name_is_not_it(
    tmp_path: Path,
) -> None:
    """On btrfs: zeros that are compressed away have all their blocks; nothing is left behind."""
    with mounted(tmp_path, "btrfs", options=("compress-force=zstd",)) as disk:
        settings = BallastSettings(str(disk / "ballast"), BALLAST_BYTES)
        why = (
            "the blocks of a file on btrfs do not show what unlinking it frees: use another"
            " filesystem"
        )
        with pytest.raises(BallastRefused, match=f"is not made: {why}$"):
            create_ballast(settings)
        assert os.listdir(settings.directory) == []
        file = Path(settings.path)
        file.touch(mode=0o600)
        file.write_bytes(bytes(BALLAST_BYTES))
        run_tool("sync", "-f", disk)
        assert file.stat().st_blocks * 512 == BALLAST_BYTES
        ballast = read_ballast(settings)
        assert ballast is not None
        assert (ballast.whole, ballast.problem) == (False, why)
        with pytest.raises(BallastRefused, match=f"is not the ballast: {why}$"):
            create_ballast(settings)


# ---- the history


def record(number: int) -> bytes:
    """One that begins with its number."""
    return f"{number:08} ".encode().ljust(3000, b"x")


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_every_record_is_written_without_a_free_byte(tmp_path: Path, kind: str) -> None:
    """Into space that was allocated and never written before, each record synced."""
    with mounted(tmp_path, kind) as disk:
        store = HistoryStore(str(disk / "history"), MIB)
        store.open()
        with full(disk, inodes=False):
            for number in range(LAPS):
                store.append(record(number))
            store.close()
            left = contents_of(str(disk / "history")).records
        assert left == [record(number) for number in range(LAPS - 255, LAPS)]


def test_where_writing_copies_a_refusal_loses_nothing_that_was_written(tmp_path: Path) -> None:
    """btrfs may have no room for a copy: then that is said, the records before it stay,
    and later ones are written.
    """
    with mounted(tmp_path, "btrfs") as disk:
        path = str(disk / "history")
        store = HistoryStore(path, MIB)
        written = list(range(20))
        for number in written:
            store.append(record(number))
        with full(disk, inodes=False):
            for number in range(20, 60):
                try:
                    store.append(record(number))
                    written.append(number)
                except HistoryUnusable as error:
                    assert "No space left" in str(error)  # noqa: PT017 # it may also be written
            assert set(written) <= {int(each[:8]) for each in contents_of(path).records}
        store.append(b"after")
        store.close()
        assert contents_of(path).records[-1] == b"after"


# ---- the tests' own fills


@pytest.mark.parametrize("kind", ["written", "allocated", "inodes"])
def test_a_fill_stops_at_its_mark(tmp_path: Path, kind: str) -> None:
    """At 10 MiB within 1 MiB below, but for what ext4 then gives back of what it had allocated
    ahead; at 50 inodes exactly."""
    with LoopFilesystem(tmp_path / "fs", 64 * MIB, inodes=2000) as filesystem:
        directory = filesystem.mountpoint / "fill"
        if kind == "inodes":
            fill_inodes(directory, 50).wait(60.0)
            assert filesystem.inodes_free() == 50
        else:
            fill_bytes(directory, 10 * MIB, fast=kind == "allocated").wait(60.0)
            assert 9 * MIB < filesystem.available_bytes() < 10 * MIB + MIB // 16
