"""What takes space without showing, on real filesystems: each is made,
found, and told with its bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eviction.records.attribution import About, Remark
from eviction.survey.open_files import HiddenSpace, look
from eviction.survey.space import remarks_of
from eviction.survey.trees import TimeLimit, Tree, TreeUsage, count_trees
from reclaim.workers import Workers
from signals.clock import SystemClock
from signals.filesystems import read_statvfs
from signals.mounts import filesystem_id
from tests.real_node.loopfs import MIB, LoopFilesystem, find_tool, run_tool, unmount
from tests.repository import ROOT

SIZES = {"ext4": 128 * MIB, "xfs": 300 * MIB, "btrfs": 128 * MIB}
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


@contextmanager
def mounted(directory: Path, kind: str, *mkfs_options: str) -> Iterator[Path]:
    """A small filesystem of a type, tmpfs among them."""
    if kind == "tmpfs":
        point = directory / "disk"
        point.mkdir()
        run_tool("mount", "-t", "tmpfs", "-o", f"size={64 * MIB},nr_inodes=4000", "tmpfs", point)
        try:
            yield point
        finally:
            unmount(point)
        return
    if find_tool(f"mkfs.{kind}") is None:
        pytest.skip(f"no mkfs.{kind}")
    with LoopFilesystem(directory, SIZES[kind], kind, mkfs_options=mkfs_options) as filesystem:
        yield filesystem.mountpoint


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


def looked_at(path: Path) -> tuple[HiddenSpace, Remark | None]:
    """What is found on the filesystem of a path, and who was not looked at."""
    device_id = filesystem_id(str(path))
    found, unseen = look({str(path): device_id}, TimeLimit(Workers("test", 1), SystemClock(), 20.0))
    return found[device_id], unseen


def usage_of(root: str) -> TreeUsage:
    """What a tree occupies."""
    return count_trees([Tree(root)], TimeLimit(Workers("test", 1), SystemClock(), 20.0))[0]


def told(path: Path) -> dict[About, Remark]:
    """The remarks about the filesystem of a path; of several about the same thing the first."""
    space, _ = looked_at(path)
    stats = read_statvfs(str(path), 0.0).stats
    found: dict[About, Remark] = {}
    for remark in remarks_of(stats, space, ""):
        found.setdefault(remark.about, remark)
    return found


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs"])
def test_what_a_process_holds_open_is_found_with_its_bytes(tmp_path: Path, kind: str) -> None:
    """`du` does not find them, `df` counts them; once the process has ended, they are
    free and nothing is told.
    """
    with mounted(tmp_path, kind) as disk:
        with held_open(disk / "gone.log", 12 * MIB) as pid:
            used = os.statvfs(disk)
            remark = told(disk)[About.DELETED_OPEN]
            assert usage_of(str(disk)).total_bytes < MIB
            assert remark.bytes is not None  # with what XFS has allocated ahead
            assert 12 * MIB <= remark.bytes <= (used.f_blocks - used.f_bfree) * used.f_frsize
            assert f"(pid {pid})" in remark.sentence
            assert f"{disk}/gone.log" in remark.sentence
        assert About.DELETED_OPEN not in told(disk)


def test_what_a_container_holds_open_counts_for_the_disk_below(tmp_path: Path) -> None:
    """Its file has the device number of its overlay."""
    with mounted(tmp_path, "ext4") as disk:
        for name in ("lower", "upper", "work", "merged"):
            (disk / name).mkdir()
        merged = disk / "merged"
        options = f"lowerdir={disk}/lower,upperdir={disk}/upper,workdir={disk}/work"
        run_tool("mount", "-t", "overlay", "-o", options, "overlay", merged)
        try:
            (merged / "written").write_bytes(b"x")
            with held_open(merged / "gone.log", 8 * MIB):
                assert (merged / "written").stat().st_dev != disk.stat().st_dev
                found = told(disk)
            assert found[About.DELETED_OPEN].bytes == pytest.approx(8 * MIB, abs=MIB)
        finally:
            unmount(merged)


def test_speculative_preallocation_of_xfs_is_found_while_the_file_is_open(tmp_path: Path) -> None:
    """A file that grows in many writes has more on the disk than it needs; one that
    is only read is not told.
    """
    with mounted(tmp_path, "xfs") as disk:
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


@pytest.mark.parametrize("kind", ["ext4", "btrfs", "tmpfs"])
def test_what_other_filesystems_have_behind_an_end_is_no_speculation(
    tmp_path: Path, kind: str
) -> None:
    """Whoever asks for space ahead (fallocate) has it on purpose."""
    with mounted(tmp_path, kind) as disk, (disk / "ahead").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 * MIB)
        os.truncate(disk / "ahead", MIB)
        assert About.PREALLOCATED not in told(disk)


def test_the_reserve_of_ext4_is_told(tmp_path: Path) -> None:
    """5 percent are root's."""
    with mounted(tmp_path, "ext4", "-m", "5") as disk:
        stats = read_statvfs(str(disk), 0.0).stats
        assert told(disk)[About.RESERVE].bytes == stats.free_bytes - stats.available_bytes > 5 * MIB


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs"])
def test_the_mount_of_each_is_found(tmp_path: Path, kind: str) -> None:
    """With its type."""
    with mounted(tmp_path, kind) as disk:
        (disk / "below").mkdir()
        space, _ = looked_at(disk / "below")
        assert space.mount is not None
        assert (space.mount.type, space.mount.point) == (kind, str(disk))


def test_without_a_capability_it_says_whom_it_did_not_see(tmp_path: Path) -> None:
    """As the service runs: a file that a process with capabilities holds is not
    found, and the line says why.
    """
    program = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from tests.real_node.test_hidden_space import looked_at\n"
        "from pathlib import Path\n"
        "space, unseen = looked_at(Path(sys.argv[1]))\n"
        "print(sum(file.bytes for file in space.open_files if file.deleted), unseen.sentence)\n"
    )
    with mounted(tmp_path, "ext4") as disk:
        command = [
            "setpriv",
            "--bounding-set=-all",
            "--inh-caps=-all",
            sys.executable,
            "-c",
            program,
        ]
        arguments = [str(disk), str(ROOT)]
        with held_open(disk / "hidden", 8 * MIB):
            process = subprocess.run(
                [*command, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
            )
        assert process.stdout.startswith("0 files that processes hold open: ")
        assert "could not be looked at (CAP_SYS_PTRACE)" in process.stdout
        alike = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
        with held_open(disk / "seen", 8 * MIB, *alike):
            process = subprocess.run(
                [*command, *arguments], capture_output=True, text=True, check=True, cwd=ROOT
            )
        assert int(process.stdout.split()[0]) == pytest.approx(8 * MIB, abs=MIB)
