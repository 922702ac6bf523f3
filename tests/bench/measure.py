"""Repeated timings, and an observer of a filesystem that is independent of the daemon."""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

SAMPLE_SECONDS = 0.001
MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, of how many runs, in which unit, and the values."""

    what: str
    unit: str
    values: Sequence[float]

    @property
    def p99(self) -> float:
        """The 99th percentile; of fewer than 100 runs the worst."""
        ordered = sorted(self.values)
        return ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]

    def cells(self) -> list[str]:
        """Median, tail and extremes, for the table."""
        ordered = sorted(self.values)
        figures = (statistics.median(ordered), self.p99, ordered[0], ordered[-1])
        return [
            self.what,
            str(len(ordered)),
            *(f"{figure(value)} {self.unit}" for value in figures),
        ]


def figure(value: float) -> str:
    """Three significant digits, without powers of ten."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def seconds_of(call: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def command_milliseconds(command: Sequence[str], runs: int) -> list[float]:
    """Wall time of a whole process, exec to exit, in milliseconds."""
    return [
        seconds_of(lambda: subprocess.run(command, check=False, capture_output=True)) * 1000
        for _ in range(runs)
    ]


@dataclass
class Observer:
    """Reads a filesystem every millisecond on a thread of its own, while its `with` block lasts.

    `mark` in bytes; `goal`: from how many bytes on it counts as relieved, the mark by default.
    Times are `time.monotonic()`; None: did not happen.
    """

    path: str
    mark: int
    goal: int | None = None
    crossed_at: float | None = None
    first_gain_at: float | None = None
    relieved_at: float | None = None
    lowest: int = field(default=2**63)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        last = 2**63
        goal = self.mark if self.goal is None else self.goal
        while not self._stopped.wait(SAMPLE_SECONDS):
            found = os.statvfs(self.path)
            available, now = found.f_bavail * found.f_frsize, time.monotonic()
            self.lowest = min(self.lowest, available)
            if self.crossed_at is None:
                if available < self.mark:
                    self.crossed_at = now
            else:
                if self.first_gain_at is None and available > last:
                    self.first_gain_at = now
                if self.relieved_at is None and available >= goal:
                    self.relieved_at = now
            last = available
