"""A registry on loopback, over plain HTTP: what a runtime needs to pull images of ours.

Covers: manifests by tag and digest, and blobs, for GET and HEAD
(https://github.com/opencontainers/distribution-spec/blob/main/spec.md). Does not cover:
credentials, pushes by clients. Runtimes have to be told that it speaks no TLS
(`ContainerRuntime.speaks_plainly_to`).
"""

from __future__ import annotations

import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.background import Background
from tests.real_node.oci import MANIFEST_TYPE, Image, Layer, write_image

BLOBS = "blobs/sha256/"


class _Handler(SimpleHTTPRequestHandler):
    def guess_type(self, path: Any) -> str:
        """A manifest's, or that of bytes."""
        return MANIFEST_TYPE if "/manifests/" in str(path) else "application/octet-stream"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the name in http.server
        """Says nothing."""


class Registry(Background):
    """Serves what is in `directory` while the `with` block lasts."""

    def __init__(self, directory: Path) -> None:
        super().__init__("registry")
        (directory / "v2").mkdir(parents=True)
        self._directory = directory
        handler = partial(_Handler, directory=str(directory))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"127.0.0.1:{self._server.server_port}"

    def add(self, name: str, *layers: Layer) -> None:
        """Serves an image with these layers from now on. `name`: with its tag (`app:1`)."""
        repository, _, tag = name.partition(":")
        written = write_image(Image(f"{self.address}/{name}", layers), self._directory)
        served = self._directory / "v2" / repository
        for kind in ("blobs", "manifests"):
            (served / kind).mkdir(parents=True)
        with tarfile.open(written.path) as archive:
            for member in archive.getmembers():
                if member.name.startswith(BLOBS) and (file := archive.extractfile(member)):
                    digest = f"sha256:{member.name.removeprefix(BLOBS)}"
                    (served / "blobs" / digest).write_bytes(file.read())
        for reference in (written.manifest_digest, tag):
            manifest = served / "blobs" / written.manifest_digest
            (served / "manifests" / reference).hardlink_to(manifest)

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        super().__exit__()

    def _run(self) -> None:
        self._server.serve_forever()
