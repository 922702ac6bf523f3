"""Layers and writable layers as real files, so that statvfs changes with them and a deletion frees real space.

    <images root>/layers/<64 hex>/<directory>/<file>     one layer, shared by every image that names it
    <containers root>/containers/<container id>/<file>   the writable layer of one container

Covers: writing layers with content that neither compresses nor leaves holes, counting references, deleting layers
without references, and the space used. Deleting creates no file, so it works with 0 bytes and 0 inodes free.

Does not cover: images and containers themselves, and locking. The caller holds one lock around every method except
`unpack`, which is slow and changes no table.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from eviction.drill.runtime.private_mounts import EmbeddedNodeError

_CHUNK_BYTES = 1 << 20
_FILES_PER_DIRECTORY = 256
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class SnapshotUsage(NamedTuple):
    """What a layer takes from its filesystem: bytes in whole blocks, and inodes (files and directories)."""

    bytes: int
    inodes: int

    def plus(self, other: SnapshotUsage) -> SnapshotUsage:
        """The sum of both."""
        return SnapshotUsage(self.bytes + other.bytes, self.inodes + other.inodes)


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer of an image: `files` files of about equal size, `size_bytes` together.

    `name` is a digest ("sha256:" and 64 hex digits) or any other text; the digest is then made of the text and the two
    numbers. Layers of equal digest are one layer on disk. Raises ValueError for a negative size, for bytes without a
    file, and for a malformed digest.
    """

    name: str
    size_bytes: int
    files: int = 1

    def __post_init__(self) -> None:
        if self.size_bytes < 0 or self.files < 0 or (self.size_bytes > 0 and self.files == 0):
            raise ValueError(f"layer {self.name!r}: {self.size_bytes} bytes in {self.files} files are not possible")
        if self.name.startswith("sha256:") and not _DIGEST.fullmatch(self.name):
            raise ValueError(f"layer {self.name!r}: a digest is sha256: and 64 lower-case hex digits")

    @property
    def digest(self) -> str:
        """The identity of the layer: "sha256:" and 64 hex digits."""
        if self.name.startswith("sha256:"):
            return self.name
        return "sha256:" + hashlib.sha256(f"{self.name} {self.size_bytes} {self.files}".encode()).hexdigest()

    @property
    def inodes(self) -> int:
        """How many inodes the layer takes: its files, the directories that hold them, and its own directory."""
        return self.files + -(-self.files // _FILES_PER_DIRECTORY) + 1


@dataclass(slots=True)
class _Layer:
    references: int
    usage: SnapshotUsage


@dataclass(slots=True)
class LayerStore:
    """The layers under `images_root` and the writable layers under `containers_root` (the same directory by default).

    Both directories are made if they are missing. They may be on two filesystems, and need not be mount points. Raises
    EmbeddedNodeError if one of them is the root of another node already.
    """

    images_root: str
    containers_root: str = ""
    _layers: dict[str, _Layer] = field(default_factory=dict, init=False)
    _writable: dict[str, SnapshotUsage] = field(default_factory=dict, init=False)
    _content: bytes = field(default_factory=lambda: os.urandom(_CHUNK_BYTES), init=False)

    def __post_init__(self) -> None:
        self.containers_root = self.containers_root or self.images_root
        for root, name in ((self.images_root, "layers"), (self.containers_root, "containers")):
            os.makedirs(root, exist_ok=True)
            try:
                os.mkdir(os.path.join(root, name))
            except OSError as caught:  # files of another node would neither be counted nor deleted
                raise EmbeddedNodeError(f"{root} cannot be the root of a new node: {caught.strerror}") from caught

    def acquire(self, digest: str) -> bool:
        """Adds one reference to a layer. False, and nothing is changed, if the layer is not here."""
        layer = self._layers.get(digest)
        if layer is None:
            return False
        layer.references += 1
        return True

    def unpack(self, spec: LayerSpec) -> None:
        """Writes the files of a new layer; `commit` adds it to the table. The one method that needs no lock.

        Raises EmbeddedNodeError if it does not fit or cannot be written; its files are removed then.
        """
        path = self._layer_path(spec.digest)
        try:
            os.mkdir(path)
            for number, size_bytes in enumerate(even_parts(spec.size_bytes, spec.files)):
                directory = os.path.join(path, f"{number // _FILES_PER_DIRECTORY:04x}")
                if number % _FILES_PER_DIRECTORY == 0:
                    os.mkdir(directory)
                self._write(os.path.join(directory, f"{number:06x}"), size_bytes)
        except OSError as caught:
            _remove_tree(path)
            raise EmbeddedNodeError(f"layer {spec.name} cannot be unpacked: {caught.strerror}") from caught

    def commit(self, spec: LayerSpec) -> None:
        """Adds a layer that `unpack` has written to the table, with one reference."""
        frsize = os.statvfs(self.images_root).f_frsize
        parts = even_parts(spec.size_bytes, spec.files)
        self._layers[spec.digest] = _Layer(
            1, SnapshotUsage(sum(_in_blocks(part, frsize) for part in parts), spec.inodes)
        )

    def release(self, digests: Iterable[str]) -> None:
        """Drops one reference to each layer, the uppermost first, and deletes the layers without references.

        Raises EmbeddedNodeError if the filesystem refuses; the layers after it then keep their references.
        """
        for digest in reversed(tuple(digests)):
            layer = self._layers[digest]
            if layer.references == 1:
                _remove_tree(self._layer_path(digest))
                del self._layers[digest]
            else:
                layer.references -= 1

    def make_writable(self, container_id: str) -> None:
        """Makes the empty writable layer of a container: one inode. Raises EmbeddedNodeError if none is free."""
        try:
            os.mkdir(self._writable_path(container_id))
        except OSError as caught:
            raise EmbeddedNodeError(f"no writable layer for container {container_id}: {caught.strerror}") from caught
        self._writable[container_id] = SnapshotUsage(0, 1)

    def append(self, container_id: str, file_name: str, size_bytes: int) -> int:
        """Appends to a file of a writable layer, and makes the file if it is missing. Returns the bytes that fitted.

        They are fewer than asked if the filesystem is full; what fitted stays, as for any writer. Raises
        EmbeddedNodeError for every other error.
        """
        path = os.path.join(self._writable_path(container_id), file_name)
        new_files = 0 if os.path.exists(path) else 1
        try:
            before, after = self._append(path, size_bytes)
        except OSError as caught:
            if caught.errno in _FULL:
                return 0
            raise EmbeddedNodeError(f"container {container_id} cannot write: {caught.strerror}") from caught
        frsize = os.statvfs(self.containers_root).f_frsize
        grown = SnapshotUsage(_in_blocks(after, frsize) - _in_blocks(before, frsize), new_files)
        self._writable[container_id] = self._writable[container_id].plus(grown)
        return after - before

    def remove_writable(self, container_id: str) -> None:
        """Deletes the writable layer of a container. Raises EmbeddedNodeError if the filesystem refuses."""
        _remove_tree(self._writable_path(container_id))
        self._writable.pop(container_id, None)

    def usage(self) -> dict[str, SnapshotUsage]:
        """The space used under each root: one entry, or two if layers and writable layers have a root each."""
        roots = {self.images_root: SnapshotUsage(0, 0), self.containers_root: SnapshotUsage(0, 0)}
        for layer in self._layers.values():
            roots[self.images_root] = roots[self.images_root].plus(layer.usage)
        for used in self._writable.values():
            roots[self.containers_root] = roots[self.containers_root].plus(used)
        return roots

    def writable_usage(self) -> dict[str, SnapshotUsage]:
        """The space used by each writable layer, by container id."""
        return dict(self._writable)

    def _layer_path(self, digest: str) -> str:
        return os.path.join(self.images_root, "layers", digest.removeprefix("sha256:"))

    def _writable_path(self, container_id: str) -> str:
        return os.path.join(self.containers_root, "containers", container_id)

    def _write(self, path: str, size_bytes: int) -> None:
        """Writes a new file of that size. Raises OSError if it does not fit."""
        before, after = self._append(path, size_bytes)
        if after - before < size_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _append(self, path: str, size_bytes: int) -> tuple[int, int]:
        """Appends to a file. Returns its size before and after; it grew by less than `size_bytes` if the disk is
        full."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            before = after = os.fstat(descriptor).st_size
            while after - before < size_bytes:
                try:
                    after += os.write(descriptor, memoryview(self._content)[: size_bytes - (after - before)])
                except OSError as caught:
                    if caught.errno not in _FULL:
                        raise
                    break
            return before, after
        finally:
            os.close(descriptor)


def even_parts(size_bytes: int, files: int) -> Iterator[int]:
    """The sizes of `files` files that make `size_bytes` together; they differ by one byte at most."""
    for number in range(files):
        yield size_bytes * (number + 1) // files - size_bytes * number // files


def _in_blocks(size_bytes: int, block_bytes: int) -> int:
    return -(-size_bytes // block_bytes) * block_bytes


def _remove_tree(path: str) -> None:
    try:
        shutil.rmtree(
            path
        )  # bottom-up, relative to descriptors, and without creating a file: works on a full filesystem
    except FileNotFoundError:
        return  # already removed
    except OSError as caught:
        raise EmbeddedNodeError(f"{path} cannot be deleted: {caught.strerror}") from caught
