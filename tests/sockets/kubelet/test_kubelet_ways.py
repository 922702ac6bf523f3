"""`kubeletEndpoint: auto`: the kubelet's own socket comes first, then its port with each identity
that is found; what is trusted, kept, and said of the others.

That a server which violates the protocol ends one call in bounded time and memory is the channel's
(`tests/sockets/cri/test_channel.py`).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from eviction.configuration.kubelet_ways import (
    IdentityFiles,
    KubeletPlace,
    PodsOfKubelet,
    asking_for_pods,
)
from eviction.doctor.checks import examine
from eviction.doctor.facts import facts_of
from eviction.engine.node import Node
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
    BEARER,
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


def authority(directory: Path) -> Authority:
    """A new one."""
    if not Authority.available():
        pytest.skip("certificates are made with the openssl command, which is not there")
    return Authority(directory)


class OtherWay(KubeletServer):
    """The kubelet's port, with the certificate that it shows."""

    def __init__(self, directory: Path, script: Step):
        own = authority(directory).identity("node-1", "DNS:node-1")
        self.certificate = own.certificate
        super().__init__(script, tls=serving(own))


def endpoint(server: PodsAPIServer) -> KubeletEndpoint:
    """Its socket."""
    return KubeletEndpoint(f"unix://{server.path}")


def place(root: Path, other: OtherWay | None) -> KubeletPlace:
    """Where the kubelet is asked, without any identity; without another way none of its
    certificates is there."""
    if other is None:
        return KubeletPlace(str(root), files=FILES)
    port = int(other.url.rpartition(":")[2])
    return KubeletPlace(str(root), port=port, tls_cert_file=str(other.certificate), files=FILES)


def search(
    root: Path,
    other: OtherWay | None = None,
    clock: SteppedClock | None = None,
    seconds: float = MARGIN_SECONDS,
) -> PodsOfKubelet:
    """A search on such a node."""
    return PodsOfKubelet(place(root, other), clock or SteppedClock(), seconds)


def pods(found: PodsOfKubelet) -> Mapping[str, PodState]:
    """The pods that it lists."""
    return parse_pod_list(found.get()).states


OVER = {"uid-1": PodState(terminated=True)}


def test_the_socket_is_asked_first(tmp_path: Path) -> None:
    """Its port gets no request, until the socket has no listener any more: the feature was switched
    off, or the kubelet has restarted."""
    with OtherWay(tmp_path, answer(PODS)) as other:
        with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
            found = search(tmp_path, other)
            assert pods(found) == pods(found) == OVER
            assert found.endpoint == endpoint(server)
            assert (server.calls, other.requests) == (2, [])
        if not server.path.exists():  # gRPC's server removes it, the kubelet's does not
            with socket.socket(socket.AF_UNIX) as nobody:
                nobody.bind(str(server.path))
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
            assert pods(alone) == OVER


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
            assert pods(found) == OVER
        assert other.requests == []


def test_a_socket_that_appears_is_asked_at_once(tmp_path: Path) -> None:
    """On a new node reclaimd looks before its first kubelet has made anything; nothing is searched
    for ten minutes, but the kubelet then listens."""
    found = search(tmp_path)
    with pytest.raises(KubeletUnavailable, match="no way was found"):
        found.get()
    with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
        assert pods(found) == OVER
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
        error = refused(endpoint(server), SHORT_SECONDS)
        assert isinstance(error, KubeletLate)
        assert str(error).endswith("gave no complete answer within 0.3 s")
        with pytest.raises(KubeletUnavailable):
            search(tmp_path, other, seconds=SHORT_SECONDS).get()
        assert other.requests == []


def given_away(server: PodsAPIServer) -> None:
    """It belongs to another user."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a socket to another user")
    os.chown(server.path, 1000, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda server: server.path.chmod(0o777), "every user may connect to it"),
        (lambda server: server.path.parent.chmod(0o757), "every user may write"),
        (lambda server: server.path.parent.chmod(0o1757), ""),
        (given_away, "it belongs to uid 1000; allowed is root's"),
    ],
    ids=["open to all", "in a directory of all", "a sticky one is allowed", "another user's"],
)
def test_a_socket_that_another_could_have_made_is_not_asked(
    change: Callable[[PodsAPIServer], object], words: str, tmp_path: Path
) -> None:
    """Only root's, or that of the user that reclaimd runs as."""
    with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
        change(server)
        if not words:
            ask_kubelet(endpoint(server))
            return
        error = refused(endpoint(server))
        assert f"{server.path} is not asked: the socket is not trusted: " in str(error)
        assert words in str(error)
        assert isinstance(error, WayRefused)
        assert server.calls == 0


