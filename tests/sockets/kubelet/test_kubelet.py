"""Requests to a kubelet over real connections: credentials, trust, what never leaves the node, and
answers that are no pod list; and `kubeletEndpoint: auto`: the kubelet's own socket comes first, then
its port with each identity that is found; what is trusted, kept, and said of the others; and its
configuration.

That a server which violates the protocol ends one call in bounded time and memory is the channel's
(`tests/sockets/cri/test_channel.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from eviction.configuration.effective import Configuration, load
from eviction.configuration.kubelet_ways import TOLD_BY_THE_KUBELET as NAME
from eviction.configuration.kubelet_ways import (
    IdentityFiles,
    KubeletPlace,
    PodsOfKubelet,
    asking_for_pods,
)
from eviction.doctor.checks import examine
from eviction.doctor.facts import facts_of
from eviction.engine.node import Node
from eviction.wording.configuration_warnings import configuration_warnings
from reclaim.evidence.pod_list import (
    KubeletLate,
    KubeletUnavailable,
    NotYet,
    WayRefused,
    parse_pod_list,
)
from reclaim.evidence.states import PodState
from reclaim.kubelet.client import CONFIGZ, LARGEST_BODY_BYTES, KubeletEndpoint, ask_kubelet
from reclaim.kubelet.versions import NEWEST, KubeletVersion
from tests.nodes.small_node import CONTAINERS, SmallNode, reason_of, relieve
from tests.pods_wire import pods_answer
from tests.pure.configuration.test_told import KUBELETS
from tests.pure.values import SteppedClock
from tests.rows import rows
from tests.sockets.kubelet_server import (
    BEARER,
    FOREVER_SECONDS,
    MARGIN_SECONDS,
    PODS,
    SHORT_SECONDS,
    Authority,
    KubeletServer,
    Step,
    answer,
    chunked,
    dripping,
    pod_list,
    refused,
    serving,
)
from tests.sockets.pods_api_server import NOT_YET, RATE_LIMIT, SERVICE, PodsAPIServer

asked = partial(ask_kubelet, seconds=MARGIN_SECONDS)


class Certificates:
    """A trusted authority and another one, and the certificates that they signed: of the node, of
    its kubelet as a client, and of others."""

    def __init__(self, directory: Path):
        self.authority = Authority(directory)
        self.node = self.authority.identity("node-1", "DNS:node-1")
        self.loopback = self.authority.identity("loopback", "IP:127.0.0.1,IP:::1")
        self.client = self.authority.identity("system:node:node-1")
        self.strange = Authority(directory, "stranger").identity("strange", "IP:127.0.0.1")
        self.token = directory / "token"

    def endpoint(self, url: str, **fields: object) -> KubeletEndpoint:
        """An endpoint that believes the authority."""
        return KubeletEndpoint(url, **{"ca_file": str(self.authority.certificate), **fields})  # type: ignore[arg-type] # as given

    def with_token(self, url: str) -> KubeletEndpoint:
        """One with the token, which has a line end after it as people write it."""
        self.token.write_text(BEARER + "\n")
        return self.endpoint(url, token_file=str(self.token))

    def install(self, root: Path) -> None:
        """As a kubelet has them below its root directory."""
        (root / "pki").mkdir(parents=True)
        chain = self.node.certificate.read_bytes() + self.authority.certificate.read_bytes()
        (root / "pki" / "kubelet.crt").write_bytes(chain)
        shutil.copy(self.client.both, root / "pki" / "kubelet-client-current.pem")

    def port(self, script: Step, **options: Any) -> KubeletServer:
        """The kubelet's port, with the certificate that it shows."""
        return KubeletServer(script, tls=serving(self.node), **options)

    def search(
        self,
        root: Path,
        port: KubeletServer | None = None,
        clock: SteppedClock | None = None,
        seconds: float = MARGIN_SECONDS,
    ) -> PodsOfKubelet:
        """A search on a node with this root directory."""
        return PodsOfKubelet(self.place(root, port), clock or SteppedClock(), seconds)

    def place(self, root: Path, port: KubeletServer | None = None) -> KubeletPlace:
        """Where the kubelet is asked; where nothing is installed, without any identity, and without
        a port none of its certificates is there."""
        tokens = [str(path) for path in root.glob("token")]
        place = KubeletPlace(str(root), files=IdentityFiles((*tokens,), (), ()))
        if port is None:
            return place
        own = "" if (root / "pki").exists() else str(self.node.certificate)
        return place._replace(port=int(port.url.rpartition(":")[2]), tls_cert_file=own)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once for all tests of this module."""
    if not Authority.available():
        pytest.skip("certificates are made with the openssl command, which is not there")
    return Certificates(tmp_path_factory.mktemp("certificates"))


# ---- credentials and trust


def test_the_read_only_port_needs_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """One GET of /pods, and the body unchanged; no proxy, whatever the environment says."""
    with KubeletServer(answer(b"from the proxy")) as proxy, KubeletServer(answer(PODS)) as kubelet:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert asked(KubeletEndpoint(kubelet.url)) == PODS
        assert proxy.requests == []
        (request,) = kubelet.requests
    assert request.startswith("GET /pods HTTP/1.1\r\n")
    assert "\r\nHost: 127.0.0.1:" in request
    assert "Authorization" not in request


def test_a_token_is_sent_over_https_and_read_again(certificates: Certificates) -> None:
    """One that has rotated is refused with 401, and the next request sends the new one."""
    with KubeletServer(answer(PODS), tls=serving(certificates.loopback), bearer=BEARER) as kubelet:
        endpoint = certificates.with_token(kubelet.url)
        assert asked(endpoint) == PODS
        kubelet.bearer = "another"
        assert "401 Unauthorized" in str(refused(endpoint))
        certificates.token.write_text("another")
        assert asked(endpoint) == PODS


@rows("""
    what                          | shows    | requires    | given                                              | told                   | requests
    an identity of two files      | loopback | certificate | certificate_file=certificate key_file=key          |                        | 1
    of one                        | loopback | certificate | certificate_file=both                              |                        | 1
    none                          | loopback | certificate |                                                    | the kubelet at https:/ | 0
    the name of the node          | node     |             | server_name=node-1                                 |                        | 1
    another name than the address | node     |             |                                                    | server name            | 0
    another node                  | node     |             | server_name=node-2                                 | server name            | 0
    a strange authority           | strange  | token       | token_file=token                                   | check the CA file      | 0
    which is waived               | strange  | token       | token_file=token ca_file= insecure_skip_verify=yes |                        | 1
