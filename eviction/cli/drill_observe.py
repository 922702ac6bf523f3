"""`reclaimd drill --observe`: measures a real node while another component relieves it. Changes nothing."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from eviction.cli import EXIT_OK, EXIT_READING, EXIT_RUNTIME, EXIT_USAGE
from eviction.cli.drill_output import ProgressDisplay, print_line, write_report
from eviction.cli.options import answer_json, answer_lines, columns, configuration_of, exit_with, print_words
from eviction.cli.termination import block_termination, on_signals
from eviction.configuration.effective import Configuration
from eviction.drill.judgement.judge import DrillResult, Response
from eviction.drill.measurement.real_node import Limits, NodeObservation, without_margin
from eviction.drill.report.document import result_json
from eviction.drill.report.lines import observation_lines
from eviction.node.node import Node
from eviction.reporting.log import escaped
from eviction.reporting.tables import signals_table
from reclaim.types import RuntimeUnavailable
from signals.quantity import QuantityError, format_duration, parse_duration
from signals.types import FilesystemRole, SignalObservations

OBSERVED = "node"
QUIET_SECONDS = 60.0
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")  # as of a scenario; it is part of the names of files
NAME_IN_WORDS = "at most 63 lower-case letters, digits and hyphens, with no hyphen first"


def observe(arguments: argparse.Namespace) -> int:
    """Measures what the component that relieves the node does. Exit 0; 3: runtime unreachable; 4: reading
    unavailable."""
    limits = limits_of(arguments, QUIET_SECONDS)
    name = OBSERVED if arguments.name is None else arguments.name
    if not NAME.fullmatch(name):
        exit_with(EXIT_USAGE, f"--name: {escaped(name)!r} is not a name: {NAME_IN_WORDS}")
    configuration = configuration_of(arguments)
    if not arguments.with_margin:
        configuration = without_margin(configuration)
    show = print_words if arguments.output == "json" else print_line
    display = ProgressDisplay(FilesystemRole.NODEFS, show, inodes=False)
    block_termination()
    with observation_of(configuration, display.progress) as observation:
        on_signals(observation.stopping.set)
        longest = "" if limits.longest_seconds is None else f"after {format_duration(limits.longest_seconds)}, "
        show(f"observing {observation.node.endpoint.runtime}; nothing is changed")
        for line in marks_table(observation):
            show(f"  {line}")
        show(f"ends {longest}when relieved and quiet for {format_duration(limits.quiet_seconds)}, or with Ctrl-C")
        last_change, ended = observation.watch(limits)
        display.end()
        measured = observation.measurements(last_change, ended)
        result = DrillResult(
            name=name,
            why=f"What happens under pressure on the node of {observation.node.endpoint.runtime}.",
            layout=None if measured.observations is None else measured.observations.layout,
            filesystem="the filesystems of a real node",
            simulated=False,
            measurements=measured,
            checks=(),
            response=Response.OBSERVED,
            lists_apart_seconds=observation.inventory.longest_gap_seconds,
        )
    document = result_json(result)
    if arguments.output == "json":
        answer_json(document)
    else:
        answer_lines(["", *observation_lines(measured, columns())])
    write_report(document, arguments.report, show)
    return EXIT_OK


def limits_of(arguments: argparse.Namespace, quiet_seconds: float) -> Limits:
    """When an observation ends, from the options; `quiet_seconds` is the default of --quiet. Exits with 2 if one is
    wrong."""
    seconds: dict[str, float | None] = {}
    for option, text in (("--quiet", arguments.quiet), ("--for", arguments.longest)):
        try:
            seconds[option] = None if text is None else parse_duration(text)
        except QuantityError as error:
            exit_with(EXIT_USAGE, f"{option}: {error}")
        if (seconds[option] or 0.0) < 0:
            exit_with(EXIT_USAGE, f"{option}: must not be negative, but it was {text!r}")
    quiet = seconds["--quiet"]
    return Limits(quiet_seconds if quiet is None else quiet, seconds["--for"])


@contextmanager
def observation_of(
    configuration: Configuration, progress: Callable[[float, SignalObservations], None]
) -> Iterator[NodeObservation]:
    """An observation of this node, whose connections are closed at the end. Exits with 3 if the runtime cannot be
    reached, with 4 if no filesystem can be read."""
    with closing(Node(configuration)) as node:
        if node.endpoint.remark:
            print_words(node.endpoint.remark)
        try:
            observation = NodeObservation(node, progress)
        except RuntimeUnavailable as error:
            exit_with(EXIT_RUNTIME, f"the container runtime cannot be reached: {error}")
        with closing(observation):
            observations = node.summary.observe()
            if observations.layout is None:
                unread = "; ".join(dict.fromkeys(each.reason for each in observations.unavailable))
                exit_with(EXIT_READING, unread or "no filesystem could be read")
            yield observation


def marks_table(observation: NodeObservation) -> list[str]:
    """A table of the signals and their marks now."""
    observations = observation.node.summary.observe()
    return signals_table(observations, observation.node.thresholds(observations.layout))
