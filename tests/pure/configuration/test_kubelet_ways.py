"""Which ways a node has to ask its kubelet, from files that lie there as on real nodes."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from eviction.configuration.effective import load
from eviction.configuration.kubelet_ways import IdentityFiles, KubeletPlace, KubeletWay, kubelet_ways
from eviction.configuration.strict_yaml import ConfigurationError


class NodeFiles:
    """A directory with the kubelet's root, `/etc/kubernetes` and a pod's token."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.root = directory / "kubelet"
        self.pki = self.root / "pki"
        self.pki.mkdir(parents=True)
        self.kubeconfig, self.token = directory / "kubelet.conf", directory / "token"
        self.certificate, self.key = directory / "apiserver-kubelet-client.crt", directory / "apiserver.key"
        self.files = IdentityFiles(
            (str(self.token),), (), (str(self.kubeconfig),), ((str(self.certificate), str(self.key)),), ()
        )

    def ways(self, **fields: object) -> list[KubeletWay]:
        """The ways that the node has now."""
        return list(kubelet_ways(KubeletPlace(str(self.root), files=self.files, **fields)))  # type: ignore[arg-type] # as given

    def serves(self) -> None:
        """The kubelet has signed its own certificate."""
        (self.pki / "kubelet.crt").write_text("certificate")

    def write_kubeconfig(self, user: dict[str, str], context: str = "here") -> None:
        """A kubeconfig as kubeadm writes it (JSON is YAML)."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "node"}}],
            "users": [{"name": "other", "user": {"token": "no"}}, {"name": "node", "user": user}],
        }
        self.kubeconfig.write_text(json.dumps(document))


@pytest.fixture
def node(tmp_path: Path) -> NodeFiles:
    """A node with nothing but directories."""
    return NodeFiles(tmp_path)


def test_without_the_kubelets_certificate_nothing_is_asked_over_https(node: NodeFiles) -> None:
    """Whoever listens on the port would get the token: one way that is none, and it says which files are missing."""
    node.token.write_text("secret")
    (way,) = node.ways()
    assert way.endpoint is None
    assert f"{node.pki}/kubelet-server-current.pem or {node.pki}/kubelet.crt" in way.problem


def test_all_identities_in_their_order(node: NodeFiles) -> None:
    """Token, the node's certificate, the kubeconfig, the API server's certificate, nobody, the read-only port."""
    node.serves()
    for path in (node.token, node.pki / "kubelet-client-current.pem", node.certificate, node.key):
        path.write_text("text")
    pem = {name: base64.b64encode(name.encode()).decode() for name in ("client-certificate-data", "client-key-data")}
    node.write_kubeconfig(pem)
    ways = node.ways(read_only_port=10255)
    endpoints = [way.endpoint for way in ways if way.endpoint is not None]
    assert [way.identity.split(" /")[0] for way in ways] == [
        "the service account's token",
        "the node's client certificate",
        "the node's kubeconfig",
        "the API server's client certificate",
        "nobody",
        "anyone on its read-only port",
    ]
    assert len(endpoints) == len(ways)
    assert [endpoint.url for endpoint in endpoints] == ["https://127.0.0.1:10250"] * 5 + ["http://127.0.0.1:10255"]
    assert {endpoint.pinned_files for endpoint in endpoints[:5]} == {(f"{node.pki}/kubelet.crt",)}
    assert endpoints[2].certificate_pem == "client-certificate-data\nclient-key-data\n"
    assert "client-key-data" not in repr(endpoints[2])
    assert (endpoints[3].certificate_file, endpoints[3].key_file) == (str(node.certificate), str(node.key))


def test_a_kubeconfig_that_names_the_certificate_already_tried_adds_no_way(node: NodeFiles) -> None:
    """kubeadm's names kubelet-client-current.pem, a symlink to the one of today."""
    node.serves()
    (node.pki / "today.pem").write_text("text")
    (node.pki / "kubelet-client-current.pem").symlink_to(node.pki / "today.pem")
    current = str(node.pki / "kubelet-client-current.pem")
    node.write_kubeconfig({"client-certificate": current, "client-key": current})
    assert [way.identity.split(" /")[0] for way in node.ways()] == ["the node's client certificate", "nobody"]


