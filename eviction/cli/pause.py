"""`reclaimd pause` stops all removals for a while; `reclaimd resume` ends
that, as a pause of 0 seconds.
"""

from __future__ import annotations

import argparse

from eviction.cli.options import ASKED, Places, answer_lines, exit_with, mention, places_of, reading
from eviction.configuration.text_forms import read_duration, within
from eviction.exit_codes import EXIT_OK, EXIT_RUNTIME
from eviction.surface.control_socket import ControlUnavailable, ask
from signals.clock import SystemClock


def add_arguments(parser: argparse.ArgumentParser) -> None:
    if parser.prog.endswith("pause"):
        allowed = reading(within(read_duration, "1ms", "24h"))
        parser.add_argument(
            "--for",
            dest="seconds",
            type=allowed,
            default="1h",
            metavar="D",
            help="at most 24h (1h)",
        )


def run(arguments: argparse.Namespace) -> int:
    """Exit 0, also without a pause to end; 2 usage; 3 no daemon answers, but `resume` still removes
    a pause that is stored for the daemon's next start, if the configuration says where.

    Example: reclaimd pause --for 30m, and later reclaimd resume
    """
    seconds = vars(arguments).get("seconds", 0.0)
    places = places_of(arguments, ASKED)
    try:
        answer = ask(places.control_socket, "pause", seconds=seconds)
    except ControlUnavailable as error:
        exit_with(EXIT_RUNTIME, str(error) if seconds else f"{error}{_forgotten(places)}")
    answer_lines([answer["sentence"]])
    mention(answer.get("warning", ""))  # an older daemon does not report it
    return EXIT_OK


def _forgotten(places: Places) -> str:
    """Removes a pause that is stored for the daemon's next start. Returns what was done, as a
    clause to append; empty if there was none."""
    if places.problem:
        return "; a pause that is stored for its next start stays, as it is not known where"
    from eviction.surface.pause import PauseFile  # only where no daemon answers

    file = PauseFile(places.state_file, SystemClock())
    left_seconds, _ = file.saved()
    if not left_seconds:
        return ""
    failed = file.keep(lambda: 0.0)
    return f"; {failed or f'{file.path} is removed, so its next start is without a pause'}"
