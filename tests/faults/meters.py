"""Meters on a process: descriptors, threads, memory, and the longest stall of its heartbeat.

    with Meters(daemon.process.pid, control_heartbeat(socket)) as meters:
        ...
    print(meters.report)

Covers: samples of one process every few milliseconds, from outside, and a report of what grew.

Does not cover: limits; a test compares the numbers itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Self

import psutil

from eviction.surface.control_client import NotAskedError, ask

EVERY_SECONDS = 0.05
MIB = 1 << 20

Heartbeat = Callable[[], float | None]
"""Seconds since the process last did its main work; None when it cannot be asked."""


class Reading(NamedTuple):
    """What a process uses at one moment."""

    descriptors: int
    threads: int
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured: at the beginning, at the end, and the largest value of each in between.

    `longest_stall_seconds`: the greatest observed age of the heartbeat; None without a heartbeat.
    """

    first: Reading
    last: Reading
    peak: Reading
    longest_stall_seconds: float | None

    @property
    def descriptors_more(self) -> int:
        """Descriptors at the end beyond those at the beginning."""
        return self.last.descriptors - self.first.descriptors

    @property
    def threads_more(self) -> int:
        """Threads at the end beyond those at the beginning."""
        return self.last.threads - self.first.threads


class Meters:
    """Reads another process every `every_seconds` while the `with` block lasts; `report`
    afterwards."""

    def __init__(
        self, pid: int, heartbeat: Heartbeat | None = None, every_seconds: float = EVERY_SECONDS
    ) -> None:
        self._process = psutil.Process(pid)
        self._heartbeat = heartbeat
        self._every_seconds = every_seconds
        self._readings: list[Reading] = []
        self._stall: float | None = None
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="meters", daemon=True)

    def __enter__(self) -> Self:
        self._read()
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._sampler.join()
        self._read()

    @property
    def report(self) -> Report:
        """What was measured so far. IndexError before the `with` block."""
        read = tuple(self._readings)
        peak = Reading(*map(max, zip(*read, strict=True)))
        return Report(read[0], read[-1], peak, self._stall)

    def _sample(self) -> None:
        answered_at = time.monotonic()
        while not self._done.wait(self._every_seconds):
            self._read()
            if self._heartbeat is None:
                continue
            age = self._heartbeat()
            now = time.monotonic()
            if age is None:  # no answer is no heartbeat
                age = now - answered_at
            else:
                answered_at = now
            self._stall = max(self._stall or 0.0, age)

    def _read(self) -> None:
        process = self._process
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError):  # it has ended
            with process.oneshot():
                numbers = process.num_fds(), process.num_threads(), process.memory_info().rss
            self._readings.append(Reading(*numbers))


def control_heartbeat(socket: str) -> Heartbeat:
    """The heartbeat of a daemon that answers on this control socket."""

    def age() -> float | None:
        try:
            return float(ask(socket, "status")["heartbeat_age_seconds"])
        except NotAskedError:
            return None

    return age


def high_water_bytes(pid: int) -> int:
    """The peak resident memory of a process, by the kernel's account (VmHWM)."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
