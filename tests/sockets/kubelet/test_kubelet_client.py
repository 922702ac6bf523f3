"""Requests to a kubelet over real connections: credentials, trust, what never leaves the node, and
answers that are no pod list."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaim.evidence.pod_list import KubeletLate, KubeletUnavailable
from reclaim.kubelet.client import LARGEST_BODY_BYTES, KubeletEndpoint, ask_kubelet
from tests.sockets.kubelet_server import (
    BEARER,
    FOREVER_SECONDS,
    PODS,
    SHORT_SECONDS,
    Authority,
    KubeletServer,
    Step,
    answer,
    chunked,
    dripping,
    refused,
    serving,
)


class Certificates:
    """A trusted authority and another one, and the certificates that they signed."""

    def __init__(self, directory: Path):
        self.authority = Authority(directory)
        self.node = self.authority.identity("node-1", "DNS:node-1")
        self.loopback = self.authority.identity("loopback", "IP:127.0.0.1,IP:::1")
        self.client = self.authority.identity("client")
        self.strange = Authority(directory, "stranger").identity("strange", "IP:127.0.0.1")
        self.token = directory / "token"

    def endpoint(self, url: str, **fields: object) -> KubeletEndpoint:
        """An endpoint that believes the authority."""
        return KubeletEndpoint(url, ca_file=str(self.authority.certificate), **fields)  # type: ignore[arg-type] # as given

    def with_token(self, url: str) -> KubeletEndpoint:
        """One with the token, which has a line end after it as people write it."""
        self.token.write_text(BEARER + "\n")
        return self.endpoint(url, token_file=str(self.token))


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
        assert ask_kubelet(KubeletEndpoint(kubelet.url)) == PODS
        assert proxy.requests == []
        (request,) = kubelet.requests
    assert request.startswith("GET /pods HTTP/1.1\r\n")
    assert "\r\nHost: 127.0.0.1:" in request
    assert "Authorization" not in request


def test_a_token_is_sent_over_https_and_read_again(certificates: Certificates) -> None:
    """One that has rotated is refused with 401, and the next request sends the new one."""
    with KubeletServer(answer(PODS), tls=serving(certificates.loopback), bearer=BEARER) as kubelet:
        endpoint = certificates.with_token(kubelet.url)
        assert ask_kubelet(endpoint) == PODS
        kubelet.bearer = "another"
        assert "401 Unauthorized" in str(refused(endpoint))
        certificates.token.write_text("another")
        assert ask_kubelet(endpoint) == PODS


@pytest.mark.parametrize("one_file", [True, False])
def test_a_client_certificate_is_an_identity(certificates: Certificates, one_file: bool) -> None:
    """With its key in its file or in one of its own; without it that kubelet does not answer."""
    client = certificates.client
    files = {"certificate_file": str(client.both)}
    if not one_file:
        files = {"certificate_file": str(client.certificate), "key_file": str(client.key)}
    tls = serving(certificates.loopback, certificates.authority)
    with KubeletServer(answer(PODS), tls=tls) as kubelet:
        assert ask_kubelet(certificates.endpoint(kubelet.url, **files)) == PODS
        refused(certificates.endpoint(kubelet.url))
        assert len(kubelet.requests) == 1


def test_the_certificate_may_contain_another_name_than_the_address(
    certificates: Certificates,
) -> None:
    """A kubelet's own certificate names the node: it is trusted with that server name alone."""
    with KubeletServer(answer(PODS), tls=serving(certificates.node)) as kubelet:
        assert ask_kubelet(certificates.endpoint(kubelet.url, server_name="node-1")) == PODS
        for name in ("", "node-2"):
            wrong = certificates.endpoint(kubelet.url, server_name=name)
            assert "server name" in str(refused(wrong))


