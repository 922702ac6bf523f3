"""`reclaimd check`: one look at signals, thresholds, headroom and layout. Touches nothing."""

from __future__ import annotations

import argparse

from eviction.cli import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_READING
from eviction.cli.options import add_configuration, add_output, answer_json, answer_lines, columns, configuration_of
from eviction.cli.progress import Progress
from eviction.explain import amount, signals_table
from eviction.node import Node
from eviction.record import observations_json, threshold_json
from eviction.thresholds import thresholds_met, unreadable, usable
from eviction.types import Threshold
from signals.types import SignalObservations

LONGEST_LINE = 80  # bytes; node-problem-detector cuts the message of a plugin there


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)
    add_output(parser)
    parser.add_argument(
        "--npd", action="store_true", help="one line of at most 80 characters, for node-problem-detector"
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 clear, 1 a threshold is met, 4 a signal with a threshold could not be read."""
    node = Node(configuration_of(arguments), read_deadline_seconds=2.0)
    try:
        with Progress("asking the runtime where the images are, and looking at the filesystems"):
            node.locate()
            look = node.summary.observe()
    finally:
        node.close()
    thresholds = node.thresholds(look.layout)
    met = thresholds_met(thresholds, usable(look.signals), enforce_min_reclaim=False)
    unknown = unreadable(look, thresholds)
    if arguments.npd:
        answer_lines([one_line(look, met, unknown)])
    elif arguments.output == "json":
        answer_json(
            {
                "endpoint": node.endpoint.runtime,
                "layout": None if look.layout is None else str(look.layout),
                "observations": observations_json(look),
                "thresholds": [threshold_json(threshold, look) for threshold in thresholds],
                "thresholds_met": [threshold_json(threshold, look) for threshold in met],
                "unavailable": [{"filesystem": str(u.role), "reason": u.reason} for u in look.unavailable],
            }
        )
    else:
        answer_lines(
            [
                *signals_table(look, thresholds, columns()),
                f"runtime: {node.endpoint.runtime}{' (found)' * node.endpoint.found}",
            ]
        )
    if met:
        return EXIT_NOT_RELIEVED
    return EXIT_READING if unknown else EXIT_OK


def one_line(look: SignalObservations, met: tuple[Threshold, ...], unknown: tuple[Threshold, ...]) -> str:
    """The answer in at most 80 characters."""
    if met:
        low = ", ".join(f"{t.signal} {amount(t.signal, look.signals[t.signal].available)}" for t in met)
        text = f"pressure: {low}"
    elif unknown:
        text = f"unknown: {', '.join(str(threshold.signal) for threshold in unknown)}"
    else:
        text = "no disk pressure"
    return text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 3] + "..."
