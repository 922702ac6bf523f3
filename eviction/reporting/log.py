"""The log: one event a line, a sentence first, then fields; as text or as JSON.

Names come from the runtime and may hold any character. Control characters are escaped in both forms, so that an event
is always one line and a name cannot send commands to a terminal.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, TextIO

from eviction.reporting.log_writer import LogWriter
from eviction.reporting.observations_json import timestamp


class Level(IntEnum):
    """Syslog priorities (journald reads them)."""

    ERROR = 3
    WARNING = 4
    INFO = 6
    DEBUG = 7


class Log:
    """Writes events to a stream. `verbosity` 0 leaves DEBUG events out. `journal`: each line begins with its priority,
    such as `<4>`, which journald removes and stores (sd-daemon(3)), and without a time, which journald adds."""

    def __init__(
        self,
        wall: Callable[[], float],
        *,
        as_json: bool = False,
        verbosity: int = 0,
        stream: TextIO | None = None,
        journal: bool = False,
    ):
        self._wall = wall
        self._as_json = as_json
        self._verbosity = verbosity
        self._stream = stream or sys.stderr
        self._journal = journal
        self._lock = threading.Lock()
        self._writer: LogWriter | None = None

    def write_on_a_thread(self, descriptor: int) -> None:
        """From now on lines go to the descriptor over a bounded queue, so that no event waits for who reads the log."""
        writer = LogWriter(descriptor, self._wall, self._dropped_line)
        started = writer.start()
        self._writer = writer
        if not started:
            self.warning("no thread can be started for the log; lines that nobody reads are dropped")

    @property
    def dropped(self) -> int:
        """How many lines were dropped since the start, because nobody read the log or it could not be written."""
        return 0 if self._writer is None else self._writer.dropped

    def finish(self) -> None:
        """Waits until the lines so far are written, at most 1 s."""
        if self._writer is not None:
            self._writer.finish()

    def _dropped_line(self, lines: int, since: float) -> str:
        were = "line was" if lines == 1 else "lines were"
        sentence = f"{lines} {were} dropped since {timestamp(since)}, as the log was not read or could not be written"
        return self._line(Level.WARNING, sentence, {})

    def event(self, level: Level, sentence: str, **fields: Any) -> None:
        """Writes one line. A log that cannot be written (closed pipe, full disk) is ignored."""
        if level is Level.DEBUG and self._verbosity < 1:
            return
        line = self._line(level, sentence, fields)
        if self._writer is not None:
            self._writer.put(line)
            return
        try:
            with self._lock:
                self._stream.write(line + "\n")
                self._stream.flush()
        except (OSError, ValueError):
            pass

    def in_text(self, level: Level, sentence: str, **fields: Any) -> None:
        """Writes one line, but not in JSON, where another line has it as a field."""
        if not self._as_json:
            self.event(level, sentence, **fields)

    def _line(self, level: Level, sentence: str, fields: Mapping[str, Any]) -> str:
        time = timestamp(self._wall())
        if self._as_json:
            line = json.dumps({"time": time, "level": level.name.lower(), "message": sentence, **fields}, default=str)
        elif self._journal:
            line = f"{escaped(sentence)}{_as_text(fields)}"
        else:
            line = f"{time} {level.name.lower():7} {escaped(sentence)}{_as_text(fields)}"
        if self._journal:
            line = f"<{level.value}>{line}"
        return line

    def info(self, sentence: str, **fields: Any) -> None:
        """For what an operator wants to know afterwards."""
        self.event(Level.INFO, sentence, **fields)

    def warning(self, sentence: str, **fields: Any) -> None:
        """For what an operator should check."""
        self.event(Level.WARNING, sentence, **fields)

    def error(self, sentence: str, **fields: Any) -> None:
        """For what kept the agent from doing its work."""
        self.event(Level.ERROR, sentence, **fields)

    def debug(self, sentence: str, **fields: Any) -> None:
        """Written only with `-v 1` or more."""
        self.event(Level.DEBUG, sentence, **fields)


def goes_to_journal(environment: Mapping[str, str], descriptor: int) -> bool:
    """True if journald reads what is written to the descriptor: `JOURNAL_STREAM` names its device and inode."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def escaped(text: str) -> str:
    """The text with each character that is not printable replaced by a Python escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def _as_text(fields: Mapping[str, Any]) -> str:
    shown = ((key, value) for key, value in fields.items() if not isinstance(value, dict | list))
    return "".join(f" {key}={_quoted(value)}" for key, value in shown)


def _quoted(value: Any) -> str:
    text = escaped(str(value))
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text or not text else text
