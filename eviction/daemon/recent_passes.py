"""Summaries of the daemon's last passes, for the control socket. Their size is bounded."""

from __future__ import annotations

import threading
from typing import Any

KEPT_PASSES = 20


class RecentPasses:
    """At most `limit` summaries, the oldest first. May be used from several threads."""

    def __init__(self, limit: int = KEPT_PASSES):
        self._limit = limit
        self._lock = threading.Lock()
        self._records: dict[str, dict[str, Any]] = {}

    def keep(self, summary: dict[str, Any]) -> None:
        """Adds the summary of a pass, or replaces the one with the same id."""
        with self._lock:
            self._records[summary["id"]] = summary
            while len(self._records) > self._limit:
                del self._records[next(iter(self._records))]

    def all(self) -> tuple[dict[str, Any], ...]:
        """The summaries, the oldest first."""
        with self._lock:
            return tuple(self._records.values())
