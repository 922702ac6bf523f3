"""Passes over a small node that something interrupts, whose runtime answers in other words, or whose
disk fills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eviction.drill.runtime import Failpoint
from eviction.engine.effects import Request
from eviction.engine.node import Node
from eviction.records.passes import Pass, Trigger
from tests.nodes import faults
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import CODES, Hang
from tests.nodes.small_node import SmallNode, relieve
from tests.pure.values import filling

FAST = 400 << 20  # bytes a second


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


def changed(change: Callable[[Any], object]) -> Failpoint:
    """Calls act, and their answers are changed in place."""

    def reword(answer: Any) -> Any:
        change(answer)
        return answer

    return Failpoint(change=reword)


def fault(words: str, times: int | None = None) -> Failpoint:
    """By its words: `Hang`, `Fail UNKNOWN gc failed`, `Distort EMPTY_IDS`."""
    kind, *given = words.split(" ", 2)
    if kind == "Distort":
        return Distort(Distortion(given[0].lower()))
    made: Failpoint = getattr(faults, kind)(*map(CODES.__getitem__, given[:1]), *given[1:])
    made.times = times
    return made


def reworded(small: SmallNode, request: Request, **changes: Callable[[Any], object]) -> Pass:
    """A pass over a runtime whose answers to these methods are changed: runtimes differ in what a
    list says about an image, and a list may be out of date."""
    for method, change in changes.items():
        small.failpoints[method] = changed(change)
    return relieve(small.node(), request)


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


def satisfied(event: dict[str, Any]) -> bool:
    """Whether a line of the log is of a pass that has cleared the thresholds."""
    return event.get("result") == "satisfied"


def says(words: str) -> Callable[[dict[str, Any]], bool]:
    """Whether a line of the log says this, among other things."""
    return lambda event: words in event["message"]
