"""`kubeletEndpoint: auto` against a real HTTPS kubelet: which identity is found, and
what is said of the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eviction.configuration.kubelet_ways import IdentityFiles, KubeletPlace, PodsOfKubelet
from eviction.doctor.checks import examine
from eviction.doctor.facts import facts_of
from eviction.engine.node import Node
from reclaim.evidence.pod_list import KubeletUnavailable
from tests.nodes.small_node import CONTAINERS, Pod, SmallNode, relieve
from tests.pure.values import SteppedClock
from tests.sockets.kubelet_server import (
    BEARER,
    PODS,
    Authority,
    KubeletServer,
    answer,
    pod_list,
    serving,
)


class Kubelet:
    """A kubelet's certificates below its root directory, and a pod's token, of which
    it knows the one of BEARER.
    """

    def __init__(self, root: Path, directory: Path):
        self.root = root
        self.pki = root / "pki"
        self.pki.mkdir(parents=True)
        authority = Authority(directory)
        self.own = authority.identity("node-1", "DNS:node-1")
        self.clients = authority
        client = authority.identity("system:node:node-1")
        (self.pki / "kubelet.crt").write_bytes(
            self.own.certificate.read_bytes() + authority.certificate.read_bytes()
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
    if not Authority.available():
        pytest.skip("certificates are made with the openssl command, which is not there")
    directory = tmp_path / "certificates"
    directory.mkdir()
    return Kubelet(small_node.root_directory, directory)


def test_the_identity_that_is_accepted_is_found_and_kept(certificates: Kubelet) -> None:
    """The token comes first; the certificate on disk is the one that the server shows, whatever
    name it has. Once it is refused, because a role was taken away, the same call looks anew."""
    with KubeletServer(answer(PODS), tls=serving(certificates.own), bearer=BEARER) as kubelet:
        search = certificates.search(kubelet, SteppedClock())
        assert search.get() == search.get() == PODS
        assert search.endpoint is not None
        assert search.endpoint.token_file == str(certificates.token)
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


def finished(node: SmallNode, name: str) -> tuple[Pod, str]:
    """A pod whose only container has exited and whose sandbox the kubelet has stopped."""
    pod = node.run_pod(name)
    container = node.exited(pod)
    node.runtime.kill_sandbox(pod.sandbox_id)
    return pod, container


def test_what_a_terminated_pod_holds_goes(
    certificates: Kubelet, small_node: SmallNode, tmp_path: Path
) -> None:
    """By the node's own certificate, found through the kubelet's
    configuration; without auto it stays.
    """
    small_node.stands()
    job, container = finished(small_node, "job")
    pods = pod_list(succeeded(job.uid))
    with KubeletServer(
        answer(pods), tls=serving(certificates.own, certificates.clients)
    ) as kubelet:
        relieve(small_node.node(), CONTAINERS)
        assert container in small_node.containers()
        node = node_with_auto(small_node, kubelet, tmp_path)
        relieve(node, CONTAINERS)
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
    volume = (
        small_node.root_directory
        / "pods"
        / "uid-job-1"
        / "volumes"
        / "kubernetes.io~projected"
        / "token"
    )
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
