"""Threads that exist before they are needed.

A thread that is started when it is needed may not start: the limit of processes (`pids.max`, `TasksMax=`) is reached on
just the node that is in trouble. So the daemon prepares its threads once, and what needs one takes it from here. A
command that does one pass prepares none, and each of its tasks has a thread of its own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from reclaim.types import ReclaimError

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
