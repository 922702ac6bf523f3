"""`reclaimd top`: the status of the running daemon, live.

The status is drawn again and again: on the alternate screen of a terminal, or as text with
NO_COLOR or if stdout is not a terminal. It ends with q or Ctrl-C, or after `--count` screens.
Conditions, what keeps the daemon from removing, and the signals come first: what is too high for
the terminal is left out at the end.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count, islice

from eviction.cli.client import NotAskedError
from eviction.cli.local_files import ASKED, LocalFiles
from eviction.cli.options import number
from eviction.cli.output import columns, exit_on, in_colour, wrap_lines
from eviction.cli.progress import Progress
from eviction.cli.status import lines
from eviction.cli.streams import write_out
from eviction.exit_codes import EXIT_OK, EXIT_RUNTIME
from eviction.wording.log import escaped

HOME_AND_CLEAR = "\x1b[H\x1b[J"
# without the cursor, and with it
SECOND_SCREEN = "\x1b[?1049h\x1b[?25l"
FIRST_SCREEN = "\x1b[?25h\x1b[?1049l"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    seconds = number(
        "be a number of seconds between 0.05 and 3600", read=float, least=0.05, most=3600
    )
    screens = number("be a whole number of at least 0", least=0)
    option = parser.add_argument
    option("--interval", metavar="SECONDS", type=seconds, default=1, help="seconds per screen (1)")
    option("--count", metavar="N", type=screens, help="end after N screens (0: never)")


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 2 usage; 3 no daemon answers, for `top` only at the start.

    Example: reclaimd status -o json, or reclaimd top --interval 2
    """
    daemon = LocalFiles(arguments, ASKED).client
    with exit_on(EXIT_RUNTIME, NotAskedError), Progress("asking the daemon"):
        status = daemon.ask("status")
    shown = lines(status, columns())
    live = in_colour()
    with _terminal(live) as wait_for_quit:
        for screens in count(1):
            fitting = screen(shown, columns(), shutil.get_terminal_size().lines)
            if live:
                write_out(HOME_AND_CLEAR, flush=False)
            write_out("\n".join([*fitting, ""]))
            if screens == arguments.count or wait_for_quit(arguments.interval):
                break
            try:
                shown = lines(daemon.ask("status"), columns())
            except NotAskedError as error:  # it may be restarting
                shown = [str(error)]
    return EXIT_OK


def screen(shown: Iterable[str], width: int | None, height: int) -> list[str]:
    """The lines as they fit a terminal; without a width, in full.

    The last row is for the cursor.
    """
    wrapped = wrap_lines(map(escaped, shown), width)
    return (
        list(wrapped) if width is None else [line[:width] for line in islice(wrapped, height - 1)]
    )


@contextmanager
def _terminal(live: bool) -> Iterator[Callable[[float], bool]]:
    """Yields a function that waits for some seconds and returns whether q was pressed. Restores the
    terminal at the end. `live`: shows its alternate screen."""
    before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None

    def wait_for_quit(seconds: float) -> bool:
        ready, _, _ = select.select([] if before is None else [sys.stdin], [], [], seconds)
        return bool(ready) and os.read(sys.stdin.fileno(), 64).lower().startswith(b"q")

    if live:
        write_out(SECOND_SCREEN, flush=False)
    try:
        if before is not None:
            tty.setcbreak(sys.stdin)
        yield wait_for_quit
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        if live:
            write_out(FIRST_SCREEN)
