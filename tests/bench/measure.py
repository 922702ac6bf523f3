"""A row of the table, and an observer of a filesystem that is independent of the daemon."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Sequence
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

    def cells(self) -> list[str]:
        """Median and extremes, for the table."""
        figures = (statistics.median(self.values), min(self.values), max(self.values))
        shown = (f"{figure(value)} {self.unit}" for value in figures)
        return [self.what, str(len(self.values)), *shown]


def figure(value: float) -> str:
    """Three significant digits, without powers of ten."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


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
            if self.crossed_at is None:
                if available < self.mark:
                    self.crossed_at = now
            else:
                if self.first_gain_at is None and available > last:
                    self.first_gain_at = now
                if self.relieved_at is None and available >= goal:
                    self.relieved_at = now
            last = available
