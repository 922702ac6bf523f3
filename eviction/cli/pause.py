"""`reclaimd pause` stops all removals for a while; `reclaimd resume` ends that, as a pause of 0 seconds."""

from __future__ import annotations

import argparse

from eviction.cli.options import add_configuration, answer_lines, configuration_of, exit_on, exit_with, mention
from eviction.configuration.effective import Configuration
from eviction.control.socket import ControlUnavailable, ask
from eviction.exit_codes import EXIT_OK, EXIT_RUNTIME, EXIT_USAGE
from eviction.node.hold_off import LONGEST_PAUSE_SECONDS, Pause
from signals.clock import SystemClock
from signals.quantity import QuantityError, parse_duration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    if parser.prog.endswith("pause"):
        parser.add_argument(
            "--for", dest="duration", default="1h", metavar="D", help="how long, at most 24h; default 1h"
        )
    add_configuration(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0, also without a pause to end; 2 for a duration that is not allowed; 3 if no daemon answers, but `resume`
    still removes a pause that is stored for the daemon's next start."""
    seconds = _seconds(arguments.duration) if "duration" in arguments else 0.0
    configuration = configuration_of(arguments)
    try:
        answer = ask(configuration.control_socket, "pause", seconds=seconds)
    except ControlUnavailable as error:
        exit_with(EXIT_RUNTIME, str(error) if seconds else f"{error}{_forgotten(configuration)}")
    answer_lines([answer["sentence"]])
    mention(answer.get("warning", ""))  # an older daemon does not report it
    return EXIT_OK


def _seconds(duration: str) -> float:
    """Exits with 2 for a duration that is not allowed."""
    with exit_on(EXIT_USAGE, QuantityError, "--for: "):
        seconds = parse_duration(duration)
    if not 0 < seconds <= LONGEST_PAUSE_SECONDS:
        exit_with(EXIT_USAGE, f"--for: must be above 0s and at most 24h, but it was {duration!r}")
    return seconds


def _forgotten(configuration: Configuration) -> str:
    """Removes a pause that is stored for the daemon's next start. Returns what was done, as a clause to append; empty
    if there was none."""
    from eviction.control.pause import PauseFile  # only where no daemon answers

    clock = SystemClock()
    pause, file = Pause(clock.monotonic, clock.wall), PauseFile(configuration.state_file, clock)
    problem, until = file.restore(pause), pause.until()
    if not problem and not until:
        return ""
    pause.end()
    failed = file.keep(pause)
    if failed:
        return f"; {problem or failed}"
    return f"; {file.path} is removed" + (f", which kept a pause until {until}" if until else "")
