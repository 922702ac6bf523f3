"""A registry on loopback that serves the images of one tar, for pulls over CRI.

Covers: what a pull asks for: `GET` and `HEAD` of manifests and blobs. `slow_seconds`: how long each blob takes.

Format: https://github.com/opencontainers/distribution-spec (Pulling manifests, Pulling blobs).
"""

from __future__ import annotations

import json
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.real_node.oci import MANIFEST_TYPE, ImageTar


class _Registry(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    blobs: dict[str, bytes]
    tags: dict[str, str]
    slow_seconds: float

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if self.path in ("/v2/", "/v2"):
            self._send(200, b"{}", "application/json")
            return
        blob = self.blobs.get(self.tags.get(name, name))
        if blob is None:
            self._send(404, b"{}", "application/json")
            return
        manifest = "/manifests/" in self.path
        if not manifest:
            time.sleep(self.slow_seconds)
        self._send(200, blob, MANIFEST_TYPE if manifest else "application/octet-stream", self.tags.get(name, name))

    do_HEAD = do_GET  # noqa: N815 # the name that http.server calls

    def _send(self, status: int, body: bytes, media_type: str, digest: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # its name in the standard library
        """Says nothing."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is none."""


@contextmanager
def serving(tars: Sequence[ImageTar], slow_seconds: float = 0.0) -> Iterator[list[str]]:
    """The references by which these images of one tar can be pulled."""
    with tarfile.open(tars[0].path) as archive:
        members = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        read = {name: file.read() for name, file in members.items() if file is not None}
    blobs = {f"sha256:{name.rpartition('/')[2]}": data for name, data in read.items() if name.startswith("blobs/")}
    index = json.loads(read["index.json"])["manifests"]
    tags = {f"v{number}": each["digest"] for number, each in enumerate(index)}
    handler = type("Registry", (_Registry,), {"blobs": blobs, "tags": tags, "slow_seconds": slow_seconds})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, name="registry", daemon=True)
    thread.start()
    try:
        yield [f"127.0.0.1:{server.server_port}/reclaimd/test:{tag}" for tag in tags]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
