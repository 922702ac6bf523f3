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
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from grpc import StatusCode

from eviction.drill.runtime.failpoints import InjectedError
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.runtime.runtime import EmbeddedRuntime
from reclaim.cri import leases_pb2 as pb

_EXPIRE = "containerd.io/gc.expire"
_ID_FILTER = re.compile(r'id~="(.*)"')


@dataclass(slots=True)
class _Lease:
    labels: dict[str, str]
    content: list[str] = field(default_factory=list)  # names of what is attached to it


class Leases:
    """The leases of a runtime, and its content. Thread-safe. A call that fails raises InjectedError."""

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
        try:
            os.makedirs(self._directory, exist_ok=True)
            with open(os.path.join(self._directory, name), "xb") as file:
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
                raise InjectedError(StatusCode.ALREADY_EXISTS, f'lease "{request.id}": already exists')
            self._leases[lease] = _Lease(dict(request.labels))
        return pb.CreateResponse(lease=pb.Lease(id=request.id, labels=dict(request.labels)))

    def delete(self, metadata: Mapping[str, str], request: pb.DeleteRequest) -> Empty:
        """Delete. NOT_FOUND where there is none of this id; with `sync`, a garbage collection before the answer."""
        with self._lock:
            if self._leases.pop((_namespace(metadata), request.id), None) is None:
                raise InjectedError(StatusCode.NOT_FOUND, f'lease "{request.id}": not found')
        if request.sync:
            self.collect_garbage()
        return Empty()

    def list(self, metadata: Mapping[str, str], request: pb.ListRequest) -> pb.ListResponse:
        """List: those of the namespace whose id any of the filters finds, all without a filter."""
        namespace = _namespace(metadata)
        patterns = [_pattern(each) for each in request.filters]
        answer = pb.ListResponse()
        with self._lock:
            for (space, name), lease in self._leases.items():
                if space == namespace and (not patterns or any(pattern.search(name) for pattern in patterns)):
                    answer.leases.add(id=name, labels=lease.labels)
        return answer

    def collect_garbage(self) -> None:
        """Deletes leases that have expired, what no lease keeps, and what CRI calls have left to be freed later."""
        now = self._runtime.wall_seconds()
        with self._lock:
            self._leases = {key: lease for key, lease in self._leases.items() if not _expired(lease, now)}
            kept = {name for lease in self._leases.values() for name in lease.content}
            for name in set(self.content) - kept:
                os.unlink(os.path.join(self._directory, name))
            self.collections += 1
        self._runtime.force_gc()


LEASE_METHODS: Mapping[
    str, tuple[type[Message], type[Message], Callable[[Leases, Mapping[str, str], Any], Message]]
] = {
    "Create": (pb.CreateRequest, pb.CreateResponse, Leases.create),
    "Delete": (pb.DeleteRequest, Empty, Leases.delete),
    "List": (pb.ListRequest, pb.ListResponse, Leases.list),
}
"""The methods by their names: request, answer, and what answers."""


def _namespace(metadata: Mapping[str, str]) -> str:
    namespace = metadata.get("containerd-namespace")
    if not namespace:
        raise InjectedError(StatusCode.FAILED_PRECONDITION, "namespace is required: failed precondition")
    return namespace


def _pattern(text: str) -> re.Pattern[str]:
    found = _ID_FILTER.fullmatch(text)
    if found is None:
        raise InjectedError(StatusCode.INVALID_ARGUMENT, f"filter {text!r}: only ids are searched here")
    return re.compile(found[1])


def _expired(lease: _Lease, now: float) -> bool:
    text = lease.labels.get(_EXPIRE)
    return text is not None and datetime.fromisoformat(text).timestamp() < now
