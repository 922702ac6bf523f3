"""`reclaimd plan`: what would be removed now, why everything else is kept, and what uses the space.

Read-only.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal

from eviction.cli.options import (
    add_output,
    answer,
    columns,
    configuration_of,
    exit_unread,
    exit_with,
    mention_other_configuration,
    observe,
)
from eviction.cli.progress import Progress
from eviction.configuration.effective import Configuration
from eviction.engine.effects import Request
from eviction.engine.node import Node
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_RUNTIME
from eviction.records.json_shapes import Document, Seconds
from eviction.records.pass_json import PassFieldsJson, pass_json
from eviction.records.passes import Pass, Trigger
from eviction.surface.requests import ReclaimOptions, read_options, request_of
from eviction.types import Decision, Extent
from eviction.wording.explain import attribution_lines, counts_table, lead_sentence, outcomes_table
from eviction.wording.status import PodDirectories, pod_directories
from eviction.wording.tables import signals_table
from reclaim.program.function import KINDS as OWN
from signals.quantity import counted, format_bytes
from signals.types import Signal, SignalObservations

MOST_KEPT_LISTED = 20
BY_RUNTIME = "as the runtime counts them"  # their space on the disk may differ
IN_GROUPS = "; by reason (--all lists them):"


class Pods(Document):
    """The source of the pods' states."""

    told_by: str
    """kubelet, or directories: those of the kubelet."""
    problem: str | None
    """Why the kubelet gave no list of its pods; null if it did, or is not asked."""
    directories: PodDirectories
    """Whether its directories are trusted."""


