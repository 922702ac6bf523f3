"""What real filesystems hide, foresee, reserve and give back: each is made, found and told. What XFS
takes beyond what was written costs the images that the mark needs, and no more; a mount option or
a hint cures it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

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
from reclaim.xfs_hint import inherited_hint
from signals.clock import SystemClock
from signals.filesystems import FilesystemPaths, KubeletsReader, read_statvfs
from signals.mounts import filesystem_id
from signals.types import FilesystemRole, FsLayout, FsStats, Signal, SignalObservations
from tests.full_disk import full
from tests.inline import NOTHING_DECIDED, Inline
from tests.nodes.real_node import GIB
from tests.pure.values import SteppedClock
from tests.real_node.conftest import NodeFactory, on
from tests.real_node.loopfs import (
    MIB,
    LoopFilesystem,
    available_bytes,
    mounted,
    overlay_on,
    run_tool,
    unmount,
)
from tests.real_node.steps import (
    MINIMUM_RECLAIM,
    available_after,
    file_of,
    freed,
    removed,
    unused_images,
)
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here, write_configuration
from tests.repository import ROOT

BALLAST_BYTES = 16 * MIB
LAPS = 900  # records of 3 000 bytes: three times around a ring of 1 MiB
WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
HOLDER = """
import os, sys
file = open(sys.argv[1], 'wb')
file.write(os.urandom(int(sys.argv[2])))
file.flush()
os.fsync(file.fileno())
os.unlink(sys.argv[1])
print('gone', flush=True)
sys.stdin.read()
"""
LOOKER = """
import sys; sys.path.insert(0, sys.argv[2])
from tests.real_node.test_filesystems import looked_at
from pathlib import Path
space, unseen = looked_at(Path(sys.argv[1]))
print(sum(file.bytes for file in space.open_files if file.deleted), unseen.sentence)
"""


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


def type_of(disk: Path) -> str:
    """As mount(8) names it."""
    return run_tool("findmnt", "-no", "FSTYPE", disk).strip()


# ---- what takes space without showing


@on("ext4", "xfs", "btrfs", "tmpfs")
def test_what_a_process_holds_open_is_found_with_its_bytes(disk: Path) -> None:
    """`du` does not find them, `df` counts them, the mount has its type; once the process has
    ended, they are free and nothing is told."""
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
    assert (mount.type, mount.point) == (type_of(disk), str(disk))
    assert About.DELETED_OPEN not in told(disk)


@on("ext4")
def test_what_a_container_holds_open_counts_for_the_disk_below(disk: Path) -> None:
    """Its file has the device number of its overlay."""
    with overlay_on(disk) as merged:
        (merged / "written").write_bytes(b"x")
        with held_open(merged / "gone.log", 8 * MIB):
            assert (merged / "written").stat().st_dev != disk.stat().st_dev
            assert told(disk)[About.DELETED_OPEN].bytes == pytest.approx(8 * MIB, abs=MIB)


@on("ext4 -m 5", "btrfs", "tmpfs")
def test_what_other_filesystems_than_xfs_have_behind_an_end_is_no_speculation(disk: Path) -> None:
    """Whoever asks for space ahead (fallocate) has it on purpose. Of ext4, 5 percent are root's."""
    with (disk / "ahead").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 * MIB)
        os.truncate(disk / "ahead", MIB)
        stats, found = read_statvfs(str(disk), 0.0).stats, told(disk)
    assert About.PREALLOCATED not in found
    if type_of(disk) == "ext4":
        reserve = stats.free_bytes - stats.available_bytes
        assert found[About.RESERVE].bytes == reserve > 5 * MIB


