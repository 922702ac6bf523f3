"""Threads that exist before they are needed, and readings on them that may hang.

A thread that is started when it is needed may fail to start: the limit of processes (`pids.max`,
`TasksMax=`) is reached on exactly the node that is in trouble. So the daemon prepares its threads
once and takes them from here. A command that does one pass prepares none, and each of its tasks
gets a thread of its own.

What may hang is read on such a thread, so that it delays nothing else. Calls of the runtime have
deadlines; a look at a file on a filesystem that does not answer has none. What hangs is abandoned,
and nobody starts it again until it has ended.
"""

import errno
import queue
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TypeVar

from reclaim.types import ReclaimError
from signals.clock import LATE_SECONDS

Item = TypeVar("Item")
Task = Callable[[], object]
"""What a thread does. An exception it raises is lost: the task must report by itself."""


_Given = queue.Queue[tuple[Task, Task] | None]
"""The next task of one prepared thread, and what announces its end; None ends the thread.

It holds one at most.
"""


class NoThread(ReclaimError, RuntimeError):
    """No thread is free, and no more can be started. The message is one sentence."""


class Workers:
    """At most `limit` threads, each with one task at a time; the number may be
    raised later. Thread-safe.

    `not_started`: how many attempts to start a thread have failed so far.
    """

    def __init__(self, name: str, limit: int):
        self._name = name
        self.limit = limit
        # Stays: any thread may hand over a task, and each task that ends gives its thread
        # back. Nothing waits under it.
        self._lock = threading.Lock()
        self._threads = 0
        self._prepared = 0
        # of prepared threads without a task; the one that worked last is the next
        self._idle: list[_Given] = []
        self._closed = False
        self.not_started = 0

    def prepare(self, count: int) -> None:
        """Starts threads until there are `count` permanent ones.

        Raises NoThread; threads that have started remain.
        """
        with self._lock:
            while self._prepared < count:
                given: _Given = queue.Queue(1)
                self._start(partial(self._serve, given))
                self._prepared += 1
                self._idle.append(given)

    def run(self, task: Task, announce: Task = lambda: None) -> None:
        """Runs the task on a thread. Raises NoThread, in which case the task is not run.

        `announce` is called on that thread once it is free for another task, and returns quickly.
        Anyone who waits for one task to end in order to start the next must be woken by `announce`:
        if the task itself woke them, they might find no thread free.
        """

        def once() -> None:
            _do(task)
            self._has_ended()
            _do(announce)

        with self._lock:
            if self._idle:
                self._idle.pop().put_nowait((task, announce))
            else:
                self._start(once)

    def for_each(
        self, task: Callable[[Item], object], items: Collection[Item], helpers: int
    ) -> None:
        """Runs the task for every item, on the caller's thread and on up to `helpers` others that
        are free. Raises what the first one that fails raises, once those that had begun have ended;
        no more are begun then."""
        left = iter(tuple(items))  # threads may share the iterator of a tuple
        failures = list[BaseException]()

        def work() -> None:
            while not failures and (item := next(left, None)) is not None:
                try:
                    task(item)
                except BaseException as error:  # noqa: BLE001 # raised again by the caller
                    failures.append(error)

        helping: list[threading.Event] = []
        with suppress(NoThread):
            for _ in range(min(helpers, len(items) - 1)):
                ended = threading.Event()
                self.run(work, ended.set)
                helping.append(ended)
        work()
        for ended in helping:
            ended.wait()
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Lets every thread end after its task; no more are started."""
        with self._lock:
            self.limit = 0
            self._closed = True
            while self._idle:
                self._idle.pop().put_nowait(None)

    def _start(self, serve: Callable[[], None]) -> None:  # under the lock
        if self._threads >= self.limit:
            raise NoThread(f"no thread is free for {self._name}: all {self._threads} are at work")
        try:
            threading.Thread(target=serve, name=self._name, daemon=True).start()
        except RuntimeError as error:
            self.not_started += 1
            raise NoThread(f"no thread can be started for {self._name}: {error}") from error
        self._threads += 1

    def _serve(self, given: _Given) -> None:
        while (work := given.get()) is not None:
            task, announce = work
            _do(task)
            with self._lock:
                if self._closed:
                    given.put_nowait(None)
                else:
                    self._idle.append(given)
            _do(announce)
            del work, task, announce  # do not keep what they hold alive until the next task
        self._has_ended()

    def _has_ended(self) -> None:
        with self._lock:
            self._threads -= 1


def _do(task: Task) -> None:
    try:
        task()
    except BaseException:  # noqa: BLE001, S110 # a task reports by itself; its thread must survive for the next one
        pass


# ---- readings that may hang

MOST_LOOKS = 32  # of one kind at a time: a filesystem that does not answer keeps the thread of each

Answer = TypeVar("Answer")


class ReadingHangs(ReclaimError):
    """A reading does not end. The message is one sentence."""


class ReadingsInTime:
    """Readings of one thing, each with a time limit.

    While one of them hangs, the others fail at once. Thread-safe.
    """

    def __init__(self, workers: Workers, seconds: float):
        self._workers = workers
        self._seconds = seconds
        self._hanging = threading.Event()  # set when the reading that hung has ended
        self._hanging.set()

    def __call__(self, read: Callable[[], Answer], /) -> Answer:
        """The result of `read`. Raises what it raises, ReadingHangs and NoThread."""
        if not self._hanging.is_set():
            raise ReadingHangs("an earlier reading has not been answered yet")
        answer: Future[Answer] = Future()
        ended = threading.Event()

        def run() -> None:
            try:
                answer.set_result(read())
            except BaseException as error:  # noqa: BLE001 # raised to the caller
                answer.set_exception(error)

        self._workers.run(run, ended.set)
        if not ended.wait(self._seconds):
            self._hanging = ended
            raise ReadingHangs(f"it did not answer within {self._seconds:g} s")
        return answer.result()


_LOOKS: dict[tuple[str, float], ReadingsInTime] = {}


def in_time(look: Callable[[], Answer], seconds: float = LATE_SECONDS, *, of: str = "") -> Answer:
    """The result of `look`, which looks at a file once, on a thread of its own that is abandoned if
    it hangs; on the caller's thread if none can be started. `of`: what is looked at again and
    again: while one look at it hangs, no other begins. Raises what it raises, and OSError
    (ETIMEDOUT) if it takes longer."""
    looks = ReadingsInTime(Workers("a file", MOST_LOOKS), seconds)
    try:
        return (_LOOKS.setdefault((of, seconds), looks) if of else looks)(look)
    except ReadingHangs as error:
        raise OSError(errno.ETIMEDOUT, str(error)) from None
    except NoThread:
        return look()
