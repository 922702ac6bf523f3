"""`kubeletEndpoint: auto` at the kubelet's own socket: when it is asked,
and when it is not trusted.

That a server which violates the protocol ends one call in bounded time and memory is the channel's
(`tests/sockets/cri/test_hostile_server.py`).
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import grpc
import pytest

from eviction.configuration.kubelet_ways import (
    IdentityFiles,
    KubeletPlace,
    PodsOfKubelet,
    asking_for_pods,
)
from reclaim.evidence.pod_list import (
    KubeletLate,
    KubeletUnavailable,
    NotYet,
    WayRefused,
    parse_pod_list,
)
from reclaim.evidence.states import PodState
from reclaim.kubelet.client import CONFIGZ, KubeletEndpoint, ask_kubelet
from reclaim.kubelet.versions import NEWEST, KubeletVersion
from tests.nodes.small_node import CONTAINERS, SmallNode, reason_of, relieve
from tests.pods_wire import pods_answer
from tests.pure.values import SteppedClock
from tests.sockets.kubelet_server import (
    MARGIN_SECONDS,
    PODS,
    SHORT_SECONDS,
    Authority,
    KubeletServer,
    Step,
    answer,
    pod_list,
    refused,
    serving,
)
from tests.sockets.pods_api_server import NOT_YET, RATE_LIMIT, SERVICE, PodsAPIServer

FILES = IdentityFiles((), (), ())
DONE = {"metadata": {"uid": "uid-1"}, "status": {"phase": "Succeeded"}}


class OtherWay(KubeletServer):
    """The kubelet's port, with the certificate that it shows."""

    def __init__(self, directory: Path, script: Step):
        if not Authority.available():
            pytest.skip(
                "certificates for the test are made with the openssl command, which is not there"
            )
        own = Authority(directory).identity("node-1", "DNS:node-1")
        self.certificate = own.certificate
        super().__init__(script, tls=serving(own))

    @property
    def port(self) -> int:
        """Its number."""
        return int(self.url.rpartition(":")[2])


def endpoint(server: PodsAPIServer) -> KubeletEndpoint:
    """Its socket."""
    return KubeletEndpoint(f"unix://{server.path}")


def search(
    root: Path,
    other: OtherWay | None = None,
    clock: SteppedClock | None = None,
    seconds: float = MARGIN_SECONDS,
) -> PodsOfKubelet:
    """A search on a node without any identity, and perhaps a port where none is needed."""
    return PodsOfKubelet(place(root, other), clock or SteppedClock(), seconds)


def place(root: Path, other: OtherWay | None) -> KubeletPlace:
    """Where the kubelet is asked; without another way none of its certificates is there."""
    if other is None:
        return KubeletPlace(str(root), files=FILES)
    return KubeletPlace(
        str(root), port=other.port, tls_cert_file=str(other.certificate), files=FILES
    )


def test_the_socket_is_asked_first(tmp_path: Path) -> None:
    """Its port gets no request; the same socket is asked again."""
    with (
        PodsAPIServer(tmp_path, pods_answer(DONE)) as server,
        OtherWay(tmp_path, answer(pod_list())) as other,
    ):
        found = search(tmp_path, other)
        for _ in range(2):
            assert parse_pod_list(found.get()).states == {"uid-1": PodState(terminated=True)}
        assert found.endpoint == endpoint(server)
        assert (server.calls, other.requests) == (2, [])


def test_where_it_no_longer_listens_the_others_are_asked(tmp_path: Path) -> None:
    """The feature was switched off, or the kubelet has restarted: a socket
    without a listener stays behind.
    """
    with OtherWay(tmp_path, answer(PODS)) as other:
        with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
            found = search(tmp_path, other)
            found.get()
        left_behind = server.path
        if not left_behind.exists():  # gRPC's server removes it, the kubelet's does not
            with socket.socket(socket.AF_UNIX) as nobody:
                nobody.bind(str(left_behind))
        assert found.get() == PODS
        assert found.endpoint is not None
        assert found.endpoint.url == other.url


