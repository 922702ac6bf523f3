"""Events to an API server over TLS with a kubeconfig; its failures affect nothing else."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from eviction.surface.api_server import NoAnswer
from eviction.surface.kubernetes_events import counted, write_event
from reclaim.types import EventReason, GCEvent
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, Daemon, came_true
from tests.sockets.api_server import BEARER, EVENTS, ApiServer
from tests.sockets.kubelet_server import FOREVER_SECONDS, Authority, Step

NAME = f"node-1.evictionthresholdmet.{1_800_000_000 * 10**9:x}"
INODES = GCEvent(EventReason.EVICTION_THRESHOLD_MET, "Attempting to reclaim inodes")
MET = dict(counted(INODES, None, "node-1", wall=1.8e9))
SHORT_SECONDS = 1.0
Fields = Mapping[str, str]
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs the certificate of the server."""
    if not Authority.available():
        pytest.skip("no openssl (Debian package openssl)")
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def api(authority: Authority) -> Iterator[ApiServer]:
    """A server that accepts events."""
    with ApiServer(authority) as server:
        yield server


def without_exception_names(sentence: str) -> bool:
    """Whether the sentence names no class of Python's: such a word has a capital
    letter within it, and ends so.
    """
    return not re.search(r"[a-z](Error|Exception|Unknown)\b", sentence)


def refused(server: ApiServer, directory: Path, token: str = BEARER) -> str:
    """Why an event was not accepted: one line without the token."""
    with pytest.raises(NoAnswer) as caught:
        write_event(MET, server.kubeconfig(directory, token), SHORT_SECONDS)
    assert token not in str(caught.value)
    assert str(caught.value).isprintable()
    assert without_exception_names(str(caught.value))
    return str(caught.value)


def test_an_event_is_written_as_the_kubelet_writes_its_own(api: ApiServer, tmp_path: Path) -> None:
    """About the Node, in the namespace default, a warning with the kubelet's
    reason; the component is ours.
    """
    write_event(MET, api.kubeconfig(tmp_path))
    assert api.events[NAME] == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": NAME, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1"},
        "type": "Warning",
        "reason": "EvictionThresholdMet",
        "message": "Attempting to reclaim inodes",
        "source": {"component": "reclaimd", "host": "node-1"},
        "reportingComponent": "reclaimd",
        "reportingInstance": "node-1",
        "firstTimestamp": "2027-01-15T08:00:00.000Z",
        "lastTimestamp": "2027-01-15T08:00:00.000Z",
        "count": 1,
    }
    assert api.requests == [("POST", EVENTS, "application/json")]


def test_the_object_validates_against_the_schema_of_kubernetes(
    api: ApiServer, tmp_path: Path
) -> None:
    """Strictly: no field that core/v1 does not have."""
    validator = pytest.importorskip("kubernetes_validate")
    write_event(MET, api.kubeconfig(tmp_path))
    validator.validate(api.events[NAME], "1.31", strict=True)


def test_the_count_is_updated_and_a_deleted_event_is_created_again(
    api: ApiServer, tmp_path: Path
) -> None:
    """A patch of count, last time and message; after the hour until the server deletes
    it, the whole event again.
    """
    kubeconfig = api.kubeconfig(tmp_path)
    write_event(MET, kubeconfig)
    latest = {"count": 2, "lastTimestamp": "2027-01-15T08:01:00.000Z", "message": "the latest"}
    write_event(MET | latest, kubeconfig)
    assert (api.events[NAME]["count"], api.events[NAME]["lastTimestamp"][14:19]) == (2, "01:00")
    assert api.events[NAME]["message"] == "the latest"
    api.events.clear()
    write_event(MET | {"count": 3}, kubeconfig)
    assert api.events[NAME]["count"] == 3
    assert [method for method, _, _ in api.requests] == ["POST", "PATCH", "PATCH", "POST"]


def test_an_event_that_is_there_already_is_no_failure(api: ApiServer, tmp_path: Path) -> None:
    """The response to an earlier try was lost: 409."""
    kubeconfig = api.kubeconfig(tmp_path)
    write_event(MET, kubeconfig)
    write_event(MET, kubeconfig)
    assert len(api.events) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 422, 429, 500, 503, 302, 204])