def test_nothing_but_pods_is_asked_there(tmp_path: Path) -> None:
    """No configuration, for one: without a call."""
    with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
        with pytest.raises(WayRefused, match="lists its pods and answers nothing else"):
            ask_kubelet(endpoint(server), path=CONFIGZ)
        assert server.calls == 0


# ---- its port


class Kubelet:
    """A kubelet's certificates below its root directory, and a pod's token, of which
    it knows the one of BEARER.
    """

    def __init__(self, root: Path, directory: Path):
        self.root = root
        self.pki = root / "pki"
        self.pki.mkdir(parents=True)
        self.clients = authority(directory)
        self.own = self.clients.identity("node-1", "DNS:node-1")
        client = self.clients.identity("system:node:node-1")
        (self.pki / "kubelet.crt").write_bytes(
            self.own.certificate.read_bytes() + self.clients.certificate.read_bytes()
        )
        (self.pki / "kubelet-client-current.pem").write_bytes(client.both.read_bytes())
        self.token = directory / "token"
        self.token.write_text(BEARER)

    def search(self, kubelet: KubeletServer, clock: SteppedClock) -> PodsOfKubelet:
        """A search with these files, on a clock of the test."""
        files = IdentityFiles((str(self.token),), (), ())
        place = KubeletPlace(str(self.root), port=int(kubelet.url.rpartition(":")[2]), files=files)
        return PodsOfKubelet(place, clock)


@pytest.fixture
def certificates(small_node: SmallNode, tmp_path: Path) -> Kubelet:
    """Of a kubelet on the small node."""
    directory = tmp_path / "certificates"
    directory.mkdir()
    return Kubelet(small_node.root_directory, directory)


def test_the_identity_that_is_accepted_is_found_and_kept(certificates: Kubelet) -> None:
    """The token comes first; the certificate on disk is the one that the server shows, whatever
    name it has. Once it is refused, because a role was taken away, the same call looks anew."""
    with KubeletServer(answer(PODS), tls=serving(certificates.own), bearer=BEARER) as kubelet:
        search = certificates.search(kubelet, SteppedClock())
        assert search.get() == search.get() == PODS
        kept = search.endpoint
        assert kept is not None
        assert kept.token_file == str(certificates.token)
        assert len(kubelet.requests) == 2
        kubelet.bearer = "another"
        with pytest.raises(KubeletUnavailable, match="401 Unauthorized") as caught:
            search.get()
        assert search.endpoint is None
        assert str(caught.value).count("; as ") == 2


def test_a_server_that_shows_another_certificate_gets_nothing(
    certificates: Kubelet, tmp_path: Path
) -> None:
    """It may even be signed by the same authority: no request arrives, so no token does."""
    impostor = certificates.clients.identity("impostor", "DNS:node-1,IP:127.0.0.1")
    with KubeletServer(answer(PODS), tls=serving(impostor), bearer=BEARER) as kubelet:
        with pytest.raises(
            KubeletUnavailable,
            match=r"is not trusted: it presents a certificate other than .*kubelet\.crt",
        ):
            certificates.search(kubelet, SteppedClock()).get()
        assert kubelet.requests == []


def test_each_refusal_is_told_and_no_request_is_sent_for_a_minute(certificates: Kubelet) -> None:
    """403 to everybody, as a kubelet with webhook authorization answers a node's certificate."""
    with KubeletServer(
        answer(b"Forbidden", 403), tls=serving(certificates.own, certificates.clients)
    ) as kubelet:
        clock = SteppedClock()
        search = certificates.search(kubelet, clock)
        with pytest.raises(KubeletUnavailable) as caught:
            search.get()
        told = str(caught.value)
        assert told.startswith("no way was found to ask the kubelet for /pods: as ")
        # no certificate was shown
        assert f"as the service account's token {certificates.token}: TLS with" in told
        assert "as the node's client certificate" in told
        assert (
            "403 Forbidden: is the identity allowed to get nodes/proxy (from Kubernetes 1.33 on,"
            " nodes/pods" in told
        )
        assert BEARER not in told
        sent = len(kubelet.requests)
        clock.step(300.0)
        with pytest.raises(KubeletUnavailable):
            search.get()
        assert len(kubelet.requests) == sent
        kubelet.script = [answer(PODS)]
        clock.step(600.0)
        assert search.get() == PODS
        assert search.endpoint is not None
        assert search.endpoint.certificate_file.endswith("kubelet-client-current.pem")


