"""Reads each filesystem on a thread of its own and publishes what it read, so that one that
hangs delays nothing else.

`statvfs` on a dead NFS server, a stopped FUSE daemon or a failing disk can block forever, and its
caller with it (https://github.com/kubernetes/kubernetes/issues/122491). So nobody reads a
filesystem but its sampler: whoever wants a reading asks for one and goes on, and the sampler
answers when it has one. All who have asked by the time at which a reading begins share it. Between
two readings the same thread polls the filesystem if it is near a threshold.

The system call itself is in `filesystems`; `interval` says when to poll and when to notify;
`summary` makes signals of what was published.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from signals.clock import Clock
from signals.filesystems import FilesystemReader, Reading, describe
from signals.interval import ThresholdNotifier, WatchedLevels
from signals.quantity import reason_of
from signals.types import FilesystemIdentity, FsStats

CLOSED = "is no longer observed"
MOST_POLLS = 64  # kept for the next reading
MOST_ORDERS = 32  # of the owner of the state, which has one at a time, and of clients

RunOnThread = Callable[[Callable[[], None]], None]
"""Runs a function on a thread; the function returns when its sampler is closed. Raises RuntimeError
if there is no thread."""


class Sample(NamedTuple):
    """One reading of a path, or why there is none.

    `begun_at`: when it began (monotonic seconds).
    """

    path: str
    begun_at: float
    reading: Reading | None = None
    identity: FilesystemIdentity | None = None
    """Of the filesystem that was read."""
    problem: str = ""
    """Why it could not be read, in a sentence; empty if it was."""


Reply = Callable[[Sample], None]
"""Takes an answer, on the sampler's thread. It returns at once and does not raise."""


@dataclass(eq=False)
class Sampler:
    """Reads and polls one path on the thread that serves it until `close`.

    Any thread may call.
    """

    path: str
    reader: FilesystemReader
    clock: Clock

    def __post_init__(self) -> None:
        # None: look at the levels. Each poll waits here, and at a `Queue` that takes twice the time
        self._orders = queue.SimpleQueue[Reply | None]()
        self._closed = False
        self._notifier: ThresholdNotifier | None = None
        # the sampler's thread only
        self._polls: deque[FsStats] = deque(maxlen=MOST_POLLS)
        self._identity: FilesystemIdentity | None = None

    def ask(self, reply: Reply) -> None:
        """Has `reply` called with a reading that begins from now on.

        Never, while the filesystem does not answer. If it is closed, or too many wait already, it
        is called at once with that problem.
        """
        if self._closed:
            self._refuse(reply, CLOSED)
        elif not self._order(reply):
            self._refuse(reply, "the filesystem has not answered an earlier statvfs yet")

    def watch(self, levels: WatchedLevels, notify: Callable[[], None]) -> None:
        """Polls until an observation is due, then calls `notify` once and stops.

        It is called on the sampler's thread. An observation is due when an amount falls below its
        level, when a fill begins on an idle filesystem, and when the filesystem cannot be read.
        Different levels replace the current ones and are polled at once; the same levels change
        nothing and do not wake the thread. Returns at once.
        """
        current = self._notifier
        if current is None or current.levels != levels:
            self._notifier = ThresholdNotifier(levels, notify)
            self._order(None)

    def close(self) -> None:
        """Stops polling and lets the thread end.

        A thread that is stuck in the kernel ends with the process.
        """
        self._closed = True
        self._notifier = None
        self._order(None)

    def _refuse(self, reply: Reply, problem: str) -> None:
        reply(Sample(self.path, self.clock.monotonic(), problem=f"{self.path}: {problem}"))

    def _order(self, order: Reply | None) -> bool:
        """Whether there was room for it."""
        if self._orders.qsize() >= MOST_ORDERS:
            return False
        self._orders.put(order)
        return True

    def serve(self) -> None:
        """Runs on the sampler's thread: answers who asks, and polls when it is time."""
        threading.current_thread().name = f"statvfs {self.path}"
        while not self._closed:
            notifier = self._notifier
            pause = None
            if notifier is not None:
                pause = max(notifier.due_at - self.clock.monotonic(), 0.0)
            try:
                first = self._orders.get(timeout=pause)
            except queue.Empty:
                self._poll()
                continue
            replies = self._replies(first)
            if replies:
                sample = self._sample()
                for reply in replies:
                    reply(sample)
        for reply in self._replies(None):
            self._refuse(reply, CLOSED)

    def _replies(self, first: Reply | None) -> list[Reply]:
        """Those that are waited for by now: this one, and those of all other orders."""
        orders = [first]
        while not self._orders.empty():
            orders.append(self._orders.get())
        return [reply for reply in orders if reply is not None]

    def _sample(self) -> Sample:
        path = self.path
        begun_at = self.clock.monotonic()
        try:
            reading = self.reader(path, begun_at)._replace(polls=tuple(self._polls))
            if self._identity is None or self._identity.device_id != reading.device_id:
                self._identity = describe(path, reading.device_id)
        except Exception as error:  # noqa: BLE001 # whatever a reader raises, who has asked gets an answer
            why = f"{type(error).__name__}: {error}"
            if isinstance(error, OSError):
                why = reason_of(error)
            return Sample(path, begun_at, problem=f"{path}: cannot be read: {why}")
        return Sample(path, begun_at, reading, self._identity)

    def _poll(self) -> None:
        """Polls once, and notifies if an observation is due and the levels are still these."""
        notifier = self._notifier
        if notifier is None:
            return
        try:
            poll = self.reader(self.path, self.clock.monotonic()).stats
            self._polls.append(poll)
            observation_due = notifier.update(poll)
        except Exception:  # noqa: BLE001 # the observation reports why the filesystem cannot be read
            observation_due = True
        if observation_due and self._notifier is notifier:
            self._notifier = None
            notifier.notify()


