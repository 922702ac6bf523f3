"""One reading of one filesystem, and the thread that bears the wait when it does not answer.

`statvfs` on a dead NFS server, a FUSE daemon that stopped or a failing disk can block for ever and takes its
caller along (kubernetes/kubernetes#122491). So each filesystem has one daemon thread of its own and at most one
reading outstanding: a caller waits up to a limit and then goes on without.

To hand a reading over to another thread costs ten times the reading. So near a mark the thread itself glances at the
filesystem, as often as `interval` says, and calls for a look when a mark is crossed or a fill begins; its caller sleeps
meanwhile.

Covers: reading, glancing, the deadline. Does not cover: what a filesystem is to the node (`filesystems`).
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from signals.clock import Clock
from signals.interval import HALF_LIFE_SECONDS, SHORTEST_SECONDS, Marks
from signals.types import FsStats, ReadingUnavailable

PROBE_LIMIT_SECONDS = 2.0
SELDOM_SECONDS = 0.25  # who writes in bursts calls for no more looks than one in so long
NOT_LOOKED_AT = "is not looked at any more"


@dataclass(frozen=True, slots=True)
class Reading:
    """Numbers and the device (`st_dev`) they belong to. A mount that changed shows as another device."""

    stats: FsStats
    device_id: int


class FilesystemReader(Protocol):
    """Reads the filesystem that holds `path`. May block; raises OSError."""

    def __call__(self, path: str, now: float) -> Reading:
        """One reading; `now` is monotonic seconds and becomes its time."""


def read_statvfs(path: str, now: float) -> Reading:
    """One `statvfs` (1.5 µs) and the device it was made on. Raises OSError."""
    found = os.statvfs(path)
    return Reading(
        FsStats(
            available_bytes=found.f_bavail * found.f_frsize,
            free_bytes=found.f_bfree * found.f_frsize,
            capacity_bytes=found.f_blocks * found.f_frsize,
            inodes_free=found.f_ffree,
            inodes_total=found.f_files,
            time=now,
        ),
        os.stat(path).st_dev,
    )


def glance_statvfs(path: str) -> tuple[int, int]:
    """Bytes available and inodes free, and nothing else: a fifth of what a whole reading costs. Raises OSError."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_ffree


Glancer = Callable[[str], tuple[int, int]]


def glancer_of(reader: FilesystemReader) -> Glancer:
    """How to glance where one reads like this: the short way for `statvfs`, else by whole readings."""
    if reader is read_statvfs:
        return glance_statvfs

    def glance(path: str) -> tuple[int, int]:
        stats = reader(path, 0.0).stats
        return stats.available_bytes, stats.inodes_free

    return glance


class _Order(Enum):
    """What a probe's thread is told to do."""

    READ = "read"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class _Watch:
    """Until when to glance, and whom to call then; without marks: not at all."""

    marks: Marks | None
    look_due: Callable[[], None]


class Probe:
    """Readings of one path with a deadline, and glances in between.

    A reading that is late is given up by its caller, not by the thread: the thread stays in the system call, and
    until it returns every further look at this path fails at once instead of adding another stuck thread.
    """

    def __init__(self, path: str, reader: FilesystemReader, clock: Clock, limit_seconds: float = PROBE_LIMIT_SECONDS):
        self.path = path
        self._reader = reader
        self._glancer = glancer_of(reader)
        self._clock = clock
        self._limit_seconds = limit_seconds
        self._one_caller = threading.Lock()
        self._orders: queue.SimpleQueue[_Order | _Watch] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Reading | OSError] = queue.SimpleQueue()
        self._ordering = threading.Lock()  # held for moments only, other than that of the caller
        self._watch: _Watch | None = None  # the last one ordered, unless its glances have ended
        self._outstanding = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def read(self) -> Reading:
        """The reading, at most `limit_seconds` from now. Raises ReadingUnavailable with a sentence."""
        with self._one_caller:
            return self._read()

    def watch(self, marks: Marks | None, look_due: Callable[[], None]) -> None:
        """Glances from now on until a look is due, and then calls `look_due` once, on the probe's thread: a mark is
        crossed, a fill begins on a disk that stood still, or a reading fails. Returns at once.

        Other marks replace these, and the same ones change nothing; None ends the glances.
        """
        watch = _Watch(marks, look_due)
        if watch == self._watch:  # the thread is not woken for it
            return
        self._watch = watch
        try:
            self._put(watch)
        except ReadingUnavailable:  # nobody looks at it any more
            pass

    def _put(self, order: _Order | _Watch) -> None:
        """Raises ReadingUnavailable when the probe is closed: nothing stands behind the order to close."""
        with self._ordering:
            if self._closed:
                raise ReadingUnavailable(f"{self.path}: {NOT_LOOKED_AT}")
            self._started()
            self._orders.put(order)

    def _started(self) -> None:
        if self._thread is None:  # daemon: a thread stuck in the kernel must not hold up the end of the process
            self._thread = threading.Thread(target=self._serve, name=f"statvfs {self.path}", daemon=True)
            self._thread.start()

    def _read(self) -> Reading:
        if self._outstanding:
            try:
                self._answers.get_nowait()  # the late one, which says nothing of now
            except queue.Empty:
                raise ReadingUnavailable(
                    f"{self.path}: the filesystem has not answered an earlier statvfs yet"
                ) from None
            self._outstanding = False
        self._put(_Order.READ)
        self._outstanding = True
        try:
            answer = self._answers.get(timeout=self._limit_seconds)
        except queue.Empty:
            raise ReadingUnavailable(
                f"{self.path}: the filesystem did not answer statvfs within {self._limit_seconds:g} s"
            ) from None
        self._outstanding = False
        if isinstance(answer, OSError):
            raise ReadingUnavailable(f"{self.path}: cannot be read: {_reason(answer)}")
        return answer

    def close(self) -> None:
        """Lets the thread end. One that is stuck in the kernel ends with the process."""
        with self._ordering:
            self._closed = True
            self._orders.put(_Order.CLOSE)

    def _serve(self) -> None:
        glances: _Glances | None = None
        while True:
            match self._next_order(glances):
                case _Order.CLOSE:
                    return
                case _Order.READ:
                    self._answers.put(self._answer())
                case _Watch(marks=Marks() as marks, look_due=look_due):
                    glances = _Glances(marks, look_due)
                case _Watch():
                    glances = None
                case None if glances is not None and not self._glance(glances):
                    glances = None

    def _next_order(self, glances: _Glances | None) -> _Order | _Watch | None:
        """What to do next; None is a glance that is due: however many readings are asked for, none is put off."""
        if glances is None:
            return self._orders.get()
        wait = glances.due_at - self._clock.monotonic()
        if wait <= 0:
            return None
        try:
            return self._orders.get(timeout=wait)
        except queue.Empty:
            return None

    def _glance(self, glances: _Glances) -> bool:
        """Whether there is another one after this; if not, the caller has been called."""
        try:
            quiet = glances.go_on(*self._glancer(self.path), self._clock.monotonic())
        except Exception:  # noqa: BLE001 # what cannot be read is for a look to say
            quiet = False
        if not quiet:
            self._watch = None  # before the call: who is called may order the same again
            glances.look_due()
        return quiet

    def _answer(self) -> Reading | OSError:
        try:
            return self._reader(self.path, self._clock.monotonic())
        except OSError as error:
            return error
        except Exception as error:  # noqa: BLE001 # whatever a reader does, its caller gets an answer
            return OSError(f"{type(error).__name__}: {error}")


