"""`reclaimd pause`: nothing is removed for a while."""

from __future__ import annotations

import argparse

from eviction.cli import EXIT_OK, EXIT_RUNTIME, EXIT_USAGE
from eviction.cli.options import add_configuration, answer_lines, configuration_of, exit_with, mention
from eviction.configuration.effective import Configuration
from eviction.control.socket import ControlUnavailable, ask
from eviction.node.hold_off import LONGEST_PAUSE_SECONDS
from signals.quantity import QuantityError, parse_duration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--for", dest="duration", default="1h", metavar="D", help="how long, at most 24h; default 1h")
    add_configuration(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 2 for a time that is not allowed; 3 when no daemon answers."""
    try:
        seconds = parse_duration(arguments.duration)
    except QuantityError as error:
        exit_with(EXIT_USAGE, f"--for: {error}")
    if not 0 < seconds <= LONGEST_PAUSE_SECONDS:
        exit_with(EXIT_USAGE, f"--for: must be above 0s and at most 24h, but it was {arguments.duration!r}")
    try:
        return tell(configuration_of(arguments), seconds)
    except ControlUnavailable as error:
        exit_with(EXIT_RUNTIME, str(error))


def tell(configuration: Configuration, seconds: float) -> int:
    """Has the daemon pause for so long; 0 ends it. Prints what it says. Raises ControlUnavailable when none answers."""
    answer = ask(configuration.control_socket, "pause", seconds=seconds)
    answer_lines([answer["sentence"]])
    if answer.get("warning"):  # an older daemon does not say it
        mention(answer["warning"])
    return EXIT_OK
