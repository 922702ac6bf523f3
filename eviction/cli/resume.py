"""`reclaimd resume`: ends a pause."""

from __future__ import annotations

import argparse

from eviction.cli import EXIT_RUNTIME
from eviction.cli.options import add_configuration, configuration_of, exit_with
from eviction.cli.pause import tell
from eviction.configuration.effective import Configuration
from eviction.control.pause import PauseFile
from eviction.control.socket import ControlUnavailable
from eviction.node.hold_off import Pause
from signals.clock import SystemClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0, also without a pause; 3 when no daemon answers, where a pause that is kept for its next start is ended
    too."""
    configuration = configuration_of(arguments)
    try:
        return tell(configuration, 0)
    except ControlUnavailable as error:
        exit_with(EXIT_RUNTIME, "; ".join(filter(None, (str(error), forgotten(configuration)))))


def forgotten(configuration: Configuration) -> str:
    """Removes a pause that is kept for the next start of the daemon. What was done, in words; empty without one."""
    clock = SystemClock()
    pause, file = Pause(clock.monotonic, clock.wall), PauseFile(configuration.state_file, clock)
    problem, until = file.restore(pause), pause.until()
    if not problem and not until:
        return ""
    pause.end()
    failed = file.keep(pause)
    if failed:
        return problem or failed
    return f"{file.path} is removed" + (f", which kept a pause until {until}" if until else "")
