"""A tmpfs without a free byte or inode is relieved, nothing before the first removal creates a file,
and very many dead containers are listed and removed within 200 MiB of memory.

The soak lists and removes 50 000, which takes minutes; the suite has fewer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from eviction.drill.runtime import Container, deterministic_id, exited
from reclaim.cri import cri_pb2
from reclaim.cri.client import CriClient
from reclaim.cri.convert import CONTAINER_NAME_LABEL
from reclaim.types import RuntimeUnavailable
from signals.types import Signal
from tests.faults.meters import MIB, Meters, high_water_bytes
from tests.full_disk import environment_on, full, relieved, tell
from tests.nodes.faults import Cut, Delay, Hang
from tests.nodes.full_server import StreamingServer
from tests.nodes.small_node import Pod, SmallNode, labels_of
from tests.reclaimd_process import PROGRAM, Daemon, came_true
from tests.repository import ROOT
from tests.rows import rows
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.mounts import tmpfs

# ---- full

CREATING = "open,openat,openat2,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,rename,renameat,renameat2"
PACKAGES = ("eviction", "reclaim", "signals")


def turn(small: SmallNode, number: int, *, inodes: bool) -> float:
    """Fills a filesystem that has three removable images, and relieves it. Working directory, HOME,
    TMPDIR, state file and control socket are on it."""
    if not number:
        small.run(small.run_pod("web"))
    # two are the pause image and that of the pod
    for image in range(5 - len(small.images())):
        small.add_image(f"registry.example/spare/{number}/{image}:1", 8 * MIB, files=400)
    signal = Signal.NODEFS_INODES_FREE if inodes else Signal.NODEFS_AVAILABLE
    configuration = small.configuration(
        evictionHard={str(signal): "300" if inodes else "5Mi"},
        stateFile=str(small.disk / "state" / "images.json"),
        controlSocket=str(small.disk / "control" / "control.sock"),
    )
    seconds = relieved(small.disk, configuration, number, inodes=inodes)
    assert {small.pause_id, small.app_id} <= small.images()
    return seconds


@pytest.mark.parametrize(
    "runs", [2, pytest.param(20, marks=(pytest.mark.soak, pytest.mark.timeout(1800)))]
)
@pytest.mark.parametrize("inodes", [False, True], ids=["bytes", "inodes"])
def test_a_full_tmpfs_is_relieved_by_a_cold_start_and_by_a_running_daemon(
    small_node: SmallNode, inodes: bool, runs: int
) -> None:
    """One run of each; or ten of each, alternating, of which none fails."""
    times = [turn(small_node, number, inodes=inodes) for number in range(runs)]
    tell(f"tmpfs-{'inodes' if inodes else 'bytes'}", times)


def created(trace: Path) -> list[str]:
    """The calls of an strace log that create a name in a filesystem, failed attempts included. The
    second line of a call that another thread interrupted, `<... openat resumed>`, has only the
    result and is left out."""
    return [
        line
        for line in trace.read_text(errors="replace").splitlines()
        if " resumed>" not in line
        and (not re.search(r"\bopen(at2?)?\(", line) or "O_CREAT" in line or "O_TMPFILE" in line)
    ]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("command", ["reclaim", "run"])
def test_nothing_from_the_start_to_the_last_removal_creates_a_file(
    small_node: SmallNode, tmp_path: Path, command: str
) -> None:
    """strace records no system call that could create a file, not even a failed one, although the
    environment lets Python write its bytecode. The directory of the lock is there, as at every
    start but the first after a boot."""
    packages = [str(ROOT / each) for each in PACKAGES]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True)
    small_node.run(small_node.run_pod("web"))
    images = set(small_node.add_images(2))
    small_node.gone_pod("gone")
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=20 * MIB)
    (Path(configuration).parent / "lock").mkdir(mode=0o700)
    trace = tmp_path / "trace"
    options = f"-f -qq --seccomp-bpf -e trace={CREATING} -e signal=none -o {trace}"
    process = subprocess.Popen(
        ["strace", *options.split(), PROGRAM, command, "--config", configuration],
        cwd=small_node.disk,
        env=environment_on(small_node.disk),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert came_true(lambda: images <= set(small_node.removed("image")))
    finally:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        if command == "run":
            os.kill(int(children), 15)
        process.wait(60.0)
    assert created(trace) == []


def test_a_start_on_a_full_disk_left_half_a_module_behind(tmp_path: Path) -> None:
    """Python before 3.12.8 leaves the part of a module's bytecode that fits; every later start then
    ended with `EOFError: marshal data too short`. Now only the bytecode of the first two modules is
    written, a block each."""
    disk = tmp_path / "disk"
    program = (
        f"import sys; sys.path.insert(0, {str(disk)!r}); from eviction.__main__ import main; main()"
    )
    environment = environment_on(disk)
    environment.pop("PYTHONPATH", None)
    without = shutil.ignore_patterns("__pycache__")

    def starts() -> None:
        """`--help` of the program's copy there, as its console script would."""
        command = [sys.executable, "-c", program, "--help"]
        subprocess.run(command, env=environment, cwd=disk, capture_output=True, check=True)

    with tmpfs(disk, 16 * MIB, 4000):
        for package in PACKAGES:
            shutil.copytree(ROOT / package, disk / package, ignore=without)
        for pages in (1, 2, 3, 5, 9):
            for cache in disk.rglob("__pycache__"):
                shutil.rmtree(cache)
            with full(disk, inodes=False):
                room = disk / "room" / "bytes-0"
                os.truncate(room, os.path.getsize(room) - pages * 4096)
                starts()
            starts()
            written = {
                str(path.relative_to(disk)).partition(".cpython")[0] for path in disk.rglob("*.pyc")
            }
            assert written <= {"eviction/__pycache__/__init__", "eviction/__pycache__/__main__"}