""")
def test_only_a_server_that_is_trusted_gets_a_request(
    certificates: Certificates, shows: str, requires: str, given: str, told: str, requests: int
) -> None:
    """A kubelet's own certificate names the node: it is trusted with that server name alone. No
    token arrives anywhere else, unless verification is waived explicitly."""
    certificates.token.write_text(BEARER)
    client = certificates.client
    files = {"token": certificates.token, "both": client.both, "key": client.key}
    files["certificate"] = client.certificate
    words = [word.split("=") for word in given.split()]
    clients_of = certificates.authority if requires == "certificate" else None
    tls = serving(getattr(certificates, shows), clients_of)
    bearer = BEARER if requires == "token" else ""
    with KubeletServer(answer(PODS), tls=tls, bearer=bearer) as kubelet:
        fields = {name: str(files.get(value, value)) for name, value in words}
        endpoint = certificates.endpoint(kubelet.url, **fields)
        if told:
            assert told in str(refused(endpoint))
        else:
            assert asked(endpoint) == PODS
        assert len(kubelet.requests) == requests


def test_words_of_the_server_are_not_repeated(certificates: Certificates) -> None:
    """A server that sends the token back, in its status line and its body, does not get it into a
    log."""
    head = f"HTTP/1.1 403 \x1b[31m{BEARER}\r\nContent-Length: {len(BEARER)}\r\n\r\n{BEARER}"
    with KubeletServer(head.encode(), tls=serving(certificates.loopback)) as kubelet:
        assert "403 Forbidden" in str(refused(certificates.with_token(kubelet.url)))


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"a b", b"a\r\nX: y", b"\xc3\xa4", b"\0", b"x" * 70_000]
)
def test_an_invalid_token_is_not_sent(certificates: Certificates, content: bytes) -> None:
    """Nothing that could end the header line; no connection is made."""
    with KubeletServer(answer(PODS), tls=serving(certificates.loopback)) as kubelet:
        endpoint = certificates.with_token(kubelet.url)
        certificates.token.write_bytes(content)
        error = refused(endpoint)
        assert kubelet.requests == []
    file = certificates.token
    assert str(error) == f"the kubelet is not asked: the token file {file} holds no token"


def test_files_that_cannot_be_read_are_named(certificates: Certificates, tmp_path: Path) -> None:
    """A missing one, a directory, a FIFO (which would hang), and what is not PEM; before any
    connection."""
    fifo, text = tmp_path / "fifo", tmp_path / "text"
    os.mkfifo(fifo)
    text.write_text("not PEM")

    def problem(**fields: object) -> str:
        return str(refused(certificates.endpoint("https://127.0.0.1:9", **fields)))

    for path in (fifo, tmp_path, tmp_path / "missing"):
        for field in ("token_file", "certificate_file"):
            assert str(path) in problem(**{field: str(path)})
    told = f"the client certificate {text} cannot be used"
    assert told in problem(certificate_file=str(text))
    error = refused(KubeletEndpoint("https://127.0.0.1:9", ca_file=str(text)))
    assert f"the CA file {text} cannot be used" in str(error)


ASK_ON_A_TERMINAL = """
import fcntl, sys, termios
from reclaim.kubelet.client import ask_kubelet
from reclaim.evidence.pod_list import KubeletUnavailable
from reclaim.kubelet.client import KubeletEndpoint
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
ca, certificate, key = sys.argv[1:]
try:
    ask_kubelet(KubeletEndpoint("https://127.0.0.1:9", ca_file=ca, certificate_file=certificate, key_file=key))
