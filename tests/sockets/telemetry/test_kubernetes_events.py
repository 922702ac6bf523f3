"""Events to an API server over TLS with a kubeconfig; its failures affect nothing else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eviction.telemetry.kubernetes_events import EventCorrelator, EventNotSent, KubernetesEvents
from reclaim.types import EventReason, GCEvent
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, Daemon, came_true
from tests.sockets.api_server import BEARER, EVENTS, ApiServer
from tests.sockets.kubelet_server import FOREVER_SECONDS, Authority, Step

pytest.importorskip("kubernetes")
NAME = f"node-1.{1_800_000_000 * 10**9:x}"
INODES = GCEvent(EventReason.EVICTION_THRESHOLD_MET, "Attempting to reclaim inodes")
MET = EventCorrelator("node-1").correlate(INODES, 1.8e9, 0.0) or {}
SHORT_SECONDS = 1.0
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
    """Whether the sentence names no class of Python's: such a word has a capital letter within it, and ends so."""
    return not re.search(r"[a-z](Error|Exception|Unknown)\b", sentence)


def refused(server: ApiServer, directory: Path, token: str = BEARER) -> EventNotSent:
    """The error of an event that was not accepted; it is one line without the token."""
    with pytest.raises(EventNotSent) as caught:
        KubernetesEvents(server.kubeconfig(directory, token), SHORT_SECONDS).write(MET)
    assert token not in str(caught.value)
    assert str(caught.value).isprintable()
    assert without_exception_names(str(caught.value))
    return caught.value


def test_an_event_is_written_as_the_kubelet_writes_its_own(api: ApiServer, tmp_path: Path) -> None:
    """About the Node, in the namespace default, a warning with the kubelet's reason; the component is ours."""
    KubernetesEvents(api.kubeconfig(tmp_path)).write(MET)
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


def test_the_object_validates_against_the_schema_of_kubernetes(api: ApiServer, tmp_path: Path) -> None:
    """Strictly: no field that core/v1 does not have."""
    validator = pytest.importorskip("kubernetes_validate")
    KubernetesEvents(api.kubeconfig(tmp_path)).write(MET)
    validator.validate(api.events[NAME], "1.31", strict=True)


def test_the_count_is_updated_and_a_deleted_event_is_created_again(api: ApiServer, tmp_path: Path) -> None:
    """A patch of count, last time and message; after the hour until the server deletes it, the whole event again."""
    writer = KubernetesEvents(api.kubeconfig(tmp_path))
    writer.write(MET)
    writer.write(MET | {"count": 2, "lastTimestamp": "2027-01-15T08:01:00.000Z", "message": "combined"})
    assert (api.events[NAME]["count"], api.events[NAME]["lastTimestamp"][14:19]) == (2, "01:00")
    assert api.events[NAME]["message"] == "combined"
    api.events.clear()
    writer.write(MET | {"count": 3})
    assert api.events[NAME]["count"] == 3
    assert [method for method, _, _ in api.requests] == ["POST", "PATCH", "PATCH", "POST"]


def test_an_event_that_is_there_already_is_no_failure(api: ApiServer, tmp_path: Path) -> None:
    """The response to an earlier try was lost: 409."""
    writer = KubernetesEvents(api.kubeconfig(tmp_path))
    writer.write(MET)
    writer.write(MET)
    assert len(api.events) == 1


@pytest.mark.parametrize(("status", "again"), [(401, True), (403, False), (404, False), (422, False), (429, True),
                                               (500, True), (503, True), (302, False), (204, True)])  # fmt: skip
def test_a_status_is_reported_and_retried_where_that_may_help(
    authority: Authority, tmp_path: Path, status: int, again: bool
) -> None:
    """With a hint what to check; a redirect is not followed."""
    with ApiServer(authority, status=status) as server:
        refusal = refused(server, tmp_path)
        assert str(status) in str(refusal)
        assert refusal.retriable is again
        assert len(server.requests) == 1
        assert ("may it create and patch events" in str(refusal)) is (status in (401, 403))


def test_a_wrong_token_is_refused(api: ApiServer, tmp_path: Path) -> None:
    """401, in one sentence."""
    assert "401: is the token or certificate valid" in str(refused(api, tmp_path, "another-token"))


ENDLESS = OK + b"Content-Length: 1000000000000\r\n\r\n" + b"x" * (1 << 20)
FAULTY_ANSWERS: dict[str, tuple[list[Step], str]] = {
    "hangs": ([FOREVER_SECONDS], "does not answer"),
    "hangs in the answer": ([OK + b"Content-Length: 9\r\n\r\n{", FOREVER_SECONDS], "does not answer"),
    "hangs up": ([b""], "did not answer in HTTP"),
    "is no web server": ([b"SSH-2.0-OpenSSH_9.2\r\n"], "did not answer in HTTP"),
    "says nonsense": ([OK + b"Content-Length: 4\r\n\r\n\xff\xfe{}"], "something that is not an event"),
    "is a login page": ([OK + b"Content-Length: 13\r\n\r\n<html></html>"], "something that is not an event"),
    "is another API": ([OK + b'Content-Length: 14\r\n\r\n{"kind":"Pod"}'], "something that is not an event"),
    "nests deeply": ([OK + b"Content-Length: 60000\r\n\r\n" + b"[" * 60000], "something that is not an event"),
    "sends without end": ([ENDLESS, *[b"x" * (1 << 20)] * 200], "something that is not an event"),
    "fails without end": ([ENDLESS.replace(b"200 OK", b"500 No"), *[b"x" * (1 << 20)] * 200], "answered 500"),
}


