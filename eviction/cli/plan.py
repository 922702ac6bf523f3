"""`reclaimd plan`: what would be removed now, why each other thing is kept, and where the bytes are.

Touches nothing.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from eviction.cli import EXIT_OK, EXIT_READING, EXIT_RUNTIME
from eviction.cli.options import (
    add_configuration,
    add_output,
    answer_json,
    answer_lines,
    columns,
    configuration_of,
    leave,
    say,
)
from eviction.cli.progress import Progress
from eviction.configuration.effective import Extent
from eviction.node.node import Node
from eviction.node.responder import Request
from eviction.reporting.explain import attribution_lines, outcomes_table
from eviction.reporting.log import escaped
from eviction.reporting.pass_record import Pass, Trigger, pass_json
from eviction.reporting.tables import signals_table
from signals.quantity import format_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 3 runtime unreachable; 4 reading unavailable.

    All functions are planned to their end, so that everything which may go is shown; a pass stops earlier.
    """
    node = Node(configuration_of(arguments), dry_run=True)
    forgotten = node.remember()
    if forgotten:
        say(f"reclaimd: {forgotten}")
    with Progress("asking the runtime where the images are") as progress:
        problem = node.locate()
        progress.step("looking at the filesystems")
        observations, decision = node.responder.look()
    if not observations.signals:
        leave(EXIT_READING, "; ".join(u.reason for u in observations.unavailable) or "no filesystem could be read")
    if problem is not None:
        leave(EXIT_RUNTIME, f"the container runtime cannot be reached: {problem}")
    request = Request(row=tuple(node.collector.functions), extent=Extent.ALL)
    with Progress("listing containers and images, and planning"):
        record = node.responder.act(observations, decision, Trigger.REQUEST, request)
    told_by, pods_problem = node.pods_told_by, node.pods_problem
    if record.errors:
        leave(EXIT_RUNTIME, "; ".join(record.errors))
    with Progress("counting where the bytes are"):
        record = replace(record, attributions=node.whereabouts.of(observations, record.removals + record.kept))
    node.close()
    if arguments.output == "json":
        answer_json({**pass_json(record), "pods": {"told_by": told_by, "problem": pods_problem}})
    else:
        answer_lines(
            [
                *signals_table(observations, node.thresholds(observations.layout), columns()),
                "",
                *plan_lines(record, columns()),
                pods_line(told_by, pods_problem),
            ]
        )
    return EXIT_OK


def plan_lines(record: Pass, width: int | None = None) -> list[str]:
    """What may go in its order, what stays, and the totals."""
    hurry = [] if record.order is None or not record.order.by_yield else [record.order.sentence]
    kept = sum(outcome.verdict.size_bytes or 0 for outcome in record.kept)
    return [
        *outcomes_table(record.removals + record.kept, width),
        "",
        f"may go: {len(record.removals)} objects, images of {format_bytes(record.nominal_bytes)}, in this order",
        f"kept: {len(record.kept)} objects, images of {format_bytes(kept)}",
        *hurry,
        "a pass stops as soon as the thresholds are clear",
        *(line for attribution in record.attributions for line in ("", *attribution_lines(attribution, width))),
    ]


def pods_line(told_by: str, problem: str | None) -> str:
    """Who told which pods live, and so whose rules decided."""
    if told_by == "kubelet":
        return "pods: as the kubelet itself knows them; guard: where a rule of ours is stricter than the kubelet's"
    why = f" ({escaped(problem)})" if problem else ""
    return f"pods: as the kubelet's directories tell{why}; guard: what stands in for what only the kubelet knows"
