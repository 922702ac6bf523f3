"""Layers and writable layers as real files, so that statvfs really moves and a deletion really frees.

    <images root>/layers/<64 hex>/<directory>/<file>     one layer, shared by every image that names it
    <containers root>/containers/<container id>/<file>   the writable layer of one container

Covers: writing layers with content that neither compresses nor leaves holes, counting who holds each, deleting what
nobody holds, and how much is used. Deleting makes no file, so it works with 0 bytes and 0 inodes free.

Does not cover: images and containers themselves, and locking. The caller holds one lock around every method except
`unpack`, which is slow and touches no table.
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
    """What a tree takes from its filesystem: bytes in whole blocks, and inodes (files and directories)."""

    bytes: int
    inodes: int

    def plus(self, other: SnapshotUsage) -> SnapshotUsage:
        """Both together."""
        return SnapshotUsage(self.bytes + other.bytes, self.inodes + other.inodes)


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer of an image: `files` files of about equal size, `size_bytes` together.

    `name` is a digest ("sha256:" and 64 hex digits), or any other text, from which, with the two numbers, the digest is
    made. Layers of equal digest are one layer on disk. Raises ValueError for a negative size, for bytes without a file
    to hold them, and for a malformed digest.
    """

    name: str
    size_bytes: int
    files: int = 1

    def __post_init__(self) -> None:
        if self.size_bytes < 0 or self.files < 0 or (self.size_bytes > 0 and self.files == 0):
            raise ValueError(f"layer {self.name!r}: {self.size_bytes} bytes in {self.files} files cannot be")
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

    Both directories are made if they are missing. They may lie on two filesystems, and need not be mount points.
    Raises EmbeddedNodeError if one of them holds another node already.
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
            except OSError as caught:  # files of another node would be neither counted nor deleted
                raise EmbeddedNodeError(f"{root} cannot be the root of a new node: {caught.strerror}") from caught

    def acquire(self, digest: str) -> bool:
        """Count one more holder of a layer that is here; False, and nothing counted, if it is not."""
        layer = self._layers.get(digest)
        if layer is None:
            return False
        layer.references += 1
        return True

    def unpack(self, spec: LayerSpec) -> None:
        """Write the files of a layer that is not here yet; `adopt` makes it count. The one method that needs no lock.

        Raises EmbeddedNodeError if it does not fit or cannot be written; what was written of it is gone again then.
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
        """Count a layer that `unpack` has written, with one holder."""
        frsize = os.statvfs(self.images_root).f_frsize
        parts = even_parts(spec.size_bytes, spec.files)
        self._layers[spec.digest] = _Layer(
            1, SnapshotUsage(sum(_in_blocks(part, frsize) for part in parts), spec.inodes)
        )

    def release(self, digests: Iterable[str]) -> None:
        """Count one holder less of each, the uppermost layer first, and delete the layers that nobody holds any more.

        Raises EmbeddedNodeError if the filesystem refuses; the layers that come later are then still held.
        """
        for digest in reversed(tuple(digests)):
            layer = self._layers[digest]
            if layer.references == 1:
                _remove_tree(self._layer_path(digest))
                del self._layers[digest]
            else:
                layer.references -= 1

    def make_writable(self, container_id: str) -> None:
        """Make the empty writable layer of a container: one inode. Raises EmbeddedNodeError if there is none left."""
        try:
            os.mkdir(self._writable_path(container_id))
        except OSError as caught:
            raise EmbeddedNodeError(f"no writable layer for container {container_id}: {caught.strerror}") from caught
        self._writable[container_id] = SnapshotUsage(0, 1)

    def append(self, container_id: str, file_name: str, size_bytes: int) -> int:
        """Append to a file of a writable layer, making it if it is missing; the number of bytes that fitted.

        Fewer than asked means that the filesystem is full: what fitted stays, as it does for any writer. Raises
        EmbeddedNodeError for every other refusal.
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
        """Delete the writable layer of a container with all that is in it. Raises EmbeddedNodeError if refused."""
        _remove_tree(self._writable_path(container_id))
        self._writable.pop(container_id, None)

    def usage(self) -> dict[str, SnapshotUsage]:
        """What is used under each root: one entry with everything, or two where layers and writable layers part."""
        roots = {self.images_root: SnapshotUsage(0, 0), self.containers_root: SnapshotUsage(0, 0)}
        for layer in self._layers.values():
            roots[self.images_root] = roots[self.images_root].plus(layer.usage)
        for used in self._writable.values():
            roots[self.containers_root] = roots[self.containers_root].plus(used)
        return roots

    def writable_usage(self) -> dict[str, SnapshotUsage]:
        """What each container has written."""
        return dict(self._writable)

    def _layer_path(self, digest: str) -> str:
        return os.path.join(self.images_root, "layers", digest.removeprefix("sha256:"))

    def _writable_path(self, container_id: str) -> str:
        return os.path.join(self.containers_root, "containers", container_id)

    def _write(self, path: str, size_bytes: int) -> None:
        """Write a new file of that size; OSError if it does not fit."""
        before, after = self._append(path, size_bytes)
        if after - before < size_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _append(self, path: str, size_bytes: int) -> tuple[int, int]:
        """The size of the file before and after; it grew by less than `size_bytes` if the filesystem is full."""
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
        shutil.rmtree(path)  # bottom-up, relative to descriptors, and it makes no file: fit for a full filesystem
    except FileNotFoundError:
        return  # gone is what was asked for
    except OSError as caught:
        raise EmbeddedNodeError(f"{path} cannot be deleted: {caught.strerror}") from caught
