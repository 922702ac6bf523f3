"""A proxy with failpoints in front of any CRI runtime: it passes bytes on, and makes
a real runtime misbehave.

Covers: every method of every service, also those that this project does not know: requests, answers
and errors are passed on as they are, and streams of answers once they have ended. Only a fault that
changes an answer parses it, and keeps its unknown fields.

Does not cover: streams of requests (`Exec` and the like are single calls in CRI). A caller that
gives up does not cancel the call behind the proxy; a runtime also continues most of its work.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc

from eviction.drill.runtime import InjectedError
from reclaim.cri import cri_pb2
from tests.nodes.faults import CountedFaults
from tests.nodes.full_server import METHODS

WORKERS = 32  # a call that hangs occupies one
LONGEST_SECONDS = 86400.0
LARGEST_MESSAGE_BYTES = 256 << 20
_LIMITS = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
    ("grpc.max_send_message_length", LARGEST_MESSAGE_BYTES),
)
_ANSWERS = {method: getattr(cri_pb2, f"{method}Response") for method in METHODS}


class Proxy:
    """Serves `socket_path` while its `with` block lasts, passing every call
    on to the socket `behind`.

    `failpoints` knows the methods of the CRI that the product uses; calls of others
    pass untouched and uncounted.
    """

    def __init__(self, behind: str, socket_path: str) -> None:
        self.endpoint = f"unix://{socket_path}"
        self.failpoints = CountedFaults(frozenset(_ANSWERS))
        self._behind = grpc.insecure_channel(
            f"unix:{behind}",
            options=(
                ("grpc.default_authority", "localhost"),
                ("grpc.enable_http_proxy", 0),
                *_LIMITS,
            ),
        )
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="proxy")
        self._server = grpc.server(self._workers, handlers=[_Everything(self)], options=_LIMITS)
        self._server.add_insecure_port(f"unix:{socket_path}")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        stopped = self._server.stop(grace=None)
        self.failpoints.closed = True
        stopped.wait()
        self._workers.shutdown()
        self._behind.close()

    def pass_on(self, path: str, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answers one call of `/package.Service/Method`."""
        method = path.rpartition("/")[2]

        def behind() -> list[bytes]:
            left = context.time_remaining()
            # gRPC shows a missing deadline as one of centuries, and would take
            # that value as already over.
            deadline = left if left < LONGEST_SECONDS else None
            ask: Any = self._behind.unary_stream(path)  # without serializers bytes stay bytes
            return list(ask(request, timeout=deadline))

        try:
            if method not in _ANSWERS:
                return iter(behind())
            kind = _ANSWERS[method]
            answer: Any = self.failpoints.apply(
                method, lambda: kind.FromString(behind()[0]), kind()
            )
            return iter((answer.SerializeToString(),))
        except InjectedError as error:
            if error.partial is not None:
                error.partial = error.partial.SerializeToString()
            return failing(error, context)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details() or "")


def failing(error: InjectedError, context: grpc.ServicerContext) -> Iterator[Any]:
    """The answer to a call that fails on purpose: part of its answer, if any, then the error."""
    if error.partial is not None:
        yield error.partial
    context.abort(error.code, error.message)


class _Everything(grpc.GenericRpcHandler):
    """Accepts every method."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """The handler of one call: it passes bytes on."""
        path = handler_call_details.method
        return grpc.unary_stream_rpc_method_handler(
            lambda request, context: self._proxy.pass_on(path, request, context)
        )
