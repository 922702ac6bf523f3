"""What reclaimd costs: at rest, and from its start to a removal.

At rest: a daemon with metrics on, its processor time with two filesystems far from their marks and
close to them, and its memory. Whole processes: `reclaimd --help`, and `reclaimd reclaim` from exec
to the first removal, by the daemon and standalone. How soon the first byte is free on a real
containerd: `ablate nothing`.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from signals.types import FilesystemRole, FsLayout, Signal
from tests.lab.bench.measure import Effort, Row
from tests.nodes.small_node import MIB, SmallNode
from tests.ports import free_port
from tests.reclaimd_process import ENVIRONMENT, PROGRAM, Daemon, answer, came_true, reclaimd
from tests.sockets import kubelet_server
from tests.sockets.kubelet_server import Authority, KubeletServer, pod_list, serving

GIB = 1 << 30
HEADROOMS = ((10 * GIB, "far from their marks"), (30 * MIB, "30 MiB above"))
SETTLED_SECONDS = 2.0  # the start and the first calls to the runtime are over
SCRAPES_A_SECOND = 20  # an hour of scrapes every 15 s, compressed into 12 s
IMAGES = 40
PODS = 10
WITHIN_SECONDS = 30.0


# ---- at rest


def at_rest(effort: Effort) -> list[Row]:
    """Processor time in percent of a core, one value a stretch; then the
    memory after an hour's scrapes.
    """
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
        closing(
            SmallNode(Path(directory), FsLayout.DEDICATED_IMAGEFS, size_bytes=20 * GIB)
        ) as small,
    ):
        rows = [_processor_time(small, effort, *headroom) for headroom in HEADROOMS]
        rows.append(_memory(small, effort))
        authority = Authority(Path(directory))
        identity = authority.identity("node", "IP:127.0.0.1")
        tls = serving(identity, authority)
        with KubeletServer(kubelet_server.answer(pod_list()), tls=tls) as kubelet:
            asked = {
                "kubeletEndpoint": kubelet.url,
                "kubeletCAFile": str(authority.certificate),
                "kubeletCertificateFile": str(identity.certificate),
                "kubeletKeyFile": str(identity.key),
            }
            rows.append(_memory(small, effort, ", a kubelet asked over HTTPS", **asked))
            assert kubelet.requests
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
        process = psutil.Process(daemon.process.pid)
        for _ in range(effort.stretches):
            process.cpu_percent()  # of the time until the next call
            time.sleep(effort.rest_seconds)
            shares.append(process.cpu_percent())
    return Row(f"at rest, two filesystems {what}", "% of a core", shares)


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
        mebibytes = psutil.Process(daemon.process.pid).memory_info().rss / MIB
    what = f"resident memory with metrics on{beside}, after an hour of scrapes"
    return Row(what, "MiB", [mebibytes])


# ---- whole processes


def start_up(effort: Effort) -> list[Row]:
    """The start, and hooks on an embedded node with 40 images and 10 pods; until the runtime
    receives the removal."""
    help_ms, asking, alone = list[float](), list[float](), list[float]()
    for _ in range(effort.hooks):
        began = time.perf_counter()
        subprocess.run([PROGRAM, "--help"], check=True, capture_output=True)
        help_ms.append((time.perf_counter() - began) * 1000)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as directory,
        closing(SmallNode(Path(directory), size_bytes=400 * MIB)) as small,
    ):
        for number in range(PODS):
            small.run(small.run_pod(f"pod-{number}"))
        small.add_images(IMAGES, MIB)
        configuration = small.configuration(
            evictionHard={"nodefs.available": "1"},
            controlSocket=f"{directory}/run/control.sock",
            holdOffAfterStart="1h",
        )
        status = ("status", "--config", configuration, "-o", "json")
        with Daemon("--config", configuration):
            # it has located the images
            assert came_true(
                lambda: answer(reclaimd(*status))["layout"] is not None, WITHIN_SECONDS
            )
            asking += [one_hook(small, configuration) for _ in range(effort.hooks)]
        alone += [one_hook(small, configuration, "--standalone") for _ in range(effort.hooks)]
    hook = "embedded node: hook, exec to the first removal"
    return [
        Row("reclaimd --help", "ms", help_ms),
        Row(f"{hook}, asking the daemon", "ms", asking),
        Row(f"{hook}, standalone", "ms", alone),
    ]


def one_hook(small: SmallNode, configuration: str, *arguments: str) -> float:
    """Milliseconds until the runtime received the removal of one image."""
    mark = small.available() + MIB
    before = small.failpoints.calls["RemoveImage"]
    command = [PROGRAM, "reclaim", "--config", configuration, "--now", *arguments]
    asked = ("--signal", str(Signal.NODEFS_AVAILABLE), "--until", str(mark))
    began = time.monotonic()
    with subprocess.Popen([*command, *asked], env=ENVIRONMENT, stdout=subprocess.DEVNULL) as hook:
        small.wait_for("RemoveImage", before + 1)
        seconds = time.monotonic() - began
    if hook.returncode:
        raise RuntimeError(f"{command} ended with {hook.returncode}")
    small.add_image(f"registry.example/again/{before}:1", MIB)
    return seconds * 1000