@dataclass(eq=False)
class Samplers:
    """The samplers of a node, one for each path, created when the path is first asked for.

    Any thread may call.
    """

    clock: Clock
    reader: FilesystemReader
    run_on_thread: RunOnThread

    def __post_init__(self) -> None:
        self._samplers: dict[str, Sampler] = {}

    def ask(self, paths: Iterable[str], reply: Reply) -> None:
        """Has `reply` called with a reading of each path; see `Sampler.ask`."""
        for path in paths:
            try:
                self._started(path).ask(reply)
            except RuntimeError as error:
                reply(
                    Sample(
                        path,
                        self.clock.monotonic(),
                        problem=f"{path}: there is no thread to read it on: {error}",
                    )
                )

    def watch(self, path: str, levels: WatchedLevels, notify: Callable[[], None]) -> None:
        """Polls the filesystem that holds `path` until an observation is due; see `Sampler.watch`.
        Does nothing for a path that was never asked for or is no longer observed."""
        sampler = self._samplers.get(path)
        if sampler is not None:
            sampler.watch(levels, notify)

    def prepare(self, paths: Iterable[str]) -> None:
        """Has the threads of these paths started. Raises RuntimeError if there is none for one."""
        for path in paths:
            self._started(path)

    def keep_only(self, paths: Iterable[str]) -> None:
        """Closes the samplers of all other paths."""
        for path in self._samplers.keys() - set(paths):
            if (sampler := self._samplers.pop(path, None)) is not None:
                sampler.close()

    def close(self) -> None:
        self.keep_only(())

    def _started(self, path: str) -> Sampler:
        """The sampler of a path.

        Raises RuntimeError if it has none and there is no thread for one.
        """
        sampler = self._samplers.get(path)
        if sampler is None:
            made = Sampler(path, self.reader, self.clock)
            self.run_on_thread(made.serve)
            sampler = self._samplers.setdefault(path, made)
            # somebody else has asked at the same time; nobody knows of this one
            if sampler is not made:
                made.close()
        return sampler
