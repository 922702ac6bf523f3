"""`reclaimd top`: the status of the running daemon, live in the terminal.

In colour; with NO_COLOR, or where stdout is no terminal, as plain text. Ends with q or Ctrl-C, or after `--count`
screens.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import sys
import termios
import tty
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from eviction.cli.dashboard import Line, Panel, panel, panels, plain
from eviction.cli.options import add_configuration, configuration_of, exit_with, whole_number
from eviction.control.socket import ControlUnavailable, ask
from eviction.exit_codes import EXIT_OK, EXIT_RUNTIME

LONGEST_PAST = 240
HOME_AND_CLEAR = "\x1b[H\x1b[J"
SECOND_SCREEN, FIRST_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # without the cursor, and with it
PLAIN = "\x1b[0m"
STYLES = {"plain": "", "faint": "\x1b[2m", "good": "\x1b[32m", "warning": "\x1b[33m", "bad": "\x1b[1;31m"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between two screens (1)")
    parser.add_argument("--count", type=_screens, default=0, metavar="N", help="end after so many screens (0: never)")


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 3 when no daemon answers at the start."""
    path = configuration_of(arguments).control_socket
    try:
        status = ask(path, "brief")
    except ControlUnavailable as error:
        exit_with(EXIT_RUNTIME, str(error))
    past: dict[str, deque[int]] = {}
    screens = 0
    with _keys() as wait_for_quit, _screen() as draw:
        while True:
            if isinstance(status, ControlUnavailable):
                draw([panel("no daemon", [Line(str(status), "bad")], _size()[0])])
            else:
                _add_available(past, status)
                draw(panels(status, past, *_size()))
            screens += 1
            if screens == arguments.count or wait_for_quit(arguments.interval):
                return EXIT_OK
            try:
                status = ask(path, "brief")
            except ControlUnavailable as error:  # it may be restarting
                status = error


def _size() -> tuple[int, int | None]:
    """Columns and rows of the terminal; no limit of rows where stdout is none. The last row is for the cursor."""
    columns, rows = shutil.get_terminal_size()
    return columns, rows - 1 if sys.stdout.isatty() else None


def _add_available(past: dict[str, deque[int]], status: dict[str, Any]) -> None:
    for observation in status["observations"]:
        past.setdefault(observation["signal"], deque(maxlen=LONGEST_PAST)).append(observation["available"])


@contextmanager
def _screen() -> Iterator[Callable[[Sequence[Panel]], None]]:
    """Yields a function that draws panels: in colour on a terminal's second screen, else as text."""
    live = sys.stdout.isatty()
    coloured = live and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    def draw(shown: Sequence[Panel]) -> None:
        lines = plain(shown)
        if coloured:
            styles = [STYLES[line.style] for each in shown for line in each]
            lines = [f"{style}{text}{PLAIN}" for style, text in zip(styles, lines, strict=True)]
        sys.stdout.write((HOME_AND_CLEAR if live else "") + "\n".join(lines) + "\n")
        sys.stdout.flush()

    if coloured:
        sys.stdout.write(SECOND_SCREEN)
    try:
        yield draw
    finally:
        if coloured:
            sys.stdout.write(FIRST_SCREEN)
            sys.stdout.flush()


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Yields a function that waits some seconds and returns true if q was pressed. Restores the terminal at the end."""
    before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None

    def wait_for_quit(seconds: float) -> bool:
        ready, _, _ = select.select([] if before is None else [sys.stdin], [], [], seconds)
        return bool(ready) and os.read(sys.stdin.fileno(), 64).lower().startswith(b"q")

    if before is None:
        yield wait_for_quit
        return
    tty.setcbreak(sys.stdin)
    try:
        yield wait_for_quit
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"must be a number of seconds between 0.05 and 3600, but it was {text!r}")
    return seconds


def _screens(text: str) -> int:
    if (screens := whole_number(text)) < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, but it was {text!r}")
    return screens
