"""The output on stderr: messages, and progress on a terminal.

Progress is one line that is rewritten, and erased when the work is done. Nothing is shown in the
first second, or if stderr is not a terminal. A hook whose output nobody reads must still relieve
the node, so neither progress nor `mention` waits for a reader.

Imports only a small part of the standard library, as `ask_daemon` needs it before it knows
whether a daemon answers.
"""

import os
import select
import sys
import threading
import time
from collections.abc import Callable

from eviction.cli.streams import write_err
from eviction.printable import escaped

STDERR = 2
AFTER_SECONDS = 1.0
EVERY_SECONDS = 0.2
USUAL_COLUMNS = 80
ERASE = "\r\x1b[K"


def is_writable(descriptor: int) -> bool:
    """Whether a message (at most 4 KiB, PIPE_BUF) can be written now without
    waiting for a reader.
    """
    waiting = select.poll()
    waiting.register(descriptor, select.POLLOUT)
    return bool(waiting.poll(0))


def mention(sentence: str) -> None:
    """Prints a sentence on stderr, unless it is empty or nobody reads there: what
    comes next must not wait.
    """
    if sentence and is_writable(STDERR):
        print_message(f"reclaimd: {sentence}")


def print_message(sentence: str) -> None:
    advice = "; run it as root" if "Permission denied" in sentence and os.geteuid() != 0 else ""
    write_err(f"{escaped(sentence)}{advice}\n")


class Progress:
    """Shows what is being done while a `with` block runs. Nothing else may write to stderr
    meanwhile.

    `detail`: returns details; called for each update. The line is cut at the width of the terminal,
    as a wrapped one could not be erased.
    """

    def __init__(self, doing: str, detail: Callable[[], str] = str):
        self.live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(doing, detail), daemon=True)
        self._shown = False

    def __enter__(self) -> None:
        if self.live:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._shown:
            self.rewrite("")

    def rewrite(self, text: str) -> None:
        """Shows another line, if it can be written."""
        try:
            descriptor = sys.stderr.fileno()
            if self.live and is_writable(descriptor):  # a terminal may be stopped
                width = os.get_terminal_size(descriptor).columns or USUAL_COLUMNS
                sys.stderr.write(ERASE + escaped(text)[: width - 1])
                sys.stderr.flush()
                self._shown = True
        except (OSError, ValueError):  # the terminal was closed; the work goes on
            self.live = False

    def _run(self, doing: str, detail: Callable[[], str]) -> None:
        began = time.monotonic()
        wait = AFTER_SECONDS
        while not self._done.wait(wait):
            wait = EVERY_SECONDS
            shown = ": ".join(filter(None, (doing, detail())))
            self.rewrite(f"{time.monotonic() - began:5.1f} s  {shown}")