@on("ext4")
@pytest.mark.parametrize("holder", [(), WITHOUT_CAPABILITIES], ids=["with", "without"])
def test_without_a_capability_it_says_whom_it_did_not_see(
    disk: Path, holder: tuple[str, ...]
) -> None:
    """As the service runs: a file that a process with capabilities holds is not
    found, and the line says why; that of another without any is.
    """
    looker = [*WITHOUT_CAPABILITIES, sys.executable, "-c", LOOKER, str(disk), str(ROOT)]
    with held_open(disk / "hidden", 8 * MIB, *holder):
        said = subprocess.run(looker, capture_output=True, text=True, check=True).stdout
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
    store = str(subvolumes.images)
    places = Places(str(subvolumes.kubelet), str(subvolumes.logs), (store,), caches=(), frees={})
    survey = DiskSurvey(subvolumes.observe, lambda: places, PodStates, lambda: None, SystemClock())
    with held_open(subvolumes.images / "gone.log", 12 * MIB) as pid:
        (found,) = survey.survey(subvolumes.observe(), ())
    shares = {str(share.use): share.bytes for share in found.shares}
    assert shares["logs_live"] == pytest.approx(24 * MIB, abs=MIB)
    assert shares["deleted_open"] == pytest.approx(12 * MIB, abs=MIB)
    (remark,) = [remark for remark in found.remarks if remark.about is About.DELETED_OPEN]
    assert f"(pid {pid})" in remark.sentence


@on("ext4")
def test_what_waits_is_written_back_where_the_kernel_would_soon_do_so(
    disk: Path, tmp_path: Path
) -> None:
    """Not before: what ext4 has not allocated yet, no removal waits for."""
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("nr_dirty 1000\nnr_dirty_background_threshold 2000\n")
    (disk / "file").write_bytes(os.urandom(16 * MIB))
    for waiting, is_written in ((0, False), (8 * MIB, True)):
        write_back(str(disk), waiting, str(vmstat))
        assert ("delalloc" not in run_tool("filefrag", "-v", disk / "file")) is is_written


# ---- the ballast


def free_bytes(disk: Path) -> int:
    """What is free, after what is pending was written."""
    run_tool("sync", "-f", disk)
    return read_statvfs(str(disk), 0.0).stats.free_bytes


@on("ext4", "xfs")
def test_ballast_is_taken_and_comes_back_on_a_disk_without_a_free_byte(disk: Path) -> None:
    """Blocks for all of it, and that much less is free; planned and unlinked at 0 bytes."""
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


