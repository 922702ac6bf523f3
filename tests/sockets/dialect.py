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

from eviction.drill.server import IMAGE_SERVICE, RUNTIME_SERVICE, Method
from reclaim.cri import cri_pb2
from tests.nodes.full_server import METHODS
from tests.sockets.cri_calls import CriCalls

AnswerChange = Callable[[Any], None]
"""A function that changes an answer in place."""


class Dialect:
    """Serves `socket_path` while its `with` block lasts, passing on to `target`."""

    def __init__(self, target: str, socket_path: str, changes: Mapping[str, AnswerChange]) -> None:
        self.endpoint = f"unix://{socket_path}"
        self._calls = CriCalls(target)
        self._changes = changes
        self._workers = ThreadPoolExecutor(32)  # as many as reclaimd may ask at the same time
        self._server = grpc.server(self._workers)
        for service in (RUNTIME_SERVICE, IMAGE_SERVICE):
            handlers = {
                method.name: self._handler(method)
                for method in METHODS
                if method.service == service
            }
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, handlers),)
            )
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

    def _handler(self, method: Method) -> grpc.RpcMethodHandler[Any, Any]:
        def serve(request: Any, context: grpc.ServicerContext) -> Any:
            fields = {field.name: value for field, value in request.ListFields()}
            try:
                answer = self._calls.call(method.name, **fields)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details() or "")
            self._changes.get(method.name, lambda _: None)(answer)
            return answer

        return grpc.unary_unary_rpc_method_handler(
            serve,
            request_deserializer=getattr(cri_pb2, f"{method.name}Request").FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )
