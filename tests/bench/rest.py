"""The idle cost of a daemon: its processor time with two filesystems far from their marks and close
to them, with metrics on and a runtime, and while files are made in directories that it may watch;
its memory; and a storm of inotify events."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from eviction.drill.private_mounts import unmount
from signals.types import FilesystemRole, FsLayout
from signals.watcher import FsWatcher
from tests.bench.effort import Effort
from tests.bench.measure import Row
from tests.nodes.small_node import MIB, SmallNode
from tests.ports import free_port
from tests.reclaimd_process import Daemon, came_true
from tests.sockets.kubelet_server import Authority, KubeletServer, answer, pod_list, serving
from tests.sockets.mounts import mounted_tmpfs

GIB = 1 << 30
FAR = (10 * GIB, "far from their marks")
HEADROOMS = (FAR, (30 * MIB, "30 MiB above"), (MIB, "1 MiB above"))
TICKS = os.sysconf("SC_CLK_TCK")
WAKING = """
import os, sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(0.01)
    os.statvfs("/")
"""
STORM = """
import os, sys
for number in range(int(sys.argv[2])):  # each file is one event: its creation is watched, its removal is not
    path = f"{sys.argv[1]}/{number}"  # a name of its own, or the kernel would merge two events
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.unlink(path)
"""
SETTLED_SECONDS = 2.0  # the start and the first calls to the runtime are over
NEW_FILES_A_SECOND = 49
SCRAPES_A_SECOND = 20  # an hour of scrapes every 15 s, compressed into 12 s


def at_rest(effort: Effort) -> list[Row]:
    """Processor time in percent of a core, one value a stretch; then the
    memory after an hour's scrapes.
    """
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        small = SmallNode(Path(directory), FsLayout.DEDICATED_IMAGEFS, size_bytes=20 * GIB)
        try:
            for headroom, what in HEADROOMS:
                with Daemon("--config", configuration_at_rest(small, headroom)) as daemon:
                    time.sleep(SETTLED_SECONDS)
                    shares = [
                        _share(daemon.process.pid, effort.rest_seconds)
                        for _ in range(effort.stretches)
                    ]
                rows.append(Row(f"at rest, two filesystems {what}", "% of a core", shares))
            rows += _new_files(small, effort)
            rows.append(
                Row(
                    "one process that sleeps 10 ms and calls statvfs",
                    "% of a core",
                    _waking(effort),
                )
            )
            rows.append(_memory(small, effort))
            authority = Authority(Path(directory))
            identity = authority.identity("node", "IP:127.0.0.1")
            with KubeletServer(answer(pod_list()), tls=serving(identity, authority)) as kubelet:
                files = {
                    "kubeletCertificateFile": str(identity.certificate),
                    "kubeletKeyFile": str(identity.key),
                }
                asked = {
                    "kubeletEndpoint": kubelet.url,
                    "kubeletCAFile": str(authority.certificate),
                    **files,
                }
                rows.append(_memory(small, effort, ", a kubelet asked over HTTPS", **asked))
                assert kubelet.requests
        finally:
            small.close()
    return rows


def configuration_at_rest(small: SmallNode, headroom_bytes: int) -> str:
    """A configuration whose marks are so far below what is available, with metrics on."""
    marks = {
        f"{role}.available": str(small.available(where) - headroom_bytes)
        for role, where in (
            (FilesystemRole.NODEFS, small.disk),
            (FilesystemRole.IMAGEFS, small.image_disk),
        )
    }
    return small.configuration(evictionHard=marks, metricsAddress=f"127.0.0.1:{free_port()}")


def spent_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _share(pid: int, seconds: float) -> float:
    began, spent = time.monotonic(), spent_seconds(pid)
    time.sleep(seconds)
    return 100 * (spent_seconds(pid) - spent) / (time.monotonic() - began)


def _new_files(small: SmallNode, effort: Effort) -> list[Row]:
    """Processor time while files are made where a watch would see each, far from the
    marks; the ways in turns.
    """
    ways: dict[str, tuple[str, ...]] = {"with inotify": (), "polling alone": ("--no-watch",)}
    shares: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(effort.stretches):
        for way, options in ways.items():
            with Daemon("--config", configuration_at_rest(small, FAR[0]), *options) as daemon:
                time.sleep(SETTLED_SECONDS)
                shares[way].append(
                    _share_with_new_files(
                        daemon.process.pid, small.root_directory, effort.rest_seconds
                    )
                )
    name = f"{NEW_FILES_A_SECOND} new files a second, two filesystems {FAR[1]}"
    return [Row(f"{name}, {way}", "% of a core", values) for way, values in shares.items()]


def _share_with_new_files(pid: int, directory: Path, seconds: float) -> float:
    began, spent = time.monotonic(), spent_seconds(pid)
    while time.monotonic() - began < seconds:
        (directory / "new").touch()
        (directory / "new").unlink()
        time.sleep(1 / NEW_FILES_A_SECOND)
    return 100 * (spent_seconds(pid) - spent) / (time.monotonic() - began)


def _waking(effort: Effort) -> list[float]:
    """The cost of a hundred wake-ups a second with one `statvfs` each: the floor of any polling."""
    shares = []
    for _ in range(effort.stretches):
        command = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            WAKING,
            str(effort.rest_seconds + SETTLED_SECONDS),
        ]
        child = subprocess.Popen(command)
        time.sleep(SETTLED_SECONDS / 2)  # its start is over
        shares.append(_share(child.pid, effort.rest_seconds))
        child.wait()
    return shares


def _memory(small: SmallNode, effort: Effort, beside: str = "", **fields: Any) -> Row:
    """Memory after as many scrapes as in an hour, and as many observations as in
    half an hour close to a mark.
    """
    address = f"127.0.0.1:{free_port()}"
    marks = {"nodefs.available": str(small.available() - MIB)}
    path = small.configuration(
        evictionHard=marks, metricsAddress=address, pollCeiling="20ms", **fields
    )
    with Daemon("--config", path) as daemon:
        time.sleep(SETTLED_SECONDS)
        for _ in range(int(effort.memory_seconds * SCRAPES_A_SECOND)):
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as page:
                page.read()
            time.sleep(1 / SCRAPES_A_SECOND)
        mebibytes = resident_mib(daemon.process.pid)
    return Row(
        f"resident memory with metrics on{beside}, after an hour of scrapes", "MiB", [mebibytes]
    )


def resident_mib(pid: int) -> float:
    """Resident memory of a process, MiB."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


def storm(effort: Effort) -> list[Row]:
    """Files created and unlinked in a watched directory as fast as one core can: the watcher's
    share of a core, and how late an observation every 10 ms in the same process is."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        mounted_tmpfs(directory, 16 * MIB, 1000)  # a disk of its own, faster than any other
        try:
            return _storm(directory, effort.storm_events)
        finally:
            unmount(directory)


def _storm(directory: str, events: int) -> list[Row]:
    watcher = FsWatcher((directory,), lambda: None, 10.0)
    watcher.start()
    assert came_true(lambda: bool(watcher.watched), 5.0)
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", STORM, directory, str(events)])
    late, began, spent = [], time.monotonic(), time.process_time()
    while child.poll() is None:
        due = time.monotonic() + 0.01
        time.sleep(0.01)
        late.append((time.monotonic() - due) * 1000)
    share = 100 * (time.process_time() - spent) / (time.monotonic() - began)
    watcher.stop()
    name = f"a storm of {events} inotify events"
    return [
        Row(f"{name}: the watcher's processor time", "% of a core", [share]),
        Row(f"{name}: how late an observation was", "ms", late),
    ]
