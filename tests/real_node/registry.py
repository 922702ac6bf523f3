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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.real_node.oci import MANIFEST_TYPE, Image, Layer, write_image

BLOBS = "blobs/sha256/"
BLOB_TYPE = "application/octet-stream"
# path -> media type, digest, content
Served = dict[str, tuple[str, str, bytes]]


class _Server(ThreadingHTTPServer):
    served: Served

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is none."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:  # the name that http.server calls
        found = self.server.served.get(self.path.partition("?")[0])
        media_type, digest, content = found or (BLOB_TYPE, "", b"")
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET  # noqa: N815 # as well

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the name in http.server
        """Says nothing."""


class Registry:
    """A registry, which serves while the `with` block lasts."""

    def __init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.served = {"/v2/": ("application/json", "", b"{}")}
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, name: str, *layers: Layer) -> None:
        """Serves an image with these layers from now on. `name`: with its tag (`app:1`)."""
        repository, _, tag = name.partition(":")
        with tempfile.TemporaryDirectory(prefix="rn-image-") as outside:
            written = write_image(Image(f"{self.address}/{name}", layers), Path(outside))
            with tarfile.open(written.path) as archive:
                for member in archive.getmembers():
                    file = archive.extractfile(member) if member.name.startswith(BLOBS) else None
                    if file is None:
                        continue
                    digest = f"sha256:{member.name.removeprefix(BLOBS)}"
                    is_manifest, content = digest == written.manifest_digest, file.read()
                    kind = "manifests" if is_manifest else "blobs"
                    media_type = MANIFEST_TYPE if is_manifest else BLOB_TYPE
                    for reference in (digest, tag) if is_manifest else (digest,):
                        at = f"/v2/{repository}/{kind}/{reference}"
                        self._server.served[at] = (media_type, digest, content)
