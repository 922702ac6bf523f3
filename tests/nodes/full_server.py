"""An embedded server with more than a drill needs: counts of its calls, containerd's own
services, and the streaming counterparts of its lists (KEP-5825).

The methods of services are named with them: `LeasesCreate`, `ImagesList`. containerd's leases, as other programs make them too: a lease belongs to a namespace and keeps what
is attached to it until it is deleted or expires; a garbage collection deletes what no lease keeps,
in all namespaces. Content that no list of CRI shows is at `<images root>/content/<name>`. Source:
github.com/containerd/containerd docs/garbage-collection.md, core/metadata/leases.go.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from eviction.drill.runtime import EmbeddedServer, InjectedError, Method
from reclaim.cri import cri_pb2, leases_pb2, stores_pb2
from tests.nodes.faults import CountedFaults
from tests.nodes.full_runtime import FullRuntime

METHODS = tuple(
    name.removesuffix("Request")
    for name in cri_pb2.DESCRIPTOR.message_types_by_name
    if name.endswith("Request")
)
"""The names of those of CRI."""

LEASES_SERVICE = "containerd.services.leases.v1.Leases"
IMAGE_STORE = "containerd.services.images.v1.Images"


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
                    grpc.StatusCode.ALREADY_EXISTS, f'lease "{request.id}": already exists'
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
                raise InjectedError(grpc.StatusCode.NOT_FOUND, f'lease "{request.id}": not found')
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


class FullServer(EmbeddedServer):
    """Serves a runtime. `leases` are containerd's; it serves them, and containerd's image store,
    unless the dialect is CRI-O's."""

    def __init__(self, runtime: FullRuntime, socket_path: str) -> None:
        super().__init__(runtime, socket_path)
        self.largest_answer_bytes = runtime.dialect.largest_answer_bytes
        self.leases = Leases(runtime)
        self._own = {} if runtime.dialect.is_cri_o else self._own_methods(runtime)
        own = (method.name for method in self._own_methods(runtime).values())
        self.failpoints: CountedFaults = CountedFaults(frozenset((*METHODS, *own)))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        own = self._own.get(handler_call_details.method)
        return super().service(handler_call_details) if own is None else self._handler(own)

    def _own_methods(self, runtime: FullRuntime) -> dict[str, Method]:
        """The methods of containerd that CRI lacks, by path: its leases and its image store."""
        stored = partial(_stored_images, runtime)
        methods = {
            f"/{IMAGE_STORE}/List": Method(
                "ImagesList", stores_pb2.ImagesRequest, stores_pb2.Images, stored
            )
        }
        for name in ("Create", "Delete", "List"):
            methods[f"/{LEASES_SERVICE}/{name}"] = Method(
                f"Leases{name}",
                getattr(leases_pb2, f"{name}Request"),
                getattr(leases_pb2, f"{name}Response", Empty),
                getattr(self.leases, name.lower()),
            )
        return methods

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[Any, Any]:
        handler = super()._handler(method)
        if not method.name.startswith("Leases"):
            return handler

        def answers(request: Message, context: grpc.ServicerContext) -> Iterator[Message]:
            metadata = {str(key): str(value) for key, value in context.invocation_metadata()}
            of_call = method._replace(function=partial(method.function, metadata))
            answer = EmbeddedServer._handler(self, of_call).unary_stream
            assert answer is not None
            yield from answer(request, context)

        return grpc.unary_stream_rpc_method_handler(
            answers, handler.request_deserializer, handler.response_serializer
        )


def images_created_at(runtime: FullRuntime) -> dict[str, float]:
    """When each image was pulled, in wall-clock seconds by id, as in containerd's image store."""
    with runtime._lock:
        return {each: runtime.pulled_at_ns[each] / 1e9 for each in runtime._images}


def _stored_images(runtime: FullRuntime, _: Message) -> Message:
    """containerd's list of images by id. The filter is ignored."""
    answer = stores_pb2.Images()
    for name, at in images_created_at(runtime).items():
        image = answer.each.add(name=name)
        image.created_at.seconds, image.created_at.nanos = int(at), int(at % 1 * 1e9)
    return answer


STREAMS = {
    "StreamContainers": "ListContainers",
    "StreamPodSandboxes": "ListPodSandbox",
    "StreamImages": "ListImages",
}
"""The streaming counterparts of lists: each message has one entry of the list."""


class StreamingServer(FullServer):
    """Serves them too."""

    def __init__(self, runtime: FullRuntime, socket_path: str) -> None:
        super().__init__(runtime, socket_path)
        self.failpoints = CountedFaults(frozenset((*METHODS, *STREAMS)))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        stream = handler_call_details.method.rpartition("/")[2]
        if stream not in STREAMS:
            return super().service(handler_call_details)
        request, answer = (
            getattr(cri_pb2, f"{STREAMS[stream]}{kind}") for kind in ("Request", "Response")
        )
        lists = self._handler(Method(stream, request, answer, self.runtime.answer))

        def streamed(request: Any, context: grpc.ServicerContext) -> Iterator[Message]:
            assert lists.unary_stream is not None
            for answer in lists.unary_stream(request, context):
                for entries, found in answer.ListFields():
                    for entry in found:
                        yield type(answer)(**{entries.name: [entry]})

        return grpc.unary_stream_rpc_method_handler(
            streamed, lists.request_deserializer, lists.response_serializer
        )