@pytest.mark.parametrize(
    ("given", "service", "words"),
    [
        (
            (grpc.StatusCode.INTERNAL, "failed to marshal pod: " + "x" * 5000),
            SERVICE,
            "INTERNAL: failed to marshal pod",
        ),
        (pods_answer(DONE), "v1beta1.Pods", "UNIMPLEMENTED"),
        (pods_answer(DONE)[:-1], SERVICE, "INTERNAL: the list cannot be read"),
        (b"\xff" * 9, SERVICE, "INTERNAL: the list cannot be read"),
        (bytes(16 << 20) + b"\x00", SERVICE, "RESOURCE_EXHAUSTED: it is longer than 16 MiB"),
        (bytes(97 << 20), SERVICE, "RESOURCE_EXHAUSTED: a message of"),
    ],
)
def test_what_is_no_list_is_said_and_another_way_is_tried(
    given: bytes | tuple[grpc.StatusCode, str], service: str, words: str, tmp_path: Path
) -> None:
    """No answer is used in part; without another way the kubelet is left alone for a minute."""
    clock = SteppedClock()
    with PodsAPIServer(tmp_path, given, service) as server:
        error = refused(endpoint(server), MARGIN_SECONDS)
        assert words in str(error)
        assert len(str(error)) < 500
        assert isinstance(error, WayRefused)
        with OtherWay(tmp_path, answer(PODS)) as other:
            assert search(tmp_path, other).get() == PODS
        alone = search(tmp_path, clock=clock)
        with pytest.raises(
            KubeletUnavailable, match=r"as root at its socket: .* gave no list: "
        ) as caught:
            alone.get()
        calls = server.calls
        with pytest.raises(KubeletUnavailable):
            alone.get()
        assert server.calls == calls
        assert "the kubelet cannot be verified: there is no " in str(caught.value)
        clock.step(600.0)
        server.answer = pods_answer(DONE)
        if service == SERVICE:
            assert parse_pod_list(alone.get()).states.keys() == {"uid-1"}


@pytest.mark.parametrize("status", [NOT_YET, RATE_LIMIT])
def test_a_kubelet_that_says_not_yet_is_asked_again_and_nobody_else(
    status: tuple[grpc.StatusCode, str], tmp_path: Path
) -> None:
    """In 1 s, at its socket, before a first list and after one: another way's
    list would lack pods.
    """
    with PodsAPIServer(tmp_path, status) as server, OtherWay(tmp_path, answer(PODS)) as other:
        found = search(tmp_path, other)
        for calls in (1, 3):
            server.answer = status
            with pytest.raises(NotYet, match=rf" gave no list yet: {status[0].name}: {status[1]}$"):
                found.get()
            assert server.calls == calls
            server.answer = pods_answer(DONE)
            assert parse_pod_list(found.get()).states.keys() == {"uid-1"}
        assert other.requests == []


def test_a_socket_that_appears_is_asked_at_once(tmp_path: Path) -> None:
    """On a new node reclaimd looks before its first kubelet has made anything; nothing is searched
    for ten minutes, but the kubelet then listens."""
    found = search(tmp_path)
    with pytest.raises(KubeletUnavailable, match="no way was found"):
        found.get()
    with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
        assert parse_pod_list(found.get()).states.keys() == {"uid-1"}
        assert server.calls == 1


@pytest.mark.parametrize(
    ("version", "proved"),
    [
        (KubeletVersion("1.37.0", ""), True),
        (KubeletVersion("1.36.2", ""), False),
        (NEWEST, False),
    ],
)
@pytest.mark.parametrize("configured", [True, False])
def test_a_list_proves_that_all_sources_are_ready_from_1_37_on(
    version: KubeletVersion, proved: bool, configured: bool, tmp_path: Path
) -> None:
    """`pkg/kubelet/apis/pods/server.go`, validateReady: before it, FAILED_PRECONDITION. A version
    that was not told proves nothing, and neither does another way's list."""
    with (
        PodsAPIServer(tmp_path, pods_answer()) as server,
        OtherWay(tmp_path, answer(pod_list())) as other,
    ):
        access = endpoint(server) if configured else place(tmp_path, other)
        ask = asking_for_pods(access, SteppedClock(), version)
        assert ask is not None
        for _ in range(2):
            assert parse_pod_list(ask()).from_api_server is proved
        if not configured:
            server.answer = (grpc.StatusCode.UNIMPLEMENTED, "")
            assert not parse_pod_list(ask()).from_api_server


