"""A second implementation of the API server for events: over TLS, with tokens, and with
faulty answers on request.

It validates events as the real one does; a faulty answer is a script of bytes and pauses.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.sockets.kubelet_server import Authority, Step, serving

EVENTS = "/api/v1/namespaces/default/events"
BEARER = "a-token-of-a-service-account"


class ApiServer:
    """Serves events of the namespace `default` on a port of its own.

    `events`: by name. `requests`: method, path and content type of each. `faulty_answer`: sent to
    every request instead of an answer. `status`: if not 0, answered to every request, which has no
    effect. `clients_of`: clients must show a certificate of this authority.
    """

    def __init__(
        self,
        authority: Authority,
        faulty_answer: Iterable[Step] = (),
        status: int = 0,
        clients_of: Authority | None = None,
    ):
        self.events: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.faulty_answer = list(faulty_answer)
        self.status = status
        self.over = threading.Event()
        self._authority = authority
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self._serve()

            def do_PATCH(self) -> None:
                self._serve()

            def do_GET(self) -> None:
                self._serve()

            def do_DELETE(self) -> None:
                self._serve()

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                api.requests.append((self.command, self.path, self.headers["Content-Type"] or ""))
                if api.faulty_answer:
                    api.send_faulty_answer(self)
                    return
                status, document = api.answer(
                    self.command, self.path, self.headers["Authorization"] or "", body
                )
                content = json.dumps(document).encode()
                self.send_response(api.status or status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Logs nothing."""

        self._server = _Server(
            ("127.0.0.1", 0),
            Handler,
            serving(authority.identity("api", "IP:127.0.0.1"), clients_of),
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def kubeconfig(self, directory: Path, token: str = BEARER) -> str:
        """The path of a kubeconfig (JSON is YAML) for it."""
        cluster = {"server": self.url, "certificate-authority": str(self._authority.certificate)}
        path = directory / f"kubeconfig-{self._server.server_address[1]}-{len(token)}"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "node", "user": {"token": token}}],
            "contexts": [{"name": "node@here", "context": {"cluster": "here", "user": "node"}}],
            "current-context": "node@here",
        }
        path.write_text(json.dumps(document))
        path.chmod(0o600)
        return str(path)

    def answer(
        self, method: str, path: str, authorization: str, body: bytes
    ) -> tuple[int, dict[str, Any]]:
        """Status and document, as the real one would answer."""
        if authorization.lower() != f"bearer {BEARER}":
            return 401, _failure("Unauthorized")
        if self.status:
            return self.status, _failure("as configured by the test")
        document = json.loads(body)
        if method == "POST" and path == EVENTS:
            name = document["metadata"]["name"]
            if name in self.events:
                return 409, _failure("AlreadyExists")
            # validation of the real one (pkg/apis/core/validation/events.go)
            # for what has no namespace
            if (
                "namespace" in document["involvedObject"]
                or document["metadata"]["namespace"] != "default"
            ):
                return 422, _failure("Invalid")
            self.events[name] = document
            return 201, document
        name = path.removeprefix(f"{EVENTS}/")
        if method == "PATCH" and path.startswith(f"{EVENTS}/"):
            if name not in self.events:
                return 404, _failure("NotFound")
            self.events[name] = {**self.events[name], **document}
            return 200, self.events[name]
        return 403, _failure("Forbidden")

    def send_faulty_answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Sends the script, and closes the connection."""
        handler.close_connection = True
        try:
            for step in self.faulty_answer:
                if isinstance(step, bytes):
                    handler.wfile.write(step)
                elif self.over.wait(step):
                    return
        except OSError:  # the client has closed
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext
    ):
        super().__init__(address, handler)
        self._tls = tls

    def finish_request(self, request: Any, client_address: Any) -> None:
        """TLS on the thread of the request, so that a client that hangs delays no other one."""
        request.settimeout(5.0)
        try:
            with self._tls.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)
        except OSError:  # the client rejects our certificate, or has closed
            pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors of a client's connection."""


def _failure(reason: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason}
