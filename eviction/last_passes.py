"""The last passes of the daemon, for whoever asks what it did."""

from __future__ import annotations

import threading

from eviction.record import Pass


class LastPasses:
    """At most so many records, the oldest first. May be used from several threads."""

    def __init__(self, limit: int):
        self._limit = limit
        self._lock = threading.Lock()
        self._records: dict[str, Pass] = {}

    def keep(self, record: Pass) -> None:
        """Adds a record; a later form of one that is here takes its place."""
        with self._lock:
            self._records[record.id] = record
            while len(self._records) > self._limit:
                del self._records[next(iter(self._records))]

    def all(self) -> tuple[Pass, ...]:
        """All that are kept."""
        with self._lock:
            return tuple(self._records.values())