def test_a_kubeconfig_may_name_files_beside_it(node: NodeFiles) -> None:
    """As kubectl reads it; a token file too."""
    node.serves()
    for name in ("a.crt", "a.key", "t"):
        (node.directory / name).write_text("text")
    node.write_kubeconfig({"client-certificate": "a.crt", "client-key": "a.key"})
    endpoint = node.ways()[0].endpoint
    assert endpoint is not None
    assert (endpoint.certificate_file, endpoint.key_file) == (f"{node.directory}/a.crt", f"{node.directory}/a.key")
    node.write_kubeconfig({"tokenFile": "t"})
    endpoint = node.ways()[0].endpoint
    assert endpoint is not None
    assert endpoint.token_file == f"{node.directory}/t"


@pytest.mark.parametrize(
    ("user", "context", "held"),
    [
        ({"exec": "aws"}, "here", "but exec"),
        ({"token": "inline"}, "here", "but token"),
        ({"client-certificate-data": "%%%"}, "here", "but client-certificate-data"),
        ({"tokenFile": "t"}, "elsewhere", "but no user"),
    ],
)
def test_a_kubeconfig_without_a_usable_identity_says_what_it_holds(
    node: NodeFiles, user: dict[str, str], context: str, held: str
) -> None:
    """A program is not run; no value is told."""
    node.serves()
    node.write_kubeconfig(user, context)
    way = node.ways()[0]
    assert way.endpoint is None
    assert way.problem.endswith(held)


@pytest.mark.parametrize("which", ["serving", "token", "kubeconfig"])
def test_a_file_that_others_may_write_is_not_used(node: NodeFiles, which: str) -> None:
    """Who may write the kubelet's certificate could answer in its place."""
    node.serves()
    node.token.write_text("secret")
    node.write_kubeconfig({"tokenFile": "token"})
    path = {"serving": node.pki / "kubelet.crt", "token": node.token, "kubeconfig": node.kubeconfig}[which]
    os.chmod(path, 0o666)  # noqa: S103 # what is refused
    problems = [way.problem for way in node.ways() if way.endpoint is None]
    assert any(f"{path}" in problem and "every user may write it (mode 0666)" in problem for problem in problems)


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


def test_its_own_configuration_says_where_it_is_and_which_certificate_it_shows(node: NodeFiles) -> None:
    """`port`, `address`, `readOnlyPort` and `tlsCertFile`; one that cannot be an address makes no way."""
    kubelet = node.directory / "config.yaml"
    shown = node.directory / "serving.crt"
    shown.write_text("certificate")
    document = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "port": 10260}
    document |= {"address": "192.0.2.7", "readOnlyPort": 10265, "tlsCertFile": str(shown)}
    kubelet.write_text(json.dumps(document))
    flags = {"kubeletConfig": str(kubelet), "rootDirectory": str(node.root), "kubeletEndpoint": "auto"}
    place = load(None, {}, flags).kubelet_access
    assert isinstance(place, KubeletPlace)
    assert (place.address, place.port, place.read_only_port, place.tls_cert_file) == (
        "192.0.2.7",
        10260,
        10265,
        str(shown),
    )
    kubelet.write_text(json.dumps(document | {"address": "everywhere"}))
    place = load(None, {}, flags).kubelet_access
    assert isinstance(place, KubeletPlace)
    assert {way.endpoint for way in kubelet_ways(place)} == {None}


def test_by_default_the_kubelet_is_asked_quietly() -> None:
    """Where there is a way. It is not asked where it is said that there is none, or with an empty endpoint; that nobody
    answers is worth a warning only if the field is written."""
    for fields, asks, expects in (
        ({}, True, False),
        ({"kubeletConfig": ""}, False, False),
        ({"containerRuntimeEndpoint": "none", "filesystems": [{"name": "cache", "path": "/"}]}, False, False),
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
    with pytest.raises(ConfigurationError, match="kubeletTokenFile: has no effect while kubeletEndpoint is auto"):
        load(None, {}, {"kubeletConfig": "", "kubeletEndpoint": "auto", "kubeletTokenFile": "/t"})
    with pytest.raises(ConfigurationError, match="or auto"):
        load(None, {}, {"kubeletConfig": "", "kubeletEndpoint": "automatic"})