class _Glances:
    """The glances at one filesystem since its marks were set. The first is due at once.

    Plain numbers and no values: this runs up to a hundred times a second while nothing happens.
    """

    __slots__ = (
        "_available",
        "_bytes_fill",
        "_inodes",
        "_inodes_fill",
        "_marks",
        "_since",
        "_still",
        "_time",
        "due_at",
        "look_due",
    )

    def __init__(self, marks: Marks, look_due: Callable[[], None]):
        self.look_due = look_due
        self.due_at = float("-inf")
        self._marks = marks
        self._available, self._inodes, self._time, self._since = 0, 0, float("inf"), float("inf")
        self._bytes_fill, self._inodes_fill, self._still = 0.0, 0.0, False

    def go_on(self, available_bytes: int, inodes_free: int, now: float) -> bool:
        """Whether no mark is crossed and no fill begins; then the next glance is due at `due_at`, monotonic seconds."""
        if self._marks.crossed(available_bytes, inodes_free):
            return False
        elapsed, was_still, self._since = now - self._time, self._still, min(self._since, now)
        if elapsed >= SHORTEST_SECONDS:  # closer ones say nothing of a rate
            bytes_fill = (self._available - available_bytes) / elapsed
            inodes_fill = (self._inodes - inodes_free) / elapsed
            left = 0.5 ** (elapsed / HALF_LIFE_SECONDS)
            self._bytes_fill = max(self._bytes_fill * left, bytes_fill)
            self._inodes_fill = max(self._inodes_fill * left, inodes_fill)
            self._still = self._marks.still(bytes_fill, inodes_fill)
        self._available, self._inodes, self._time = available_bytes, inodes_free, now
        self.due_at = now + self._marks.next_glance(
            available_bytes, inodes_free, self._bytes_fill, self._inodes_fill, still=self._still
        )
        return self._still or not was_still or now - self._since < SELDOM_SECONDS


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


class Probes:
    """The probes of a node, one a path, made when first asked for."""

    def __init__(
        self,
        clock: Clock,
        reader: FilesystemReader = read_statvfs,
        limit_seconds: float = PROBE_LIMIT_SECONDS,
    ):
        self._make: Callable[[str], Probe] = lambda path: Probe(path, reader, clock, limit_seconds)
        self._lock = threading.Lock()  # over `_probes`; never held while a filesystem is read
        self._probes: dict[str, Probe] = {}

    def read(self, path: str) -> Reading:
        """The reading of the filesystem that holds `path`. Raises ReadingUnavailable."""
        return self._probe(path).read()

    def watch(self, path: str, marks: Marks | None, look_due: Callable[[], None]) -> None:
        """Glances at the filesystem that holds `path` until a look is due; see `Probe.watch`."""
        self._probe(path).watch(marks, look_due)

    def _probe(self, path: str) -> Probe:
        with self._lock:
            if path not in self._probes:
                self._probes[path] = self._make(path)
            return self._probes[path]

    def keep_only(self, paths: set[str]) -> None:
        """Closes the probes of paths that are not looked at any more."""
        with self._lock:
            for path in self._probes.keys() - paths:
                self._probes.pop(path).close()

    def close(self) -> None:
        """Closes every probe."""
        self.keep_only(set())
