"""Events to an API server over TLS with a kubeconfig; its failures affect nothing else."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eviction.surface.kubernetes_events import NoAnswer, counted, write_event
from reclaim.types import EventReason, GCEvent
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import ENVIRONMENT, Daemon, came_true
from tests.rows import rows
from tests.sockets.api_server import BEARER, EVENTS, ApiServer
from tests.sockets.kubelet_server import FOREVER_SECONDS, MARGIN_SECONDS, Authority, Step, answer
from tests.sockets.passes import satisfied

NAME = f"node-1.reclaimdthresholdmet.{1_800_000_000 * 10**9:x}"
INODES = GCEvent(EventReason.THRESHOLD_MET, "Attempting to reclaim inodes")
MET = dict(counted(INODES, None, "node-1", wall=1.8e9))
WRITTEN = yaml.safe_load(f"""
apiVersion: v1
kind: Event
metadata: {{name: {NAME}, namespace: default}}
involvedObject: {{apiVersion: v1, kind: Node, name: node-1, uid: node-1}}
type: Warning
reason: ReclaimdThresholdMet
message: Attempting to reclaim inodes
source: {{component: reclaimd, host: node-1}}
reportingComponent: reclaimd
reportingInstance: node-1
firstTimestamp: '2027-01-15T08:00:00.000Z'
lastTimestamp: '2027-01-15T08:00:00.000Z'
count: 1
""")
SHORT_SECONDS = 1.0
OK = b"HTTP/1.1 200 OK\r\n"
CLUSTER = ("certificate-authority-data", "server")
Config = dict[str, Any]


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


def refused(kubeconfig: str, seconds: float = MARGIN_SECONDS) -> str:
    """Why an event was not accepted: one line, without secrets and names of Python's classes."""
    with pytest.raises(NoAnswer) as caught:
        write_event(MET, kubeconfig, seconds)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert not re.search(rf"{BEARER}|secret|[a-z](Error|Exception|Unknown)\b", sentence)
    return sentence


def changed(server: ApiServer, directory: Path, cluster: Config, user: Config) -> str:
    """The path of its kubeconfig with other fields; those of {} stay."""
    kubeconfig = Path(server.kubeconfig(directory))
    document = json.loads(kubeconfig.read_text())
    if cluster:
        document["clusters"][0]["cluster"] = {"server": server.url, **cluster}
    if user:
        document["users"][0]["user"] = user
    kubeconfig.write_text(json.dumps(document))
    return str(kubeconfig)


def test_an_event_is_written_as_the_kubelet_writes_its_own(api: ApiServer, tmp_path: Path) -> None:
    """About the Node, in the namespace default, a warning with the kubelet's reason; the component
    is ours. No field that core/v1 does not have, where its schema is there."""
    write_event(MET, api.kubeconfig(tmp_path))
    assert api.events == {NAME: WRITTEN}
    assert api.requests == [("POST", EVENTS, "application/json")]
    validator = pytest.importorskip("kubernetes_validate")
    validator.validate(api.events[NAME], "1.31", strict=True)


def test_the_count_is_updated_and_a_deleted_event_is_created_again(
    api: ApiServer, tmp_path: Path
) -> None:
    """One that is there already, as the response was lost, is no failure; then a patch of count,
    last time and message; after the hour until the server deletes it, the whole event again."""
    kubeconfig = api.kubeconfig(tmp_path)
    latest = {"count": 2, "lastTimestamp": "2027-01-15T08:01:00.000Z", "message": "the latest"}
    for event in (MET, MET, MET | latest):
        write_event(event, kubeconfig)
    assert api.events == {NAME: MET | latest}
    api.events.clear()
    write_event(MET | {"count": 3}, kubeconfig)
    assert api.events[NAME]["count"] == 3
    methods = [method for method, _, _ in api.requests]
    assert methods == ["POST", "POST", "PATCH", "PATCH", "POST"]


NONE = "something that is not an event"


