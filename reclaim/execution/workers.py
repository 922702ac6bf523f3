"""Threads that exist before they are needed.

A thread that is started when it is needed may not start: the limit of processes (`pids.max`, `TasksMax=`) is reached on
just the node that is in trouble. So the daemon prepares its threads once, and what needs one takes it from here. A
command that does one pass prepares none, and each of its tasks has a thread of its own.
"""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from reclaim.types import ReclaimError
from signals.clock import Clock

Task = Callable[[], object]
"""What a thread does. An exception that it raises is lost: it has to report by itself."""

Announce = Callable[[], object]
"""Tells that a task is done, and returns soon. An exception that it raises is lost."""


class NoThread(ReclaimError, RuntimeError):
    """No thread is free, and another one cannot be started. The message is one sentence."""


class Workers:
    """At most `most` threads, each with one task at a time; that number may be raised later. Any thread may call.

    `not_started`: how many starts of a thread have failed so far.
    """

    def __init__(self, name: str, most: int):
        self._name = name
        self.most = most
        self._tasks: queue.SimpleQueue[tuple[Task, Announce] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._prepared = 0
        self._idle = 0  # prepared ones without a task
        self.not_started = 0

    def prepare(self, count: int) -> None:
        """Starts threads until there are so many, which stay. Raises NoThread; those that have started stay even so."""
        with self._lock:
            while self._prepared < count:
                self._start(self._serve)
                self._prepared += 1
                self._idle += 1

    def run(self, task: Task, announce: Announce = lambda: None) -> None:
        """Has a thread do the task. Raises NoThread, and then nobody does it.

        `announce` is called on that thread once it is free for another task. Whoever waits for the end of a task, to
        begin the next one, has to be woken by it: one that the task itself wakes may find no thread free.
        """
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._tasks.put((task, announce))
            else:
                self._start(lambda: self._once(task, announce))

    def close(self) -> None:
        """Lets every thread end after its task; no other one is started."""
        with self._lock:
            self.most = 0
            for _ in range(self._prepared):
                self._tasks.put(None)

    def _start(self, serve: Callable[[], None]) -> None:  # under the lock
        if self._threads >= self.most:
            raise NoThread(f"no thread is free for {self._name}: all {self._threads} are at work")
        try:
            threading.Thread(target=serve, name=self._name, daemon=True).start()
        except RuntimeError as error:
            self.not_started += 1
            raise NoThread(f"no thread can be started for {self._name}: {error}") from error
        self._threads += 1

    def _serve(self) -> None:
        while (given := self._tasks.get()) is not None:
            task, announce = given
            _do(task)
            with self._lock:
                self._idle += 1
            _do(announce)
            del given, task, announce  # nothing that they hold is kept alive until the next ones
        self._has_ended()

    def _once(self, task: Task, announce: Announce) -> None:
        _do(task)
        self._has_ended()
        _do(announce)

    def _has_ended(self) -> None:
        with self._lock:
            self._threads -= 1


def _do(task: Task) -> None:
    try:
        task()
    except BaseException:  # noqa: BLE001, S110 # a task reports by itself; its thread must be there for the next one
        pass


# ---- readings that may hang

LOOK_SECONDS = 2.0  # for what is looked at once: a file, and the directories above it
HANGS_SECONDS = 60.0  # more than the deadline of any call, and all its repetitions

Answer = TypeVar("Answer")


class ReadingHangs(ReclaimError):
    """A reading does not end. The message is one sentence."""


class Progress:
    """When the passes of one executor last went forward: a call of the runtime that a stage of theirs had made was
    answered, a removal of theirs ended. What others ask beside them is none. Any thread may call.

    `at`: monotonic seconds.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self.at = clock.monotonic()

    def mark(self) -> None:
        """Something went forward just now."""
        self.at = self._clock.monotonic()

    def of(self, read: Callable[[], Answer]) -> Callable[[], Answer]:
        """The same reading, whose calls are progress of this."""

        def reading() -> Answer:
            before, _ON_THIS_THREAD.progress = getattr(_ON_THIS_THREAD, "progress", None), self
            try:
                return read()
            finally:
                _ON_THIS_THREAD.progress = before

        return reading


_ON_THIS_THREAD = threading.local()


def call_was_answered() -> None:
    """A call of the runtime that this thread has made was answered: progress of the reading that made it, if any."""
    progress: Progress | None = getattr(_ON_THIS_THREAD, "progress", None)
    if progress is not None:
        progress.mark()


class _Reading(Generic[Answer]):
    """One reading on another thread."""

    def __init__(self, read: Callable[[], Answer], workers: Workers, on_end: Callable[[], object] = lambda: None):
        self._read = read
        self._on_end = on_end
        self._answers: list[Answer] = []
        self._errors: list[BaseException] = []
        self.ended = threading.Event()
        workers.run(self._run, self._announce)

    def answer(self) -> Answer:
        """After it has ended. Raises what it raised."""
        if self._errors:
            raise self._errors[0]
        return self._answers[0]

    def _run(self) -> None:
        try:
            self._answers.append(self._read())
        except BaseException as error:  # noqa: BLE001 # raised again by the caller
            self._errors.append(error)

    def _announce(self) -> None:
        self.ended.set()
        self._on_end()


class ReadingsInTime:
    """Readings of one filesystem, each for a limited time. While one of them hangs the others fail at once. Any thread
    may call."""

    def __init__(self, workers: Workers, seconds: float):
        self._workers = workers
        self._seconds = seconds
        self._hanging: threading.Event | None = None  # set when the reading has ended

    def __call__(self, read: Callable[[], Answer], /) -> Answer:
        """What `read` returns. Raises what it raises; ReadingHangs; NoThread."""
        hanging = self._hanging
        if hanging is not None and not hanging.is_set():
            raise ReadingHangs("an earlier reading has not been answered yet")
        reading = _Reading(read, self._workers)
        if not reading.ended.wait(self._seconds):
            self._hanging = reading.ended
            raise ReadingHangs(f"it did not answer within {self._seconds:g} s")
        return reading.answer()


def in_time(look: Callable[[], Answer], seconds: float = LOOK_SECONDS) -> Answer:
    """What `look` returns, which looks at a file once, on a thread of its own that is left behind when it hangs; on the
    caller's where none can be started. Raises what it raises; OSError (ETIMEDOUT) if it takes longer."""
    try:
        return ReadingsInTime(Workers("a file", 1), seconds)(look)
    except ReadingHangs:
        raise OSError(errno.ETIMEDOUT, f"it did not answer within {seconds:g} s") from None
    except NoThread:
        return look()


class Readings:
    """Runs the readings of stages, one after another, on `workers`. For one caller at a time."""

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
        reading = _Reading(self._progress.of(read), self._workers, lambda: self._hanging.pop(what, None))
        while not reading.ended.wait(self._hangs_seconds / 4):
            if self._clock.monotonic() - self._progress.at > self._hangs_seconds:
                self._hanging[what] = started
                self._progress.mark()
                if reading.ended.is_set():  # just now, and before it was noted
                    self._hanging.pop(what, None)
                raise self._hangs(what, started)
        return reading.answer()

    def _hangs(self, what: str, started: float) -> ReadingHangs:
        return ReadingHangs(f"{what} has been reading for {self._clock.monotonic() - started:.0f} s without an answer")
