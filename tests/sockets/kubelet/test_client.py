"""Requests to a kubelet over real connections: credentials, trust, and what
never leaves the node.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from reclaim.evidence.directories import KubeletDirectories
from reclaim.evidence.pod_list import KubeletLate
from reclaim.evidence.states import PodState
from reclaim.kubelet.client import KubeletEndpoint, ask_kubelet
from reclaim.kubelet.pods import KubeletPods
from signals.clock import SystemClock
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
    dripping,
    refused,
    serving,
)


class Certificates:
    """A trusted authority and another one, and the certificates that they signed."""

    def __init__(self, directory: Path):
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "stranger")
        self.node = self.authority.identity("node-1", "DNS:node-1")
        self.loopback = self.authority.identity("loopback", "IP:127.0.0.1,IP:::1")
        self.client = self.authority.identity("client")
        self.strange = self.stranger.identity("strange", "IP:127.0.0.1")

    def endpoint(self, url: str, **fields: object) -> KubeletEndpoint:
        """An endpoint that believes the authority."""
        return KubeletEndpoint(url, ca_file=str(self.authority.certificate), **fields)  # type: ignore[arg-type] # as given


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once for all tests of this module."""
    if not Authority.available():
        pytest.skip(
            "certificates for the test are made with the openssl command, which is not there"
        )
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A file with the token, and a line end after it as people write it."""
    path = tmp_path / "token"
    path.write_text(BEARER + "\n")
    return path


def test_the_read_only_port_needs_no_credentials() -> None:
    """One GET of /pods, and the body unchanged."""
    with KubeletServer(answer(PODS)) as kubelet:
        assert ask_kubelet(KubeletEndpoint(kubelet.url)) == PODS
        (request,) = kubelet.requests
    assert request.startswith("GET /pods HTTP/1.1\r\n")
    assert "\r\nHost: 127.0.0.1:" in request
    assert "Authorization" not in request


def test_a_token_is_sent_over_https(certificates: Certificates, token_file: Path) -> None:
    """Without the line end after it in the file."""
    with KubeletServer(answer(PODS), tls=serving(certificates.loopback), bearer=BEARER) as kubelet:
        assert ask_kubelet(certificates.endpoint(kubelet.url, token_file=str(token_file))) == PODS


def test_a_token_that_rotates_is_read_again(certificates: Certificates, token_file: Path) -> None:
    """The next request sends the new one; the old one is refused with 401."""
    with KubeletServer(answer(PODS), tls=serving(certificates.loopback), bearer=BEARER) as kubelet:
        endpoint = certificates.endpoint(kubelet.url, token_file=str(token_file))
        ask_kubelet(endpoint)
        kubelet.bearer = "another"
        assert "401 Unauthorized" in str(refused(endpoint))
        replacement = token_file.with_name("..data")
        replacement.write_text("another")
        replacement.rename(token_file)
        assert ask_kubelet(endpoint) == PODS


@pytest.mark.parametrize(
    "one_file", [True, False], ids=["key in the certificate's file", "key in a file of its own"]
)
def test_a_client_certificate_is_an_identity(certificates: Certificates, one_file: bool) -> None:
    """Sent to a kubelet that asks for it; without it that kubelet does not answer."""
    client = certificates.client
    files = {"certificate_file": str(client.both)}
    if not one_file:
        files = {"certificate_file": str(client.certificate), "key_file": str(client.key)}
    with KubeletServer(
        answer(PODS), tls=serving(certificates.loopback, certificates.authority)
    ) as kubelet:
        assert ask_kubelet(certificates.endpoint(kubelet.url, **files)) == PODS
        refused(certificates.endpoint(kubelet.url))
        assert len(kubelet.requests) == 1


def test_the_certificate_may_contain_another_name_than_the_address(
    certificates: Certificates,
) -> None:
    """A kubelet's own certificate names the node: with that server name it is
    trusted, without it is not.
    """
    with KubeletServer(answer(PODS), tls=serving(certificates.node)) as kubelet:
        assert ask_kubelet(certificates.endpoint(kubelet.url, server_name="node-1")) == PODS
        assert "server name" in str(refused(certificates.endpoint(kubelet.url)))
        assert "server name" in str(
            refused(certificates.endpoint(kubelet.url, server_name="node-2"))
        )


def test_a_server_without_a_trusted_certificate_gets_no_token(
    certificates: Certificates, token_file: Path
) -> None:
    """A certificate of another authority: not a single request arrives."""
    with KubeletServer(answer(PODS), tls=serving(certificates.strange)) as impostor:
        error = refused(certificates.endpoint(impostor.url, token_file=str(token_file)))
        assert impostor.requests == []
    assert "is not trusted" in str(error)
    assert "check the CA file" in str(error)


def test_verification_may_be_waived(certificates: Certificates, token_file: Path) -> None:
    """Only with the explicit option."""
    with KubeletServer(answer(PODS), tls=serving(certificates.strange), bearer=BEARER) as kubelet:
        endpoint = KubeletEndpoint(
            kubelet.url, token_file=str(token_file), insecure_skip_verify=True
        )
        assert ask_kubelet(endpoint) == PODS


def test_a_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says."""
    with KubeletServer(answer(b"from the proxy")) as proxy, KubeletServer(answer(PODS)) as kubelet:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert ask_kubelet(KubeletEndpoint(kubelet.url)) == PODS
        assert proxy.requests == []


