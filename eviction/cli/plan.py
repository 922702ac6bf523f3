"""`reclaimd plan`: what would be removed now, why each other object is kept, and what the bytes are used for.

Read-only.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import replace

from eviction.cli import EXIT_OK, EXIT_READING, EXIT_RUNTIME, EXIT_USAGE
from eviction.cli.daemon_configuration import mention_other_configuration
from eviction.cli.options import (
    add_configuration,
    add_output,
    answer_json,
    answer_lines,
    columns,
    configuration_of,
    exit_with,
)
from eviction.cli.progress import Progress
from eviction.cli.standalone import observe
from eviction.configuration.effective import Extent
from eviction.node.node import Node
from eviction.node.responder import Request
from eviction.reporting.explain import attribution_lines, outcomes_table
from eviction.reporting.log import escaped
from eviction.reporting.pass_record import Pass, Trigger, pass_json, released_in_words
from eviction.reporting.status import pod_directories_json
from eviction.reporting.tables import signals_table
from signals.quantity import format_bytes
from signals.types import KUBELET_SIGNALS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)
    add_output(parser)
    parser.add_argument(
        "--pods",
        action="store_true",
        help="instead: whom the kubelet would evict for disk, in its order, with what each uses; needs kubeletEndpoint",
    )
    parser.add_argument(
        "--signal",
        choices=[str(signal) for signal in KUBELET_SIGNALS],
        metavar="SIGNAL",
        help="with --pods: for which signal; else for the one that is met, or the nearest to its threshold",
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 3 runtime unreachable; 4 reading unavailable.

    All functions are planned to their end, so that every removable object is shown; a pass stops earlier.
    """
    if arguments.pods:
        from eviction.cli import plan_pods  # only where it is asked for

        return plan_pods.run(arguments)
    if arguments.signal is not None:
        exit_with(EXIT_USAGE, "--signal has no effect without --pods")
    configuration = configuration_of(arguments)
    mention_other_configuration(arguments, configuration.control_socket)
    with closing(Node(configuration, dry_run=True)) as node:
        problem, observations, decision = observe(node)
        if not observations.signals:
            unread = "; ".join(each.reason for each in observations.unavailable)
            exit_with(EXIT_READING, unread or "no filesystem could be read")
        if problem is not None:
            exit_with(EXIT_RUNTIME, f"the container runtime cannot be reached: {problem}")
        request = Request(row=node.responder.functions_here(observations), extent=Extent.ALL, every_function=True)
        with Progress("listing containers and images, and planning"):
            record = node.responder.reclaim(observations, decision, Trigger.REQUEST, request)
        source, pods_problem, doubt = node.pod_state_source, node.pods_problem, node.pods_doubt
        if record.errors:
            exit_with(EXIT_RUNTIME, "; ".join(record.errors))
        with Progress("counting where the bytes are"):
            record = replace(record, attributions=node.disk_survey.survey(observations, record.removals + record.kept))
    if arguments.output == "json":
        pods = {"told_by": source, "problem": pods_problem, "directories": pod_directories_json(doubt)}
        answer_json({**pass_json(record), "pods": pods})
    else:
        answer_lines(
            [
                *signals_table(observations, node.thresholds(observations.layout), columns()),
                "",
                *plan_lines(record, columns()),
                *([pods_line(source, pods_problem)] if node.configuration.has_runtime else []),
                *([] if doubt is None else [f"pods: {escaped(doubt.sentence)}"]),
            ]
        )
    return EXIT_OK


def plan_lines(record: Pass, width: int | None = None) -> list[str]:
    """Removable objects in their order, kept objects, and the totals."""
    order = list(filter(None, (record.side_by_side, "" if record.order is None else record.order.sentence)))
    first = list(filter(None, (released_in_words(record, dry_run=True),)))
    kept = sum(outcome.verdict.size_bytes or 0 for outcome in record.kept)
    return [
        *outcomes_table(record.removals + record.kept, width),
        "",
        f"may go: {len(record.removals)} objects, images of {format_bytes(record.nominal_bytes)}, in this order",
        f"kept: {len(record.kept)} objects, images of {format_bytes(kept)}",
        *first,
        *order,
        "a pass stops as soon as the thresholds are clear",
        *(line for attribution in record.attributions for line in ("", *attribution_lines(attribution, width))),
    ]


def pods_line(source: str, problem: str | None) -> str:
    """Where the states of pods come from, and so which rules were used."""
    if source == "kubelet":
        return "pods: as the kubelet itself knows them; guard: where a rule of ours is stricter than the kubelet's"
    why = f" ({escaped(problem)})" if problem else ""
    return f"pods: from the kubelet's directories{why}; guard: a rule of ours in place of what only the kubelet knows"