# ---- large

MANY = 50_000
PODS = 50
LARGEST_MEMORY_BYTES = 200 * MIB
SECOND_NS = 1_000_000_000
STATE = '{"exitCode":1,"finishedAt":"2026-01-01T00:00:00Z","reason":"Error","containerID":"'


def crowd(small: SmallNode, count: int, pods: int = PODS) -> set[str]:
    """Adds `count` dead containers of deleted pods, which ran for a second ten minutes ago, each
    with a name of its own; their ids. They are records in the lists of the runtime, without files
    on the disk: 50 000 writable layers would take minutes and as many inodes."""
    ids: set[str] = set()
    for number in range(pods):
        pod = small.run_pod(f"batch-{number}")
        made = dict(dead(small, pod, place) for place in range(count // pods))
        with small.runtime._lock:
            small.runtime._containers.update(made)
            small.runtime._sandbox_of.update(dict.fromkeys(made, pod.sandbox_id))
            small.runtime._layers.update(dict.fromkeys(made, ()))
        ids |= made.keys()
        small.vanish(pod)
    return ids


def dead(small: SmallNode, pod: Pod, place: int) -> tuple[str, Container]:
    """One of them. It has the labels and annotations of a kubelet's container: about 1.1 KB on the
    wire, as measured on containerd."""
    container_id = deterministic_id("crowd", pod.sandbox_id, place)
    name, died_at = f"job-{place:05d}", small.runtime._now_ns() - 600 * SECOND_NS
    return container_id, Container(
        id=container_id,
        metadata=cri_pb2.ContainerMetadata(name=name),
        image=cri_pb2.ImageSpec(image=small.app_id),
        image_ref=small.app_id,
        image_id=small.app_id,
        labels={**labels_of(pod.name, pod.uid), CONTAINER_NAME_LABEL: name},
        annotations={
            "io.kubernetes.container.hash": container_id[:8],
            "io.kubernetes.container.restartCount": "0",
            "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
            "io.kubernetes.container.terminationMessagePolicy": "File",
            "io.kubernetes.pod.terminationGracePeriod": "30",
            "reclaimd.io/last-state": STATE + container_id + '"}',
        },
        created_at=died_at - 2 * SECOND_NS,
        started_at=died_at - SECOND_NS,
        reason="Error",
        **exited(1, died_at),
    )


@pytest.mark.parametrize("count", [10_000, pytest.param(MANY, marks=pytest.mark.soak)])
def test_very_many_containers_are_listed_and_planned_within_200_mib(
    small_node: SmallNode, count: int
) -> None:
    """The list is one answer of 9 or 46 MiB, which a busy machine does not deliver within the
    deadline of 10 s; when removals begin, the daemon's peak is below 200 MiB."""
    crowd(small_node, count)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=20 * MIB)
    with Daemon("--config", configuration, cold=True) as daemon:
        assert came_true(lambda: len(small_node.removed("container")) > 10), daemon.events
        peak = high_water_bytes(daemon.process.pid)
    assert peak < LARGEST_MEMORY_BYTES, f"{peak / MIB:.0f} MiB"


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_fifty_thousand_containers_are_cleared(small_node: SmallNode) -> None:
    """One run of the daemon removes all of them and their sandboxes within 200
    MiB and 40 threads.
    """
    made = crowd(small_node, MANY)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=20 * MIB)
    with (
        Daemon("--config", configuration, cold=True) as daemon,
        Meters(daemon.process.pid) as meters,
    ):
        assert came_true(lambda: made <= set(small_node.removed("container")), 1800.0)
        assert came_true(lambda: len(small_node.removed("sandbox")) == PODS, 120.0)
        assert came_true(lambda: bool(daemon.passes)), "the record is written, too"
        peak = high_water_bytes(daemon.process.pid)
    print(f"{MANY} containers cleared with a peak of {peak / MIB:.0f} MiB; {meters.report}")
    assert peak < LARGEST_MEMORY_BYTES, f"{peak / MIB:.0f} MiB"
    assert meters.report.peak.threads < 40, str(meters.report)
    assert meters.report.descriptors_more <= 2, str(meters.report)


