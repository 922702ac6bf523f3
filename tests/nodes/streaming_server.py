"""An embedded runtime whose list calls have streaming counterparts (KEP-5825)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import Message

from eviction.drill.runtime import Method
from reclaim.cri import cri_pb2
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.full_server import METHODS, FullServer
from tests.nodes.method_faults import SeveralFaults

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
        self.failpoints = SeveralFaults(frozenset((*METHODS, *STREAMS)))

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
