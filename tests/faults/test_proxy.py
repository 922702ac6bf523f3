"""The proxy itself passes on what was sent, and only a fault changes anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from reclaim.cri import cri_pb2
from reclaim.cri.client import CriClient
from reclaim.types import RuntimeUnavailable
from tests.faults.proxy import Proxy
from tests.nodes.bare_runtime import NAME, BareRuntime
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import Cut, Delay, Fail, Pretend

pytestmark = pytest.mark.house("tests/faults/proxy.py")

UNKNOWN_FIELD = b"\xaa\x3e\x05hello"  # field 1000, a text


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BareRuntime]:
    """A runtime."""
    made = BareRuntime(tmp_path)
    yield made
    made.close()


@pytest.fixture
def proxy(node: BareRuntime, tmp_path: Path) -> Iterator[Proxy]:
    """A proxy in front of it."""
    with Proxy(node.server.socket_path, str(tmp_path / "proxy.sock")) as serving:
        yield serving


def raw(endpoint: str, method: str, request: bytes, timeout_seconds: float | None = 5.0) -> bytes:
    """One call whose request and answer are bytes."""
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(endpoint.replace("unix://", "unix:"), options=options) as channel:
        ask: Any = channel.unary_unary(method)
        answer: bytes = ask(request, timeout=timeout_seconds)
        return answer


def test_bytes_pass_unchanged(node: BareRuntime, proxy: Proxy) -> None:
    """The answer is the runtime's to the byte, also for a request with an unknown field."""
    request = cri_pb2.StatusRequest(verbose=True).SerializeToString() + UNKNOWN_FIELD
    method = "/runtime.v1.RuntimeService/Status"
    assert raw(proxy.endpoint, method, request) == raw(node.server.target, method, request)
    assert proxy.failpoints.calls["Status"] == 1


def test_an_error_passes_with_code_and_message(node: BareRuntime, proxy: Proxy) -> None:
    """NOT_FOUND of the runtime is NOT_FOUND for the caller; a method that
    it lacks is UNIMPLEMENTED.
    """
    request = cri_pb2.ContainerStatusRequest(container_id="c0ffee").SerializeToString()
    with pytest.raises(grpc.RpcError) as caught:
        raw(proxy.endpoint, "/runtime.v1.RuntimeService/ContainerStatus", request)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "c0ffee" in (caught.value.details() or "")
    with pytest.raises(grpc.RpcError) as caught:
        raw(proxy.endpoint, "/runtime.v1.RuntimeService/CheckpointContainer", b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_call_without_a_deadline_has_none_behind_the_proxy_either(
    node: BareRuntime, proxy: Proxy
) -> None:
    """A removal that takes 0.5 s succeeds."""
    node.server.failpoints["RemoveImage"] = Delay(0.5)
    client = CriClient(proxy.endpoint)
    assert client.remove_image(node.app_id) is True
    assert NAME not in [tag for image in node.images() for tag in image.repo_tags]
    client.close()


def test_a_deadline_holds_behind_the_proxy_too(node: BareRuntime, proxy: Proxy) -> None:
    """A list that hangs in the runtime fails at its caller's deadline."""
    node.server.failpoints["ListImages"] = Delay(30.0)
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        raw(proxy.endpoint, "/runtime.v1.ImageService/ListImages", b"", timeout_seconds=0.3)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began < 20, "it hangs for 30 s"
    node.server.failpoints.clear()


def test_faults_of_the_proxy_do_not_reach_the_runtime(node: BareRuntime, proxy: Proxy) -> None:
    """Fail and Pretend do not call the runtime; Distort and Cut change the runtime's own answer."""
    client = CriClient(proxy.endpoint)
    proxy.failpoints["ListImages"] = Fail(grpc.StatusCode.INTERNAL, "on purpose")
    with pytest.raises(RuntimeUnavailable, match="on purpose"):
        client.list_images()
    assert node.server.failpoints.calls["ListImages"] == 0
    proxy.failpoints["RemoveImage"] = Pretend()
    assert client.remove_image(node.app_id) is True
    assert node.server.failpoints.calls["RemoveImage"] == 0
    proxy.failpoints["ListImages"] = Distort(Distortion.LARGEST_SIZES)
    assert {image.size_bytes for image in client.list_images()} == {(1 << 63) - 1}
    proxy.failpoints["ListImages"] = Cut(message="cut short")
    with pytest.raises(RuntimeUnavailable, match="cut short"):
        client.list_images()
    assert node.server.failpoints.calls["ListImages"] == 2
    client.close()