except KubeletUnavailable as error:
    print(error)
"""


def test_a_key_that_needs_a_password_does_not_ask_for_it(certificates: Certificates) -> None:
    """A command on a terminal reports that it cannot use the key."""
    locked = certificates.authority.identity("locked", locked_with="opensesame")
    files = (certificates.authority.certificate, locked.certificate, locked.key)
    person, terminal = os.openpty()
    try:
        child = subprocess.run(
            [sys.executable, "-c", ASK_ON_A_TERMINAL, *map(str, files)],
            stdin=terminal,
            capture_output=True,
            text=True,
            start_new_session=True,
            timeout=60.0,
            check=True,
        )
    finally:
        os.close(person)
        os.close(terminal)
    assert f"the client certificate {locked.certificate} cannot be used" in child.stdout


def test_what_is_not_the_kubelets_port(certificates: Certificates) -> None:
    """Nobody listens; https is spoken to a plain port; or the address is not this node's own
    (192.0.2.1 is reserved, RFC 5737) and is not connected to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    plain = KubeletServer(answer(PODS), unasked=[b"HTTP/1.0 400 Bad Request\r\n\r\n"])
    with plain as kubelet:
        for url, words in (
            (f"https://127.0.0.1:{port}", "refuses connections: is it running, and is this its"),
            (kubelet.url.replace("http:", "https:"), "is this its https port"),
            ("https://192.0.2.1:10250", "does not belong to this node"),
        ):
            error = refused(certificates.with_token(url))
            assert words in str(error)
            assert not isinstance(error, KubeletLate)