def test_a_server_without_a_trusted_certificate_gets_no_token(certificates: Certificates) -> None:
    """Not a single request arrives, unless verification is waived explicitly."""
    with KubeletServer(answer(PODS), tls=serving(certificates.strange), bearer=BEARER) as impostor:
        endpoint = certificates.with_token(impostor.url)
        error = str(refused(endpoint))
        assert ("is not trusted" in error, "check the CA file" in error) == (True, True)
        assert impostor.requests == []
        token = str(certificates.token)
        waived = KubeletEndpoint(impostor.url, token_file=token, insecure_skip_verify=True)
        assert ask_kubelet(waived) == PODS


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
        assert ask_kubelet(certificates.endpoint(kubelet.url)) == PODS
        assert "\r\nHost: [::1]:" in kubelet.requests[0]


# ---- answers

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
HELLO = b"\x16\x03\x03\x20\x00" + bytes(99)
LATE: dict[str, tuple[dict[str, Any], Callable[[], Iterable[Step]]]] = {
    "silence": ({}, lambda: [FOREVER_SECONDS]),
    "a head that drips": ({}, lambda: dripping(HEAD * 50, 0.05)),
    "a line that drips": ({}, lambda: dripping(HEAD + b"X: " + b"y" * 300, 0.2)),
    "a body that drips": ({}, lambda: [answer(PODS)[:-20], *dripping(PODS[-20:], 0.05)]),
    "chunks that drip": ({}, lambda: [chunked(end=b""), *dripping(b"1\r\nx\r\n" * 100, 0.02)]),
    "an end that does not come": ({}, lambda: [chunked(PODS, end=b""), FOREVER_SECONDS]),
    "continue without end": ({}, lambda: [b"HTTP/1.1 100 Continue\r\n\r\n", 0.02] * 500),
    "no handshake": ({"unasked": [FOREVER_SECONDS]}, list),
    "a handshake that drips": ({"unasked": list(dripping(HELLO, 0.05))}, list),
    "inside TLS": ({"tls": True}, lambda: dripping(answer(PODS), 0.02)),
}


@pytest.mark.parametrize("name", LATE)
def test_the_deadline_is_for_all_of_the_answer(certificates: Certificates, name: str) -> None:
    """It is 0.3 s: then the request ends as late, whatever arrives in the meantime."""
    options, script = LATE[name]
    if options.get("tls"):
        options = {"tls": serving(certificates.loopback)}
    with KubeletServer(**options) as kubelet:
        kubelet.script = script()
        url = kubelet.url.replace("http:", "https:") if options else kubelet.url
        endpoint = certificates.endpoint(url) if options else KubeletEndpoint(url)
        began = time.monotonic()
        error = refused(endpoint, SHORT_SECONDS)
        assert time.monotonic() - began >= SHORT_SECONDS
    assert isinstance(error, KubeletLate)
    assert str(error).endswith("gave no complete answer within 0.3 s")


def test_an_answer_in_chunks_is_put_together() -> None:
    """Go sends long answers in chunks."""
    with KubeletServer(chunked(PODS[:10], PODS[10:])) as kubelet:
        assert ask_kubelet(KubeletEndpoint(kubelet.url)) == PODS


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "400 Bad Request: is this an https port?"),
        (401, "401 Unauthorized: it accepts tokens only with authentication.webhook.enabled"),
        (403, "403 Forbidden: is the identity allowed to get nodes/proxy"),
        (404, "404 Not Found: is this the kubelet's port?"),
        (500, "500 Internal Server Error"),
        (204, "204 No Content"),
        (206, "206 Partial Content"),
        (302, "302 Found: redirects are not followed"),
    ],
)
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
        answer(PODS)[: -len(PODS)],
        chunked(PODS, end=b""),
        chunked(PODS)[:-12],
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
        assert "more than 64 MiB" in str(refused(KubeletEndpoint(kubelet.url), 30.0))


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
                body = ask_kubelet(endpoint)
            except KubeletUnavailable:
                return
            assert len(body) <= len(rest)

        any_bytes()
