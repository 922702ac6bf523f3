"""The embedded runtime as a gRPC server on a unix socket, with containerd's own services beside CRI.

Covers: the table of methods, starting and stopping on one path, the status code of an error, failpoints, and leases.

Does not cover: what the calls of CRI do; see `runtime`. Methods that are not in the table are answered with
UNIMPLEMENTED, as by a runtime that does not have them.

The rules of the leases are containerd's: a lease belongs to a namespace and keeps what is attached to it until it is
deleted or expires; a deletion with `sync` is answered after a garbage collection, which deletes what nothing keeps, in
all namespaces. Content that is in no list of CRI is at `<images root>/content/<name>`. Source:
github.com/containerd/containerd docs/garbage-collection.md, core/metadata/leases.go.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Self, TypeAlias

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from grpc import StatusCode

from eviction.drill.runtime.failpoints import Call, Failpoints, InjectedError
from eviction.drill.runtime.faults import distorted
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.runtime.records import NotFoundError
from eviction.drill.runtime.runtime import EmbeddedRuntime
from reclaim.cri import cri_pb2, image_store_pb2, leases_pb2

RUNTIME_SERVICE = "runtime.v1.RuntimeService"
IMAGE_SERVICE = "runtime.v1.ImageService"
LEASES_SERVICE = "containerd.services.leases.v1.Leases"
IMAGE_STORE = "containerd.services.images.v1.Images"

_MAX_MESSAGE_BYTES = 256 << 20  # of a request
_SOCKET_PATH_BYTES = 107  # sun_path is 108 bytes with its terminating zero
_WORKERS = 32  # concurrent calls; threads are started when needed, and a call that hangs occupies one

_EXPIRE = "containerd.io/gc.expire"
_ID_FILTER = re.compile(r'id~="(.*)"')

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Method(NamedTuple):
    """One row of the table: a method of CRI, its request and response messages, and the function that answers it."""

    service: str
    name: str
    request: type[Message]
    answer: type[Message]
    function: Callable[[EmbeddedRuntime, Any], Message]


def _methods() -> Iterator[Method]:
    """The methods of the runtime that are named as a call of CRI is, in their order."""
    for name, function in vars(EmbeddedRuntime).items():
        call = name.title().replace("_", "")
        request, answer = (getattr(cri_pb2, f"{call}{kind}", None) for kind in ("Request", "Response"))
        if request is not None and answer is not None:
            service = IMAGE_SERVICE if "Image" in call else RUNTIME_SERVICE
            yield Method(service, call, request, answer, function)


METHODS = tuple(_methods())
STREAMS = {"ListContainers": "StreamContainers", "ListPodSandbox": "StreamPodSandboxes", "ListImages": "StreamImages"}
"""The streaming counterparts of list calls: each message has one entry of the list."""
LEASE_METHODS = ("Create", "Delete", "List")


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

    def create(self, metadata: Mapping[str, str], request: leases_pb2.CreateRequest) -> leases_pb2.CreateResponse:
        """Create. ALREADY_EXISTS where there is one of this id."""
        lease = (_namespace(metadata), request.id)
        with self._lock:
            if lease in self._leases:
                raise InjectedError(StatusCode.ALREADY_EXISTS, f'lease "{request.id}": already exists')
            self._leases[lease] = _Lease(dict(request.labels))
        return leases_pb2.CreateResponse(lease=leases_pb2.Lease(id=request.id, labels=dict(request.labels)))

    def delete(self, metadata: Mapping[str, str], request: leases_pb2.DeleteRequest) -> Empty:
        """Delete. NOT_FOUND where there is none of this id; with `sync`, a garbage collection before the answer."""
        with self._lock:
            if self._leases.pop((_namespace(metadata), request.id), None) is None:
                raise InjectedError(StatusCode.NOT_FOUND, f'lease "{request.id}": not found')
        if request.sync:
            self.collect_garbage()
        return Empty()

    def list(self, metadata: Mapping[str, str], request: leases_pb2.ListRequest) -> leases_pb2.ListResponse:
        """List: those of the namespace whose id any of the filters finds, all without a filter."""
        namespace = _namespace(metadata)
        patterns = [_pattern(each) for each in request.filters]
        answer = leases_pb2.ListResponse()
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


class EmbeddedServer:
    """Serves a runtime on a unix socket while its `with` block lasts, or from `start` to `stop`.

    `failpoints` has the faults of its methods. It survives a restart, and so does all state of the runtime. `leases`:
    containerd's, which it serves if the dialect does, and then its image store too.
    `socket_path` is at most 107 bytes long, in a directory that exists. It should not be on the filesystem under test:
    without a free inode no socket can be made.
    """

    def __init__(self, runtime: EmbeddedRuntime, socket_path: str) -> None:
        self.runtime = runtime
        self.socket_path = os.path.abspath(socket_path)
        leases = (f"Leases{name}" for name in LEASE_METHODS)
        self.failpoints = Failpoints(frozenset((*(method.name for method in METHODS), *STREAMS.values(), *leases)))
        self.leases = Leases(runtime)
        self._serving: tuple[grpc.Server, ThreadPoolExecutor] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def target(self) -> str:
        """The address for `grpc.insecure_channel`."""
        return f"unix:{self.socket_path}"

    def start(self) -> None:
        """Starts to listen; does nothing if it listens already. Raises EmbeddedNodeError if the socket cannot be
        made."""
        if self._serving is not None:
            return
        if len(os.fsencode(self.socket_path)) > _SOCKET_PATH_BYTES:
            raise EmbeddedNodeError(f"{self.socket_path} is too long for a socket: {_SOCKET_PATH_BYTES} bytes at most")
        self.failpoints.open()
        executor = ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="embedded-cri")
        server = grpc.server(
            executor,
            [grpc.method_handlers_generic_handler(*service) for service in self._services().items()],
            options=(
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", self.runtime.dialect.largest_answer_bytes),
            ),
        )
        try:
            server.add_insecure_port(self.target)
            os.chmod(self.socket_path, 0o600)  # who can connect to the socket of a runtime is root on the node
            server.start()
        except (OSError, RuntimeError) as caught:
            server.stop(grace=None)
            executor.shutdown()
            raise EmbeddedNodeError(f"the embedded runtime cannot listen on {self.socket_path}: {caught}") from caught
        self._serving = (server, executor)

    def stop(self) -> None:
        """Closes every connection, waits until no call is in flight, and removes the socket. Idempotent.

        Calls that a failpoint holds up are dropped; any other call that has begun is executed to its end.
        """
        if self._serving is None:
            return
        server, executor = self._serving
        self._serving = None
        stopped = server.stop(grace=None)
        self.failpoints.close()
        stopped.wait()
        executor.shutdown(wait=True)
        with suppress(FileNotFoundError):  # grpc has removed it itself
            os.unlink(self.socket_path)

    def restart(self) -> None:
        """Stops, and starts on the same path, as when a runtime is upgraded."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops, and lets the runtime free at once what it would free later, so that no thread is left."""
        self.stop()
        self.runtime.force_gc()

    def _services(self) -> dict[str, dict[str, _Handler]]:
        """The handlers of each service by method, as the dialect has them."""
        services: dict[str, dict[str, _Handler]] = {RUNTIME_SERVICE: {}, IMAGE_SERVICE: {}}
        for method in METHODS:
            services[method.service][method.name] = self._handler(method)
            if self.runtime.dialect.streams_lists and method.name in STREAMS:
                stream = STREAMS[method.name]
                services[method.service][stream] = self._handler(method._replace(name=stream))
        if self.runtime.dialect.serves_leases:
            services[LEASES_SERVICE] = {name: self._lease_handler(name) for name in LEASE_METHODS}
            services[IMAGE_STORE] = {"List": _handler(image_store_pb2.ListImagesRequest, self._stored_images)}
        return services

    def _handler(self, method: Method) -> _Handler:
        def answers(request: Message, context: grpc.ServicerContext) -> Iterator[Message]:
            call = Call(lambda: method.function(self.runtime, request), method.answer(), distorted)
            return self._answers(method.name, call, context)

        return _handler(method.request, answers)

    def _lease_handler(self, name: str) -> _Handler:
        request_type = getattr(leases_pb2, f"{name}Request")
        answer_type = getattr(leases_pb2, f"{name}Response", Empty)
        function = getattr(self.leases, name.lower())

        def answers(request: Message, context: grpc.ServicerContext) -> Iterator[Message]:
            metadata = {str(key): str(value) for key, value in context.invocation_metadata()}
            call = Call(lambda: function(metadata, request), answer_type(), distorted)
            return self._answers(f"Leases{name}", call, context)

        return _handler(request_type, answers)

    def _answers(self, name: str, call: Call[Message], context: grpc.ServicerContext) -> Iterator[Message]:
        """The messages that answer a call: one, or those of a stream, perhaps with an error behind them."""
        messages = _one_by_one if name in STREAMS.values() else _whole
        try:
            yield from messages(self.failpoints.apply(name, call))
        except InjectedError as error:
            yield from failing(() if error.partial is None else messages(error.partial), error, context)
        except NotFoundError as error:
            context.abort(StatusCode.NOT_FOUND, str(error))
        except EmbeddedNodeError as error:
            context.abort(StatusCode.UNKNOWN, str(error))

    def _stored_images(self, _: Message, __: grpc.ServicerContext) -> Iterator[Message]:
        """containerd's list of images by id, whatever the filter."""
        answer = image_store_pb2.ListImagesResponse()
        for name, at in self.runtime.images_created_at().items():
            image = answer.images.add(name=name)
            image.created_at.seconds, image.created_at.nanos = int(at), int(at % 1 * 1e9)
        yield answer


def failing(before: Iterable[Any], error: InjectedError, context: grpc.ServicerContext) -> Iterator[Any]:
    """The answer to a call that fails on purpose: the messages before the error, then its code."""
    yield from before
    context.abort(error.code, error.message)


def _handler(request: type[Message], answers: Callable[[Any, grpc.ServicerContext], Iterator[Any]]) -> _Handler:
    # On the wire a unary answer is a stream of one message. A stream handler can send a message and then an error.
    return grpc.unary_stream_rpc_method_handler(
        answers,
        request_deserializer=request.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )


def _whole(answer: Message) -> Iterator[Message]:
    yield answer


def _one_by_one(answer: Message) -> Iterator[Message]:
    """Each entry of a list as a list of its own."""
    for entries, found in answer.ListFields():
        for entry in found:
            yield type(answer)(**{entries.name: [entry]})