def test_over_ipv6(certificates: Certificates) -> None:
    """The loopback address of IPv6, in brackets, also in the Host header."""
    try:
        kubelet = KubeletServer(answer(PODS), tls=serving(certificates.loopback), host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 on the loopback interface: {error}")
    with kubelet:
        assert asked(certificates.endpoint(kubelet.url)) == PODS
        assert "\r\nHost: [::1]:" in kubelet.requests[0]


# ---- answers

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
LATE: dict[str, Iterable[Step]] = {
    "silence": [FOREVER_SECONDS],
    "a head that drips": [*dripping(HEAD * 50, 0.05)],
    "a body that drips": [answer(PODS)[:-20], *dripping(PODS[-20:], 0.05)],
    "chunks that drip": [chunked(end=b""), *dripping(b"1\r\nx\r\n" * 100, 0.02)],
    "an end that does not come": [chunked(PODS, end=b""), FOREVER_SECONDS],
    "continue without end": [b"HTTP/1.1 100 Continue\r\n\r\n", 0.02] * 500,
    "no handshake": [FOREVER_SECONDS],
    "a handshake that drips": [*dripping(b"\x16\x03\x03\x20\x00" + bytes(99), 0.05)],
    "inside TLS": [*dripping(answer(PODS), 0.02)],
}


@pytest.mark.parametrize("name", LATE)
def test_the_deadline_is_for_all_of_the_answer(certificates: Certificates, name: str) -> None:
    """It is 0.3 s: then the request ends as late, whatever arrives in the meantime."""
    inside, unasked = "TLS" in name, LATE[name] if "handshake" in name else ()
    tls = serving(certificates.loopback) if inside else None
    with KubeletServer(*LATE[name], tls=tls, unasked=unasked) as kubelet:
        url = kubelet.url.replace("http:", "https:") if unasked else kubelet.url
        endpoint = certificates.endpoint(url) if unasked or inside else KubeletEndpoint(url)
        began = time.monotonic()
        error = refused(endpoint, SHORT_SECONDS)
        assert time.monotonic() - began >= SHORT_SECONDS
    assert isinstance(error, KubeletLate)
    assert str(error).endswith("gave no complete answer within 0.3 s")


@rows("""
    status | words
    400    | 400 Bad Request: is this an https port?
    401    | 401 Unauthorized: it accepts tokens only with authentication.webhook.enabled
    403    | 403 Forbidden: is the identity allowed to get nodes/proxy
    404    | 404 Not Found: is this the kubelet's port?
    500    | 500 Internal Server Error
    204    | 204 No Content
    206    | 206 Partial Content
    302    | 302 Found: redirects are not followed
""")
def test_a_status_that_is_not_200_is_no_answer(status: int, words: str) -> None:
    """Not even with a list of pods in it; the message says what to check. To the address of a
    redirect no request is sent."""
    with KubeletServer(answer(PODS)) as elsewhere:
        moved = answer(PODS, status, {"Location": f"{elsewhere.url}/pods"})
        with KubeletServer(moved) as kubelet:
            error = refused(KubeletEndpoint(kubelet.url))
            assert f"the kubelet at {kubelet.url} answered {words}" in str(error)
        assert elsewhere.requests == []
    assert not isinstance(error, KubeletLate)


@pytest.mark.parametrize(
    "cut",
    [
        answer(PODS)[:-1],
        chunked(PODS, end=b""),
        HEAD,
        HEAD + b"Content-Length: 10",
        HEAD + b"\r\n" + PODS,
        b"",
    ],
)
def test_an_answer_that_ends_early_is_none(cut: bytes) -> None:
    """The length that was announced has to arrive."""
    with KubeletServer(cut) as kubelet:
        assert not isinstance(refused(KubeletEndpoint(kubelet.url)), KubeletLate)


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_is_at_most_64_mib(announced: bool) -> None:
    """One byte more is refused, whether its length was announced or it came in chunks."""
    megabyte, count = bytes(1 << 20), LARGEST_BODY_BYTES >> 20
    if announced:
        script = [f"Content-Length: {LARGEST_BODY_BYTES + 1}\r\n\r\n".encode(), *[megabyte] * count]
        script.append(b"x")
    else:
        script = [CHUNKED, *[b"100000\r\n" + megabyte + b"\r\n"] * count, b"1\r\nx\r\n0\r\n\r\n"]
    with KubeletServer(HEAD, *script) as kubelet:
        assert "more than 64 MiB" in str(refused(KubeletEndpoint(kubelet.url)))


def test_garbage_is_no_answer() -> None:
    """Any bytes at all: an answer or a refusal, never anything else."""
    starts = st.sampled_from([b"", b"HTTP/1.1 ", HEAD, HEAD + CHUNKED, HEAD + b"Content-Length: "])
    with KubeletServer() as kubelet:
        endpoint = KubeletEndpoint(kubelet.url)

        @settings(max_examples=60, deadline=None, database=None)
        @given(starts, st.binary(max_size=60))
        def any_bytes(start: bytes, rest: bytes) -> None:
            kubelet.script = [start + rest]
            try:
                body = asked(endpoint)
            except KubeletUnavailable:
                return
            assert len(body) <= len(rest)

        any_bytes()


# ---- its socket, of a way that is found

DONE = {"metadata": {"uid": "uid-1"}, "status": {"phase": "Succeeded"}}


def endpoint(server: PodsAPIServer) -> KubeletEndpoint:
    """Its socket."""
    return KubeletEndpoint(f"unix://{server.path}")


def pods(found: PodsOfKubelet) -> Mapping[str, PodState]:
    """The pods that it lists."""
    return parse_pod_list(found.get()).states


OVER = {"uid-1": PodState(terminated=True)}


def test_the_socket_is_asked_first(certificates: Certificates, tmp_path: Path) -> None:
    """Its port gets no request, until the socket has no listener any more: the feature was switched
    off, or the kubelet has restarted."""
    with certificates.port(answer(PODS)) as other:
        with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
            found = certificates.search(tmp_path, other)
            assert pods(found) == pods(found) == OVER
            assert found.endpoint == endpoint(server)
            assert (server.calls, other.requests) == (2, [])
            with pytest.raises(WayRefused, match="lists its pods and answers nothing else"):
                asked(endpoint(server), path=CONFIGZ)
            assert server.calls == 2
        if not server.path.exists():  # gRPC's server removes it, the kubelet's does not
            with socket.socket(socket.AF_UNIX) as nobody:
                nobody.bind(str(server.path))
        assert found.get() == PODS
        assert found.endpoint is not None
        assert found.endpoint.url == other.url


NO_LISTS: dict[str, bytes | tuple[grpc.StatusCode, str]] = {
    "INTERNAL: failed to marshal pod": (
        grpc.StatusCode.INTERNAL,
        f"failed to marshal pod{'x' * 999}",
    ),
    "UNIMPLEMENTED": pods_answer(DONE),
    "INTERNAL: the list cannot be read": pods_answer(DONE)[:-1],
    "RESOURCE_EXHAUSTED: it is longer than 16 MiB": bytes(16 << 20) + b"\x00",
    "RESOURCE_EXHAUSTED: a message of": bytes(97 << 20),
}


@pytest.mark.parametrize("words", NO_LISTS)
def test_what_is_no_list_is_said_and_another_way_is_tried(
    certificates: Certificates, tmp_path: Path, words: str
) -> None:
    """No answer is used in part; without another way the kubelet is left alone for a minute."""
    clock, service = SteppedClock(), "v1beta1.Pods" if words == "UNIMPLEMENTED" else SERVICE
    with PodsAPIServer(tmp_path, NO_LISTS[words], service) as server:
        error = refused(endpoint(server))
        assert words in str(error)
        assert len(str(error)) < 500
        assert isinstance(error, WayRefused)
        with certificates.port(answer(PODS)) as other:
            assert certificates.search(tmp_path, other).get() == PODS
        alone = certificates.search(tmp_path, clock=clock)
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
    certificates: Certificates, tmp_path: Path, status: tuple[grpc.StatusCode, str]
) -> None:
    """In 1 s, at its socket, before a first list and after one: another way's
    list would lack pods.
    """
    with PodsAPIServer(tmp_path, status) as server, certificates.port(answer(PODS)) as other:
        found = certificates.search(tmp_path, other)
        for calls in (1, 3):
            server.answer = status
            with pytest.raises(NotYet, match=rf" gave no list yet: {status[0].name}: {status[1]}$"):
                found.get()
            assert server.calls == calls
            server.answer = pods_answer(DONE)
            assert pods(found) == OVER
        assert other.requests == []