def test_a_status_is_reported(authority: Authority, tmp_path: Path, status: int) -> None:
    """With a hint what to check; a redirect is not followed."""
    with ApiServer(authority, status=status) as server:
        why = refused(server, tmp_path)
        assert f"answered {status}" in why
        assert len(server.requests) == 1
        assert ("may it create and patch events" in why) is (status in (401, 403))


def test_a_wrong_token_is_refused(api: ApiServer, tmp_path: Path) -> None:
    """401, in one sentence."""
    assert "401: is the token or certificate valid" in refused(api, tmp_path, "another-token")


ENDLESS = OK + b"Content-Length: 1000000000000\r\n\r\n" + b"x" * (1 << 20)
FAULTY_ANSWERS: dict[str, tuple[list[Step], str]] = {
    "hangs": ([FOREVER_SECONDS], "gave no complete answer within 1 s"),
    "hangs in the answer": (
        [OK + b"Content-Length: 9\r\n\r\n{", FOREVER_SECONDS],
        "gave no complete answer within 1 s",
    ),
    "hangs up": ([b""], "cannot be asked: the connection was lost"),
    "is no web server": ([b"SSH-2.0-OpenSSH_9.2\r\n"], "gave no answer in HTTP"),
    "says nonsense": (
        [OK + b"Content-Length: 4\r\n\r\n\xff\xfe{}"],
        "something that is not an event",
    ),
    "is a login page": (
        [OK + b"Content-Length: 13\r\n\r\n<html></html>"],
        "something that is not an event",
    ),
    "is another API": (
        [OK + b'Content-Length: 14\r\n\r\n{"kind":"Pod"}'],
        "something that is not an event",
    ),
    "nests deeply": (
        [OK + b"Content-Length: 60000\r\n\r\n" + b"[" * 60000],
        "something that is not an event",
    ),
    "sends without end": ([ENDLESS, *[b"x" * (1 << 20)] * 200], "something that is not an event"),
    "fails without end": (
        [ENDLESS.replace(b"200 OK", b"500 No"), *[b"x" * (1 << 20)] * 200],
        "answered 500",
    ),
}


@pytest.mark.parametrize("day", FAULTY_ANSWERS)
def test_a_failure_of_the_server_is_one_sentence(
    authority: Authority, tmp_path: Path, day: str
) -> None:
    """Within its deadline, without reading more than 64 KiB."""
    script, sentence = FAULTY_ANSWERS[day]
    began = time.monotonic()
    with ApiServer(authority, script) as server:
        assert sentence in refused(server, tmp_path)
    assert time.monotonic() - began < 20 * SHORT_SECONDS  # the machine is shared


def test_a_server_that_is_not_trusted_gets_no_token(api: ApiServer, tmp_path: Path) -> None:
    """Its certificate is another authority's: nothing is sent, unless the
    kubeconfig skips verification.
    """
    other = tmp_path / "other"
    other.mkdir()
    kubeconfig = Path(api.kubeconfig(tmp_path))
    document = json.loads(kubeconfig.read_text())
    document["clusters"][0]["cluster"]["certificate-authority"] = str(Authority(other).certificate)
    kubeconfig.write_text(json.dumps(document))
    with pytest.raises(NoAnswer, match="certificate that is not trusted"):
        write_event(MET, str(kubeconfig))
    assert api.requests == []
    document["clusters"][0]["cluster"] = {"server": api.url, "insecure-skip-tls-verify": True}
    kubeconfig.write_text(json.dumps(document))
    write_event(MET, str(kubeconfig))
    assert len(api.events) == 1


def test_a_server_that_is_down_is_reported(authority: Authority, tmp_path: Path) -> None:
    """Connection refused."""
    with ApiServer(authority) as server:
        kubeconfig = server.kubeconfig(tmp_path)
    with pytest.raises(NoAnswer, match=f"^the API server at {server.url} refuses connections"):
        write_event(MET, kubeconfig)


def rewritten(api: ApiServer, directory: Path, cluster: Fields, user: Fields) -> str:
    """The path of its kubeconfig with these fields instead."""
    kubeconfig = Path(api.kubeconfig(directory))
    document = json.loads(kubeconfig.read_text())
    document["clusters"][0]["cluster"] = {"server": api.url, **cluster}
    document["users"][0]["user"] = user
    kubeconfig.write_text(json.dumps(document))
    return str(kubeconfig)