ENDLESS = OK + b"Content-Length: 1000000000000\r\n\r\n" + b"x" * (1 << 20)
WITHOUT_END = [b"x" * (1 << 20)] * 200
FAULTY: dict[str, tuple[list[Step], str]] = {
    "hangs": ([FOREVER_SECONDS], "gave no complete answer within 1 s"),
    "hangs in the answer": (
        [OK + b"Content-Length: 9\r\n\r\n{", FOREVER_SECONDS],
        "gave no complete answer within 1 s",
    ),
    "hangs up": ([b""], "cannot be asked: the connection was lost"),
    "is no web server": ([b"SSH-2.0-OpenSSH_9.2\r\n"], "gave no answer in HTTP"),
    "says nonsense": ([answer(b"\xff\xfe{}")], NONE),
    "is a login page": ([answer(b"<html></html>")], NONE),
    "is another API": ([answer(b'{"kind":"Pod"}')], NONE),
    "nests deeply": ([answer(b"[" * 60000)], NONE),
    "sends without end": ([ENDLESS, *WITHOUT_END], NONE),
    "fails without end": ([ENDLESS.replace(b"200 OK", b"500 No"), *WITHOUT_END], "answered 500"),
}


@pytest.mark.parametrize("day", [*FAULTY, 401, 403, 404, 422, 429, 500, 503, 302, 204])
def test_a_failure_of_the_server_is_one_sentence(
    authority: Authority, tmp_path: Path, day: str | int
) -> None:
    """Within its deadline, without reading more than 64 KiB; a status has a hint what to check, and
    a redirect is not followed."""
    if isinstance(day, str):
        steps, sentence = FAULTY[day]
    else:
        steps, sentence = [answer(b"{}", day)], f"answered {day}"
    with ApiServer(authority, steps) as server:
        seconds = SHORT_SECONDS if "within" in sentence else MARGIN_SECONDS
        why = refused(server.kubeconfig(tmp_path), seconds)
        assert sentence in why
        assert isinstance(day, str) or len(server.requests) == 1
        assert ("may it create and patch events" in why) is (day in (401, 403))


def test_a_server_that_is_down_or_not_trusted_gets_no_token(
    authority: Authority, api: ApiServer, tmp_path: Path
) -> None:
    """Its certificate is another authority's: nothing is sent, unless the kubeconfig skips
    verification. A wrong token is refused."""
    (tmp_path / "other").mkdir()
    other = str(Authority(tmp_path / "other").certificate)
    distrusting = changed(api, tmp_path, {"certificate-authority": other}, {})
    assert "certificate that is not trusted" in refused(distrusting)
    assert api.requests == []
    write_event(MET, changed(api, tmp_path, {"insecure-skip-tls-verify": True}, {}))
    assert len(api.events) == 1
    wrong = refused(api.kubeconfig(tmp_path, "another-token"))
    assert "401: is the token or certificate valid" in wrong
    with ApiServer(authority) as server:
        kubeconfig = server.kubeconfig(tmp_path)
    assert refused(kubeconfig).startswith(f"the API server at {server.url} refuses connections")


def encoded(path: object) -> str:
    """A file in base64."""
    return base64.b64encode(Path(str(path)).read_bytes()).decode()


def test_an_identity_may_be_in_the_kubeconfig_or_in_files_beside_it(
    authority: Authority, tmp_path: Path
) -> None:
    """In base64, or paths that start from its directory. With its certificate a client is answered,
    though only that it misses the token; without it there is no connection."""
    (tmp_path / "ca.pem").write_bytes(authority.certificate.read_bytes())
    (tmp_path / "token").write_text(f"{BEARER}\n")
    held = {"certificate-authority-data": encoded(authority.certificate)}
    beside = {"certificate-authority": "ca.pem"}
    identity = authority.identity("node", "DNS:node")
    paths = {"client-certificate": str(identity.certificate), "client-key": str(identity.key)}
    data = {f"{name}-data": encoded(path) for name, path in paths.items()}
    with ApiServer(authority) as server:
        for cluster, user in ((held, {"token": BEARER}), (beside, {"tokenFile": "token"})):
            write_event(MET, changed(server, tmp_path, cluster, user))
        assert len(server.requests) == 2
    with ApiServer(authority, clients_of=authority) as server:
        for user in (paths, data):
            assert "answered 401" in refused(changed(server, tmp_path, held, user))
        lost = refused(changed(server, tmp_path, held, {"token": BEARER}))
        assert re.search(r"^TLS with the API server at \S+ failed|the connection was lost", lost)
        assert len(server.requests) == 2