def test_a_socket_that_appears_is_asked_at_once(certificates: Certificates, tmp_path: Path) -> None:
    """On a new node reclaimd looks before its first kubelet has made anything; nothing is searched
    for ten minutes, but the kubelet then listens."""
    found = certificates.search(tmp_path)
    with pytest.raises(KubeletUnavailable, match="no way was found"):
        found.get()
    with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
        assert pods(found) == OVER
        assert server.calls == 1
        server.path.chmod(0o777)
        with pytest.raises(KubeletUnavailable, match=r"as root at its socket: .* not trusted"):
            found.get()


@rows("""
    version | configured | proved
    1.37.0  | yes        | yes
    1.37.0  |            | yes
    1.36.2  | yes        |
    1.36.2  |            |
            | yes        |
            |            |
""")
def test_a_list_proves_that_all_sources_are_ready_from_1_37_on(
    certificates: Certificates, tmp_path: Path, version: str, configured: bool, proved: bool
) -> None:
    """`pkg/kubelet/apis/pods/server.go`, validateReady: before it, FAILED_PRECONDITION. A version
    that was not told proves nothing, and neither does another way's list."""
    with (
        PodsAPIServer(tmp_path, pods_answer()) as server,
        certificates.port(answer(pod_list())) as other,
    ):
        access = endpoint(server) if configured else certificates.place(tmp_path, other)
        told = KubeletVersion(version, "") if version else NEWEST
        ask = asking_for_pods(access, SteppedClock(), told)
        assert ask is not None
        for _ in range(2):
            assert parse_pod_list(ask()).from_api_server is proved
        if not configured:
            server.answer = (grpc.StatusCode.UNIMPLEMENTED, "")
            assert not parse_pod_list(ask()).from_api_server


