"""The tools of this ring do what they say: meters count leaks and time a heartbeat that stops, a
proxy changes nothing but by a fault."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from reclaim.cri import cri_pb2
from reclaim.cri.client import CriClient
from reclaim.types import RuntimeUnavailable
from tests.faults.meters import MIB, Meters
from tests.faults.proxy import Proxy
from tests.nodes.bare_runtime import NAME, BareRuntime
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import Cut, Delay, Fail, Pretend
from tests.reclaimd_process import came_true
from tests.sockets.conftest import node

__all__ = ["node"]
pytestmark = pytest.mark.house("tests/faults/meters.py", "tests/faults/proxy.py")

LEAK = """
import os, sys, threading, time
sys.stdin.readline()
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(7)]
for _ in range(3):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
block = bytearray(b"x") * (64 << 20)
print("leaked", flush=True)
sys.stdin.readline()
"""


def child(program: str) -> subprocess.Popen[str]:
    """A Python program that is talked to."""
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> str:
    """What it says to a line."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_what_a_process_leaks_is_counted() -> None:
    """7 descriptors, 3 threads and 64 MiB more in another process are 7, 3 and at least 64 MiB in
    the report. The last reading of one that has ended is from before its end, which is told."""
    with child("input(); print(); " + LEAK) as process:
        told(process)
        with Meters(process.pid, every_seconds=0.01) as meters:
            assert told(process) == "leaked"
        with Meters(process.pid, every_seconds=0.01) as last:
            process.communicate("\n")
    report = meters.report
    assert (report.descriptors_more, report.threads_more, report.ended) == (7, 3, False)
    assert report.peak.rss_bytes - report.first.rss_bytes >= 60 * MIB
    assert last.report.ended
    assert last.report.first.rss_bytes > 0


def test_what_is_released_again_is_a_peak_and_no_leak() -> None:
    """20 descriptors that are closed again show in the peak, not at the end; the meters' own thread
    is not counted, but one that is still alive at the end is. The longest stall is that of a
    heartbeat that is 0.3 s old, or of one that does not answer for longer."""
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    ages = [0.01, 0.3, 0.02]

    def age() -> float | None:
        """Of a heartbeat; then nobody answers."""
        return ages.pop(0) if ages else None

    with Meters(os.getpid(), age, every_seconds=0.005) as meters:
        opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
        samples = meters.report.samples
        assert came_true(lambda: meters.report.samples >= samples + 5)
        assert meters.report.longest_stall_seconds == 0.3
        assert came_true(lambda: (meters.report.longest_stall_seconds or 0.0) > 0.3)
        before = meters.report.peak
        for descriptor in opened:
            os.close(descriptor)
        thread.start()
    release.set()
    thread.join()
    report = meters.report
    assert (report.descriptors_more, report.threads_more) == (0, 1)
    assert before.descriptors >= report.first.descriptors + 20
    assert before.threads == report.first.threads


# ---- the proxy

UNKNOWN_FIELD = b"\xaa\x3e\x05hello"  # field 1000, a text


@pytest.fixture
def proxy(node: BareRuntime, tmp_path: Path) -> Iterator[Proxy]:
    """A proxy in front of the runtime."""
    with Proxy(node.server.socket_path, str(tmp_path / "proxy.sock")) as serving:
        yield serving


def raw(endpoint: str, method: str, request: bytes = b"", timeout_seconds: float = 5.0) -> bytes:
    """One call whose request and answer are bytes."""
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(endpoint.replace("unix://", "unix:"), options=options) as channel:
        ask: Any = channel.unary_unary(f"/runtime.v1.{method}")
        answer: bytes = ask(request, timeout=timeout_seconds)
        return answer


def test_what_passes_the_proxy_is_unchanged(node: BareRuntime, proxy: Proxy) -> None:
    """The answer is the runtime's to the byte, also for a request with an unknown field; an error
    has its code and message, also one for a method that the runtime lacks. Deadlines hold behind
    the proxy, and where there is none, there is none there."""
    request = cri_pb2.StatusRequest(verbose=True).SerializeToString() + UNKNOWN_FIELD
    method = "RuntimeService/Status"
    assert raw(proxy.endpoint, method, request) == raw(node.server.target, method, request)
    assert proxy.failpoints.calls["Status"] == 1
    node.server.failpoints["ListImages"] = Delay(30.0)
    unknown = cri_pb2.ContainerStatusRequest(container_id="c0ffee").SerializeToString()
    for method, request, code, said in (
        ("RuntimeService/ContainerStatus", unknown, grpc.StatusCode.NOT_FOUND, "c0ffee"),
        ("RuntimeService/CheckpointContainer", b"", grpc.StatusCode.UNIMPLEMENTED, ""),
        ("ImageService/ListImages", b"", grpc.StatusCode.DEADLINE_EXCEEDED, ""),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            raw(proxy.endpoint, method, request, 0.3 if "List" in method else 60.0)
        assert caught.value.code() is code
        assert said in (caught.value.details() or "")
    node.server.failpoints.clear()
    node.server.failpoints["RemoveImage"] = Delay(0.5)
    client = CriClient(proxy.endpoint)
    assert client.remove_image(node.app_id) is True
    assert NAME not in [tag for image in node.images() for tag in image.repo_tags]
    client.close()


def test_faults_of_the_proxy_do_not_reach_the_runtime(node: BareRuntime, proxy: Proxy) -> None:
    """Fail and Pretend do not call the runtime; Distort and Cut change the runtime's own answer."""
    client = CriClient(proxy.endpoint)
    proxy.failpoints["ListImages"] = Fail(grpc.StatusCode.INTERNAL, "on purpose")
    with pytest.raises(RuntimeUnavailable, match="on purpose"):
        client.list_images()
    proxy.failpoints["RemoveImage"] = Pretend()
    assert client.remove_image(node.app_id) is True
    assert node.server.failpoints.calls.total() == 0
    proxy.failpoints["ListImages"] = Distort(Distortion.LARGEST_SIZES)
    assert {image.size_bytes for image in client.list_images()} == {(1 << 63) - 1}
    proxy.failpoints["ListImages"] = Cut(message="cut short")
    with pytest.raises(RuntimeUnavailable, match="cut short"):
        client.list_images()
    assert node.server.failpoints.calls["ListImages"] == 2
    client.close()