def test_words_of_the_server_are_not_repeated(certificates: Certificates, token_file: Path) -> None:
    """A server that sends the token back, in its status line and its body,
    does not get it into a log.
    """
    echo = (
        f"HTTP/1.1 403 \x1b[31m{BEARER}\r\nContent-Length: {len(BEARER)}\r\n\r\n{BEARER}".encode()
    )
    with KubeletServer(echo, tls=serving(certificates.loopback)) as kubelet:
        error = refused(certificates.endpoint(kubelet.url, token_file=str(token_file)))
    assert "403 Forbidden" in str(error)


@pytest.mark.parametrize(
    "unasked", [[FOREVER_SECONDS], list(dripping(b"\x16\x03\x03\x20\x00" + bytes(99), 0.05))]
)
def test_the_deadline_is_for_the_handshake_too(
    certificates: Certificates, unasked: list[Step]
) -> None:
    """A server that never begins with TLS, and one that sends it byte by byte."""
    with KubeletServer(unasked=unasked) as kubelet:
        began = time.monotonic()
        error = refused(
            certificates.endpoint(kubelet.url.replace("http:", "https:")), SHORT_SECONDS
        )
        assert time.monotonic() - began < SHORT_SECONDS + MARGIN_SECONDS
    assert isinstance(error, KubeletLate)


def test_the_deadline_holds_inside_tls(certificates: Certificates) -> None:
    """Encrypted bytes, one after the other, are late as well."""
    with KubeletServer(
        *dripping(answer(PODS), 0.02), tls=serving(certificates.loopback)
    ) as kubelet:
        began = time.monotonic()
        assert isinstance(refused(certificates.endpoint(kubelet.url), SHORT_SECONDS), KubeletLate)
        assert time.monotonic() - began < SHORT_SECONDS + MARGIN_SECONDS


