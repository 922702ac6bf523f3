"""An embedded server with more than a drill needs: several faults for one method, and
containerd's own services.

The methods of those are named with the service: `LeasesCreate`, `ImagesList`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from eviction.drill.runtime import EmbeddedRuntime
from eviction.drill.server import EmbeddedServer, Method, methods_of
from reclaim.cri import leases_pb2, stores_pb2
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.leases import Leases
from tests.nodes.method_faults import SeveralFaults

METHODS = tuple(methods_of(EmbeddedRuntime, FullRuntime))
"""Those of CRI."""

LEASES_SERVICE = "containerd.services.leases.v1.Leases"
IMAGE_STORE = "containerd.services.images.v1.Images"


class FullServer(EmbeddedServer):
    """Serves a runtime. `leases` are containerd's; it serves them, and containerd's image store,
    unless the dialect is CRI-O's."""

    def __init__(self, runtime: FullRuntime, socket_path: str) -> None:
        super().__init__(runtime, socket_path)
        self.largest_answer_bytes = runtime.dialect.largest_answer_bytes
        self.leases = Leases(runtime)
        own = tuple(_own_methods(self.leases))
        self.methods = METHODS if runtime.dialect.is_cri_o else (*METHODS, *own)
        self.failpoints: SeveralFaults = SeveralFaults(
            frozenset(method.name for method in (*METHODS, *own))
        )

    def _services(self) -> dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]]:
        services = super()._services()
        return {
            service: {
                name.removeprefix(service.rpartition(".")[2]): handler
                for name, handler in methods.items()
            }
            for service, methods in services.items()
        }

    def _act(self, method: Method, request: Message, context: grpc.ServicerContext) -> Message:
        if method.service != LEASES_SERVICE:
            return super()._act(method, request, context)
        metadata = {str(key): str(value) for key, value in context.invocation_metadata()}
        return method.function(metadata, request)


def _own_methods(leases: Leases) -> Iterator[Method]:
    """The methods of containerd that CRI lacks: its leases and its image store."""
    for name in ("Create", "Delete", "List"):
        request, answer = (
            getattr(leases_pb2, f"{name}Request"),
            getattr(leases_pb2, f"{name}Response", Empty),
        )
        yield Method(
            LEASES_SERVICE, f"Leases{name}", request, answer, getattr(leases, name.lower())
        )
    yield Method(
        IMAGE_STORE, "ImagesList", stores_pb2.ImagesRequest, stores_pb2.Images, _stored_images
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
