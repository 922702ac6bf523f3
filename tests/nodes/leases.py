"""containerd's leases, as other programs make them too.

A lease belongs to a namespace and keeps what is attached to it until it is deleted or expires; a
garbage collection deletes what no lease keeps, in all namespaces. Content that no list of CRI shows
is at `<images root>/content/<name>`. Source: github.com/containerd/containerd
docs/garbage-collection.md, core/metadata/leases.go.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from datetime import datetime

from google.protobuf.empty_pb2 import Empty
from grpc import StatusCode

from eviction.drill.runtime import InjectedError
from reclaim.cri import leases_pb2
from tests.nodes.full_runtime import FullRuntime

EXPIRE = "containerd.io/gc.expire"
NAMESPACE = "containerd-namespace"

Lease = tuple[str, str]
"""Its namespace and its id."""


class Leases:
    """The leases of a runtime, and its content. Thread-safe.

    Calls that fail raise InjectedError.
    """

    def __init__(self, runtime: FullRuntime) -> None:
        self._runtime = runtime
        self._directory = os.path.join(runtime.images_root, "content")
        self._lock = threading.Lock()
        self._attached: dict[str, Lease] = {}  # content -> the lease that keeps it
        self.labels: dict[Lease, dict[str, str]] = {}
        """The labels of every lease."""
        self.collections = 0
        """How many garbage collections have run."""

    def add_content(self, name: str, size_bytes: int, lease: Lease | None = None) -> None:
        """Adds content to which only a lease refers, or nothing.

        Raises OSError if it does not fit.
        """
        if lease is not None:
            self.labels.setdefault(lease, {})
            self._attached[name] = lease
        os.makedirs(self._directory, exist_ok=True)
        with open(os.path.join(self._directory, name), "xb") as file:
            file.write(os.urandom(size_bytes))

    @property
    def content(self) -> list[str]:
        """The names of the content."""
        return sorted(os.listdir(self._directory)) if os.path.isdir(self._directory) else []

    def create(
        self, metadata: Mapping[str, str], request: leases_pb2.CreateRequest
    ) -> leases_pb2.CreateResponse:
        """Create. ALREADY_EXISTS if the namespace has this id."""
        lease = (metadata[NAMESPACE], request.id)
        with self._lock:
            if lease in self.labels:
                raise InjectedError(
                    StatusCode.ALREADY_EXISTS, f'lease "{request.id}": already exists'
                )
            self.labels[lease] = dict(request.labels)
        return leases_pb2.CreateResponse(
            lease=leases_pb2.Lease(id=request.id, labels=request.labels)
        )

    def delete(self, metadata: Mapping[str, str], request: leases_pb2.DeleteRequest) -> Empty:
        """Delete. NOT_FOUND if the namespace lacks this id.

        With `sync`, collects garbage before it answers.
        """
        with self._lock:
            if self.labels.pop((metadata[NAMESPACE], request.id), None) is None:
                raise InjectedError(StatusCode.NOT_FOUND, f'lease "{request.id}": not found')
        if request.sync:
            self.collect_garbage()
        return Empty()

    def list(
        self, metadata: Mapping[str, str], request: leases_pb2.ListRequest
    ) -> leases_pb2.ListResponse:
        """List: the leases of the namespace whose id matches any filter
        (`id~="…"`), or all without a filter.
        """
        namespace = metadata[NAMESPACE]
        patterns = [
            re.compile(each.removeprefix('id~="').removesuffix('"')) for each in request.filters
        ]
        answer = leases_pb2.ListResponse()
        with self._lock:
            for (space, name), labels in self.labels.items():
                if space == namespace and (
                    not patterns or any(pattern.search(name) for pattern in patterns)
                ):
                    answer.leases.add(id=name, labels=labels)
        return answer

    def collect_garbage(self) -> None:
        """Deletes expired leases and content that no lease keeps, and frees what CRI
        calls have left for later.
        """
        now = self._runtime.wall_seconds()
        with self._lock:
            for lease, labels in list(self.labels.items()):
                expires = labels.get(EXPIRE)
                if expires is not None and datetime.fromisoformat(expires).timestamp() < now:
                    del self.labels[lease]
            for name in self.content:
                if self._attached.get(name) not in self.labels:
                    os.unlink(os.path.join(self._directory, name))
            self.collections += 1
        self._runtime.force_gc()
