"""The tools of this ring do what they say: meters count leaks, a proxy changes nothing but by a
fault, a distortion is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from reclaim.cri import cri_pb2 as pb
from reclaim.cri.client import CriClient
from reclaim.types import RuntimeUnavailable
from tests.faults.meters import MIB, Meters
from tests.faults.proxy import Proxy
from tests.nodes.bare_runtime import BareRuntime
from tests.nodes.distortions import HUGE_NAME_CHARACTERS, Distort, Distortion, distorted
from tests.nodes.faults import Cut, Delay, Fail, Pretend
from tests.sockets.conftest import node

__all__ = ["node"]
pytestmark = pytest.mark.house("tests/faults", "tests/nodes")

LEAK = """
import os, threading, time
input(), print()
input()
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(7)]
for _ in range(3):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
block = bytearray(b"x") * (64 << 20)
print("leaked", flush=True)
input()
"""
UNKNOWN_FIELD = b"\xaa\x3e\x05hello"  # field 1000, a text

LIST = pb.ListContainersResponse(
    containers=[
        pb.Container(
            id=letter * 64,
            created_at=5,
            metadata=pb.ContainerMetadata(name=f"app-{letter}"),
            labels={"io.kubernetes.pod.name": "web", "io.kubernetes.pod.uid": "u"},
        )
        for letter in "abc"
    ]
)
IMAGES = pb.ListImagesResponse(
    images=[pb.Image(id="sha256:" + "12" * 32, size=7, repo_tags=["app:1"])]
)


def test_what_a_process_leaks_is_counted() -> None:
    """7 descriptors, 3 threads and 64 MiB more in another process are 7, 3 and at least 64 MiB in
    the report. The last reading of one that has ended is from before its end, which is told."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-uc", LEAK], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        with Meters(process.pid, every_seconds=0.01) as meters:
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"leaked\n"
        with Meters(process.pid, every_seconds=0.01) as last:
            process.communicate(b"\n")
    report = meters.report
    assert (report.descriptors_more, report.threads_more, report.ended) == (7, 3, False)
    assert report.peak.rss_bytes - report.first.rss_bytes >= 60 * MIB
    assert last.report.ended
    assert last.report.first.rss_bytes > 0


def raw(endpoint: str, method: str, request: bytes = b"", timeout_seconds: float = 60.0) -> bytes:
    """One call whose request and answer are bytes."""
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(endpoint.replace("unix://", "unix:"), options=options) as channel:
        ask: Any = channel.unary_unary(f"/runtime.v1.{method}")
        answer: bytes = ask(request, timeout=timeout_seconds)
        return answer


def test_a_proxy_changes_nothing_but_by_a_fault(node: BareRuntime, tmp_path: Path) -> None:
    """The answer is the runtime's to the byte, also for a request with an unknown field; an error
    has its code, also one for a method that the runtime lacks, and deadlines hold. Fail and Pretend
    do not call the runtime; Distort and Cut change the runtime's own answer."""
    faults = node.server.failpoints
    with Proxy(node.server.socket_path, str(tmp_path / "proxy.sock")) as proxy:
        request = pb.StatusRequest(verbose=True).SerializeToString() + UNKNOWN_FIELD
        method = "RuntimeService/Status"
        assert raw(proxy.endpoint, method, request) == raw(node.server.target, method, request)
        assert proxy.failpoints.calls["Status"] == 1
        unknown = pb.ContainerStatusRequest(container_id="c0ffee").SerializeToString()
        faults["ListImages"] = Delay(30.0)
        for method, request, seconds, code in (
            ("RuntimeService/ContainerStatus", unknown, 60.0, "NOT_FOUND"),
            ("RuntimeService/CheckpointContainer", b"", 60.0, "UNIMPLEMENTED"),
            ("ImageService/ListImages", b"", 0.3, "DEADLINE_EXCEEDED"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                raw(proxy.endpoint, method, request, seconds)
            assert caught.value.code().name == code
        faults.clear()
        before, client = faults.calls.total(), CriClient(proxy.endpoint)
        proxy.failpoints["ListImages"] = Fail(message="on purpose")
        with pytest.raises(RuntimeUnavailable, match="on purpose"):
            client.list_images()
        proxy.failpoints["RemoveImage"] = Pretend()
        assert client.remove_image(node.app_id) is True
        assert faults.calls.total() == before
        proxy.failpoints["ListImages"] = Distort(Distortion.LARGEST_SIZES)
        assert {image.size_bytes for image in client.list_images()} == {(1 << 63) - 1}
        proxy.failpoints["ListImages"] = Cut(message="cut short")
        with pytest.raises(RuntimeUnavailable, match="cut short"):
            client.list_images()
        assert faults.calls.total() == before + 2
        client.close()


def test_a_distortion_changes_a_copy() -> None:
    """The answer itself stays as it was, for every distortion; each changes something of some
    answer, and never the label that decides. Names stay different."""
    before = LIST.SerializeToString(deterministic=True)
    status = pb.ContainerStatusResponse(status=pb.ContainerStatus(log_path="/x"))
    for how in Distortion:
        assert any(distorted(answer, how) != answer for answer in (LIST, IMAGES, status)), how
        entries = distorted(LIST, how).containers
        assert {each.labels["io.kubernetes.pod.uid"] for each in entries} == {"u"}
    assert LIST.SerializeToString(deterministic=True) == before
    huge = {each.metadata.name for each in distorted(LIST, Distortion.HUGE_NAMES).containers}
    assert len(huge) == 3
    assert all(len(name) > HUGE_NAME_CHARACTERS - 8 for name in huge)
