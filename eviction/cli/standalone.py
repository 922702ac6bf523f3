"""The first steps of a command that does the work itself: the records of images, the runtime's directories, and an
observation."""

from __future__ import annotations

from eviction.cli.options import exit_with, mention
from eviction.cli.progress import Progress
from eviction.exit_codes import EXIT_READING, EXIT_RUNTIME
from eviction.node.node import Node
from eviction.node.one_pass import Request
from eviction.types import Decision, Extent
from signals.types import SignalObservations


def observe(node: Node) -> tuple[str | None, SignalObservations, Decision]:
    """Why the runtime cannot be reached, or None; what was observed; and what follows from it.

    Progress, and why records could not be restored, go to stderr.
    """
    mention(node.restore_image_records())
    with Progress("asking the runtime where the images are") as progress:
        problem = node.locate()
        progress.step("looking at the filesystems")
        observations, decision = node.responder.synchronize()
    return problem, observations, decision


def observe_or_exit(node: Node) -> tuple[SignalObservations, Decision]:
    """The same for a command that can say nothing without readings and the runtime: exits with 4 or 3."""
    problem, observations, decision = observe(node)
    if not observations.signals:
        unread = "; ".join(dict.fromkeys(each.reason for each in observations.unavailable))
        exit_with(EXIT_READING, unread or "no filesystem could be read")
    if problem is not None:
        exit_with(EXIT_RUNTIME, f"the container runtime cannot be reached: {problem}")
    return observations, decision


def everything(node: Node, observations: SignalObservations) -> Request:
    """All functions of the node to their end, so that every object has its verdict."""
    return Request(row=node.responder.functions_here(observations), extent=Extent.ALL, every_function=True)