def test_a_kubelet_that_does_not_answer_is_late(certificates: Certificates, tmp_path: Path) -> None:
    """It is asked nowhere else then: the deadline is for all ways together."""
    with PodsAPIServer(tmp_path, None) as server, certificates.port(answer(PODS)) as other:
        error = refused(endpoint(server), SHORT_SECONDS)
        assert isinstance(error, KubeletLate)
        assert str(error).endswith("gave no complete answer within 0.3 s")
        with pytest.raises(KubeletUnavailable):
            certificates.search(tmp_path, other, seconds=SHORT_SECONDS).get()
        assert other.requests == []


def test_a_socket_that_another_could_have_made_is_not_asked(tmp_path: Path) -> None:
    """By the rule of all sockets (`test_trust.py`)."""
    with PodsAPIServer(tmp_path, pods_answer(DONE)) as server:
        server.path.chmod(0o777)
        error = refused(endpoint(server))
        assert f"{server.path} is not asked: the socket is not trusted: every user may" in str(
            error
        )
        assert isinstance(error, WayRefused)
        assert server.calls == 0


# ---- its port


@pytest.fixture
def installed(small_node: SmallNode, certificates: Certificates) -> Path:
    """The root directory of a small node's kubelet, with its certificates, and the token of a pod
    in it."""
    certificates.install(small_node.root_directory)
    (small_node.root_directory / "token").write_text(BEARER)
    return small_node.root_directory


