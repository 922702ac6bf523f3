"""Generated container images: OCI image-layout tars that `ctr images import` accepts.

Covers: layers of incompressible bytes or of many small files, a base layer with a static busybox so
that a container can run, manifests and configurations with right digests, the annotations that give
the import its reference.

Does not cover: compression (layers are plain tars: the bytes written are the bytes
stored), registries, signatures.

Format: https://github.com/opencontainers/image-spec (image-layout.md, manifest.md, config.md).
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import random
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
REFERENCES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
APPLETS = ("sh", "sleep", "true", "false", "cat", "ls", "dd", "echo", "rm")
SLEEP_FOR_EVER = ("/bin/sleep", "1000000000")
# one modification time for all members: equal content gives equal digests
FIXED_TIME = 1_700_000_000
# repeated: to draw all bytes would take longer than to import them
RANDOM = random.Random(0).randbytes(1 << 20)  # noqa: S311 # repeatable content, no secret


@dataclass(frozen=True)
class Layer:
    """One layer by recipe: two equal recipes give byte-equal tars, so images that
    name both share one blob.

    `files` are (path, size in bytes) of content that differs by `seed`; `busybox` adds
    /bin/busybox and its links. The tar is held in memory while an image is written: keep a
    layer below some hundred MiB.
    """

    seed: int = 0
    files: tuple[tuple[str, int], ...] = ()
    busybox: bool = False

    def tar(self) -> bytes:
        """The uncompressed tar of this layer.

        FileNotFoundError when a busybox is wanted and none is installed.
        """
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
            if self.busybox:
                _add_busybox(archive)
            for number, (path, size) in enumerate(self.files):
                whole, rest = divmod(size, len(RANDOM))
                content = f"{self.seed} {number} ".encode() + RANDOM * whole + RANDOM[:rest]
                _add_file(archive, path, content[:size])
        return out.getvalue()


def random_layer(seed: int, size_bytes: int) -> Layer:
    """A layer of one file of `size_bytes` incompressible bytes."""
    return Layer(seed, ((f"data/{seed}.bin", size_bytes),))


def many_files_layer(seed: int, count: int, size_bytes: int = 512) -> Layer:
    """A layer of `count` files of `size_bytes` each, in directories of 500."""
    return Layer(seed, tuple((f"tree/{seed}/{n // 500}/{n}", size_bytes) for n in range(count)))


BASE = Layer(busybox=True)


@dataclass(frozen=True)
class Image:
    """An image by recipe: full reference (`host/path:tag`), layers from the bottom up."""

    reference: str
    layers: tuple[Layer, ...]
    labels: dict[str, str] = field(default_factory=dict)


def numbered(
    reference: str, count: int, size_bytes: int, *below: Layer, first: int = 0
) -> list[Image]:
    """So many images, each with its number in its reference (where that has `{}`), and with a random
    layer of its own above these."""
    return [
        Image(reference.format(number), (*below, random_layer(number, size_bytes)))
        for number in range(first, first + count)
    ]


@dataclass(frozen=True)
class ImageTar:
    """A written image:

    `image_id` is the digest of its configuration (`sha256:...`), the id that CRI gives it.
    """

    path: Path
    reference: str
    image_id: str
    manifest_digest: str


def write_image(image: Image, directory: Path) -> ImageTar:
    """Write `image` as one tar below `directory` (which must lie outside
    the filesystem under test).

    The reference is part of the configuration, so two images with the same layers still have two
    ids. OSError when the directory cannot hold it (layers once, plus a few KiB).
    """
    return write_images([image], directory)[0]


def write_images(images: Sequence[Image], directory: Path) -> list[ImageTar]:
    """Write all of them into one tar for one import; errors as of `write_image`."""
    names = "\n".join(image.reference for image in images)
    path = directory / (hashlib.sha256(names.encode()).hexdigest()[:16] + ".tar")
    with tarfile.open(path, mode="w", format=tarfile.GNU_FORMAT) as archive:
        written = [_add_image(archive, image, path) for image in images]
        manifests = [manifest for _, manifest in written]
        index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": manifests}
        _add_file(archive, "index.json", _json(index))
        _add_file(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    return [tar for tar, _ in written]


def _add_image(
    archive: tarfile.TarFile, image: Image, path: Path
) -> tuple[ImageTar, dict[str, Any]]:
    """Add the blobs of an image; what it is, and its entry in the index."""
    layers = [_add_blob(archive, layer.tar(), LAYER_TYPE) for layer in dict.fromkeys(image.layers)]
    digests = [layer["digest"] for layer in layers]
    config = _add_blob(archive, _json(_config(image, digests)), CONFIG_TYPE)
    document = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers}
    manifest = _add_blob(archive, _json(document), MANIFEST_TYPE)
    tar = ImageTar(path, image.reference, config["digest"], manifest["digest"])
    return tar, {**manifest, "annotations": dict.fromkeys(REFERENCES, image.reference)}


def _config(image: Image, diff_ids: list[str]) -> dict[str, object]:
    """The image configuration; uncompressed layers make diff ids and blob digests the same."""
    return {
        "created": "2023-11-14T22:13:20Z",
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Cmd": SLEEP_FOR_EVER,
            "Env": ["PATH=/bin"],
            "Labels": {"reclaimd.test/reference": image.reference, **image.labels},
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _add_blob(archive: tarfile.TarFile, content: bytes, media_type: str) -> dict[str, Any]:
    """Add a content-addressed blob and return its descriptor."""
    digest = hashlib.sha256(content).hexdigest()
    _add_file(archive, f"blobs/sha256/{digest}", content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _add_file(archive: tarfile.TarFile, path: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(path)
    member.size, member.mode, member.mtime = len(content), mode, FIXED_TIME
    archive.addfile(member, io.BytesIO(content))


def _add_busybox(archive: tarfile.TarFile) -> None:
    """/bin/busybox, its links, and the two files that name root."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise FileNotFoundError("no static busybox on PATH (Debian package busybox-static)")
    _add_file(archive, "bin/busybox", Path(busybox).read_bytes(), 0o755)
    for applet in APPLETS:
        link = tarfile.TarInfo(f"bin/{applet}")
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, "busybox", 0o777
        link.mtime = FIXED_TIME
        archive.addfile(link)
    _add_file(archive, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
    _add_file(archive, "etc/group", b"root:x:0:\n")
