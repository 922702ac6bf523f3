"""Which ways a node has to ask its kubelet, from files that lie there as on real nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from eviction.configuration.effective import load
from eviction.configuration.kubelet_ways import (
    IdentityFiles,
    KubeletPlace,
    KubeletWay,
    kubelet_ways,
)
from eviction.configuration.strict_yaml import ConfigurationError


class NodeFiles:
    """A directory with the kubelet's root, `/etc/kubernetes` and a pod's token."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.root = directory / "kubelet"
        self.pki = self.root / "pki"
        self.pki.mkdir(parents=True)
        self.token = directory / "token"
        self.certificate, self.key = (
            directory / "client-kubelet.crt",
            directory / "client-kubelet.key",
        )
        self.files = IdentityFiles(
            (str(self.token),), ((str(self.certificate), str(self.key)),), ()
        )

    def ways(self, **fields: object) -> list[KubeletWay]:
        """The ways that the node has now."""
        return list(kubelet_ways(KubeletPlace(str(self.root), files=self.files, **fields)))  # type: ignore[arg-type] # as given

    def serves(self) -> None:
        """The kubelet has signed its own certificate."""
        (self.pki / "kubelet.crt").write_text("certificate")


@pytest.fixture
def node(tmp_path: Path) -> NodeFiles:
    """A node with nothing but directories."""
    return NodeFiles(tmp_path)


def test_without_the_kubelets_certificate_nothing_is_asked_over_https(node: NodeFiles) -> None:
    """Whoever listens on the port would get the token: one way that is none, and it
    says which files are missing.
    """
    node.token.write_text("secret")
    (way,) = node.ways()
    assert way.endpoint is None
    assert f"{node.pki}/kubelet-server-current.pem or {node.pki}/kubelet.crt" in way.problem


def test_all_identities_in_their_order(node: NodeFiles) -> None:
    """Token, the node's certificates, each with its key, nobody."""
    node.serves()
    for path in (node.token, node.pki / "kubelet-client-current.pem", node.certificate, node.key):
        path.write_text("text")
    ways = node.ways()
    endpoints = [way.endpoint for way in ways if way.endpoint is not None]
    assert [way.identity.split(" /")[0] for way in ways] == [
        "the service account's token",
        "the node's client certificate",
        "the node's client certificate",
        "nobody",
    ]
    assert len(endpoints) == len(ways)
    assert {endpoint.url for endpoint in endpoints} == {"https://127.0.0.1:10250"}
    assert {endpoint.pinned_files for endpoint in endpoints} == {(f"{node.pki}/kubelet.crt",)}
    assert (endpoints[1].certificate_file, endpoints[1].key_file) == (
        f"{node.pki}/kubelet-client-current.pem",
        "",
    )
    assert (endpoints[2].certificate_file, endpoints[2].key_file) == (
        str(node.certificate),
        str(node.key),
    )


@pytest.mark.parametrize("which", ["serving", "token", "key"])
def test_a_file_that_others_may_write_is_not_used(node: NodeFiles, which: str) -> None:
    """Who may write the kubelet's certificate could answer in its place."""
    node.serves()
    node.token.write_text("secret")
    for path in (node.certificate, node.key):
        path.write_text("text")
    path = {"serving": node.pki / "kubelet.crt", "token": node.token, "key": node.key}[which]
    os.chmod(path, 0o666)  # noqa: S103 # what is refused
    problems = [way.problem for way in node.ways() if way.endpoint is None]
    assert any(
        f"{path}" in problem and "every user may write it (mode 0666)" in problem
        for problem in problems
    )


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("", "https://127.0.0.1:10250"),
        ("0.0.0.0", "https://127.0.0.1:10250"),
        ("::", "https://[::1]:10250"),
        ("192.0.2.7", "https://192.0.2.7:10250"),
        ("2001:db8::7", "https://[2001:db8::7]:10250"),
    ],
)
def test_the_kubelet_is_asked_where_it_listens(node: NodeFiles, address: str, url: str) -> None:
    """On all interfaces: at the loopback."""
    node.serves()
    (way,) = node.ways(address=address)
    assert way.endpoint is not None
    assert way.endpoint.url == url


def test_its_own_configuration_says_where_it_is_and_which_certificate_it_shows(
    node: NodeFiles,
) -> None:
    """`port`, `address` and `tlsCertFile`; one that cannot be an address makes no way."""
    kubelet = node.directory / "config.yaml"
    shown = node.directory / "serving.crt"
    shown.write_text("certificate")
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "port": 10260,
    }
    document |= {"address": "192.0.2.7", "tlsCertFile": str(shown)}
    kubelet.write_text(json.dumps(document))
    flags = {
        "kubeletConfig": str(kubelet),
        "rootDirectory": str(node.root),
        "kubeletEndpoint": "auto",
    }
    place = load(None, {}, flags).kubelet_access
    assert isinstance(place, KubeletPlace)
    assert (place.address, place.port, place.tls_cert_file) == ("192.0.2.7", 10260, str(shown))
    kubelet.write_text(json.dumps(document | {"address": "everywhere"}))
    place = load(None, {}, flags).kubelet_access
    assert isinstance(place, KubeletPlace)
    assert {way.endpoint for way in kubelet_ways(place)} == {None}


def test_by_default_the_kubelet_is_asked_quietly() -> None:
    """Where there is a way. It is not asked where it is said that there is none, or with an empty
    endpoint; that nobody answers is worth a warning only if the field is written."""
    for fields, asks, expects in (
        ({}, True, False),
        ({"kubeletConfig": ""}, False, False),
        (
            {"containerRuntimeEndpoint": "none", "filesystems": [{"name": "cache", "path": "/"}]},
            False,
            False,
        ),
        ({"kubeletEndpoint": ""}, False, False),
        ({"kubeletEndpoint": "auto"}, True, True),
        ({"kubeletEndpoint": "unix:///run/pods.sock"}, True, True),
    ):
        found = load(None, {}, fields)
        assert (found.kubelet_access is not None, found.expects_kubelet) == (asks, expects), fields


def test_auto_takes_no_other_identity() -> None:
    """What belongs to a written endpoint is refused beside it."""
    auto = load(None, {}, {"kubeletConfig": "", "kubeletEndpoint": "auto"})
    assert auto.kubelet_access == KubeletPlace("/var/lib/kubelet")
    with pytest.raises(
        ConfigurationError, match="kubeletTokenFile: has no effect while kubeletEndpoint is auto"
    ):
        load(None, {}, {"kubeletConfig": "", "kubeletEndpoint": "auto", "kubeletTokenFile": "/t"})
    with pytest.raises(ConfigurationError, match="or auto"):
        load(None, {}, {"kubeletConfig": "", "kubeletEndpoint": "automatic"})