def test_pressure_at_the_start_does_not_wait_for_the_status_of_each_container(
    small_node: SmallNode,
) -> None:
    """2 000 containers on a runtime that mounts images, with 20 ms for each ContainerStatus:
    asking all of them for their volumes first delayed the first removal by 40 s. Now fewer
    than 200 calls precede it."""
    crowd(small_node, 2000, pods=2)
    small_node.failpoints["ContainerStatus"] = Delay(0.02)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=20 * MIB)
    small_node.failpoints["RemoveContainer"] = Hang()
    with Daemon("--config", configuration):
        small_node.wait_for("RemoveContainer")
        assert small_node.failpoints.calls["ContainerStatus"] < 200
        small_node.failpoints.clear()


def test_a_list_that_is_too_large_for_one_message_comes_as_a_stream(
    make_small_node: SmallNodeFactory,
) -> None:
    """A list larger than one message (here 1 MiB, containerd 16 MiB) is fetched by the
    streaming method, completely. The embedded runtime keeps containers as records, without an
    inode."""
    small = make_small_node(server=StreamingServer, largest_answer_bytes=1 << 20)
    small.stands()
    inodes = small.inodes_free()
    made = crowd(small, 3000, pods=3)
    assert small.inodes_free() >= inodes - 2
    client = CriClient(small.endpoint)
    assert {each.id for each in client.list_containers()} == made
    assert len(client.list_pod_sandboxes()) == 3 + 1, "and that of a pod that runs"
    calls = small.failpoints.calls
    assert (calls["ListContainers"], calls["StreamContainers"]) == (1, 1)
    assert calls["StreamPodSandboxes"] == 0, "what fits is not streamed"
    client.close()


@rows("""
    what                                        | streams | said
    half of the containers                      | yes     | cut in the middle
    no streaming: the error is that of the list |         | RESOURCE_EXHAUSTED
""")
def test_a_stream_that_is_cut_is_no_list(
    make_small_node: SmallNodeFactory, streams: bool, said: str
) -> None:
    """Nor is what a runtime cannot stream."""
    options = {"server": StreamingServer} if streams else {}
    small = make_small_node(largest_answer_bytes=1 << 20, **options)
    crowd(small, 3000, pods=3)
    if streams:
        cut = Cut(grpc.StatusCode.INTERNAL, "cut in the middle")
        small.failpoints["StreamContainers"] = cut
    client = CriClient(small.endpoint)
    with pytest.raises(RuntimeUnavailable, match=said):
        client.list_containers()
    client.close()
