"""A second implementation of an API server, as far as events go: over TLS, with tokens, and with bad days.

What it keeps it checks as the real one does; what it answers on a bad day is a script of bytes and pauses.
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

    `events`: by name. `requests`: method, path and content type of each. `bad_day`: sent to every request instead of an
    answer. `status`: answered instead of doing anything, unless 0.
    """

    def __init__(self, authority: Authority, bad_day: Iterable[Step] = (), status: int = 0):
        self.events: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.bad_day = list(bad_day)
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
                if api.bad_day:
                    api.have_a_bad_day(self)
                    return
                status, document = api.answer(self.command, self.path, self.headers["Authorization"] or "", body)
                content = json.dumps(document).encode()
                self.send_response(api.status or status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler, serving(authority.identity("api", "IP:127.0.0.1")))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
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

    def answer(self, method: str, path: str, authorization: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and document, as the real one would have them."""
        if authorization.lower() != f"bearer {BEARER}":
            return 401, _failure("Unauthorized")
        if self.status:
            return self.status, _failure("as the test wants it")
        document = json.loads(body)
        if method == "POST" and path == EVENTS:
            name = document["metadata"]["name"]
            if name in self.events:
                return 409, _failure("AlreadyExists")
            # validation of the real one (pkg/apis/core/validation/events.go) for what has no namespace
            if "namespace" in document["involvedObject"] or document["metadata"]["namespace"] != "default":
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

    def have_a_bad_day(self, handler: BaseHTTPRequestHandler) -> None:
        """Sends the script, and hangs up."""
        handler.close_connection = True
        try:
            for step in self.bad_day:
                if isinstance(step, bytes):
                    handler.wfile.write(step)
                elif self.over.wait(step):
                    return
        except OSError:  # the client has left
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext):
        super().__init__(address, handler)
        self._tls = tls

    def finish_request(self, request: Any, client_address: Any) -> None:
        """TLS on the thread of the request, so that a client that hangs holds up nobody else."""
        request.settimeout(5.0)
        try:
            with self._tls.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)
        except OSError:  # a client that does not believe us, or has left
            pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client's loss."""


def _failure(reason: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason}
