"""`reclaimd drill` on a node that is there: observed while somebody else responds, and read only."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from eviction.cli import EXIT_OK, EXIT_READING, EXIT_RUNTIME, EXIT_USAGE
from eviction.cli.drill_screen import Screen, tell, write_report
from eviction.cli.options import answer_json, answer_lines, configuration_of, exit_with, print_words
from eviction.cli.termination import block_termination, on_signals
from eviction.configuration.effective import Configuration
from eviction.drill.judgement.result import DrillResult, Response
from eviction.drill.measurement.real_node import Limits, Observation, without_what_we_add
from eviction.drill.report.to_json import observation_lines, result_json
from eviction.node.node import Node
from eviction.reporting.tables import signals_table
from reclaim.types import RuntimeUnavailable
from signals.quantity import QuantityError, format_duration, parse_duration
from signals.types import FilesystemRole, SignalObservations

OBSERVED = "node"
QUIET_SECONDS = 60.0


def observe(arguments: argparse.Namespace) -> int:
    """Measures whoever responds. Exit 0; 3 runtime unreachable; 4 reading unavailable."""
    limits = limits_of(arguments, QUIET_SECONDS)
    configuration = configuration_of(arguments)
    if not arguments.with_margin:
        configuration = without_what_we_add(configuration)
    story = print_words if arguments.output == "json" else tell
    screen = Screen(FilesystemRole.NODEFS, story, inodes=False)
    block_termination()
    observation = observation_of(configuration, screen.progress)
    on_signals(observation.stopping.set)
    longest = "" if limits.longest_seconds is None else f"after {format_duration(limits.longest_seconds)}, "
    story(f"observing {observation.node.endpoint.runtime}; nothing is touched")
    for line in marks_table(observation):
        story(f"  {line}")
    story(f"ends {longest}when relieved and quiet for {format_duration(limits.quiet_seconds)}, or with Ctrl-C")
    quiet_since, ended = observation.watch(limits)
    screen.end()
    seen = observation.seen(quiet_since, ended)
    result = DrillResult(
        name=OBSERVED,
        why=f"What whoever responds on {observation.node.endpoint.runtime} does about pressure.",
        layout=None
        if observation.observer.last_observations is None
        else observation.observer.last_observations.layout,
        filesystem="the filesystems of a node that is there",
        simulated=False,
        seen=seen,
        checks=(),
        response=Response.OBSERVED,
        lists_apart_seconds=observation.lists.apart_seconds,
    )
    observation.close()
    observation.node.close()
    document = result_json(result)
    if arguments.output == "json":
        answer_json(document)
    else:
        answer_lines(["", *observation_lines(seen)])
    write_report(document, arguments.report, story)
    return EXIT_OK


def limits_of(arguments: argparse.Namespace, quiet_seconds: float) -> Limits:
    """When an observation ends, from the options; `quiet_seconds` without one. Leaves with exit 2."""
    seconds: dict[str, float | None] = {}
    for option, text in (("--quiet", arguments.quiet), ("--for", arguments.longest)):
        try:
            seconds[option] = None if text is None else parse_duration(text)
        except QuantityError as error:
            exit_with(EXIT_USAGE, f"{option}: {error}")
        if (seconds[option] or 0.0) < 0:
            exit_with(EXIT_USAGE, f"{option}: must not be negative, but it was {text!r}")
    given = seconds["--quiet"]
    return Limits(quiet_seconds if given is None else given, seconds["--for"])


def observation_of(configuration: Configuration, progress: Callable[[float, SignalObservations], None]) -> Observation:
    """An observation of this node. Leaves with exit 3 or 4 where it cannot be asked or read."""
    node = Node(configuration)
    if node.endpoint.found:
        print_words(f"no endpoint configured; using {node.endpoint.runtime}")
    try:
        observation = Observation(node, progress)
    except RuntimeUnavailable as error:
        exit_with(EXIT_RUNTIME, f"the container runtime cannot be reached: {error}")
    observations = node.summary.observe()
    if observations.layout is None:
        exit_with(
            EXIT_READING, "; ".join(each.reason for each in observations.unavailable) or "no filesystem could be read"
        )
    return observation


def marks_table(observation: Observation) -> list[str]:
    """Signals and marks as they are now."""
    observations = observation.node.summary.observe()
    return signals_table(observations, observation.node.thresholds(observations.layout))
