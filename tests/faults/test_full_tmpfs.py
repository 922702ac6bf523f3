"""A tmpfs without a free byte or inode is relieved, and nothing before the
first removal creates a file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eviction import cli
from eviction.drill.runtime.private_mounts import unmount
from signals.types import Signal
from tests.full_disk import Relief, daemon_woken, environment_on, full, hook
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import PROGRAM, came_true
from tests.sockets.mounts import mounted_tmpfs, need_mounts

RUNS_OF_SOAK = 20
REMOVABLE_IMAGES = 3
WIDE_SECONDS = 30.0  # the machine is shared; the soak prints the times
ROOT = Path(cli.__file__).parents[2]
CREATING = "open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,rename,renameat,renameat2"
PACKAGES = ("eviction", "reclaim", "signals")


def relieved(small: SmallNode, number: int, *, inodes: bool) -> Relief:
    """Fills a filesystem that has three removable images, and relieves it: by `reclaimd reclaim`
    when `number` is even, by a running daemon when it is odd."""
    # two are the pause image and that of the pod
    for image in range(REMOVABLE_IMAGES + 2 - len(small.images())):
        small.add_image(f"registry.example/spare/{number}/{image}:1", 8 * MIB, files=400)
    signal = Signal.NODEFS_INODES_FREE if inodes else Signal.NODEFS_AVAILABLE
    configuration = small.configuration(
        evictionHard={str(signal): "300" if inodes else "5Mi"},
        stateFile=str(small.disk / "state" / "images.json"),
        controlSocket=str(small.disk / "control" / "control.sock"),
    )
    if number % 2:
        relief = daemon_woken(small.disk, configuration, inodes=inodes)
    else:
        with full(small.disk, inodes=inodes):
            relief = hook(small.disk, configuration, inodes=inodes)
    assert relief.code == 0, relief.output
    assert {small.pause_id, small.app_id} <= small.images()
    return relief


@pytest.mark.parametrize("inodes", [False, True], ids=["bytes", "inodes"])
def test_a_full_tmpfs_is_relieved_by_a_cold_start_and_by_a_running_daemon(
    small_node: SmallNode, inodes: bool
) -> None:
    """One run of each, with working directory, HOME, TMPDIR, state file and control
    socket on the full tmpfs.
    """
    small_node.run(small_node.run_pod("web"))
    for number in range(2):
        assert relieved(small_node, number, inodes=inodes).first_freed_seconds < WIDE_SECONDS


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("inodes", [False, True], ids=["bytes", "inodes"])
def test_a_full_tmpfs_is_relieved_20_times_of_20(small_node: SmallNode, inodes: bool) -> None:
    """Ten cold starts and ten running daemons, alternating; none fails."""
    small_node.run(small_node.run_pod("web"))
    times = [
        relieved(small_node, number, inodes=inodes).first_freed_seconds
        for number in range(RUNS_OF_SOAK)
    ]
    cold, woken = sorted(times[::2]), sorted(times[1::2])
    print(
        f"tmpfs-{'inodes' if inodes else 'bytes'}: {len(times)} of {RUNS_OF_SOAK} relieved; start"
        f" to first byte: median {cold[len(cold) // 2]:.2f} s, worst {cold[-1]:.2f} s; running"
        f" daemon: median {woken[len(woken) // 2]:.3f} s, worst {woken[-1]:.3f} s"
    )
    assert max(times) < WIDE_SECONDS


def created(trace: Path) -> list[str]:
    """The calls of an strace log that create a name in a filesystem, failed attempts included. The
    second line of a call that another thread interrupted, `<... openat resumed>`, has only the
    result and is left out."""
    lines = [
        line for line in trace.read_text(errors="replace").splitlines() if " resumed>" not in line
    ]
    return [
        line
        for line in lines
        if not re.search(r"\bopen(at2?)?\(", line) or "O_CREAT" in line or "O_TMPFILE" in line
    ]


def traced(trace: Path, *command: str) -> list[str]:
    """`command` under strace, which logs to `trace` each system call that can create a file."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    return [
        "strace",
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-e",
        f"trace={CREATING}",
        "-e",
        "signal=none",
        "-o",
        str(trace),
        *command,
    ]


@pytest.mark.parametrize("command", [["reclaim"], ["run"]], ids=lambda each: str(each[0]))
def test_nothing_from_the_start_to_the_last_removal_creates_a_file(
    small_node: SmallNode, tmp_path: Path, command: list[str]
) -> None:
    """strace records no system call that could create a file, not even a failed one, although the
    environment lets Python write its bytecode. The directory of the lock is there, as at every
    start but the first after a boot."""
    need_mounts()
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", *(str(ROOT / each) for each in PACKAGES)],
        check=True,
    )
    small_node.run(small_node.run_pod("web"))
    images = set(small_node.add_images(2))
    small_node.gone_pod("gone")
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=20 * MIB)
    (Path(configuration).parent / "lock").mkdir(mode=0o700)
    environment, trace = environment_on(small_node.disk), tmp_path / "trace"
    process = subprocess.Popen(
        traced(trace, PROGRAM, *command, "--config", configuration),
        cwd=small_node.disk,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert came_true(lambda: images <= set(small_node.removed("image")))
    finally:
        (child,) = (
            int(each)
            for each in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        )
        if command == ["run"]:
            os.kill(child, 15)
        process.wait(60.0)
    assert created(trace) == []


def test_a_start_on_a_full_disk_left_half_a_module_behind(tmp_path: Path) -> None:
    """Python before 3.12.8 leaves the part of a module's bytecode that fits; every later start then
    ended with `EOFError: marshal data too short`. Now only the bytecode of the first two modules is
    written, a block each."""
    disk = tmp_path / "disk"
    mounted_tmpfs(str(disk), 16 * MIB, 4000)
    try:
        for package in PACKAGES:
            shutil.copytree(
                ROOT / package, disk / package, ignore=shutil.ignore_patterns("__pycache__")
            )
        for pages in (1, 2, 3, 5, 9):
            for cache in disk.rglob("__pycache__"):
                shutil.rmtree(cache)
            with full(disk, inodes=False):
                os.truncate(
                    disk / "room" / "bytes-0",
                    os.path.getsize(disk / "room" / "bytes-0") - pages * 4096,
                )
                first = start(disk)
            assert first.returncode == 0, first.stderr
            second = start(disk)
            assert second.returncode == 0, f"with {pages} pages free: {second.stderr}"
            written = {
                str(path.relative_to(disk)).partition(".cpython")[0] for path in disk.rglob("*.pyc")
            }
            assert written <= {"eviction/__pycache__/__init__", "eviction/__pycache__/__main__"}
    finally:
        unmount(str(disk))


def start(disk: Path) -> subprocess.CompletedProcess[str]:
    """Runs `--help` of the program's copy in `disk`, as its console script would."""
    program = (
        f"import sys; sys.path.insert(0, {str(disk)!r}); from eviction.__main__ import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", program, "--help"],
        env={key: value for key, value in environment_on(disk).items() if key != "PYTHONPATH"},
        cwd=disk,
        capture_output=True,
        text=True,
        check=False,
    )