def test_a_kubelet_that_does_not_answer_is_late(tmp_path: Path) -> None:
    """It is asked nowhere else then: the deadline is for all ways together."""
    with PodsAPIServer(tmp_path, None) as server, OtherWay(tmp_path, answer(PODS)) as other:
        began = time.monotonic()
        error = refused(endpoint(server), SHORT_SECONDS)
        assert SHORT_SECONDS <= time.monotonic() - began < SHORT_SECONDS + MARGIN_SECONDS
        assert isinstance(error, KubeletLate)
        assert str(error).endswith("gave no complete answer within 0.3 s")
        with pytest.raises(KubeletUnavailable):
            search(tmp_path, other, seconds=SHORT_SECONDS).get()
        assert other.requests == []


@pytest.mark.parametrize(
    ("mode", "which"),
    [(0o777, "every user may connect to it"), (0o1757, None), (0o757, "every user may write")],
)
def test_a_socket_that_another_could_have_made_is_not_asked(
    mode: int, which: str | None, tmp_path: Path
) -> None:
    """0777 is the socket's mode, the others are its directory's; a sticky
    one is allowed, as anywhere.
    """
    with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
        os.chmod(server.path if mode == 0o777 else server.path.parent, mode)
        if which is None:
            ask_kubelet(endpoint(server))
            return
        error = refused(endpoint(server))
        assert f"{server.path} is not asked: the socket is not trusted: " in str(error)
        assert which in str(error)
        assert isinstance(error, WayRefused)
        assert server.calls == 0


def test_another_users_socket_is_not_asked(tmp_path: Path) -> None:
    """Only root, or the user that reclaimd runs as."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a socket to another user")
    with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
        os.chown(server.path, 1000, 0)
        assert "it belongs to uid 1000; allowed is root's" in str(refused(endpoint(server)))
        assert server.calls == 0


def test_nothing_but_pods_is_asked_there(tmp_path: Path) -> None:
    """No configuration, for one: without a call."""
    with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
        with pytest.raises(WayRefused, match="lists its pods and answers nothing else"):
            ask_kubelet(endpoint(server), path=CONFIGZ)
        assert server.calls == 0


def test_its_word(small_node: SmallNode) -> None:
    """The whole way, from the socket to the removal. *Not yet* removes nothing, nor does a list
    that lacks the pod: it has a directory."""
    small_node.stands()
    pod = small_node.run_pod("done")
    container = small_node.exited(pod)
    small_node.runtime.kill_sandbox(pod.sandbox_id)
    with PodsAPIServer(small_node.root_directory, NOT_YET) as server:
        early = small_node.node(kubeletEndpoint="auto")
        relieve(early, CONTAINERS)
        assert "Kubelet is initializing" in (early.pods_problem or "")
        server.answer = pods_answer()
        relieve(small_node.node(kubeletEndpoint="auto"), CONTAINERS)
        assert container in small_node.containers()
        metadata = {"uid": pod.uid, "annotations": {"kubernetes.io/config.source": "api"}}
        server.answer = pods_answer({"metadata": metadata, "status": {"phase": "Succeeded"}})
        node = small_node.node(kubeletEndpoint="auto")
        relieved = relieve(node, CONTAINERS)
        assert node.pods_problem is None
        assert reason_of(relieved, container) == "pod_terminated"
        assert node.pod_state_source == "kubelet"
    assert container not in small_node.containers()
