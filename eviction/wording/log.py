"""The log: one event per line, a sentence followed by fields, as text or as JSON.

Names come from the runtime and may contain any character. Control characters are escaped in both
forms, so an event is always one line, and a name cannot send commands to a terminal.

The daemon writes its log on a separate thread, from a bounded queue, so a log that nobody reads
delays nothing. A line that does not fit into the queue or cannot be written (the reader is gone,
the disk is full) is dropped and counted. As soon as the queued lines are written, one says how many
were dropped and since when. Lines stay whole and in order.

`logging` cannot do this: a QueueListener ends by a join without a time limit, and at exit every
handler is flushed under the lock that its stuck write holds.
"""

import json
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum
from functools import partial, partialmethod
from queue import SimpleQueue
from typing import Any, TextIO

from eviction.printable import escaped
from eviction.records.json_shapes import timestamp
from eviction.types import Fields
from reclaim.workers import Workers
from signals.clock import Clock

QUEUE_BYTES = 4 << 20
END_SECONDS = 1.0
REPEAT_SECONDS = 60.0
FOR_PROGRAMS = frozenset({"result", "status", "why", "record", "attribution"})


class Level(IntEnum):
    """Syslog priorities (journald reads them)."""

    ERROR = 3
    WARNING = 4
    INFO = 6
    DEBUG = 7


@dataclass(eq=False)
class Log:
    """Writes events to a stream, or on a thread of its own. All methods may be called from any
    thread; on a thread of its own, only `finish` waits."""

    wall: Callable[[], float]
    _: KW_ONLY
    as_json: bool = False
    verbosity: int = 0
    """0 leaves DEBUG events out."""
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    journal: bool = False
    """Each line begins with its priority, such as `<4>`, which journald strips and stores
    (sd-daemon(3)), and has no time, which journald adds."""

    dropped: int = field(init=False, default=0)
    """How many lines were dropped since startup."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._on_a_thread = False
        # of QUEUE_BYTES at most; None ends the thread
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._bytes = 0  # of the queued lines that are not written yet
        self._told = 0  # of the dropped lines, those that a line has mentioned
        self._since = 0.0  # when the first of the others was dropped
        self._torn = False  # the last line was only partly written
        self._ended = threading.Event()

    def write_on_a_thread(self, descriptor: int) -> None:
        """From now on, lines are queued and written to the descriptor on a thread; no event waits
        for the reader. Raises NoThread."""
        Workers("the log", 1).run(partial(self._write_lines, descriptor), self._ended.set)
        self._on_a_thread = True

    def finish(self) -> None:
        """Waits until the queued lines are written, at most 1 s, and ends the thread."""
        if self._on_a_thread:
            self._queue.put(None)
            self._ended.wait(END_SECONDS)

    def event(self, level: Level, sentence: str, **fields: Any) -> None:
        """Writes one line. A stream that cannot be written (closed pipe, full disk) is ignored."""
        if level is Level.DEBUG and self.verbosity < 1:
            return
        text = self._line(level, sentence, fields)
        if not self._on_a_thread:
            with suppress(OSError, ValueError), self._lock:
                self.stream.write(text)
                self.stream.flush()
            return
        line = text.encode("utf-8", "backslashreplace")
        with self._lock:
            if self._bytes + len(line) > QUEUE_BYTES:
                self._drop()
            else:
                self._bytes += len(line)
                self._queue.put(line)

    def in_text(self, sentence: str, **fields: Any) -> None:
        """As `info`, but not in JSON, where a field of another line has the same content."""
        if not self.as_json:
            self.info(sentence, **fields)

    def _line(self, level: Level, sentence: str, fields: Fields) -> str:
        time = timestamp(self.wall())
        word = level.name.lower()
        if self.as_json:
            line = json.dumps(
                {"time": time, "level": word, "message": sentence, **fields}, default=str
            )
        else:
            line = escaped(sentence) + "".join(_unsaid(sentence, fields))
            if not self.journal:
                line = f"{time} {word:7} {line}"
        return f"<{level.value}>{line}\n" if self.journal else f"{line}\n"

    info = partialmethod(event, Level.INFO)
    """For what an operator wants to know afterwards."""
    warning = partialmethod(event, Level.WARNING)
    """For what an operator should check."""
    error = partialmethod(event, Level.ERROR)
    """For what keeps the agent from doing its work."""

    def _drop(self) -> None:
        """Counts a dropped line. The caller holds the lock."""
        if self.dropped == self._told:
            self._since = self.wall()
        self.dropped += 1

    def _write_lines(self, descriptor: int) -> None:
        while (line := self._queue.get()) is not None:
            written = self._write(descriptor, line)
            with self._lock:
                self._bytes -= len(line)
                if not written:
                    self._drop()
                untold = self.dropped - self._told
                if self._bytes or not untold:
                    continue
                sentence = (
                    f"lines dropped since {timestamp(self._since)}: {untold}; the log was not"
                    " read, or could not be written"
                )
            if self._write(descriptor, self._line(Level.WARNING, sentence, {}).encode()):
                with self._lock:
                    self._told += untold

    def _write(self, descriptor: int, line: bytes) -> bool:
        """Waits for the reader. True if the whole line was written."""
        rest = b"\n" + line if self._torn else line
        try:
            while rest:
                try:
                    rest = rest[os.write(descriptor, rest) :]
                except BlockingIOError:  # another process that shares it made it non-blocking
                    waiting = select.poll()
                    waiting.register(descriptor, select.POLLOUT)
                    waiting.poll()
        except OSError:
            self._torn = self._torn or 0 < len(rest) < len(line)
            return False
        self._torn = False
        return True


class ThrottledLog:
    """Writes each warning at most once a minute.

    Warnings are the same if their key, by default the sentence, is.
    """

    def __init__(self, log: Log, clock: Clock):
        self._log = log
        self._clock = clock
        self._written: dict[str, float] = {}

    def warn(self, sentence: str, key: str = "", **fields: object) -> bool:
        """Writes the warning, unless it was written within the last minute.

        True if it was written now.
        """
        now = self._clock.monotonic()
        key = key or sentence
        due = now - self._written.get(key, float("-inf")) >= REPEAT_SECONDS
        if due:
            self._written[key] = now
            self._log.warning(sentence, **fields)
        return due

    def resolved(self, key: str, sentence: str = "") -> None:
        """Forgets the warning, so that it is written at once when it next occurs; if it had been
        written, this sentence says that it is over."""
        if self._written.pop(key, None) is not None and sentence:
            self._log.info(sentence)


def goes_to_journal(environment: Mapping[str, str], descriptor: int) -> bool:
    """True if journald reads the descriptor: `JOURNAL_STREAM` then has its device and inode."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _unsaid(sentence: str, fields: Fields) -> Iterator[str]:
    """The fields for people: without those whose value the sentence has, and those for programs,
    whose meaning it has."""
    said = sentence.replace("_", " ")
    for key, value in fields.items():
        word = re.escape(str(value).replace("_", " "))
        if key in FOR_PROGRAMS or (word and re.search(rf"(?<!\w){word}(?!\w)", said)):
            continue
        yield f" {key}={_quoted(value)}"


def _quoted(value: Any) -> str:
    text = escaped(str(value))
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text or not text else text