@on("btrfs compress-force=zstd")
def test_where_blocks_prove_nothing_it_is_refused_and_a_file_of_its_name_is_not_it(
    disk: Path,
) -> None:
    """On btrfs: zeros that are compressed away have all their blocks; nothing is left behind."""
    settings = BallastSettings(str(disk / "ballast"), BALLAST_BYTES)
    why = (
        "the blocks of a file on btrfs do not show what unlinking it frees: use another filesystem"
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


@on("ext4", "xfs")
def test_every_record_is_written_without_a_free_byte(disk: Path) -> None:
    """Into space that was allocated and never written before, each record synced."""
    path = str(disk / "history")
    store = HistoryStore(path, MIB)
    store.open()
    with full(disk, inodes=False):
        for number in range(LAPS):
            store.append(record(number))
        store.close()
        left = contents_of(path).records
    assert left == [record(number) for number in range(LAPS - 255, LAPS)]


@on("btrfs")
def test_where_writing_copies_a_refusal_loses_nothing_that_was_written(disk: Path) -> None:
    """btrfs may have no room for a copy: then that is said, the records before it stay,
    and later ones are written.
    """
    path, written = str(disk / "history"), list(range(20))
    store = HistoryStore(path, MIB)
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


# ---- XFS and btrfs: what is coming


KIB = 1 << 10
READER = KubeletsReader()
ALLOWED = "allowed is a directory on an XFS that is mounted writable"
OLD, OLD_BYTES, LARGE_BYTES = 20, 4 * MIB, 40 * MIB


@pytest.fixture
def xfs(tmp_path: Path) -> Iterator[Path]:
    """An XFS of 1 GiB."""
    with LoopFilesystem(tmp_path / "xfs", GIB, "xfs") as filesystem:
        yield filesystem.mountpoint


def read(disk: Path) -> FsStats:
    """As the daemon reads it."""
    return READER(str(disk), time.monotonic()).stats


def grow(descriptor: int, count: int, pause_seconds: float = 0.0) -> list[int]:
    """So many writes of 1 MiB; by how much the bytes available fell with each."""
    falls, block = [], os.urandom(MIB)
    for _ in range(count):
        before = available_bytes(descriptor)
        os.write(descriptor, block)
        falls.append(before - available_bytes(descriptor))
        time.sleep(pause_seconds)
    return falls


def advice(**fields: Any) -> list[str]:
    """What doctor says of XFS: each finding with its cure."""
    directory = Path(fields["rootDirectory"]).parent
    file = str(write_configuration(directory / "reclaimd.yaml", **fields))
    findings = answer(reclaimd_here("doctor", "--config", file, "-o", "json"))["findings"]
    return [
        f"{one['sentence']}: {one['remedy']}"
        for one in findings
        if one["check"] == "xfs-preallocation"
    ]


@pytest.mark.parametrize("kind", ["xfs", "xfs through an overlay"])
def test_what_a_file_will_take_is_foreseen(xfs: Path, kind: str) -> None:
    """A file of 40 MiB has taken 64; when that is used up, it takes what was foretold, at once. A
    container writes through an overlay. A file that is closed has no next step."""
    read(xfs)  # what grows is looked for when less is available than before
    with overlay_on(xfs) if "overlay" in kind else nullcontext(xfs) as root:
        with open(root / "grows", "wb", buffering=0) as file:
            grow(file.fileno(), 40)
            assert came_true(lambda: read(xfs).step_bytes > 0)
            ahead = read(xfs)
            assert 0 < ahead.preallocated_bytes <= 24 * MIB
            grow(file.fileno(), 24 + 1)
            after = read(xfs)
            fallen = ahead.available_bytes - after.available_bytes
            assert abs(fallen - ahead.step_bytes) < MIB
            assert abs(ahead.unwritten_bytes - after.unwritten_bytes - 25 * MIB) < 2 * MIB
        assert read(xfs).step_bytes == 0


@on("btrfs")
def test_what_is_written_on_btrfs_counts_at_once(disk: Path) -> None:
    """Less than half of it is shown before it is written back."""
    before = read(disk)
    with open(disk / "grows", "wb", buffering=0) as file:
        grow(file.fileno(), 64)
        after = read(disk)
        shown = after.available_bytes + after.promised_bytes
        assert after.promised_bytes >= 60 * MIB
        assert before.available_bytes - shown < 32 * MIB
        assert before.available_bytes - after.available_bytes >= 64 * MIB
        run_tool("sync", "--file-system", disk)
        after = read(disk)
    assert after.promised_bytes < 4 * MIB
    assert before.available_bytes - after.available_bytes >= 64 * MIB


@on("xfs")
def test_speculative_preallocation_is_found_while_the_file_is_open(disk: Path) -> None:
    """A file that grows in many writes has more on the disk than it needs; one that
    is only read is not told.
    """
    grows = disk / "grows"
    with grows.open("wb", buffering=0) as file:
        for _ in range(200):
            file.write(os.urandom(100_000))
        beyond = grows.stat().st_blocks * 512 - 200 * 100_000
        assert beyond > MIB, "XFS allocates ahead"
        remark = told(disk)[About.PREALLOCATED]
        assert remark.bytes == pytest.approx(beyond, abs=MIB // 4)
        assert f"(pid {os.getpid()})" in remark.sentence
        reader = grows.open("rb")
    with reader:
        assert About.PREALLOCATED not in told(disk)


# ---- the hint


def command(*arguments: str | Path) -> CompletedProcess[str]:
    """`reclaimd xfs-hint`."""
    return reclaimd_here("xfs-hint", "--config", "", *map(str, arguments))


def below(directory: Path, *names: str) -> list[int]:
    """The hints of these directories in it, in bytes; a missing one is made."""
    for name in names:
        (directory / name).mkdir(exist_ok=True)
    return [inherited_hint(str(directory / name)) for name in names]


def test_what_is_made_afterwards_inherits_the_hint_until_it_is_removed(xfs: Path) -> None:
    """A directory that was there keeps its own, in both directions; a dry run changes nothing."""
    assert below(xfs, "earlier") == [0]
    for arguments, said, names, hints in (
        (["--dry-run"], "is none, and would be 1.0MiB", (".",), [0]),
        ([], "was none, and is now 1.0MiB", (".", "earlier", "later"), [MIB, 0, MIB]),
        (
            ["--size", "256k"],
            "was 1.0MiB, and is now 256.0KiB",
            (".", "later", "latest"),
            [256 * KIB, MIB, 256 * KIB],
        ),
        (["--remove"], "was 256.0KiB, and is now none", (".", "later", "last"), [0, MIB, 0]),
    ):
        told_of = f"{xfs}: the extent size hint {said} for what is made below it\n"
        assert command(*arguments, xfs).stdout == told_of
        assert below(xfs, *names) == hints


@pytest.mark.parametrize("cure", ["none", "allocsize=64k", "the hint"])
def test_free_space_falls_in_steps_unless_they_are_cured_and_doctor_says_so(
    tmp_path: Path, cure: str
) -> None:
    """One file that grows to 300 MiB in a container's filesystem: XFS takes 128 MiB and more at once,
    and doctor advises the mount option. With a cure no MiB costs more than 4; with that option there
    is no finding. With the hint small files take a unit while they are open, and a block once closed."""
    options, hinted = (cure,) if "=" in cure else (), cure == "the hint"
    with LoopFilesystem(tmp_path / "xfs", GIB, "xfs", mount_options=options) as filesystem:
        xfs = filesystem.mountpoint
        if hinted:
            command(xfs)
        found = advice(rootDirectory=str(xfs))
        with overlay_on(xfs) as merged, open(merged / "grows", "wb", buffering=0) as file:
            most = max(grow(file.fileno(), 300))
        assert most >= 128 * MIB if cure == "none" else most <= 4 * MIB
        told_of = [str(xfs) in each and "allocsize=64k" in each for each in found]
        assert hinted or told_of == [True] * (cure == "none")
        small, before = [xfs / str(number) for number in range(50)], available_bytes(xfs)
        with ExitStack() as opened:
            for path in small:
                opened.enter_context(open(path, "wb", buffering=0)).write(b"\1" * 3000)
            assert (before - available_bytes(xfs) >= 50 * MIB) is hinted
        assert not hinted or {os.stat(path).st_blocks * 512 for path in small} == {4 * KIB}


def test_what_is_refused_a_hint_is_named_and_the_others_get_it(xfs: Path) -> None:
    """Another filesystem, no directory, one that others may write or replace, another block
    size."""
    below(xfs, "writable", "foreign", "trusted")
    (xfs / "file").touch()
    (xfs / "writable").chmod(0o775)
    os.chown(xfs / "writable", 0, 1000)
    os.chown(xfs / "foreign", 1000, 0)
    why = {
        Path("/proc"): "is on proc; allowed is XFS",
        xfs / "missing": f"cannot have the hint: No such file or directory; {ALLOWED}",
        xfs / "file": f"cannot have the hint: Not a directory; {ALLOWED}",
        xfs / "writable": f"is not trusted: group 1000 may write its directory {xfs}/writable"
        " (mode 0775); allowed is at most 0755",
        xfs / "foreign": f"is not trusted: its directory {xfs}/foreign belongs to uid 1000; allowed"
        " is root's",
    }
    done = command(*why, xfs / "trusted")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"reclaimd: {path} {each}" for path, each in why.items()]
    assert below(xfs, "writable", "foreign", "trusted") == [0, 0, MIB]
    uneven = command("--size", "6000", xfs)
    said = "the hint is 6000 bytes; allowed are multiples of its block size, 4096 bytes"
    assert (uneven.returncode, uneven.stderr) == (1, f"reclaimd: {xfs}: {said}\n")


def test_doctor_is_content_once_all_directories_have_the_hint(xfs: Path) -> None:
    """It recommends the command with exactly the directories that lack it."""
    below(xfs, "pods", "logs", "cache")
    look = partial(
        advice,
        rootDirectory=str(xfs),
        podLogsDir=str(xfs / "logs"),
        filesystems=[{"name": "cache", "path": str(xfs / "cache")}],
    )
    command(xfs / "logs")
    (remedy,) = look()
    assert f": reclaimd xfs-hint {xfs}/pods {xfs}/cache: " in remedy
    command(xfs / "pods", xfs / "cache")
    assert look() == []


def test_a_daemon_gives_the_hint_to_new_pods_and_snapshots(make_node: NodeFactory) -> None:
    """At its start, beside a containerd; not in a dry run. The snapshots of a pod that runs keep
    their own."""
    node = make_node(fstype="xfs")
    snapshots = node.mountpoint / "containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"
    for dry_run, said in ((True, "would be 1.0MiB"), (False, "is now 1.0MiB")):
        logs = str(node.kubelet.pod_logs_dir)
        file = file_of(node, xfsExtentSizeHint="1Mi", dryRun=dry_run, podLogsDir=logs)
        with Daemon("--config", file) as daemon:
            daemon.wait_for(lambda event: f"{snapshots}: the extent" in event["message"])
            found = [each["message"] for each in daemon.events if "extent" in each["message"]]
        assert [said in each for each in found] == [True] * 3, found
        earlier = set(snapshots.iterdir())
        pod = node.kubelet.pod(f"pod-{dry_run}".lower())
        node.kubelet.run_container(pod, "app", node.sandbox_image_id)
        layers = [made / "fs" for made in set(snapshots.iterdir()) - earlier]
        assert len(layers) == 2, "of the sandbox, and of the container"
        places = (node.kubelet.pod_directory(pod.uid), pod.log_directory, *layers)
        assert {inherited_hint(str(path)) for path in places} == ({0} if dry_run else {MIB})


def test_a_file_that_grows_on_xfs_costs_the_images_that_the_mark_needs(
    make_node: NodeFactory,
) -> None:
    """XFS reserves as much again behind a file that grows. One file on 512 MiB that grows from 62
    to 68 MiB, and is never closed, takes 64 MiB at once: the oldest images go, at most one more
    than the mark and its minimum reclaim need, and the large young one stays."""
    node = make_node(512 * MIB, fstype="xfs")
    old = unused_images(node, OLD, OLD_BYTES, "old")
    unused_images(node, 1, LARGE_BYTES, "large")
    with open(node.mountpoint / "grows", "wb", buffering=0) as file:
        grow(file.fileno(), 62)
        mark = node.filesystem.available_bytes() - 32 * MIB
        configuration = file_of(node, imagefs=mark, parallelRemovals=2)
        with Daemon("--config", configuration) as daemon:
            time.sleep(1.5)  # so that the disk was seen to stand still
            falls = grow(file.fileno(), 6, 0.05)
            assert came_true(lambda: bool(daemon.passes))
    (record,) = daemon.passes
    assert max(falls) >= 32 * MIB, "XFS reserves, or there is nothing to be seen"
    gone = removed(record)
    assert record["result"] == "satisfied"
    assert gone == old[: len(gone)], "the oldest, and not the large one"
    beyond = available_after(record, "imagefs.available") - mark - MINIMUM_RECLAIM
    # but for what XFS gives back by itself, two images less would not have been enough
    assert beyond < 2 * sum(freed(record)) / len(gone) + MIB
