"""The embedded runtime as a gRPC server on a unix socket.

Covers: the table of methods, starting and stopping on one path, the status code of an error, and failpoints.

Does not cover: what the calls do; see `runtime`. Methods that are not in the table are answered with UNIMPLEMENTED, as
by a runtime that does not have them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc
from google.protobuf.message import Message

from eviction.drill.runtime.distortions import distorted
from eviction.drill.runtime.failpoints import Call, Failpoints, InjectedError
from eviction.drill.runtime.id_lookup import NotFoundError
from eviction.drill.runtime.leases import LEASE_METHODS, LEASES_SERVICE, Leases, LeasesError
from eviction.drill.runtime.private_mounts import EmbeddedNodeError
from eviction.drill.runtime.runtime import EmbeddedRuntime
from reclaim.cri import cri_pb2, image_store_pb2

RUNTIME_SERVICE = "runtime.v1.RuntimeService"
IMAGE_SERVICE = "runtime.v1.ImageService"

_MAX_MESSAGE_BYTES = 256 << 20  # of a request
_SOCKET_PATH_BYTES = 107  # sun_path is 108 bytes with its terminating zero
_WORKERS = 32  # concurrent calls; threads are started when needed, and a call that hangs occupies one


class Method(NamedTuple):
    """One row of the table: the name of a method, its request message, and the function that answers it."""

    service: str
    name: str
    request: type[Message]
    function: Callable[[EmbeddedRuntime, Any], Message]

    @property
    def answer(self) -> type[Message]:
        """The class of the response message."""
        answer: type[Message] = getattr(cri_pb2, f"{self.name}Response")
        return answer


METHODS = (
    Method(RUNTIME_SERVICE, "Version", cri_pb2.VersionRequest, EmbeddedRuntime.version),
    Method(RUNTIME_SERVICE, "Status", cri_pb2.StatusRequest, EmbeddedRuntime.status),
    Method(RUNTIME_SERVICE, "ListContainers", cri_pb2.ListContainersRequest, EmbeddedRuntime.list_containers),
    Method(RUNTIME_SERVICE, "ContainerStatus", cri_pb2.ContainerStatusRequest, EmbeddedRuntime.container_status),
    Method(
        RUNTIME_SERVICE,
        "ListContainerStats",
        cri_pb2.ListContainerStatsRequest,
        EmbeddedRuntime.list_container_stats,
    ),
    Method(RUNTIME_SERVICE, "StopContainer", cri_pb2.StopContainerRequest, EmbeddedRuntime.stop_container),
    Method(RUNTIME_SERVICE, "RemoveContainer", cri_pb2.RemoveContainerRequest, EmbeddedRuntime.remove_container),
    Method(RUNTIME_SERVICE, "ListPodSandbox", cri_pb2.ListPodSandboxRequest, EmbeddedRuntime.list_pod_sandbox),
    Method(RUNTIME_SERVICE, "PodSandboxStatus", cri_pb2.PodSandboxStatusRequest, EmbeddedRuntime.pod_sandbox_status),
    Method(RUNTIME_SERVICE, "StopPodSandbox", cri_pb2.StopPodSandboxRequest, EmbeddedRuntime.stop_pod_sandbox),
    Method(RUNTIME_SERVICE, "RemovePodSandbox", cri_pb2.RemovePodSandboxRequest, EmbeddedRuntime.remove_pod_sandbox),
    Method(RUNTIME_SERVICE, "RunPodSandbox", cri_pb2.RunPodSandboxRequest, EmbeddedRuntime.run_pod_sandbox),
    Method(RUNTIME_SERVICE, "CreateContainer", cri_pb2.CreateContainerRequest, EmbeddedRuntime.create_container),
    Method(RUNTIME_SERVICE, "StartContainer", cri_pb2.StartContainerRequest, EmbeddedRuntime.start_container),
    Method(IMAGE_SERVICE, "ListImages", cri_pb2.ListImagesRequest, EmbeddedRuntime.list_images),
    Method(IMAGE_SERVICE, "ImageStatus", cri_pb2.ImageStatusRequest, EmbeddedRuntime.image_status),
    Method(IMAGE_SERVICE, "RemoveImage", cri_pb2.RemoveImageRequest, EmbeddedRuntime.remove_image),
    Method(IMAGE_SERVICE, "ImageFsInfo", cri_pb2.ImageFsInfoRequest, EmbeddedRuntime.image_fs_info),
)

IMAGE_STORE = "containerd.services.images.v1.Images"
STREAMS = {"StreamContainers": "ListContainers", "StreamPodSandboxes": "ListPodSandbox", "StreamImages": "ListImages"}
"""The streaming counterparts of list calls: each message has one entry of the list."""


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
        self.failpoints = Failpoints(frozenset((*(method.name for method in METHODS), *STREAMS, *LEASE_METHODS)))
        self.leases = Leases(runtime)
        self._serving: tuple[grpc.Server, ThreadPoolExecutor] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            options=(
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", self.runtime.dialect.largest_answer_bytes),
            ),
        )
        runtime_streams = self.runtime.dialect.streams_lists
        for service in (RUNTIME_SERVICE, IMAGE_SERVICE):
            methods = [method for method in METHODS if method.service == service]
            handlers = {method.name: self._handler(method) for method in methods}
            if runtime_streams:
                handlers |= {
                    name: self._stream(name, m) for name, of in STREAMS.items() for m in methods if m.name == of
                }
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        if self.runtime.dialect.serves_leases:
            lease_handlers = {name.removeprefix("Leases"): self._lease_handler(name) for name in LEASE_METHODS}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(LEASES_SERVICE, lease_handlers),))
            store_handlers = {"List": self._image_store_handler()}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(IMAGE_STORE, store_handlers),))
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
        try:
            os.unlink(self.socket_path)
        except FileNotFoundError:
            return  # grpc has removed it itself

    def restart(self) -> None:
        """Stops, and starts on the same path, as when a runtime is upgraded."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops, and lets the runtime free at once what it would free later, so that no thread is left."""
        self.stop()
        self.runtime.force_gc()

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[Any, Any]:
        def serve(request: Message, context: grpc.ServicerContext) -> Iterator[Message]:
            call = Call(lambda: method.function(self.runtime, request), method.answer(), distorted)
            try:
                return iter((self.failpoints.apply(method.name, call),))
            except InjectedError as error:
                return failing(() if error.partial is None else (error.partial,), error, context)
            except NotFoundError as error:
                context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            except EmbeddedNodeError as error:
                context.abort(grpc.StatusCode.UNKNOWN, str(error))

        return self._method_handler(method, serve)

    def _stream(self, name: str, counterpart: Method) -> grpc.RpcMethodHandler[Any, Any]:
        def serve(request: Message, context: grpc.ServicerContext) -> Iterator[Message]:
            call = Call(lambda: counterpart.function(self.runtime, request), counterpart.answer(), distorted)
            try:
                return one_by_one(self.failpoints.apply(name, call))
            except InjectedError as error:
                return failing(() if error.partial is None else one_by_one(error.partial), error, context)

        return self._method_handler(counterpart, serve)

    def _lease_handler(self, name: str) -> grpc.RpcMethodHandler[Any, Any]:
        request_type, answer_type, function = LEASE_METHODS[name]

        def serve(request: Message, context: grpc.ServicerContext) -> Message:
            metadata = {str(key): str(value) for key, value in context.invocation_metadata()}
            call = Call(lambda: function(self.leases, metadata, request), answer_type(), distorted)
            try:
                return self.failpoints.apply(name, call)
            except (InjectedError, LeasesError) as error:
                context.abort(error.code, error.message)

        return grpc.unary_unary_rpc_method_handler(
            serve,
            request_deserializer=request_type.FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )

    def _image_store_handler(self) -> grpc.RpcMethodHandler[Any, Any]:
        """containerd's list of images by id, whatever the filter."""

        def serve(_: Message, __: grpc.ServicerContext) -> Message:
            answer = image_store_pb2.ListImagesResponse()
            for name, at in self.runtime.images_created_at().items():
                image = answer.images.add(name=name)
                image.created_at.seconds, image.created_at.nanos = int(at), int(at % 1 * 1e9)
            return answer

        return grpc.unary_unary_rpc_method_handler(
            serve,
            request_deserializer=image_store_pb2.ListImagesRequest.FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )

    def _method_handler(
        self, method: Method, serve: Callable[[Any, grpc.ServicerContext], Iterator[Any]]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        # On the wire a unary answer is a stream of one message. A stream handler can send a message and then an error.
        return grpc.unary_stream_rpc_method_handler(
            serve,
            request_deserializer=method.request.FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )


def one_by_one(answer: Message) -> Iterator[Message]:
    """Each entry of a list as a list of its own."""
    for field, found in answer.ListFields():
        for entry in found:
            yield type(answer)(**{field.name: [entry]})


def failing(before: Iterable[Any], error: InjectedError, context: grpc.ServicerContext) -> Iterator[Any]:
    """The answer to a call that fails on purpose: the messages before the error, then its code."""
    yield from before
    context.abort(error.code, error.message)
