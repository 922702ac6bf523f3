"""A runtime of another dialect: a server on a socket of its own that passes every call
on and changes the answers.

Runtimes differ in what a list says about an image, and a list may be out of date. The
embedded runtime answers as containerd does; this server gives the answers of other
runtimes, over a real socket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc

from reclaim.cri import cri_pb2
from tests.sockets.cri_calls import CriCalls

AnswerChange = Callable[[Any], None]
"""A function that changes an answer in place."""


class Dialect(grpc.GenericRpcHandler):
    """Serves `socket_path` while its `with` block lasts, passing on to `target`."""

    def __init__(self, target: str, socket_path: str, changes: Mapping[str, AnswerChange]) -> None:
        self.endpoint = f"unix://{socket_path}"
        self._calls = CriCalls(target)
        self._changes = changes
        self._workers = ThreadPoolExecutor(32)  # as many as reclaimd may ask at the same time
        self._server = grpc.server(self._workers, [self])
        self._server.add_insecure_port(f"unix:{socket_path}")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stop(grace=None).wait()
        self._workers.shutdown()
        self._calls.__exit__(None, None, None)

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """What answers one call."""
        method = handler_call_details.method.rpartition("/")[2]

        def serve(request: Any, context: grpc.ServicerContext) -> Any:
            fields = {field.name: value for field, value in request.ListFields()}
            try:
                answer = self._calls.call(method, **fields)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details() or "")
            self._changes.get(method, lambda _: None)(answer)
            return answer

        return grpc.unary_unary_rpc_method_handler(
            serve,
            request_deserializer=getattr(cri_pb2, f"{method}Request").FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )
