"""One reading of one filesystem, and the thread that bears the wait when it does not answer.

`statvfs` on a dead NFS server, a FUSE daemon that stopped or a failing disk can block for ever and takes its
caller along (kubernetes/kubernetes#122491). So each filesystem has one daemon thread of its own and at most one
reading outstanding: a caller waits up to a limit and then goes on without.

Covers: reading, the deadline. Does not cover: what is seen between two looks (`threshold_notifier`), what a filesystem is to the
node (`filesystems`).
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
from signals.interval import Marks
from signals.threshold_notifier import Glancer, Glances, glance_statvfs
from signals.types import FsStats, ReadingUnavailable

PROBE_LIMIT_SECONDS = 2.0
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


class Probe:
    """Readings of one path with a deadline.

    A reading that is late is given up by its caller, not by the thread: the thread stays in the system call, and
    until it returns every further look at this path fails at once instead of adding another stuck thread.
    """

    def __init__(self, path: str, reader: FilesystemReader, clock: Clock, limit_seconds: float = PROBE_LIMIT_SECONDS):
        self.path = path
        self._reader = reader
        self._clock = clock
        self._limit_seconds = limit_seconds
        self._one_caller = threading.Lock()
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Reading | OSError] = queue.SimpleQueue()
        self._ordering = threading.Lock()  # held for moments only, other than that of the caller
        self._outstanding = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def read(self) -> Reading:
        """The reading, at most `limit_seconds` from now. Raises ReadingUnavailable with a sentence."""
        with self._one_caller:
            return self._read()

    def _put(self, order: _Order) -> None:
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
        while self._orders.get() is _Order.READ:
            self._answers.put(self._answer())

    def _answer(self) -> Reading | OSError:
        try:
            return self._reader(self.path, self._clock.monotonic())
        except OSError as error:
            return error
        except Exception as error:  # noqa: BLE001 # whatever a reader does, its caller gets an answer
            return OSError(f"{type(error).__name__}: {error}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


class Probes:
    """The probes of a node, one a path, made when first asked for; and one who glances for all of them."""

    def __init__(
        self,
        clock: Clock,
        reader: FilesystemReader = read_statvfs,
        limit_seconds: float = PROBE_LIMIT_SECONDS,
    ):
        self._make: Callable[[str], Probe] = lambda path: Probe(path, reader, clock, limit_seconds)
        self._lock = threading.Lock()  # over `_probes`; never held while a filesystem is read
        self._probes: dict[str, Probe] = {}
        self._glances = Glances(clock, glancer_of(reader))

    def read(self, path: str) -> Reading:
        """The reading of the filesystem that holds `path`. Raises ReadingUnavailable."""
        return self._probe(path).read()

    def watch(self, path: str, marks: Marks | None, look_due: Callable[[], None]) -> None:
        """Glances at the filesystem that holds `path` until a look is due; see `Glances.watch`."""
        self._glances.watch(path, marks, look_due)

    def _probe(self, path: str) -> Probe:
        with self._lock:
            if path not in self._probes:
                self._probes[path] = self._make(path)
            return self._probes[path]

    def keep_only(self, paths: set[str]) -> None:
        """Closes the probes of paths that are not looked at any more, and ends their glances."""
        self._glances.keep_only(paths)
        with self._lock:
            for path in self._probes.keys() - paths:
                self._probes.pop(path).close()

    def close(self) -> None:
        """Closes every probe, and ends every glance."""
        self.keep_only(set())
        self._glances.close()
