"""An embedded runtime whose list calls have streaming counterparts (KEP-5825)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import Message

from eviction.drill.server import Method
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.full_server import METHODS, FullServer
from tests.nodes.method_faults import SeveralFaults

STREAMS = {
    "ListContainers": "StreamContainers",
    "ListPodSandbox": "StreamPodSandboxes",
    "ListImages": "StreamImages",
}
"""The streaming counterparts of list calls: each message has one entry of the list."""


class StreamingServer(FullServer):
    """Serves them too."""

    def __init__(self, runtime: FullRuntime, socket_path: str) -> None:
        super().__init__(runtime, socket_path)
        streams = tuple(
            each._replace(name=STREAMS[each.name]) for each in METHODS if each.name in STREAMS
        )
        self.methods += streams
        self.failpoints = SeveralFaults(frozenset(method.name for method in self.methods))

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[Any, Any]:
        handler = super()._handler(method)
        if method.name not in STREAMS.values():
            return handler

        def streamed(request: Any, context: grpc.ServicerContext) -> Iterator[Message]:
            assert handler.unary_stream is not None
            for answer in handler.unary_stream(request, context):
                for entries, found in answer.ListFields():
                    for entry in found:
                        yield type(answer)(**{entries.name: [entry]})

        return grpc.unary_stream_rpc_method_handler(
            streamed, handler.request_deserializer, handler.response_serializer
        )