@pytest.mark.parametrize("day", FAULTY_ANSWERS)
def test_a_failure_of_the_server_is_one_sentence(authority: Authority, tmp_path: Path, day: str) -> None:
    """Within its deadline, without reading more than 64 KiB."""
    script, sentence = FAULTY_ANSWERS[day]
    began = time.monotonic()
    with ApiServer(authority, script) as server:
        refusal = refused(server, tmp_path)
    assert sentence in str(refusal)
    assert refusal.retriable
    assert time.monotonic() - began < 20 * SHORT_SECONDS  # the machine is shared


def test_a_server_that_is_not_trusted_gets_no_token(api: ApiServer, tmp_path: Path) -> None:
    """Its certificate is another authority's: nothing is sent, unless the kubeconfig skips verification."""
    other = tmp_path / "other"
    other.mkdir()
    kubeconfig = Path(api.kubeconfig(tmp_path))
    document = json.loads(kubeconfig.read_text())
    document["clusters"][0]["cluster"]["certificate-authority"] = str(Authority(other).certificate)
    kubeconfig.write_text(json.dumps(document))
    with pytest.raises(EventNotSent, match="certificate that is not trusted"):
        KubernetesEvents(str(kubeconfig)).write(MET)
    assert api.requests == []
    document["clusters"][0]["cluster"] = {"server": api.url, "insecure-skip-tls-verify": True}
    kubeconfig.write_text(json.dumps(document))
    KubernetesEvents(str(kubeconfig)).write(MET)
    assert len(api.events) == 1


def test_a_server_that_is_down_is_reported(authority: Authority, tmp_path: Path) -> None:
    """Connection refused: it may be retried."""
    with ApiServer(authority) as server:
        kubeconfig = server.kubeconfig(tmp_path)
    with pytest.raises(EventNotSent, match="cannot be reached") as caught:
        KubernetesEvents(kubeconfig).write(MET)
    assert caught.value.retriable


@pytest.mark.parametrize("address", ["https://", "https://127.0.0.1:99999", "https://a b:1", "ftp://127.0.0.1"])
def test_an_address_that_is_none_is_a_sentence(api: ApiServer, tmp_path: Path, address: str) -> None:
    """In words, without the name of an exception; it is tried again, as the kubeconfig is read anew."""
    kubeconfig = Path(api.kubeconfig(tmp_path))
    kubeconfig.write_text(kubeconfig.read_text().replace(api.url, address))
    with pytest.raises(EventNotSent, match=r" is not the address of a server$") as caught:
        KubernetesEvents(str(kubeconfig)).write(MET)
    assert caught.value.retriable


def spoilt(text: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text(text)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (Path.unlink, "cannot be used: No such file or directory"),
        (spoilt("{"), "cannot be used: it is no kubeconfig with a server and an identity"),
        (spoilt("{}"), "cannot be used: it is no kubeconfig with a server and an identity"),
        (spoilt("token: [secret"), "cannot be used: it is no kubeconfig with a server and an identity"),
        (spoilt("[]"), "cannot be used: it is no kubeconfig with a server and an identity"),
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
    with pytest.raises(EventNotSent) as caught:
        KubernetesEvents(str(kubeconfig)).write(MET)
    assert sentence in str(caught.value)
    assert str(kubeconfig) in str(caught.value)
    assert "secret" not in str(caught.value)
    assert without_exception_names(str(caught.value))


def test_outside_a_pod_there_is_no_service_account(tmp_path: Path) -> None:
    """Without a kubeconfig: one sentence, and it is retried."""
    words = (
        "the service account of this pod cannot be used: this process does not run in a pod, or its token is not "
        "mounted$"
    )
    with pytest.raises(EventNotSent, match=words):
        KubernetesEvents("").write(MET)


IN_A_POD = """
mount -t tmpfs none /run && cd /run && mkdir -p secrets/kubernetes.io/serviceaccount &&
cp "$CA" secrets/kubernetes.io/serviceaccount/ca.crt &&
printf %s "$BEARER" >secrets/kubernetes.io/serviceaccount/token && exec "$@"
"""


def test_in_a_pod_the_service_account_is_used(
    authority: Authority, api: ApiServer, small_node: SmallNode, tmp_path: Path
) -> None:
    """Address from the environment, token and CA where Kubernetes mounts them, the Node from $NODE_NAME."""
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


def configuration_with_events(node: SmallNode, server: ApiServer, directory: Path, above: int = MIB) -> str:
    """A configuration under pressure, with events to this server."""
    return node.configuration(
        Signal.NODEFS_AVAILABLE,
        above,
        kubernetesEvents=True,
        kubeconfig=server.kubeconfig(directory),
        nodeName="node-1",
    )


def test_a_daemon_under_pressure_sends_an_event(api: ApiServer, small_node: SmallNode, tmp_path: Path) -> None:
    """The kubelet's event before it reclaims arrives; no other request is sent, and no condition is changed."""
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


@pytest.mark.regression
def test_every_pass_is_counted_in_one_event(api: ApiServer, small_node: SmallNode, tmp_path: Path) -> None:
    """Under pressure that nothing relieves, the object that the API server has counts the passes."""
    small_node.run(small_node.run_pod("web"))
    with Daemon("--config", configuration_with_events(small_node, api, tmp_path, above=10 * MIB)):
        assert came_true(lambda: any(event["count"] >= 3 for event in api.events.values()))
    (event,) = api.events.values()
    assert event["message"].startswith("Attempting to reclaim ephemeral-storage (ReclaimPressure")


@pytest.mark.parametrize("day", ["hangs", "says nonsense", "fails without end"])
def test_failures_of_an_api_server_do_not_affect_the_daemon(
    authority: Authority, small_node: SmallNode, tmp_path: Path, day: str
) -> None:
    """Pressure is relieved, the log has the event, and the daemon ends within 2 s while the server still hangs."""
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