def test_authority_and_token_may_be_in_the_kubeconfig_or_in_files_beside_it(
    authority: Authority, api: ApiServer, tmp_path: Path
) -> None:
    """In base64, or paths that start from its directory."""
    pem = authority.certificate.read_bytes()
    (tmp_path / "ca.pem").write_bytes(pem)
    (tmp_path / "token").write_text(f"{BEARER}\n")
    held = {"certificate-authority-data": base64.b64encode(pem).decode()}, {"token": BEARER}
    beside = {"certificate-authority": "ca.pem"}, {"tokenFile": "token"}
    for number, fields in enumerate((held, beside), 1):
        write_event(
            MET | {"metadata": {"name": str(number), "namespace": "default"}},
            rewritten(api, tmp_path, *fields),
        )
        assert len(api.events) == number


@pytest.mark.parametrize("held", ["in files", "in the kubeconfig"])
def test_a_client_certificate_is_shown(authority: Authority, tmp_path: Path, held: str) -> None:
    """With it the server answers, though only that it misses the token; without
    it there is no connection.
    """
    identity = authority.identity("node", "DNS:node")
    user = {"client-certificate": str(identity.certificate), "client-key": str(identity.key)}
    if held == "in the kubeconfig":
        user = {
            f"{name}-data": base64.b64encode(Path(path).read_bytes()).decode()
            for name, path in user.items()
        }
    trusted = {"certificate-authority": str(authority.certificate)}
    with ApiServer(authority, clients_of=authority) as server:
        with pytest.raises(NoAnswer, match="answered 401"):
            write_event(MET, rewritten(server, tmp_path, trusted, user))
        with pytest.raises(
            NoAnswer, match=r"^TLS with the API server at \S+ failed|the connection was lost"
        ):
            write_event(MET, rewritten(server, tmp_path, trusted, {"token": BEARER}))
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"certificate-authority-data": "no base64!"}, {"token": "secret"}),
        ({"certificate-authority-data": "c2VjcmV0"}, {"token": "secret"}),
        ({}, {"token": "secret\r\nX: y"}),
        ({}, {"client-certificate-data": "c2VjcmV0"}),
    ],
)
def test_an_identity_that_is_none_is_a_sentence_without_it(
    api: ApiServer, tmp_path: Path, cluster: Fields, user: Fields
) -> None:
    """And no request is sent."""
    kubeconfig = rewritten(api, tmp_path, cluster, user)
    with pytest.raises(NoAnswer) as caught:
        write_event(MET, kubeconfig)
    assert (
        str(caught.value)
        == f"{kubeconfig} cannot be used: a certificate, key or token of it is none"
    )
    assert not api.requests


@pytest.mark.parametrize(
    "address",
    [
        "https://",
        "https://127.0.0.1:99999",
        "https://a b:1",
        "ftp://127.0.0.1",
        "http://127.0.0.1",
        "https://[::1",
    ],
)
def test_an_address_that_is_none_is_a_sentence(
    api: ApiServer, tmp_path: Path, address: str
) -> None:
    """In words, without the name of an exception; nor is a token ever sent in clear."""
    kubeconfig = Path(api.kubeconfig(tmp_path))
    kubeconfig.write_text(kubeconfig.read_text().replace(api.url, address))
    with pytest.raises(NoAnswer, match=r" is not the https address of an API server$"):
        write_event(MET, str(kubeconfig))


def spoilt(text: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text(text)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (Path.unlink, "cannot be read: No such file or directory"),
        (spoilt("{"), "line 1"),
        (spoilt("{}"), "its current context names no cluster with a server"),
        (spoilt("token: [secret"), "line 1"),
        (spoilt("[]"), "must be a mapping"),
        (lambda path: path.chmod(0o666), "every user may write it"),
    ],
    ids=["absent", "torn", "empty", "no YAML", "a list", "anybody's"],
)
def test_a_kubeconfig_that_cannot_be_used_is_named_and_not_quoted(
    api: ApiServer, tmp_path: Path, spoil: Callable[[Path], Any], sentence: str
) -> None:
    """It contains credentials; and a user who may write it decides which server gets them."""
    kubeconfig = Path(api.kubeconfig(tmp_path))
    spoil(kubeconfig)
    with pytest.raises(NoAnswer) as caught:
        write_event(MET, str(kubeconfig))
    assert sentence in str(caught.value)
    assert str(kubeconfig) in str(caught.value)
    assert "secret" not in str(caught.value)
    assert without_exception_names(str(caught.value))