@rows(
    """
    fields                                                  | file                     | sentence
    {certificate-authority-data: no base64!, token: secret} |                          | token of it is none
    {certificate-authority-data: c2VjcmV0, token: secret}   |                          | token of it is none
    {token: "secret\\r\\nX: y"}                             |                          | token of it is none
    {client-certificate-data: c2VjcmV0}                     |                          | token of it is none
                                                            | rm                       | No such file
                                                            | chmod 666                | every user may write
                                                            | echo '{' >               | not readable as YAML
                                                            | echo '{}' >              | names no cluster
                                                            | sed -i 's/"server"/"x"/' | no cluster with a server
                                                            | sed -i 's/"token"/"x"/'  | no user with a token
                                                            | echo 'a: [' >            | not readable as YAML
                                                            | echo '[]' >              | must be a mapping
    {server: "https://"}                                    |                          | not the https address
    {server: "https://127.0.0.1:99999"}                     |                          | not the https address
    {server: "https://a b:1"}                               |                          | not the https address
    {server: "ftp://127.0.0.1"}                             |                          | not the https address
    {server: "http://127.0.0.1"}                            |                          | not the https address
    {server: "https://[::1"}                                |                          | not the https address
    """
)
def test_a_kubeconfig_that_cannot_be_used_is_named_and_not_quoted(
    api: ApiServer, tmp_path: Path, fields: str, file: str, sentence: str
) -> None:
    """It contains credentials; a user who may write it decides which server gets them, and no token
    is ever sent in clear. No request is sent."""
    given = yaml.safe_load(fields) or {}
    of_cluster = {name: given.pop(name) for name in list(given) if name in CLUSTER}
    kubeconfig = changed(api, tmp_path, of_cluster, given)
    subprocess.run(f"{file or ':'} {kubeconfig}", shell=True, check=True)  # noqa: S602 # our own
    why = refused(kubeconfig)
    assert sentence in why
    assert "server" in of_cluster or kubeconfig in why
    assert not api.requests


def test_outside_a_pod_there_is_no_service_account() -> None:
    """Without a kubeconfig: one sentence."""
    assert refused("") == (
        "the service account of this pod cannot be used: this process does not run in a pod, or its"
        " token is not mounted"
    )


# ---- of a daemon

IN_A_POD = """
mount -t tmpfs none /run && cd /run && mkdir -p secrets/kubernetes.io/serviceaccount &&
cp "$CA" secrets/kubernetes.io/serviceaccount/ca.crt &&
printf %s "$BEARER" >secrets/kubernetes.io/serviceaccount/token && exec "$@"
"""


def test_in_a_pod_the_service_account_is_used(
    authority: Authority, api: ApiServer, small_node: SmallNode
) -> None:
    """Address from the environment, token and CA where Kubernetes mounts them, the Node from
    $NODE_NAME."""
    small_node.add_images(3)
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, MIB, kubernetesEvents=True)
    host, _, port = api.url.removeprefix("https://").partition(":")
    pod = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "NODE_NAME": "node-7"}
    variables = {**ENVIRONMENT, **pod, "CA": str(authority.certificate), "BEARER": BEARER}
    before = ["unshare", "--mount", "sh", "-c", IN_A_POD, "sh"]
    with Daemon("--config", file, before=before, environment=variables):
        assert came_true(lambda: bool(api.events))
    assert {event["involvedObject"]["name"] for event in api.events.values()} == {"node-7"}


SENT = """Warning ReclaimdThresholdMet node-1 Attempting to reclaim ephemeral-storage \
(ReclaimPressure: below reclaimd's own mark)
Normal ReclaimdRelieved node-1 nodefs was below reclaimd's own mark
"""


@pytest.mark.parametrize("day", ["", "hangs", "fails without end"])
def test_a_daemon_under_pressure_sends_an_event_and_fails_with_no_server(
    authority: Authority, small_node: SmallNode, tmp_path: Path, day: str
) -> None:
    """An event before it reclaims, one after it, and no other request: no condition is changed. While
    the server fails pressure is relieved, the log has the event, and the daemon ends."""
    small_node.add_images(3)
    with ApiServer(authority, FAULTY[day][0] if day else []) as server:
        fields: Config = {"kubeconfig": server.kubeconfig(tmp_path), "nodeName": "node-1"}
        pressed = (Signal.NODEFS_AVAILABLE, MIB)
        file = small_node.configuration(*pressed, kubernetesEvents=True, **fields)
        with Daemon("--config", file) as daemon:
            daemon.wait_for(satisfied)
            assert came_true(lambda: bool(server.requests and day) or len(server.events) == 2)
            assert daemon.logged("Attempting to reclaim ephemeral-storage")
            assert daemon.stop() == 0
        assert {path for _, path, _ in server.requests} <= {EVENTS, f"{EVENTS}/{NAME}"}
    found = "".join(
        "{type} {reason} {involvedObject[name]} {message}".format(**each).partition(";")[0] + "\n"
        for each in server.events.values()
    )
    assert found == ("" if day else SENT)
