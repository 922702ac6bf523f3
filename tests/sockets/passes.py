"""Passes over a small node that something interrupts, or that another dialect answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from eviction.engine.effects import Request
from eviction.engine.node import Node
from eviction.records.passes import Pass
from tests.nodes.faults import Hang
from tests.nodes.method_faults import MethodFault, When, arm
from tests.nodes.small_node import SmallNode, relieve
from tests.sockets.dialect import AnswerChange, Dialect


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
    arm(small.failpoints, MethodFault(method, Hang(times=1), When(from_call=call)))
    with small.relieving(node, request) as going:
        small.wait_for(method, asked + call)
        happens()
        small.failpoints.clear()
        return going.result()


def reworded(small: SmallNode, directory: Path, request: Request, **changes: AnswerChange) -> Pass:
    """A pass over a runtime whose answers to these methods are changed."""
    with Dialect(small.server.target, str(directory / "d.sock"), changes) as dialect:
        return relieve(small.node(containerRuntimeEndpoint=dialect.endpoint), request)