def test_outside_a_pod_there_is_no_service_account(tmp_path: Path) -> None:
    """Without a kubeconfig: one sentence."""
    words = (
        "the service account of this pod cannot be used: this process does not run in a pod, or its"
        " token is not mounted$"
    )
    with pytest.raises(NoAnswer, match=words):
        write_event(MET, "")


IN_A_POD = """
mount -t tmpfs none /run && cd /run && mkdir -p secrets/kubernetes.io/serviceaccount &&
cp "$CA" secrets/kubernetes.io/serviceaccount/ca.crt &&
printf %s "$BEARER" >secrets/kubernetes.io/serviceaccount/token && exec "$@"
"""


def test_in_a_pod_the_service_account_is_used(
    authority: Authority, api: ApiServer, small_node: SmallNode, tmp_path: Path
) -> None:
    """Address from the environment, token and CA where Kubernetes mounts them,
    the Node from $NODE_NAME.
    """
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, kubernetesEvents=True)
    small_node.add_images(3)
    host, _, port = api.url.removeprefix("https://").partition(":")
    pod = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "NODE_NAME": "node-7"}
    variables = {**ENVIRONMENT, **pod, "CA": str(authority.certificate), "BEARER": BEARER}
    before = ["unshare", "--mount", "sh", "-c", IN_A_POD, "sh"]
    with Daemon("--config", file, before=before, environment=variables) as daemon:
        assert came_true(lambda: bool(api.events))
        (event,) = api.events.values()
        assert event["involvedObject"]["name"] == "node-7"
        assert daemon.stop() == 0


def configuration_with_events(node: SmallNode, server: ApiServer, directory: Path) -> str:
    """A configuration under pressure, with events to this server."""
    return node.configuration(
        Signal.NODEFS_AVAILABLE,
        MIB,
        kubernetesEvents=True,
        kubeconfig=server.kubeconfig(directory),
        nodeName="node-1",
    )


def test_a_daemon_under_pressure_sends_an_event(
    api: ApiServer, small_node: SmallNode, tmp_path: Path
) -> None:
    """The kubelet's event before it reclaims arrives; no other request is sent,
    and no condition is changed.
    """
    small_node.add_images(3)
    with Daemon("--config", configuration_with_events(small_node, api, tmp_path)) as daemon:
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert came_true(lambda: bool(api.events))
        (event,) = api.events.values()
        assert (event["reason"], event["message"]) == (
            "EvictionThresholdMet",
            "Attempting to reclaim ephemeral-storage (ReclaimPressure: below reclaimd's own mark)",
        )
        assert event["involvedObject"]["name"] == "node-1"
        assert daemon.stop() == 0
    assert {path for _, path, _ in api.requests} == {EVENTS}
    assert not daemon.logged("NOT AN EVENT")


@pytest.mark.parametrize("day", ["hangs", "says nonsense", "fails without end"])
def test_failures_of_an_api_server_do_not_affect_the_daemon(
    authority: Authority, small_node: SmallNode, tmp_path: Path, day: str
) -> None:
    """Pressure is relieved, the log has the event, and the daemon ends within 2 s
    while the server still hangs.
    """
    small_node.add_images(3)
    with (
        ApiServer(authority, FAULTY_ANSWERS[day][0]) as server,
        Daemon("--config", configuration_with_events(small_node, server, tmp_path)) as daemon,
    ):
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
        assert came_true(lambda: bool(server.requests))
        assert daemon.logged("Attempting to reclaim ephemeral-storage")
        began = time.monotonic()
        assert daemon.stop() == 0
        assert time.monotonic() - began < 20.0  # ten times the 2 s that it has
    assert small_node.removed("image")
