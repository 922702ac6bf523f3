"""containerd's leases service, and content that is in no list of CRI: what its garbage collection deletes.

    <images root>/content/<name>   one piece of content

Its rules are containerd's: a lease belongs to a namespace and keeps what is attached to it until it is deleted or
expires; a deletion with `sync` is answered after a garbage collection, which deletes what nothing keeps, in all
namespaces. Source: github.com/containerd/containerd docs/garbage-collection.md, core/metadata/leases.go.

Covers: the calls, expiry, what a garbage collection deletes. Does not cover: gRPC (`server`), filters but that of ids.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.runtime.runtime import EmbeddedRuntime
from reclaim.cri import leases_pb2 as pb

LEASES_SERVICE = "containerd.services.leases.v1.Leases"

_NAMESPACE = "containerd-namespace"
_EXPIRE = "containerd.io/gc.expire"
_ID_FILTER = re.compile(r'id~="(.*)"')


class LeasesError(Exception):
    """A call that fails. `code` and `message`: what the caller gets."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(slots=True)
class _Lease:
    labels: dict[str, str]
    content: list[str] = field(default_factory=list)  # names of what is attached to it


class Leases:
    """The leases of a runtime, and its content. Thread-safe."""

    def __init__(self, runtime: EmbeddedRuntime) -> None:
        self._runtime = runtime
        self._directory = os.path.join(runtime.images_root, "content")
        self._lock = threading.Lock()
        self._leases: dict[tuple[str, str], _Lease] = {}
        self.collections = 0
        """How many garbage collections have been run."""

    def add_content(self, name: str, size_bytes: int, lease: tuple[str, str] | None = None) -> None:
        """Content to which only a lease refers, given as its namespace and id, or nothing. Raises EmbeddedNodeError if
        it does not fit."""
        with self._lock:
            if lease is not None:
                self._leases.setdefault(lease, _Lease({})).content.append(name)
        path = os.path.join(self._directory, name)
        try:
            os.makedirs(self._directory, exist_ok=True)
            with open(path, "xb") as file:
                file.write(os.urandom(size_bytes))
        except OSError as caught:
            raise EmbeddedNodeError(f"content {name} cannot be written: {caught.strerror}") from caught

    @property
    def ids(self) -> list[tuple[str, str]]:
        """Namespace and id of every lease."""
        with self._lock:
            return sorted(self._leases)

    @property
    def content(self) -> list[str]:
        """The names of the content that is there."""
        return sorted(os.listdir(self._directory)) if os.path.isdir(self._directory) else []

    def create(self, metadata: Mapping[str, str], request: pb.CreateRequest) -> pb.CreateResponse:
        """Create. ALREADY_EXISTS where there is one of this id."""
        lease = (_namespace(metadata), request.id)
        with self._lock:
            if lease in self._leases:
                raise LeasesError(grpc.StatusCode.ALREADY_EXISTS, f'lease "{request.id}": already exists')
            self._leases[lease] = _Lease(dict(request.labels))
        return pb.CreateResponse(lease=pb.Lease(id=request.id, labels=dict(request.labels)))

    def delete(self, metadata: Mapping[str, str], request: pb.DeleteRequest) -> Empty:
        """Delete. NOT_FOUND where there is none of this id; with `sync`, a garbage collection before the answer."""
        with self._lock:
            if self._leases.pop((_namespace(metadata), request.id), None) is None:
                raise LeasesError(grpc.StatusCode.NOT_FOUND, f'lease "{request.id}": not found')
        if request.sync:
            self.collect_garbage()
        return Empty()

    def list(self, metadata: Mapping[str, str], request: pb.ListRequest) -> pb.ListResponse:
        """List: those of the namespace whose id any of the filters finds, all without a filter."""
        namespace = _namespace(metadata)
        patterns = [_pattern(each) for each in request.filters]
        with self._lock:
            found = [(name, lease) for (space, name), lease in self._leases.items() if space == namespace]
        taken = [
            pb.Lease(id=name, labels=lease.labels)
            for name, lease in found
            if not patterns or any(pattern.search(name) for pattern in patterns)
        ]
        return pb.ListResponse(leases=taken)

    def collect_garbage(self) -> None:
        """Deletes leases that have expired, what no lease keeps, and what CRI calls have left to be freed later."""
        now = self._runtime.wall_seconds()
        with self._lock:
            self._leases = {key: lease for key, lease in self._leases.items() if not _expired(lease, now)}
            kept = {name for lease in self._leases.values() for name in lease.content}
            for name in self.content:
                if name not in kept:
                    os.unlink(os.path.join(self._directory, name))
            self.collections += 1
        self._runtime.force_gc()


LEASE_METHODS: Final[
    Mapping[str, tuple[type[Message], type[Message], Callable[[Leases, Mapping[str, str], Any], Message]]]
] = {
    "LeasesCreate": (pb.CreateRequest, pb.CreateResponse, Leases.create),
    "LeasesDelete": (pb.DeleteRequest, Empty, Leases.delete),
    "LeasesList": (pb.ListRequest, pb.ListResponse, Leases.list),
}
"""The methods by the names that their faults have: request, answer, and what answers."""


def _namespace(metadata: Mapping[str, str]) -> str:
    if not metadata.get(_NAMESPACE):
        raise LeasesError(grpc.StatusCode.FAILED_PRECONDITION, "namespace is required: failed precondition")
    return metadata[_NAMESPACE]


def _pattern(text: str) -> re.Pattern[str]:
    found = _ID_FILTER.fullmatch(text)
    if found is None:
        raise LeasesError(grpc.StatusCode.INVALID_ARGUMENT, f"filter {text!r}: only ids are searched here")
    return re.compile(found[1])


def _expired(lease: _Lease, now: float) -> bool:
    text = lease.labels.get(_EXPIRE)
    return text is not None and datetime.fromisoformat(text).timestamp() < now
