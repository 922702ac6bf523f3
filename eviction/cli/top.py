"""`reclaimd top`: the status of the running daemon, live.

It is drawn again and again: on the alternate screen of a terminal, or as text with NO_COLOR or if
stdout is not a terminal. It ends with q or Ctrl-C, or after `--count` screens.

With the extra `ui`, on a terminal of 80 columns and 24 rows, `eviction.cli.top_screen` draws it.
Otherwise conditions, what keeps the daemon from removing, and the signals come first: what is too
high for the terminal is left out at the end.
"""

import os
import select
import shutil
import sys
import termios
import time
import tty
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count, islice

from eviction.cli.client import NotAskedError
from eviction.cli.local_files import ASKED, LocalFiles
from eviction.cli.options import number
from eviction.cli.output import columns, exit_on, in_colour, wrap_lines
from eviction.cli.progress import Progress
from eviction.cli.status import lines
from eviction.cli.streams import write_out
from eviction.exit_codes import EXIT_OK, EXIT_RUNTIME
from eviction.printable import escaped

HOME_AND_CLEAR = "\x1b[H\x1b[J"
# without the cursor, and with it
SECOND_SCREEN = "\x1b[?1049h\x1b[?25l"
FIRST_SCREEN = "\x1b[?25h\x1b[?1049l"


OPTIONS = {
    "--interval SECONDS": (
        "seconds per screen (1)",
        number("be a number of seconds between 0.05 and 3600", read=float, least=0.05, most=3600),
        1,
    ),
    "--count N": (
        "end after N screens (0: never)",
        number("be a whole number of at least 0", least=0),
    ),
}


def run(arguments: Namespace) -> int:
    """Exit 0; 2 usage; 3 no daemon answers at the start. Bars and keys need Rich, and 24 lines of
    80 columns: pip install 'reclaimd[ui]'.

    Example: reclaimd top --interval 2
    """
    daemon = LocalFiles(arguments, ASKED).client
    with exit_on(EXIT_RUNTIME, NotAskedError), Progress("asking the daemon"):
        status = daemon.ask("status")
    shown = lines(status, columns())
    live = in_colour()
    drawing = None
    if live and find_spec("rich"):
        from eviction.cli.top_screen import TopScreen

        drawing = TopScreen(daemon)
    with _terminal(live) as wait_for_keys:
        for screens in count(1):
            size = shutil.get_terminal_size()
            # an older daemon does not report its ladder
            drawn = (
                drawing if size.columns >= 80 and size.lines >= 24 and "ladder" in status else None
            )
            if drawn is None:
                text = "\n".join([*screen(shown, columns(), size.lines), ""])
            else:
                drawn.take(status, time.monotonic())
                text = drawn.drawn(*size)
            if live:
                write_out(HOME_AND_CLEAR, flush=False)
            write_out(text)
            if screens == arguments.count or "q" in (keys := wait_for_keys(arguments.interval)):
                break
            if drawn is not None:
                drawn.press(keys)
            try:
                status = daemon.ask("status")
                shown = lines(status, columns())
            except NotAskedError as error:  # it may be restarting
                status = {}
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
def _terminal(live: bool) -> Iterator[Callable[[float], str]]:
    """Yields a function that waits for some seconds and returns the keys that were pressed
    meanwhile. Restores the terminal at the end. `live`: shows its alternate screen."""
    keyboard = sys.stdin
    before = termios.tcgetattr(keyboard) if keyboard.isatty() else None

    def wait_for_keys(seconds: float) -> str:
        ready, _, _ = select.select([] if before is None else [keyboard], [], [], seconds)
        typed = os.read(keyboard.fileno(), 64).lower() if ready else b""
        # an arrow is an escape and letters, which are no keys
        return "" if typed.startswith(b"\x1b") else typed.decode("ascii", "ignore")

    if live:
        write_out(SECOND_SCREEN, flush=False)
    try:
        if before is not None:
            tty.setcbreak(keyboard)
        yield wait_for_keys
    finally:
        if before is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        if live:
            write_out(FIRST_SCREEN)
