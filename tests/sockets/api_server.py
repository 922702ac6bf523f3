"""A second implementation of the API server for events: over TLS, with tokens, and with
faulty answers on request.

It validates events as the real one does; a faulty answer is a script of bytes and pauses.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.sockets.kubelet_server import Authority, Step, serving

EVENTS = "/api/v1/namespaces/default/events"
BEARER = "a-token-of-a-service-account"


class _Handler(BaseHTTPRequestHandler):
    """One request, which is answered, or faultily."""

    def _serve(self) -> None:
        api = self.server
        assert isinstance(api, ApiServer)
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        api.requests.append((self.command, self.path, self.headers["Content-Type"] or ""))
        if api.faulty_answer:
            self.close_connection = True
            with suppress(OSError):  # the client has closed
                for step in api.faulty_answer:
                    if isinstance(step, bytes):
                        self.wfile.write(step)
                    elif api.over.wait(step):
                        return
            return
        allowed = (self.headers["Authorization"] or "").lower() == f"bearer {BEARER}"
        asked = self.command, self.path, body
        status, said = api.answer(*asked) if allowed else (401, "Unauthorized")
        failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": said}
        content = json.dumps(failure if isinstance(said, str) else said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 # as the library has them

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


class ApiServer(ThreadingHTTPServer):
    """Serves events of the namespace `default` on a port of its own while its `with` block lasts.

    `events`: by name. `requests`: method, path and content type of each. `faulty_answer`: sent to
    every request instead of an answer. `clients_of`: clients must show a certificate of this authority.
    """

    daemon_threads = True

    def __init__(
        self,
        authority: Authority,
        faulty_answer: Iterable[Step] = (),
        clients_of: Authority | None = None,
    ):
        self.events: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.faulty_answer = list(faulty_answer)
        self.over = threading.Event()
        self._authority = authority
        self._tls = serving(authority.identity("api", "IP:127.0.0.1"), clients_of)
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()
        self._thread.join(60.0)

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"https://127.0.0.1:{self.server_port}"

    def kubeconfig(self, directory: Path, token: str = BEARER) -> str:
        """The path of a kubeconfig (JSON is YAML) for it."""
        cluster = {"server": self.url, "certificate-authority": str(self._authority.certificate)}
        path = directory / f"kubeconfig-{self.server_port}-{len(token)}"
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

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, str | dict[str, Any]]:
        """Status and document, or the reason of a failure, as the real one would answer."""
        document = json.loads(body)
        if method == "POST" and path == EVENTS:
            name = document["metadata"]["name"]
            if name in self.events:
                return 409, "AlreadyExists"
            # validation of the real one (pkg/apis/core/validation/events.go)
            # for what has no namespace
            namespace = document["metadata"]["namespace"]
            if "namespace" in document["involvedObject"] or namespace != "default":
                return 422, "Invalid"
            self.events[name] = document
            return 201, document
        name = path.removeprefix(f"{EVENTS}/")
        if method != "PATCH" or name == path:
            return 403, "Forbidden"
        if name not in self.events:
            return 404, "NotFound"
        self.events[name] = {**self.events[name], **document}
        return 200, self.events[name]

    def finish_request(self, request: Any, client_address: Any) -> None:
        """TLS on the thread of the request, so that a client that hangs delays no other one."""
        request.settimeout(5.0)
        # it rejects our certificate, or has closed
        with suppress(OSError), self._tls.wrap_socket(request, server_side=True) as client:
            super().finish_request(client, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors of a client's connection."""