class PlanJson(PassFieldsJson):
    """What would be removed now, and why everything else is kept: the answer of `reclaimd plan`, a
    pass without removals."""

    kind: Literal["Plan"] = "Plan"
    pods: Pods
    """The source of the pods' states."""
    enough: bool | None
    """With --signal: whether the planned removals clear the signal; null without
    it, or if that is not known.
    """
    lead_seconds: Seconds
    """A pass begins before its mark if the kubelet's mark would be reached
    within this time; 0: never.
    """


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    option, flag = parser.add_argument, partial(parser.add_argument, action="store_true")
    option("--signal", metavar="SIGNAL", help="only what clears it, and whether that is enough")
    option(
        "--until",
        metavar="VALUE",
        help="with --signal: the mark to reach, a quantity or a percentage",
    )
    flag(
        "--all",
        help=(
            f"on a terminal: list each kept object, even if there are more than {MOST_KEPT_LISTED}"
        ),
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 1 the planned removals are not enough for --signal; 2 usage or configuration; 3
    no runtime; 4 no reading.

    Example: reclaimd plan --signal nodefs.available --until 20Gi
    """
    configuration = configuration_of(arguments)
    options = read_options(
        {"signal": arguments.signal, "until": arguments.until}, configuration.signals
    )
    with planned(arguments, configuration, options) as (node, request, record):
        directories = pod_directories(node.pods_doubt)
        pods = Pods(
            told_by=node.pod_state_source, problem=node.pods_problem, directories=directories
        )
        with Progress("measuring what uses the space"):
            survey = node.disk_survey.survey(record.observations, record.removals + record.kept)
    record, lead_seconds = replace(record, attributions=survey), node.world.lead_seconds
    enough, width = is_enough(record, options.signal, request), columns()

    def lines() -> Iterator[str]:
        yield from signals_table(
            record.observations, node.thresholds(record.observations.layout), width
        )
        yield ""
        yield from plan_lines(record, width, everything=arguments.all, lead_seconds=lead_seconds)
        if options.signal is not None:
            yield enough_sentence(options.signal, enough)
        if configuration.has_runtime:
            yield pods_line(pods)
        if pods.directories.sentence is not None:
            yield f"pods: {pods.directories.sentence}"

    found = PlanJson.of(
        pass_json(record), kind="Plan", pods=pods, enough=enough, lead_seconds=lead_seconds
    )
    answer(arguments, found, lines)
    return EXIT_NOT_RELIEVED if enough is False else EXIT_OK


@contextmanager
def located(
    arguments: argparse.Namespace, configuration: Configuration
) -> Iterator[tuple[Node, SignalObservations, Decision]]:
    """A node that removes nothing, what was observed on it, and the decision.

    Exits as `planned`.
    """
    mention_other_configuration(arguments, configuration.control_socket)
    with closing(Node(configuration, dry_run=True)) as node:
        problem, observations, decision = observe(node)
        if not observations.signals:
            exit_unread(observations)
        if problem is not None:
            exit_with(EXIT_RUNTIME, f"the container runtime cannot be reached: {problem}")
        yield node, observations, decision


@contextmanager
def planned(
    arguments: argparse.Namespace, configuration: Configuration, options: ReclaimOptions
) -> Iterator[tuple[Node, Request | None, Pass]]:
    """The node, the request and the record of a pass that removes nothing. With a signal this is a
    pass requested for it; without one all functions run to their end, so that every object gets a
    verdict: a real pass stops earlier.

    Exits with 4 if no filesystem can be read, with 3 if the runtime does not answer.
    """
    with located(arguments, configuration) as (node, observations, decision):
        if options.signal is not None:
            request = request_of(options, observations, decision, config=node.world.manager.config)
        else:
            request = Request(node.world.functions_here(), extent=Extent.ALL, every_function=True)
        with Progress("listing containers and images, and planning"):
            record = node.relieve(observations, decision, Trigger.REQUEST, request=request)
        if record.errors:
            exit_with(EXIT_RUNTIME, "; ".join(record.errors))
        yield node, request, record


def is_enough(record: Pass, signal: Signal | None, request: Request | None) -> bool | None:
    """Whether the planned removals clear the signal; None without a signal or a mark, and if that
    is not known: runtimes do not report inodes, and a program may free more than it promised."""
    if signal is None or request is None or request.extent is Extent.ALL:
        return None
    if any(function.relieved for function in record.functions):
        return True
    promised = all(
        outcome.verdict.size_bytes is not None
        for outcome in record.removals
        if outcome.verdict.kind in OWN
    )
    return None if signal.counts_inodes or not promised else False


def enough_sentence(signal: Signal, enough: bool | None) -> str:
    if enough is None:
        return f"it is not known whether that is enough for {signal}"
    return f"that is {'' if enough else 'not '}enough for {signal}"


def plan_lines(
    record: Pass, width: int | None = None, *, everything: bool = False, lead_seconds: float = 0.0
) -> list[str]:
    """The planned removals in order, the kept objects, and the totals.

    `lead_seconds`: how long before the kubelet's mark a pass begins; 0: not before ours.
    On a terminal (`width` is known), many kept objects are only counted, by reason,
    unless `everything` is true.
    """
    in_groups = width is not None and not everything and len(record.kept) > MOST_KEPT_LISTED
    images = f"images of {format_bytes(record.nominal_bytes)} {BY_RUNTIME}"
    freed = [
        each.verdict.frees_bytes for each in record.removals if each.verdict.frees_bytes is not None
    ]
    images += f", which free {format_bytes(sum(freed))}" * bool(freed)
    kept = sum(outcome.verdict.size_bytes or 0 for outcome in record.kept)
    stay = (
        f"kept: {counted(len(record.kept), 'object')}, images of {format_bytes(kept)} {BY_RUNTIME}"
    )
    return [
        *outcomes_table(record.removals if in_groups else record.removals + record.kept, width),
        "",
        f"may go: {counted(len(record.removals), 'object')}, {images}, in this order",
        stay + IN_GROUPS * in_groups,
        *(counts_table(record.kept, width) if in_groups else []),
        *filter(None, [lead_sentence(lead_seconds)]),
        "a pass stops as soon as the thresholds are clear",
        *(
            line
            for attribution in record.attributions
            for line in ("", *attribution_lines(attribution, width))
        ),
    ]


def pods_line(pods: Pods) -> str:
    """The source of the pods' states, and what a guard is with it."""
    if pods.told_by == "kubelet":
        return (
            "pods: as the kubelet itself knows them; guard: a rule of ours that is stricter than"
            " the kubelet's"
        )
    why = f" ({pods.problem})" if pods.problem else ""
    return (
        f"pods: from the kubelet's directories{why}; guard: a rule of ours in place of what only"
        " the kubelet knows"
    )
