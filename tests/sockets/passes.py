"""Passes over a small node that something interrupts, that another dialect answers, or whose disk
fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import grpc

from eviction.engine.effects import Request
from eviction.engine.node import Node
from eviction.records.passes import Pass, Trigger
from reclaim.cri import cri_pb2
from tests.nodes.faults import Hang
from tests.nodes.small_node import AN_HOUR, SmallNode, relieve
from tests.pure.values import filling
from tests.sockets.cri_calls import CriCalls

FAST = 400 << 20  # bytes a second


AnswerChange = Callable[[Any], None]
"""A function that changes an answer in place."""


class Dialect(grpc.GenericRpcHandler):
    """A runtime of another dialect: serves `socket_path` while its `with` block lasts, passes every
    call on to `target`, and changes the answers. Runtimes differ in what a list says about an image,
    and a list may be out of date."""

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

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=None).wait()
        self._workers.shutdown()
        self._calls.__exit__()

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """What answers one call."""
        whole = handler_call_details.method
        call: Any = self._calls._channel.unary_unary(whole)
        method = whole.rpartition("/")[2]

        def serve(request: bytes, context: grpc.ServicerContext) -> bytes:
            try:
                answer: bytes = call(request, timeout=60.0)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details() or "")
            if method in self._changes:
                message = getattr(cri_pb2, f"{method}Response").FromString(answer)
                self._changes[method](message)
                answer = message.SerializeToString()
            return answer

        return grpc.unary_unary_rpc_method_handler(serve)


def interrupted(
    small: SmallNode,
    node: Node,
    request: Request,
    method: str,
    happens: Callable[[], object],
    *,
    call: int = 1,
) -> Pass:
    """A pass, and what happens while it waits for the answer to this call of a method."""
    asked = small.failpoints.calls[method]
    small.failpoints.begin(method, Hang(times=1), from_call=call)
    with small.relieving(node, request) as going:
        small.wait_for(method, asked + call)
        happens()
        small.failpoints.clear()
        return going.result()


def reworded(small: SmallNode, directory: Path, request: Request, **changes: AnswerChange) -> Pass:
    """A pass over a runtime whose answers to these methods are changed."""
    with Dialect(small.server.target, str(directory / "d.sock"), changes) as dialect:
        return relieve(small.node(containerRuntimeEndpoint=dialect.endpoint), request)


def passed(node: Node, rate: int) -> Pass:
    """A pass over a disk of which it is known that it fills by so many bytes a second."""
    node.locate()
    observations, decision = node.look()
    rates = {
        (device, inodes): filling(fill, 0.0 if inodes else float(rate))
        for (device, inodes), fill in node.world.fill_rates.items()
    }
    node.owner.world = node.world._replace(fill_rates=rates)
    return node.relieve(observations, decision, Trigger.INTERVAL)


def dead_copies(small: SmallNode, name: str) -> list[str]:
    """A pod whose container has exited nine times: all but the newest copy may go, the oldest
    first."""
    pod = small.run_pod(name)
    copies = [small.exited(pod, attempt=attempt) for attempt in range(9)]
    small.runtime.age(pod.sandbox_id, AN_HOUR)
    return copies[:-1]