def test_a_kubelet_that_is_away_ends_the_search(certificates: Kubelet) -> None:
    """No other identity would help; the next call tries again at once."""
    with KubeletServer(answer(PODS), tls=serving(certificates.own)) as kubelet:
        search = certificates.search(kubelet, SteppedClock())
        port = int(kubelet.url.rpartition(":")[2])
    with pytest.raises(KubeletUnavailable, match="refuses connections"):
        search.get()
    with KubeletServer(answer(PODS), tls=serving(certificates.own), port=port):
        assert search.get() == PODS


def node_with_auto(node: SmallNode, kubelet: KubeletServer, tmp_path: Path, **fields: Any) -> Node:
    """The product, which finds the kubelet by the kubelet's own configuration."""
    file = tmp_path / "kubelet.yaml"
    document = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    file.write_text(json.dumps({**document, "port": int(kubelet.url.rpartition(":")[2])}))
    return node.node(kubeletEndpoint="auto", kubeletConfig=str(file), **fields)


def succeeded(uid: str) -> dict[str, Any]:
    """A pod of the API server that is over, as the kubelet lists it."""
    return {
        "metadata": {"uid": uid, "annotations": {"kubernetes.io/config.source": "api"}},
        "status": {"phase": "Succeeded"},
    }


def test_what_a_terminated_pod_holds_goes(
    certificates: Kubelet, small_node: SmallNode, tmp_path: Path
) -> None:
    """By the node's own certificate, found through the kubelet's configuration; without auto it
    stays, and while the kubelet does not list the pod, which has its directory."""
    small_node.stands()
    job = small_node.run_pod("job")
    container = small_node.exited(job)
    small_node.runtime.kill_sandbox(job.sandbox_id)
    tls = serving(certificates.own, certificates.clients)
    with KubeletServer(answer(pod_list()), tls=tls) as kubelet:
        for node in (small_node.node(), node_with_auto(small_node, kubelet, tmp_path)):
            relieve(node, CONTAINERS)
            assert container in small_node.containers()
        kubelet.script = [answer(pod_list(succeeded(job.uid)))]
        node = node_with_auto(small_node, kubelet, tmp_path)
        assert reason_of(relieve(node, CONTAINERS), container) == "pod_terminated"
        assert container not in small_node.containers()
        assert node.pod_state_source == "kubelet"


def test_doctor_tells_what_terminated_pods_hold_and_what_was_tried(
    certificates: Kubelet, small_node: SmallNode, tmp_path: Path
) -> None:
    """The bytes of images that only they use; and each identity with its
    answer, if none is accepted.
    """
    small_node.stands()
    small_node.add_images(2)
    for number in range(2):
        pod = small_node.run_pod(f"job-{number}")
        small_node.exited(pod, image=f"registry.example/old/{number}:1")
        small_node.runtime.kill_sandbox(pod.sandbox_id)

    def found(node: Node) -> dict[str, Any]:
        return {finding.check: finding for finding in examine(facts_of(node)).findings}

    plain = found(small_node.node())["terminated-pods"]
    assert plain.evidence == "8.0MiB; images: 2; pods all of whose containers have exited: 2"
    assert plain.remedy == "set kubeletEndpoint to auto"
    volumes = small_node.root_directory / "pods" / "uid-job-1" / "volumes"
    volume = volumes / "kubernetes.io~projected" / "token"
    volume.mkdir(parents=True)  # so that one is to run again
    assert found(small_node.node())["terminated-pods"].evidence.startswith("4.0MiB; images: 1; ")
    volume.rmdir()
    everything = pod_list(*(succeeded(f"uid-job-{number}") for number in range(2)))
    with KubeletServer(
        answer(b"no", 403), tls=serving(certificates.own, certificates.clients)
    ) as kubelet:
        findings = found(node_with_auto(small_node, kubelet, tmp_path))
        assert "403 Forbidden" in findings["kubelet-list"].evidence
        assert "nodes/pods" in findings["terminated-pods"].remedy
        kubelet.script = [answer(everything)]
        findings = found(node_with_auto(small_node, kubelet, tmp_path))
        assert not findings.keys() & {"kubelet-list", "terminated-pods"}
