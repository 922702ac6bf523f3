"""Summaries of the daemon's last passes, for the control socket. Their size is bounded."""

from __future__ import annotations

import threading

from eviction.reporting.pass_shapes import PassJson

KEPT_PASSES = 20


class RecentPasses:
    """At most `limit` summaries, the oldest first. May be used from several threads."""

    def __init__(self, limit: int = KEPT_PASSES):
        self._limit = limit
        self._lock = threading.Lock()
        self._records: dict[str, PassJson] = {}

    def keep(self, summary: PassJson) -> None:
        """Adds the summary of a pass, or replaces the one with the same id."""
        with self._lock:
            self._records[summary["id"]] = summary
            while len(self._records) > self._limit:
                del self._records[next(iter(self._records))]

    def all(self) -> tuple[PassJson, ...]:
        """The summaries, the oldest first."""
        with self._lock:
            return tuple(self._records.values())
