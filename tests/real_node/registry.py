"""A registry on loopback, over plain HTTP: what a runtime needs to pull images of ours.

Covers: manifests by tag and digest, and blobs, for GET and HEAD
(https://github.com/opencontainers/distribution-spec/blob/main/spec.md). Does not cover:
credentials, pushes by clients. Runtimes have to be told that it speaks no TLS
(`ContainerRuntime.speaks_plainly_to`).
"""

from __future__ import annotations

import tarfile
import tempfile
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.real_node.oci import MANIFEST_TYPE, Image, ImageTar, Layer, write_image

BLOBS = "blobs/sha256/"


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is none."""


class Registry:
    """A registry, which serves while the `with` block lasts. `pulled`: the references of the
    manifests it was asked for, by tag or digest. `slow_seconds`: how long each blob takes."""

    def __init__(self, slow_seconds: float = 0.0) -> None:
        self._slow_seconds = slow_seconds
        self._found: dict[str, tuple[str, str, bytes]] = {}  # path -> media type, digest, content
        self.pulled: list[str] = []
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, name: str, *layers: Layer) -> ImageTar:
        """Serves an image with these layers from now on. `name`: with its tag (`app:1`)."""
        repository, _, tag = name.partition(":")
        with tempfile.TemporaryDirectory(prefix="rn-image-") as outside:
            written = write_image(Image(f"{self.address}/{name}", layers), Path(outside))
            with tarfile.open(written.path) as archive:
                for member in archive.getmembers():
                    file = archive.extractfile(member) if member.name.startswith(BLOBS) else None
                    if file is not None:
                        self._serve(
                            repository,
                            tag,
                            f"sha256:{member.name.removeprefix(BLOBS)}",
                            file.read(),
                            written,
                        )
        return written

    def _serve(
        self, repository: str, tag: str, digest: str, content: bytes, written: ImageTar
    ) -> None:
        if digest != written.manifest_digest:
            self._found[f"/v2/{repository}/blobs/{digest}"] = (
                "application/octet-stream",
                digest,
                content,
            )
            return
        for reference in (tag, digest):
            self._found[f"/v2/{repository}/manifests/{reference}"] = (
                MANIFEST_TYPE,
                digest,
                content,
            )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:  # the name that http.server calls
                registry._answer(self, sends=True)

            def do_HEAD(self) -> None:
                registry._answer(self, sends=False)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the name in http.server
                """Says nothing."""

        return Handler

    def _answer(self, request: BaseHTTPRequestHandler, *, sends: bool) -> None:
        path = request.path.partition("?")[0]
        if path == "/v2/":
            media_type, digest, content = "application/json", "", b"{}"
        elif path in self._found:
            media_type, digest, content = self._found[path]
        else:
            request.send_response(HTTPStatus.NOT_FOUND)
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if "/manifests/" in path:
            self.pulled.append(path)
        elif sends and digest:
            time.sleep(self._slow_seconds)
        request.send_response(HTTPStatus.OK)
        request.send_header("Content-Type", media_type)
        request.send_header("Content-Length", str(len(content)))
        if digest:
            request.send_header("Docker-Content-Digest", digest)
        request.end_headers()
        if sends:
            request.wfile.write(content)