def test_the_identity_that_is_accepted_is_found_and_kept(
    certificates: Certificates, installed: Path
) -> None:
    """The token comes first; the certificate on disk is the one that the server shows, whatever
    name it has. Once it is refused, because a role was taken away, the same call looks anew."""
    with certificates.port(answer(PODS), bearer=BEARER) as kubelet:
        search = certificates.search(installed, kubelet)
        assert search.get() == search.get() == PODS
        kept = search.endpoint
        assert kept is not None
        assert kept.token_file == str(installed / "token")
        assert len(kubelet.requests) == 2
        kubelet.bearer = "another"
        with pytest.raises(KubeletUnavailable, match="401 Unauthorized") as caught:
            search.get()
        assert search.endpoint is None
        assert str(caught.value).count("; as ") == 2


def test_a_server_that_shows_another_certificate_gets_nothing(
    certificates: Certificates, installed: Path
) -> None:
    """It may even be signed by the same authority: no request arrives, so no token does."""
    tls = serving(certificates.loopback)
    with KubeletServer(answer(PODS), tls=tls, bearer=BEARER) as kubelet:
        with pytest.raises(
            KubeletUnavailable,
            match=r"is not trusted: it presents a certificate other than .*kubelet\.crt",
        ):
            certificates.search(installed, kubelet).get()
        assert kubelet.requests == []


def test_each_refusal_is_told_and_no_request_is_sent_for_a_minute(
    certificates: Certificates, installed: Path
) -> None:
    """403 to everybody, as a kubelet with webhook authorization answers a node's certificate."""
    tls, clock = serving(certificates.node, certificates.authority), SteppedClock()
    with KubeletServer(answer(b"Forbidden", 403), tls=tls) as kubelet:
        search = certificates.search(installed, kubelet, clock)
        with pytest.raises(KubeletUnavailable) as caught:
            search.get()
        told = str(caught.value)
        assert told.startswith("no way was found to ask the kubelet for /pods: as ")
        # no certificate was shown
        assert f"as the service account's token {installed}/token: TLS with" in told
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
        kubelet.script = [answer(b"Forbidden", 403)]
        for seconds, asked in ((0.0, True), (59.0, False), (1.0, True)):
            clock.step(seconds)
            sent = len(kubelet.requests)
            with pytest.raises(KubeletUnavailable):
                search.get()
            assert (len(kubelet.requests) > sent) is asked


def test_a_kubelet_that_is_away_ends_the_search(
    certificates: Certificates, installed: Path
) -> None:
    """No other identity would help; the next call tries again at once."""
    with certificates.port(answer(PODS)) as kubelet:
        search = certificates.search(installed, kubelet)
        port = int(kubelet.url.rpartition(":")[2])
    with pytest.raises(KubeletUnavailable, match="refuses connections"):
        search.get()
    with certificates.port(answer(PODS), port=port):
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
    certificates: Certificates, installed: Path, small_node: SmallNode, tmp_path: Path
) -> None:
    """By the node's own certificate, found through the kubelet's configuration; without auto it
    stays, and while the kubelet does not list the pod, which has its directory. Doctor tells the
    bytes of images that only such pods use, and each identity with its answer, if none is accepted;
    a pod with a volume is to run again."""
    small_node.stands()
    containers = []
    small_node.add_images(2)
    for number in range(2):
        job = small_node.run_pod(f"job-{number}")
        containers.append(small_node.exited(job, f"registry.example/old/{number}:1"))
        small_node.runtime.kill_sandbox(job.sandbox_id)
    volumes = small_node.root_directory / "pods" / "uid-job-1" / "volumes"
    (volumes / "kubernetes.io~projected" / "token").mkdir(parents=True)
    tls = serving(certificates.node, certificates.authority)
    with KubeletServer(answer(b"no", 403), tls=tls) as kubelet:
        node = node_with_auto(small_node, kubelet, tmp_path)
        found = {each.check: each for each in examine(facts_of(node)).findings}
        assert "403 Forbidden" in found["kubelet-list"].evidence
        assert "nodes/pods" in found["terminated-pods"].remedy
        assert found["terminated-pods"].evidence.startswith("4.0MiB; images: 1; pods all of whose ")
        kubelet.script = [answer(pod_list())]
        for node in (small_node.node(), node_with_auto(small_node, kubelet, tmp_path)):
            relieve(node, CONTAINERS)
            assert small_node.containers() >= {*containers}
        kubelet.script = [answer(pod_list(*map(succeeded, ("uid-job-0", "uid-job-1"))))]
        node = node_with_auto(small_node, kubelet, tmp_path)
        findings = examine(facts_of(node)).findings
        assert not {each.check for each in findings} & {"kubelet-list", "terminated-pods"}
        assert reason_of(relieve(node, CONTAINERS), containers[0]) == "pod_terminated"
        assert containers[0] not in small_node.containers()
        assert node.pod_state_source == "kubelet"