def test_a_kubelet_that_is_not_there() -> None:
    """Refused at once, with what to check."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    secure = refused(KubeletEndpoint(f"https://127.0.0.1:{port}", insecure_skip_verify=True))
    assert str(secure).endswith("refuses connections: is it running, and is this its port?")
    assert not isinstance(secure, KubeletLate)


def test_nothing_leaves_the_node(certificates: Certificates, token_file: Path) -> None:
    """An address that is not this node's own is not connected to (192.0.2.1 is
    reserved, RFC 5737).
    """
    began = time.monotonic()
    error = refused(certificates.endpoint("https://192.0.2.1:10250", token_file=str(token_file)))
    assert "does not belong to this node" in str(error)
    assert time.monotonic() - began < MARGIN_SECONDS


def test_the_wrong_scheme_for_the_port_is_reported(certificates: Certificates) -> None:
    """https spoken to a plain port."""
    with KubeletServer(answer(PODS), unasked=[b"HTTP/1.0 400 Bad Request\r\n\r\n"]) as kubelet:
        error = refused(certificates.endpoint(kubelet.url.replace("http:", "https:")))
    assert "is this its https port" in str(error)


def test_over_ipv6(certificates: Certificates) -> None:
    """The loopback address of IPv6, in brackets, also in the Host header."""
    try:
        kubelet = KubeletServer(answer(PODS), tls=serving(certificates.loopback), host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 on the loopback interface: {error}")
    with kubelet:
        assert ask_kubelet(certificates.endpoint(kubelet.url)) == PODS
        assert "\r\nHost: [::1]:" in kubelet.requests[0]


@pytest.mark.parametrize(
    "content", [b"", b" \n", b"a b", b"a\r\nX: y", b"\xc3\xa4", b"\0", b"x" * 70_000]
)
def test_an_invalid_token_is_not_sent(
    certificates: Certificates, token_file: Path, content: bytes
) -> None:
    """Nothing that could end the header line; no connection is made."""
    token_file.write_bytes(content)
    with KubeletServer(answer(PODS), tls=serving(certificates.loopback)) as kubelet:
        error = refused(certificates.endpoint(kubelet.url, token_file=str(token_file)))
        assert kubelet.requests == []
    assert str(error) == f"the kubelet is not asked: the token file {token_file} holds no token"


def test_files_that_cannot_be_read_are_named(certificates: Certificates, tmp_path: Path) -> None:
    """A missing one, a directory, a FIFO (which would hang), and what is not PEM; at
    once, before any connection.
    """
    fifo, text, missing = tmp_path / "fifo", tmp_path / "text", tmp_path / "missing"
    os.mkfifo(fifo)
    text.write_text("not PEM")
    url = "https://127.0.0.1:9"
    for path in (fifo, tmp_path, missing):
        for field in ("token_file", "certificate_file"):
            assert str(path) in str(refused(certificates.endpoint(url, **{field: str(path)})))
        assert str(path) in str(refused(KubeletEndpoint(url, ca_file=str(path))))
    assert f"the CA file {text} cannot be used" in str(
        refused(KubeletEndpoint(url, ca_file=str(text)))
    )
    error = refused(certificates.endpoint(url, certificate_file=str(text)))
    assert f"the client certificate {text} cannot be used" in str(error)


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
    """A command on a terminal reports that it cannot use the key, instead of
    prompting for a password.
    """
    locked = certificates.authority.identity("locked", locked_with="opensesame")
    files = [
        str(path) for path in (certificates.authority.certificate, locked.certificate, locked.key)
    ]
    person, terminal = os.openpty()
    try:
        child = subprocess.run(
            [sys.executable, "-c", ASK_ON_A_TERMINAL, *files],
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


def test_the_pods_of_a_kubelet_that_answers_are_known(tmp_path: Path) -> None:
    """From the connection to the states that a plan uses; without the kubelet
    only the directories count.
    """
    (tmp_path / "pods" / "uid-1").mkdir(parents=True)
    with KubeletServer(answer(PODS)) as kubelet:
        ask = partial(ask_kubelet, KubeletEndpoint(kubelet.url))
        pods = KubeletPods(KubeletDirectories(str(tmp_path)), SystemClock(), ask)
        known = pods.read(), pods.list_problem
    unknown = pods.read(), pods.list_problem
    assert known[0].kubelet == {"uid-1": PodState(terminated=True)}
    assert known[0].runtime_should_be_removed("uid-1")
    assert known[1] is None
    assert not unknown[0].known
    assert not unknown[0].runtime_should_be_removed("uid-1")
    assert "refuses connections" in str(unknown[1])
