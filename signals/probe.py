"""Reads each filesystem on a thread of its own, so that one that hangs delays nothing else.

`statvfs` on a dead NFS server, a stopped FUSE daemon or a failing disk can block forever, and its caller with it
(https://github.com/kubernetes/kubernetes/issues/122491). So each filesystem has one daemon thread and at most one
outstanding reading: a caller waits up to a limit and then goes on without a reading. Between two readings the same
thread polls the filesystem if it is near a threshold. If no thread can be started, the reading is unavailable and the
next one tries again.

The system call itself is in `filesystems`; `interval` says when to poll and when to notify.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from signals.clock import Clock
from signals.filesystems import FilesystemReader, Reading
from signals.interval import MOST_STEPS, Notify, ThresholdNotifier, WatchedLevels
from signals.types import Poll, ReadingUnavailable

PROBE_LIMIT_SECONDS = 2.0
CLOSED = "is no longer observed"

RunOnThread = Callable[[Callable[[], None]], None]
"""Runs a function on a thread; the function returns when its probe is closed. Raises RuntimeError if there is no
thread."""


class Probe:
    """Reads and polls one path on one thread, from the first order until `close`.

    If a reading is late, its caller gives up, and the thread stays in the system call. Until that returns, every
    further reading fails at once instead of blocking another thread, and there are no polls. Any thread may call.
    """

    def __init__(
        self,
        path: str,
        reader: FilesystemReader,
        clock: Clock,
        run_on_thread: RunOnThread,
        limit_seconds: float = PROBE_LIMIT_SECONDS,
    ):
        self.path = path
        self._reader = reader
        self._clock = clock
        self._limit_seconds = limit_seconds
        self._one_caller = threading.Lock()  # held during a reading
        self._unanswered: queue.SimpleQueue[Reading | OSError] | None = None  # where a late answer arrives
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()  # None ends the thread
        self._ordering = threading.Lock()  # guards the fields below; never held while the filesystem is read
        self._notifier: ThresholdNotifier | None = None
        self._closed = False
        self._run_on_thread = run_on_thread
        self._has_thread = False
        self._polls: deque[Poll] = deque(maxlen=MOST_STEPS)  # the probe's thread only

    def read(self) -> Reading:
        """A reading, within `limit_seconds`. Raises ReadingUnavailable with a sentence."""
        with self._one_caller:
            if self._unanswered is not None and self._unanswered.empty():
                raise ReadingUnavailable(f"{self.path}: the filesystem has not answered an earlier statvfs yet")
            self._unanswered = None  # a late answer says nothing about now
            answers = queue.SimpleQueue[Reading | OSError]()
            with self._ordering:
                if self._closed:  # nothing would serve the order
                    raise ReadingUnavailable(f"{self.path}: {CLOSED}")
                self._take_thread()
                self._orders.put(lambda: answers.put(self._answer()))
            try:
                answer = answers.get(timeout=self._limit_seconds)
            except queue.Empty:
                self._unanswered = answers
                raise ReadingUnavailable(
                    f"{self.path}: the filesystem did not answer statvfs within {self._limit_seconds:g} s"
                ) from None
        if isinstance(answer, OSError):
            raise ReadingUnavailable(f"{self.path}: cannot be read: {_reason(answer)}")
        return answer

    def watch(self, levels: WatchedLevels, notify: Notify) -> None:
        """Polls from now on until an observation is due, then calls `notify` once on the probe's thread and stops.

        An observation is due when an amount falls below its level, when a fill begins on an idle filesystem, and when
        the filesystem cannot be read. Different levels replace the current ones and are polled at once; the same levels
        change nothing and do not wake the thread. Returns at once. Does nothing once the probe is closed.
        """
        with self._ordering:
            if self._closed:
                return
            current = self._notifier
            if current is not None and (current.levels, current.notify) == (levels, notify):
                return
            try:
                self._take_thread()
            except ReadingUnavailable:  # the next reading reports it
                return
            self._notifier = ThresholdNotifier(levels, notify)
            if self._orders.empty():  # otherwise the thread picks the levels up after the order that it has
                self._orders.put(lambda: None)

    def close(self) -> None:
        """Stops polling and lets the thread end. A thread that is stuck in the kernel ends with the process."""
        with self._ordering:
            self._closed = True
            self._notifier = None
            self._orders.put(None)

    def _take_thread(self) -> None:
        if self._has_thread:
            return
        try:
            self._run_on_thread(self._serve)
        except RuntimeError as error:
            raise ReadingUnavailable(f"{self.path}: there is no thread to read it on: {error}") from error
        self._has_thread = True

    def _serve(self) -> None:
        """Runs on the probe's thread: serves orders, and polls when it is time."""
        threading.current_thread().name = f"statvfs {self.path}"
        while True:
            notifier = self._notifier
            pause = None if notifier is None else max(notifier.due_at - self._clock.monotonic(), 0.0)
            try:
                order = self._orders.get(timeout=pause)
            except queue.Empty:
                self._poll()
                continue
            if order is None:
                return
            order()

    def _answer(self) -> Reading | OSError:
        try:
            return replace(self._reader(self.path, self._clock.monotonic()), polls=tuple(self._polls))
        except OSError as error:
            return error
        except Exception as error:  # noqa: BLE001 # whatever a reader raises, its caller gets an answer
            return OSError(f"{type(error).__name__}: {error}")

    def _poll(self) -> None:
        """Polls once, and notifies if an observation is due and the levels have not been replaced meanwhile."""
        notifier = self._notifier
        if notifier is None:
            return
        now = self._clock.monotonic()
        try:
            found = self._reader(self.path, now).stats
            poll = Poll(now, found.available_bytes, found.inodes_free)
            self._polls.append(poll)
            observation_due = notifier.update(poll)
        except Exception:  # noqa: BLE001 # the observation reports why the filesystem cannot be read
            observation_due = True
        if not observation_due:
            return
        with self._ordering:
            if self._notifier is not notifier:
                return
            self._notifier = None
        notifier.notify()


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


class Probes:
    """The probes of a node, one per path, created when the path is first read. Any thread may call."""

    def __init__(
        self,
        clock: Clock,
        reader: FilesystemReader,
        run_on_thread: RunOnThread,
        limit_seconds: float = PROBE_LIMIT_SECONDS,
    ):
        self._make: Callable[[str], Probe] = lambda path: Probe(path, reader, clock, run_on_thread, limit_seconds)
        self._lock = threading.Lock()  # guards `_probes`; never held while a filesystem is read
        self._probes: dict[str, Probe] = {}

    def read(self, path: str) -> Reading:
        """A reading of the filesystem that holds `path`. Raises ReadingUnavailable."""
        with self._lock:
            if path not in self._probes:
                self._probes[path] = self._make(path)
            probe = self._probes[path]
        return probe.read()

    def watch(self, path: str, levels: WatchedLevels, notify: Notify) -> None:
        """Polls the filesystem that holds `path` until an observation is due; see `Probe.watch`.

        Does nothing for a path that has never been read or is no longer observed.
        """
        with self._lock:
            probe = self._probes.get(path)
        if probe is not None:
            probe.watch(levels, notify)

    def keep_only(self, paths: set[str]) -> None:
        """Closes the probes of all other paths."""
        with self._lock:
            for path in self._probes.keys() - paths:
                self._probes.pop(path).close()

    def close(self) -> None:
        self.keep_only(set())
