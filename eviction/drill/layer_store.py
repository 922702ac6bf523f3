"""Layers and writable layers as real files, which statvfs sees and whose deletion frees real space.

    <images root>/layers/<64 hex>/<file>                 one layer, shared by its images
    <containers root>/containers/<container id>/<file>   the writable layer of one container

The content does not compress and has no holes. A deletion creates no file, so it works with 0 bytes
and 0 inodes free. The caller holds one lock around every method. Every method that changes files
raises OSError.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

_FULL = (errno.ENOSPC, errno.EDQUOT)
_CONTENT = memoryview(os.urandom(1 << 20))


class LayerSpec(NamedTuple):
    """One layer of an image: `files` files of about equal size, `size_bytes` in all. Equal specs
    are one layer on disk."""

    name: str
    size_bytes: int
    files: int = 1

    @property
    def digest(self) -> str:
        """The identity of the layer: "sha256:" and 64 hex digits."""
        named = f"{self.name} {self.size_bytes} {self.files}"
        return f"sha256:{hashlib.sha256(named.encode()).hexdigest()}"


class LayerStore:
    """The layers under `images_root` and the writable layers under `containers_root`, which
    may be the same directory.

    Both directories are made if missing. They may be on two filesystems, and need not be mount
    points. Raises FileExistsError if one of them is the root of another node, whose files would
    neither be counted nor deleted.
    """

    def __init__(self, images_root: str, containers_root: str) -> None:
        self._layers = os.path.join(images_root, "layers")
        self._writable = os.path.join(containers_root, "containers")
        self._references: dict[LayerSpec, int] = {}
        # by path: bytes in blocks, and inodes
        self._used: dict[str, tuple[int, int]] = {}
        for directory in (self._layers, self._writable):
            os.makedirs(directory)

    def acquire(self, layers: Iterable[LayerSpec]) -> None:
        """Adds a reference to each layer, and writes those that are missing.

        Changes nothing if one does not fit or cannot be written.
        """
        acquired: list[LayerSpec] = []
        try:
            for layer in layers:
                if layer not in self._references:
                    self._write(layer)
                self._references[layer] = self._references.get(layer, 0) + 1
                acquired.append(layer)
        except OSError:
            self.release(acquired)
            raise

    def _write(self, spec: LayerSpec) -> None:
        path = self._layer_path(spec)
        try:
            os.mkdir(path)
            for number in range(spec.files):
                until = spec.size_bytes * (number + 1) // spec.files
                size_bytes = until - spec.size_bytes * number // spec.files
                _append(os.path.join(path, f"{number:06x}"), size_bytes, whole=True)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        self._used[path] = taken(path)

    def release(self, layers: Iterable[LayerSpec]) -> None:
        """Drops one reference to each layer, the uppermost first, and deletes layers
        without references. If the filesystem refuses a deletion, the remaining layers
        keep their references."""
        for layer in reversed(tuple(layers)):
            if self._references[layer] == 1:
                self._delete(self._layer_path(layer))
                del self._references[layer]
            else:
                self._references[layer] -= 1

    def make_writable(self, container_id: str) -> None:
        """Makes the empty writable layer of a container: one inode."""
        path = self._writable_path(container_id)
        os.mkdir(path)
        self._used[path] = taken(path)

    def append(self, container_id: str, file_name: str, size_bytes: int) -> int:
        """Appends to a file of a writable layer, which is made if missing. Returns the bytes that
        fitted: fewer than `size_bytes` if the filesystem is full."""
        layer = self._writable_path(container_id)
        fitted = _append(os.path.join(layer, file_name), size_bytes)
        self._used[layer] = taken(layer)
        return fitted

    def remove_writable(self, container_id: str) -> None:
        """Deletes the writable layer of a container, if it has one."""
        self._delete(self._writable_path(container_id))

    def usage(self, directory: str) -> tuple[int, int]:
        """The bytes and inodes that layers and writable layers take below a directory. Reads no
        filesystem, which may be dead: a runtime answers from what it has counted."""
        used_bytes = used_inodes = 0
        for path, (size_bytes, inodes) in self._used.items():
            if path.startswith(f"{directory}/"):
                used_bytes += size_bytes
                used_inodes += inodes
        return used_bytes, used_inodes

    def writable_usage(self) -> dict[str, int]:
        """The bytes taken by each writable layer, by container id."""
        writable = f"{self._writable}/"
        return {
            path.removeprefix(writable): used[0]
            for path, used in self._used.items()
            if path.startswith(writable)
        }

    def _layer_path(self, layer: LayerSpec) -> str:
        return os.path.join(self._layers, layer.digest.removeprefix("sha256:"))

    def _writable_path(self, container_id: str) -> str:
        return os.path.join(self._writable, container_id)

    def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(path)  # creates no file, so it works on a full filesystem
        self._used.pop(path, None)


def taken(directory: str) -> tuple[int, int]:
    """The bytes, in blocks, and the inodes that a directory takes with everything in it. Skips
    what is removed meanwhile."""
    used_bytes = inodes = 0
    for at, _, files in os.walk(directory):
        for path in (at, *(os.path.join(at, name) for name in files)):
            with suppress(FileNotFoundError):
                used_bytes += os.lstat(path).st_blocks * 512
                inodes += 1
    return used_bytes, inodes


def _append(path: str, size_bytes: int, *, whole: bool = False) -> int:
    """Appends to a file, which is made if missing. Returns the bytes that fitted: fewer on a full
    disk. With `whole` a full disk raises OSError, as every other error does."""
    fitted = 0
    try:
        with open(path, "ab", buffering=0) as file:
            while fitted < size_bytes:
                fitted += file.write(_CONTENT[: size_bytes - fitted])
    except OSError as caught:
        if whole or caught.errno not in _FULL:
            raise
    return fitted
