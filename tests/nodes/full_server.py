"""An embedded server with more than a drill needs: several faults for one method, and
containerd's own services.

The methods of those are named with the service: `LeasesCreate`, `ImagesList`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from eviction.drill.runtime import EmbeddedServer, Method
from reclaim.cri import cri_pb2, leases_pb2, stores_pb2
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.leases import Leases
from tests.nodes.method_faults import SeveralFaults

METHODS = tuple(
    name.removesuffix("Request")
    for name in cri_pb2.DESCRIPTOR.message_types_by_name
    if name.endswith("Request")
)
"""The names of those of CRI."""

LEASES_SERVICE = "containerd.services.leases.v1.Leases"
IMAGE_STORE = "containerd.services.images.v1.Images"


class FullServer(EmbeddedServer):
    """Serves a runtime. `leases` are containerd's; it serves them, and containerd's image store,
    unless the dialect is CRI-O's."""

    def __init__(self, runtime: FullRuntime, socket_path: str) -> None:
        super().__init__(runtime, socket_path)
        self.largest_answer_bytes = runtime.dialect.largest_answer_bytes
        self.leases = Leases(runtime)
        self._own = {} if runtime.dialect.is_cri_o else self._own_methods(runtime)
        own = (method.name for method in self._own_methods(runtime).values())
        self.failpoints: SeveralFaults = SeveralFaults(frozenset((*METHODS, *own)))

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
