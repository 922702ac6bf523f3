"""Decides what goes into the history, and hands it to the writer.

Every pass that removed something, tried to, or would have is recorded. One without any removal is recorded too, at most
once a minute for each result and signal: a runtime that is away ends a pass in each second.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from eviction.history_file.entries import (
    daemon_record,
    dropped_record,
    parked_ended_record,
    pass_records,
    periodic_records,
)
from eviction.history_file.store import HistoryStore
from eviction.history_file.writer import HistoryWriter
from eviction.listener import Listener
from eviction.record import Pass
from reclaim.types import Outcome, ReclaimResult
from signals.clock import Clock

REPEAT_SECONDS = 60.0


class HistoryRecorder(Listener):
    """The history of one process. All methods may be called from any thread; none waits, except `finish`.

    `path`: empty for none. `warn`: called with each new problem, on a thread of the history.
    """

    def __init__(self, path: str, size_bytes: int, clock: Clock, warn: Callable[[str], None]):
        self._clock = clock
        self._written: dict[tuple[str, str], float] = {}  # by what a pass without removals was
        self._writer: HistoryWriter | None = None
        if not path:
            return
        writer = HistoryWriter(HistoryStore(path, size_bytes), warn, lambda count: dropped_record(count, clock.wall()))
        if writer.start():
            self._writer = writer
        else:
            warn("the history is not written: no thread can be started for it")

    @property
    def counts(self) -> tuple[int, int]:
        """How many records were written, and how many were dropped."""
        return (0, 0) if self._writer is None else (self._writer.records, self._writer.dropped)

    def started(self) -> None:
        """The daemon has started."""
        self._daemon("started")

    def stopped(self) -> None:
        """The daemon ends."""
        self._daemon("stopped")

    def passed(self, record: Pass) -> None:
        """After a pass."""
        acted_on = record.decision.acted_on
        what = str(record.result), "" if acted_on is None else str(acted_on.signal)
        if record.removals or self._is_due(what):
            self._put(pass_records(record, self._clock.wall()))

    def collected(self, result: ReclaimResult) -> None:
        """After a pass of a periodic loop; one that had nothing to do is no event."""
        if result.outcomes or (result.error and self._is_due((result.operation, "error"))):
            self._put(periodic_records(os.urandom(6).hex(), result, self._clock.wall()))

    def parked_ended(self, outcome: Outcome) -> None:
        """When a parked removal is answered at last."""
        self._put([parked_ended_record(outcome, self._clock.wall())])

    def finish(self) -> bool:
        """Waits until everything is on the disk, at most 1 s. Whether it is."""
        return self._writer is None or self._writer.finish()

    def _daemon(self, kind: str) -> None:
        if self._writer is not None:
            self._put([daemon_record(kind, _version(), self._clock.wall(), os.getpid())])

    def _is_due(self, what: tuple[str, str]) -> bool:
        now = self._clock.monotonic()
        if now - self._written.get(what, float("-inf")) < REPEAT_SECONDS:
            return False
        self._written[what] = now
        return True

    def _put(self, records: list[bytes]) -> None:
        if self._writer is None:
            return
        for record in records:
            self._writer.put(record)


def _version() -> str:
    from importlib import metadata  # as long to import as all the rest, and commands need it only where nothing waits

    return metadata.version("reclaimd")
