"""How long removals usually take, and the rest after one that took far longer.

A runtime that deletes can starve the disk that it deletes from (kubernetes/kubernetes#38710), and containerd holds a
lock meanwhile for which new containers wait (containerd/containerd#11021). A removal that takes ten times as long as
its kind usually does is the sign of it. After one nothing new is sent for as long as it took, so that at most half of
the time belongs to the deleting while it lasts.
"""

from __future__ import annotations

import statistics
from collections import deque

from reclaim.types import Kind, Outcome, Result

FAR_LONGER = 10.0
SHORTEST_SLOW_SECONDS = 5.0  # shorter is never slow: a large image on a busy disk takes some seconds
LONGEST_REST_SECONDS = 10.0  # a disk that fills does not wait for ever
REMEMBERED = 32
SENT = (Result.REMOVED, Result.FAILED, Result.UNANSWERED)


class RemovalPace:
    """What is usual on this node, by kind: the median of the last 32. Not for two callers at a time."""

    def __init__(self) -> None:
        self._seconds: dict[Kind, deque[float]] = {}

    def rest_after(self, outcome: Outcome) -> float:
        """Seconds for which nothing new should be sent; 0.0 after a removal as they usually are."""
        if outcome.result not in SENT:
            return 0.0
        known = self._seconds.setdefault(outcome.verdict.kind, deque(maxlen=REMEMBERED))
        usual = statistics.median(known) if known else 0.0
        known.append(outcome.duration_seconds)
        if outcome.duration_seconds < max(FAR_LONGER * usual, SHORTEST_SLOW_SECONDS):
            return 0.0
        return min(outcome.duration_seconds, LONGEST_REST_SECONDS)