# ---- its configuration, which it tells where no file of it is found and it is asked for its pods


TOLD = yaml.safe_load("""
evictionHard: {memory.available: 100Mi, nodefs.available: 7%, imagefs.available: 9%}
mergeDefaultEvictionSettings: false
imageGCHighThresholdPercent: 91
imageMinimumGCAge: 3m0s
podLogsDir: /var/log/elsewhere
somethingNewer: {of: a later kubelet}
""")


def loaded(root: Path, kubelet: KubeletServer, **fields: Any) -> Configuration:
    """The configuration on a machine without a kubelet among its processes, and without its usual
    file."""
    return load(None, {}, {"kubeletEndpoint": kubelet.url, **fields}, root=str(root))


def configz(document: object) -> bytes:
    """The kubelet's answer."""
    return answer(json.dumps(document).encode())


def test_the_kubelets_own_word_is_inherited_where_no_file_is_found(tmp_path: Path) -> None:
    """With its thresholds and nothing added: all defaults are in it already."""
    with KubeletServer(configz({"kubeletconfig": TOLD})) as kubelet:
        found = loaded(tmp_path, kubelet)
        assert [head.split()[1] for head in kubelet.requests] == ["/configz"]
    assert [(str(one.signal), str(one.value)) for one in found.thresholds] == [
        ("nodefs.available", "7%"),
        ("imagefs.available", "9%"),
    ]
    assert {one.origin.partition(" plus ")[0] for one in found.thresholds} == {NAME}
    own = {name: value for name, value in TOLD.items() if name in found.effective}
    assert {name: found.effective[name] for name in own} == own
    assert found.origins["podLogsDir"] == NAME
    assert list(configuration_warnings(found)) == []


def test_it_is_not_asked_where_its_file_is_known_or_is_said_to_be_none(tmp_path: Path) -> None:
    """Nor where it is not asked for its pods."""
    usual = tmp_path / "var/lib/kubelet/config.yaml"
    with KubeletServer(configz({"kubeletconfig": TOLD})) as kubelet:
        loaded(tmp_path, kubelet, kubeletConfig="")
        load(None, {}, {}, root=str(tmp_path))
        usual.parent.mkdir(parents=True)
        usual.write_text(KUBELETS)
        loaded(tmp_path, kubelet)
        assert kubelet.requests == []


@rows("""
    what           | status | body                                             | why
                   | 401    |                                                  | answered 401 Unauthorized
                   | 403    |                                                  | nodes/configz is enough
    garbage        | 200    | {                                                | is not JSON
    a list         | 200    | []                                               | has no object kubeletconfig
    wrong settings | 200    | {"kubeletconfig": {"imageMinimumGCAge": "soon"}} | /configz: imageMinimumGCAge:
    hangs          |        |                                                  | gave no complete answer within
""")
def test_a_kubelet_that_does_not_tell_is_said_and_its_defaults_are_taken(
    tmp_path: Path, status: int | None, body: str, why: str
) -> None:
    """By the start, `status` and `config`, with what was looked for before."""
    step: Step = FOREVER_SECONDS if status is None else answer(body.encode(), status)
    with KubeletServer(step) as kubelet:
        found = loaded(tmp_path, kubelet)
    (warning,) = configuration_warnings(found)
    assert warning.startswith("assuming the kubelet's default thresholds: no kubelet is seen")
    assert why in warning
    assert found.thresholds == load(None, {}, {}).thresholds
