"""Files that are open: this process's own, and lines as other processes' `/proc` has them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from eviction.survey.open_files import OpenFile, OpenFilesScan, pod_uid_of
from tests.pure.values import MIB
from tests.repository import ROOT

UID = "0f5ab5a0-1b1e-4a4e-9d3c-0123456789ab"


def scanned(directory: Path, proc: str) -> Sequence[OpenFile]:
    """What is open on the filesystem of a directory."""
    device_id = directory.stat().st_dev
    scan = OpenFilesScan(proc)
    scan.filesystems[device_id] = device_id
    scan.mounts[device_id] = None
    scan.run(lambda: True)
    return scan.found()[device_id].open_files


def proc_of_this_process(directory: Path) -> str:
    """A `/proc` with this process alone: what others hold comes and goes."""
    proc = directory / "proc"
    proc.mkdir()
    (proc / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    return str(proc)


@pytest.mark.parametrize(
    ("cgroups", "uid"),
    [
        (
            (
                f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/x.scope"
            ),
            UID,
        ),
        (
            f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-1.scope",
            UID,
        ),
        (f"12:cpu:/kubepods/besteffort/pod{UID}/1234\n0::/", UID),
        (f"0::/kubepods/pod{UID}/1234", UID),
        (
            "0::/kubepods/burstable/podaabbccddeeff00112233445566778899/1",
            "aabbccddeeff00112233445566778899",
        ),
        ("0::/system.slice/podman.service", ""),
        ("0::/machine.slice/libpod-1.scope", ""),
        ("", ""),
    ],
)
def test_the_pod_of_a_process_is_in_its_cgroup(cgroups: str, uid: str) -> None:
    """With both cgroup drivers, in every class of quality of service, on cgroup v1 and
    v2; a static pod's UID too.
    """
    assert pod_uid_of(cgroups) == uid


def test_a_deleted_file_counts_once_and_for_its_holder(tmp_path: Path) -> None:
    """Open twice, so found twice; its bytes are the allocated ones, and its last name is told."""
    file = tmp_path / "gone.log"
    file.write_bytes(os.urandom(MIB))
    alone = proc_of_this_process(tmp_path)
    before = scanned(tmp_path, alone)
    with file.open("rb") as first, file.open("rb") as second:
        file.unlink()
        found = scanned(tmp_path, alone)
        assert first.fileno() != second.fileno()
    (mine,) = set(found) - set(before)
    assert mine.deleted
    assert mine.bytes == pytest.approx(MIB, abs=8192)
    assert mine.path == str(file)
    assert mine.process == Path("/proc/self/comm").read_text().strip()


def test_when_time_is_up_the_rest_is_not_looked_at(tmp_path: Path) -> None:
    """Asked once; then the look ends, and says that it is not complete."""
    file = tmp_path / "gone"
    asked = []

    def in_time() -> bool:
        asked.append(True)
        return False

    with file.open("wb") as opened:
        opened.write(os.urandom(MIB))
        opened.flush()
        file.unlink()
        more = [os.dup(opened.fileno()) for _ in range(64)]
        device_id = tmp_path.stat().st_dev
        scan = OpenFilesScan()
        scan.filesystems[device_id] = device_id
        scan.run(in_time)
        for descriptor in more:
            os.close(descriptor)
    assert len(asked) == 1
    assert not scan.complete


def test_a_process_that_may_not_be_looked_at_is_counted(tmp_path: Path) -> None:
    """Without a capability, as the service runs: the files of processes that have one stay
    unseen, and that is told.
    """
    if os.geteuid() != 0 or "CapEff:\t0000000000000000" in Path("/proc/self/status").read_text():
        pytest.skip("needs root with capabilities, to have a process that has more than another")
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from eviction.survey.open_files import OpenFilesScan\n"
        "scan = OpenFilesScan(); scan.run(lambda: True)\n"
        "print(scan.processes, scan.unreadable, scan.complete)"
    )
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    command = [*without, sys.executable, "-S", "-c", program, str(ROOT)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    processes, unreadable, complete = process.stdout.split()
    assert int(processes) > int(unreadable) > 0
    assert complete == "True"
