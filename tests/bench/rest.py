"""The cost of a daemon at rest, with metrics on: its processor time with two filesystems far from
their marks and close to them, and its memory."""

from __future__ import annotations

import os
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from signals.types import FilesystemRole, FsLayout
from tests.bench.effort import Effort
from tests.bench.measure import Row
from tests.nodes.small_node import MIB, SmallNode
from tests.ports import free_port
from tests.reclaimd_process import Daemon
from tests.sockets.kubelet_server import Authority, KubeletServer, answer, pod_list, serving

GIB = 1 << 30
HEADROOMS = ((10 * GIB, "far from their marks"), (30 * MIB, "30 MiB above"))
TICKS = os.sysconf("SC_CLK_TCK")
SETTLED_SECONDS = 2.0  # the start and the first calls to the runtime are over
SCRAPES_A_SECOND = 20  # an hour of scrapes every 15 s, compressed into 12 s


def at_rest(effort: Effort) -> list[Row]:
    """Processor time in percent of a core, one value a stretch; then the
    memory after an hour's scrapes.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        small = SmallNode(Path(directory), FsLayout.DEDICATED_IMAGEFS, size_bytes=20 * GIB)
        try:
            rows = [_processor_time(small, effort, *headroom) for headroom in HEADROOMS]
            rows.append(_memory(small, effort))
            authority = Authority(Path(directory))
            identity = authority.identity("node", "IP:127.0.0.1")
            with KubeletServer(answer(pod_list()), tls=serving(identity, authority)) as kubelet:
                asked = {
                    "kubeletEndpoint": kubelet.url,
                    "kubeletCAFile": str(authority.certificate),
                    "kubeletCertificateFile": str(identity.certificate),
                    "kubeletKeyFile": str(identity.key),
                }
                rows.append(_memory(small, effort, ", a kubelet asked over HTTPS", **asked))
                assert kubelet.requests
        finally:
            small.close()
    return rows


def _processor_time(small: SmallNode, effort: Effort, headroom_bytes: int, what: str) -> Row:
    """With marks that are so far below what is available."""
    marks = {
        f"{role}.available": str(small.available(where) - headroom_bytes)
        for role, where in (
            (FilesystemRole.NODEFS, small.disk),
            (FilesystemRole.IMAGEFS, small.image_disk),
        )
    }
    file = small.configuration(evictionHard=marks, metricsAddress=f"127.0.0.1:{free_port()}")
    shares = []
    with Daemon("--config", file) as daemon:
        time.sleep(SETTLED_SECONDS)
        for _ in range(effort.stretches):
            began, spent = time.monotonic(), _spent_seconds(daemon.process.pid)
            time.sleep(effort.rest_seconds)
            spent = _spent_seconds(daemon.process.pid) - spent
            shares.append(100 * spent / (time.monotonic() - began))
    return Row(f"at rest, two filesystems {what}", "% of a core", shares)


def _spent_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


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
        status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    mebibytes = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    what = f"resident memory with metrics on{beside}, after an hour of scrapes"
    return Row(what, "MiB", [mebibytes])
