"""Progress on a terminal: one line on stderr that is rewritten, and erased when the work is done.

Nothing is shown in the first second, and nothing at all where stderr is no terminal.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from eviction.cli.readers import takes_words
from eviction.reporting.log import escaped

AFTER_SECONDS = 1.0
EVERY_SECONDS = 0.2
USUAL_COLUMNS = 80
ERASE = "\r\x1b[K"


class StatusLine:
    """The line. It is cut at the width of the terminal, because a wrapped line could not be erased."""

    def __init__(self, stream: TextIO | None = None):
        self._stream = stream or sys.stderr
        self.live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    def rewrite(self, text: str) -> None:
        """Replaces the line by the text."""
        if self.live:
            self._write(ERASE + escaped(text)[: self._columns() - 1])
            self._shown = True

    def erase(self) -> None:
        """Erases the line."""
        if self._shown:
            self._write(ERASE)
            self._shown = False

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or USUAL_COLUMNS
        except OSError:
            return USUAL_COLUMNS

    def _write(self, text: str) -> None:
        try:
            if not takes_words(self._stream.fileno()):  # a terminal that was stopped
                return
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal was closed; the work goes on
            self.live = False


class Progress:
    """Shows what is being done while a `with` block runs. Nothing else may write to stderr meanwhile.

    `detail`: called each time for further words.
    """

    def __init__(self, doing: str, detail: Callable[[], str] = str, line: StatusLine | None = None):
        self._doing = doing
        self._detail = detail
        self._line = line or StatusLine()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def step(self, doing: str) -> None:
        """Replaces what is being done."""
        self._doing = doing

    def __enter__(self) -> Self:
        if self._line.live:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._line.erase()

    def _run(self) -> None:
        began = time.monotonic()
        wait = AFTER_SECONDS
        while not self._done.wait(wait):
            wait = EVERY_SECONDS
            detail = self._detail()
            shown = f"{self._doing}: {detail}" if detail else self._doing
            self._line.rewrite(f"{time.monotonic() - began:5.1f} s  {shown}")
