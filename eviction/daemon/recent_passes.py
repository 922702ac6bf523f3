"""The last passes of the daemon, for whoever asks what it did: summaries in bounds, not the passes themselves."""

from __future__ import annotations

import threading
from typing import Any

KEPT_PASSES = 20


class RecentPasses:
    """At most so many summaries, the oldest first. May be used from several threads."""

    def __init__(self, limit: int = KEPT_PASSES):
        self._limit = limit
        self._lock = threading.Lock()
        self._records: dict[str, dict[str, Any]] = {}

    def keep(self, summary: dict[str, Any]) -> None:
        """Adds the summary of a pass; a later form of one that is here takes its place."""
        with self._lock:
            self._records[summary["id"]] = summary
            while len(self._records) > self._limit:
                del self._records[next(iter(self._records))]

    def all(self) -> tuple[dict[str, Any], ...]:
        """All that are kept."""
        with self._lock:
            return tuple(self._records.values())
