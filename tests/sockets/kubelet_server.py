"""A second implementation of a kubelet's endpoint: a real server that sends the bytes and
pauses that a test chooses.

It requires a token or a client certificate as a kubelet does. Then it sends a script: bytes are
sent, numbers are seconds to wait. After the last step it closes the connection.
"""

from __future__ import annotations

import http
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from reclaim.evidence.pod_list import KubeletUnavailable
from reclaim.kubelet.client import KubeletEndpoint, ask_kubelet

Step = bytes | float
FOREVER_SECONDS = 3600.0  # until the server is closed
SHORT_SECONDS = 0.3
MARGIN_SECONDS = 20.0  # the machine is shared; below 0.05 s on an idle one
NEW_KEY, DAYS = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1", "-days 2"
BEARER = "eyJhbGciOiJub25lIn0.secret.-_~+/="


def answer(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    """A complete answer with its Content-Length."""
    fields = {"Content-Length": len(body), "Content-Type": "application/json", **(headers or {})}
    lines = [f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """A complete answer in chunks, as Go sends a long one."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in chunks) + end


def dripping(content: bytes, every_seconds: float) -> Iterable[Step]:
    """One byte at a time."""
    for at in range(len(content)):
        yield content[at : at + 1]
        yield every_seconds


def pod_list(*items: object) -> bytes:
    """A PodList as a kubelet writes it."""
    document: dict[str, object] = {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {},
        "items": items or None,
    }
    return json.dumps(document).encode()


PODS = pod_list({"metadata": {"uid": "uid-1"}, "status": {"phase": "Succeeded"}})


def refused(endpoint: KubeletEndpoint, seconds: float = MARGIN_SECONDS) -> KubeletUnavailable:
    """The error of a request that must fail; the token is never in its message."""
    with pytest.raises(KubeletUnavailable) as caught:
        ask_kubelet(endpoint, seconds)
    assert BEARER not in str(caught.value)
    assert str(caught.value).isprintable()
    return caught.value


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key, in two files and in one."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """A certificate authority of its own in a directory, made with the openssl command."""

    def __init__(self, directory: Path, name: str = "ca"):
        self._directory = directory
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        self._openssl(
            f"req -x509 {NEW_KEY} -nodes {DAYS} -subj /CN={name} -keyout {self._key}"
            f" -out {self.certificate}"
        )

    def identity(self, name: str, alternative_names: str = "", locked_with: str = "") -> Identity:
        """A certificate for a name and alternative names (`DNS:node-1,IP:127.0.0.1`);
        its key locked if wanted.
        """
        made = Identity(
            *(self._directory / f"{name}.{ending}" for ending in ("pem", "key", "both.pem"))
        )
        request, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative_names}\n" if alternative_names else "")
        lock = f"-passout pass:{locked_with}" if locked_with else "-nodes"
        self._openssl(f"req {NEW_KEY} -subj /CN={name} {lock} -keyout {made.key} -out {request}")
        self._openssl(
            f"x509 -req {DAYS} -in {request} -CA {self.certificate} -CAkey {self._key}"
            f" -CAcreateserial -extfile {extensions} -out {made.certificate}"
        )
        made.both.write_bytes(made.certificate.read_bytes() + made.key.read_bytes())
        return made

    @staticmethod
    def available() -> bool:
        """Whether the openssl command is there."""
        return shutil.which("openssl") is not None

    @staticmethod
    def _openssl(command: str) -> None:
        subprocess.run(
            ["openssl", *command.split()], check=True, capture_output=True, stdin=subprocess.DEVNULL
        )


def serving(identity: Identity, clients_of: Authority | None = None) -> ssl.SSLContext:
    """A server's TLS context; with `clients_of` it requires a client
    certificate of that authority.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    if clients_of is not None:
        context.load_verify_locations(clients_of.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class KubeletServer:
    """Listens on a port of its own, or on `port`. `script` is what it sends, and may
    be replaced while it runs.

    With `bearer`, a request without that token gets 401. `unasked` is sent on each new connection,
    before TLS and before any request. `requests` holds the heads of all requests that it has read.
    """

    def __init__(
        self,
        *script: Step,
        tls: ssl.SSLContext | None = None,
        bearer: str = "",
        unasked: Iterable[Step] = (),
        host: str = "127.0.0.1",
        port: int = 0,
    ):
        self.script: Iterable[Step] = script
        self.bearer = bearer
        self.requests: list[str] = []
        self._tls = tls
        self._unasked = unasked
        self._over = threading.Event()
        self._listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        self._threads = [threading.Thread(target=self._accept, name="kubelet", daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """Its URL, in the form of `kubeletEndpoint`."""
        host, port = self._listener.getsockname()[:2]
        return f"{'https' if self._tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the server and its threads."""
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(60.0)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="kubelet-answer", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket) -> None:
        plain.settimeout(4.0)
        with plain:
            try:
                self._send(plain, self._unasked)
                connection = self._tls.wrap_socket(plain, server_side=True) if self._tls else plain
                with connection:
                    if self._read_request(connection):
                        self._send(connection, self.script)
            except OSError:
                pass  # the client has closed, as tests of certificates and deadlines expect

    def _read_request(self, connection: socket.socket) -> bool:
        """True if an authorized request has arrived."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            received = connection.recv(65536)
            if not received:
                return False
            head += received
        self.requests.append(head.decode())
        if self.bearer and f"Authorization: Bearer {self.bearer}\r\n" not in self.requests[-1]:
            self._send(connection, [answer(b"Unauthorized", 401)])
            return False
        return True

    def _send(self, connection: socket.socket, script: Iterable[Step]) -> None:
        for step in script:
            if isinstance(step, bytes):
                connection.sendall(step)
            elif self._over.wait(step):
                return
