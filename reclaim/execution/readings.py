"""Runs what a stage reads on a thread of its own, so that a reading that hangs holds up no other stage.

The calls of the runtime have deadlines; a directory on a filesystem that does not answer has none. A reading counts as
hanging when neither it has ended nor any call of the runtime was answered for a minute. It is left behind then, and not
begun again before it has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from reclaim.clock import Clock
from reclaim.execution.workers import Workers
from reclaim.types import ReclaimError

HANGS_SECONDS = 60.0  # more than the deadline of any call, and all its repetitions

Answer = TypeVar("Answer")


class ReadingHangs(ReclaimError):
    """A reading does not end. The message is one sentence."""


class Progress:
    """When something last went forward: a call of the runtime was answered, a removal ended. Any thread may call.

    `at`: monotonic seconds.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self.at = clock.monotonic()

    def mark(self) -> None:
        """Something went forward just now."""
        self.at = self._clock.monotonic()


class Readings:
    """Runs readings, one after another, on `workers`. For one caller at a time."""

    def __init__(self, clock: Clock, workers: Workers, progress: Progress, hangs_seconds: float = HANGS_SECONDS):
        self._clock = clock
        self._workers = workers
        self._progress = progress
        self._hangs_seconds = hangs_seconds
        self._hanging: dict[str, float] = {}  # what -> since when

    def read(self, what: str, read: Callable[[], Answer]) -> Answer:
        """What `read` returns. Raises what it raises; ReadingHangs while it, or an earlier one of `what`, hangs; and
        NoThread."""
        started = self._hanging.get(what)
        if started is not None:
            raise self._hangs(what, started)
        started = self._clock.monotonic()
        self._progress.mark()
        answers: list[Answer] = []
        errors: list[BaseException] = []
        ended = threading.Event()

        def run() -> None:
            try:
                answers.append(read())
            except BaseException as error:  # noqa: BLE001 # raised again by the caller
                errors.append(error)
            finally:
                ended.set()
                self._hanging.pop(what, None)

        self._workers.run(run)
        while not ended.wait(self._hangs_seconds / 4):
            if self._clock.monotonic() - self._progress.at > self._hangs_seconds:
                self._hanging[what] = started
                self._progress.mark()
                if ended.is_set():  # just now, and before it was noted
                    self._hanging.pop(what, None)
                raise self._hangs(what, started)
        if errors:
            raise errors[0]
        return answers[0]

    def _hangs(self, what: str, started: float) -> ReadingHangs:
        return ReadingHangs(f"{what} has been reading for {self._clock.monotonic() - started:.0f} s without an answer")
