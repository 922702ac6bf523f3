"""`reclaimd top`: the status of the running daemon, live in the terminal.

Drawn with rich where the extra `[ui]` is installed; without it, with NO_COLOR, or where stdout is no terminal, as plain
text. No other module uses rich. Ends with q or Ctrl-C, or after `--count` screens.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eviction.cli.dashboard import Panel, Piece, panels, plain
from eviction.cli.options import add_configuration, configuration_of, exit_with, whole_number
from eviction.control.socket import ControlUnavailable, ask
from eviction.exit_codes import EXIT_OK, EXIT_RUNTIME

LONGEST_PAST = 240
HOME_AND_CLEAR = "\x1b[H\x1b[J"


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
                draw((Panel("no daemon", ((Piece(str(status), "bad"),),)),))
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
def _screen() -> Iterator[Any]:
    """Yields a function that draws panels: with rich where it is installed and wanted, else as text."""
    live = sys.stdout.isatty()
    if live and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
        try:
            from rich.console import Console, Group
            from rich.live import Live
            from rich.rule import Rule
            from rich.text import Text
        except ImportError:
            pass
        else:
            styles = {"plain": "", "faint": "dim", "good": "green", "warning": "yellow", "bad": "bold red"}
            with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as display:

                def draw(shown: tuple[Panel, ...]) -> None:
                    parts: list[Rule | Text] = []
                    for panel in shown:
                        parts.append(Rule(panel.title, align="left", style="dim"))
                        parts += [
                            Text.assemble(
                                *((p.text, styles.get(p.style, "")) for p in line), no_wrap=True, overflow="crop"
                            )
                            for line in panel.lines
                        ]
                    display.update(Group(*parts), refresh=True)

                yield draw
            return

    def write(shown: tuple[Panel, ...]) -> None:
        width = shutil.get_terminal_size().columns
        sys.stdout.write((HOME_AND_CLEAR if live else "") + "\n".join(plain(shown, width)) + "\n")
        sys.stdout.flush()

    yield write


@contextmanager
def _keys() -> Iterator[Any]:
    """Yields a function that waits some seconds and returns true if q was pressed. Restores the terminal at the end."""
    if not sys.stdin.isatty():

        def wait(seconds: float) -> bool:
            time.sleep(seconds)
            return False

        yield wait
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)

    def wait_for_key(seconds: float) -> bool:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        return bool(ready) and os.read(sys.stdin.fileno(), 64).lower().startswith(b"q")

    try:
        yield wait_for_key
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
