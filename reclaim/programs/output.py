"""What a program prints, as lines for the log: bounded, whatever it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

KEPT_BYTES = 64 * 1024  # of one run; what comes after them is read, counted and dropped
MOST_LINES = 100  # of one run
LONGEST_LINE = 1024  # bytes; a longer one is cut
LAST_LINE_CHARACTERS = 200


class Output(Protocol):
    """Where the bytes go that a program prints to one of its descriptors."""

    def write(self, printed: bytes) -> bool:
        """Takes some. False: it is too much, and the program has to be ended."""

    def end(self) -> None:
        """Nothing more comes."""

    @property
    def dropping(self) -> bool:
        """Whether what comes from now on is dropped, so that nobody is in a hurry to read it."""


class Share:
    """How much of a run is kept and logged yet, for all its outputs together."""

    def __init__(self) -> None:
        self.bytes = KEPT_BYTES
        self.lines = MOST_LINES
        self.dropped_bytes = 0


class LoggedLines:
    """One output of a run, of which each line is handed to `log`; `share` is that of the run.

    `last_line`: the last line that was printed, cut to 200 characters.
    """

    def __init__(self, log: Callable[[str], None], share: Share):
        self._log = log
        self._share = share
        self._begun = b""
        self._tail = b""

    def write(self, printed: bytes) -> bool:
        """Takes all there is."""
        self._tail = (self._tail + printed[-LONGEST_LINE:])[-LONGEST_LINE:]
        kept = printed[: self._share.bytes]
        self._share.bytes -= len(kept)
        self._share.dropped_bytes += len(printed) - len(kept)
        *lines, self._begun = (self._begun + kept).split(b"\n")
        for line in lines:
            self._log_line(line)
        if len(self._begun) > LONGEST_LINE:
            self._begun = self._begun[: LONGEST_LINE + 1]
        return True

    def end(self) -> None:
        """Logs a line that has no end."""
        if self._begun:
            self._log_line(self._begun)
        self._begun = b""

    @property
    def dropping(self) -> bool:
        """Whether nothing more is kept."""
        return not self._share.bytes

    @property
    def last_line(self) -> str:
        """Empty if nothing was printed."""
        lines = [line for line in self._tail.splitlines() if line.strip()]
        return text_of(lines[-1])[:LAST_LINE_CHARACTERS] if lines else ""

    def _log_line(self, line: bytes) -> None:
        if not line.strip():
            return
        if not self._share.lines:
            self._share.dropped_bytes += len(line) + 1
            return
        self._share.lines -= 1
        cut = " …" if len(line) > LONGEST_LINE else ""
        self._log(text_of(line[:LONGEST_LINE]) + cut)


def text_of(line: bytes) -> str:
    """A line as text; what is not UTF-8 is shown as escapes. Control characters stay: the log escapes them."""
    return line.decode(errors="backslashreplace").rstrip("\r")
