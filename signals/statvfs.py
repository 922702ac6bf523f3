"""One reading of one filesystem, and the thread that bears the wait when it does not answer.

`statvfs` on a dead NFS server, a FUSE daemon that stopped or a failing disk can block for ever and takes its
caller along (kubernetes/kubernetes#122491). So each filesystem has one daemon thread of its own and at most one
reading outstanding: a caller waits up to a limit and then goes on without.

Covers: reading, the deadline. Does not cover: what a filesystem is to the node (`filesystems`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from signals.clock import Clock
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
        self._wanted = threading.Semaphore(0)
        self._answered = threading.Event()
        self._busy = False
        self._closed = False
        self._result: Reading | OSError | None = None
        self._thread: threading.Thread | None = None

    def read(self) -> Reading:
        """The reading, at most `limit_seconds` from now. Raises ReadingUnavailable with a sentence."""
        with self._one_caller:
            return self._read()

    def _read(self) -> Reading:
        if self._busy and not self._answered.is_set():
            raise ReadingUnavailable(f"{self.path}: the filesystem has not answered an earlier statvfs yet")
        if self._thread is None:  # daemon: a thread stuck in the kernel must not hold up the end of the process
            self._thread = threading.Thread(target=self._serve, name=f"statvfs {self.path}", daemon=True)
            self._thread.start()
        self._answered.clear()
        if self._closed:  # asked after the clearing: a thread that ends from here on still answers this caller
            raise ReadingUnavailable(f"{self.path}: {NOT_LOOKED_AT}")
        self._busy = True
        self._wanted.release()
        if not self._answered.wait(self._limit_seconds):
            raise ReadingUnavailable(
                f"{self.path}: the filesystem did not answer statvfs within {self._limit_seconds:g} s"
            )
        self._busy = False
        match self._result:
            case Reading() as reading:
                return reading
            case None:
                raise ReadingUnavailable(f"{self.path}: {NOT_LOOKED_AT}")
            case error:
                raise ReadingUnavailable(f"{self.path}: cannot be read: {_reason(error)}")

    def close(self) -> None:
        """Lets the thread end. One that is stuck in the kernel ends with the process."""
        self._closed = True
        self._wanted.release()

    def _serve(self) -> None:
        while True:
            self._wanted.acquire()
            if self._closed:
                if not self._answered.is_set():  # else a reading is there that its caller has not taken yet
                    self._result = None
                    self._answered.set()
                return
            try:
                self._result = self._reader(self.path, self._clock.monotonic())
            except OSError as error:
                self._result = error
            except Exception as error:  # noqa: BLE001 # whatever a reader does, its caller gets an answer
                self._result = OSError(f"{type(error).__name__}: {error}")
            self._answered.set()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


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
        with self._lock:
            if path not in self._probes:
                self._probes[path] = self._make(path)
            probe = self._probes[path]
        return probe.read()

    def keep_only(self, paths: set[str]) -> None:
        """Closes the probes of paths that are not looked at any more."""
        with self._lock:
            for path in self._probes.keys() - paths:
                self._probes.pop(path).close()

    def close(self) -> None:
        """Closes every probe."""
        self.keep_only(set())
