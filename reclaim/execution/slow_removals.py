"""How long removals usually take, and the pause after one that took far longer.

A runtime that deletes can starve the disk that it deletes from (kubernetes/kubernetes#38710), and containerd holds a
lock meanwhile for which new containers wait (containerd/containerd#11021). A removal that takes ten times as long as
its kind usually does is the sign of it. After one, nothing new is sent for as long as it took, so that deleting takes
at most half of the time while that lasts. A check before the removal that takes long is no such sign.
"""

from __future__ import annotations

import statistics
from collections import deque

from reclaim.types import Outcome, Result

FAR_LONGER = 10.0
SHORTEST_SLOW_SECONDS = 5.0  # shorter is never slow: a large image on a busy disk takes some seconds
LONGEST_PAUSE_SECONDS = 10.0  # a disk that fills does not wait for ever
REMEMBERED = 32
SENT = (Result.REMOVED, Result.FAILED, Result.UNANSWERED)


class SlowRemovals:
    """What is usual on this node, by kind of object: the median of the last 32. Not for two callers at a time."""

    def __init__(self) -> None:
        self._seconds: dict[str, deque[float]] = {}

    def pause_after(self, outcome: Outcome) -> float:
        """Seconds for which nothing new should be sent; 0.0 after a removal that took as long as usual."""
        if outcome.result not in SENT or not outcome.call_seconds:
            return 0.0
        known = self._seconds.setdefault(outcome.verdict.kind, deque(maxlen=REMEMBERED))
        usual = statistics.median(known) if known else 0.0
        known.append(outcome.call_seconds)
        if outcome.call_seconds < max(FAR_LONGER * usual, SHORTEST_SLOW_SECONDS):
            return 0.0
        return min(outcome.call_seconds, LONGEST_PAUSE_SECONDS)
