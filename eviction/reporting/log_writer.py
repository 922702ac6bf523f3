"""Writes the lines of the daemon's log on a thread of its own: a log that nobody reads delays nothing.

The lines wait in a bounded queue. One that does not fit, or cannot be written (the reader has gone, the disk is full),
is dropped and counted; as soon as lines can be written again, one line tells how many were dropped and since when.
Lines are kept whole and in their order.

Covers: the queue, the thread, the count. Does not cover: what a line looks like (`eviction.reporting.log`).
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

MOST_BYTES = 4 << 20
END_SECONDS = 1.0


class _Line(NamedTuple):
    text: bytes
    dropped: int = 0  # for the line that tells so: how many, and since when (wall seconds)
    since: float = 0.0


class LogWriter:
    """The queue of one log. All methods may be called from any thread; none waits, except `finish`.

    `told`: makes the line that says how many lines were dropped, and since when (wall seconds).
    """

    def __init__(
        self,
        descriptor: int,
        wall: Callable[[], float],
        told: Callable[[int, float], str],
        most_bytes: int = MOST_BYTES,
    ):
        self._descriptor = descriptor
        self._wall = wall
        self._told = told
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._lines: deque[_Line] = deque()
        self._bytes = 0  # of the lines that are not written yet
        self._untold, self._since = 0, 0.0
        self._torn = False  # the last line was written in part
        self._finishing = False
        self._threaded = False
        self.dropped = 0  # lines, since the start

    def start(self) -> bool:
        """Starts the thread. False if it cannot be started: then `put` writes lines, as far as there is room."""
        self._threaded = True
        try:
            threading.Thread(target=self._run, name="log", daemon=True).start()
        except RuntimeError:
            self._threaded = False
        return self._threaded

    def put(self, text: str) -> None:
        """Queues a line, without its end, or drops it."""
        line = _Line(text.encode("utf-8", "backslashreplace") + b"\n")
        with self._changed:
            self._tell()
            if self._untold or not self._fits(line):
                self.dropped += 1
                self._drop(1, self._wall())
            else:
                self._append(line)
        if not self._threaded:
            self._write_what_fits()

    def finish(self, seconds: float = END_SECONDS) -> bool:
        """Waits until all lines are written, at most `seconds`. Whether they are. Nothing is written afterwards."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._threaded and self._bytes and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            self._finishing = True
            self._changed.notify_all()
            return not self._bytes

    # ---- under the lock

    def _fits(self, line: _Line) -> bool:
        return self._bytes + len(line.text) <= self._most_bytes

    def _append(self, line: _Line) -> None:
        self._lines.append(line)
        self._bytes += len(line.text)
        self._changed.notify_all()

    def _drop(self, lines: int, since: float) -> None:
        self._since = min(self._since, since) if self._untold else since
        self._untold += lines

    def _tell(self) -> None:
        """Queues the line about dropped ones, if there are any and it fits."""
        if self._untold:
            line = _Line(self._told(self._untold, self._since).encode() + b"\n", self._untold, self._since)
            if self._fits(line):
                self._untold = 0
                self._append(line)

    # ---- writing

    def _run(self) -> None:
        while (line := self._next()) is not None:
            self._done(line, written=self._write(line.text))

    def _next(self) -> _Line | None:
        with self._changed:
            while not self._lines and not self._finishing:
                self._changed.wait()
            return None if self._finishing else self._lines.popleft()

    def _done(self, line: _Line, *, written: bool) -> None:
        with self._changed:
            self._bytes -= len(line.text)
            if not written:
                self.dropped += not line.dropped
                self._drop(line.dropped or 1, line.since or self._wall())
            elif not self._lines:
                self._tell()
            self._changed.notify_all()

    def _write_what_fits(self) -> None:
        """Without the thread: as long as the descriptor takes a line."""
        while self._lines and _takes_a_line(self._descriptor):
            with self._changed:
                if not self._lines:
                    return
                line = self._lines.popleft()
            self._done(line, written=self._write(line.text))

    def _write(self, text: bytes) -> bool:
        """Whether the line was written whole. Waits for the reader."""
        rest = b"\n" + text if self._torn else text
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # somebody who has it too made it non-blocking
                    _wait_for_room(self._descriptor)
        except OSError:
            self._torn = self._torn or 0 < len(rest) < len(text)
            return False
        self._torn = False
        return True


def _takes_a_line(descriptor: int) -> bool:
    """Whether a write of PIPE_BUF bytes (4 KiB) would not wait."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLOUT)
    return bool(waiting.poll(0))


def _wait_for_room(descriptor: int) -> None:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLOUT)
    waiting.poll()
