"""Aggregates equal events to one object with a count, and limits their rate.

The rules are those of client-go (`tools/record/events_cache.go`): equal events become one object with a count, and
beyond a burst of 25 events about one node only one in 5 minutes is sent.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from reclaim.events import EventReason, GCEvent

BURST = 25
REFILL_SECONDS = 300.0
MOST_REMEMBERED = 64  # different events
LONGEST_MESSAGE = 1024  # characters: what events.k8s.io allows for its note


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One event as an object of the API. `count`: how often it happened from `first` to `last` (wall seconds)."""

    name: str
    reason: EventReason
    message: str
    count: int
    first: float
    last: float


class EventCorrelator:
    """Decides which object is sent for each event. `node_name`: the prefix of the objects' names, as in the kubelet."""

    def __init__(self, node_name: str):
        self._node_name = node_name
        self._known: OrderedDict[tuple[EventReason, str], NodeEvent] = OrderedDict()
        self._number = 0
        self._tokens = float(BURST)
        self._filled_at: float | None = None

    def correlate(self, event: GCEvent, wall: float, now: float) -> NodeEvent | None:
        """The object to send: a new one, or a known one with a higher count; None: the rate limit is reached.

        `wall`: when it happened, wall seconds. `now`: monotonic seconds, for the rate limit.
        """
        key = (event.reason, event.message[:LONGEST_MESSAGE])
        known = self._known.pop(key, None)
        if known is None:
            counted = NodeEvent(self._new_name(wall), *key, 1, wall, wall)
        else:
            counted = replace(known, count=known.count + 1, last=wall)
        self._known[key] = counted
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return counted if self._take_token(now) else None

    def _new_name(self, wall: float) -> str:
        """`<node>.<nanoseconds in hexadecimal>`, as in client-go; never the same twice."""
        self._number = max(int(wall * 1e9), self._number + 1)
        return f"{self._node_name}.{self._number:x}"

    def _take_token(self, now: float) -> bool:
        passed = 0.0 if self._filled_at is None else now - self._filled_at
        self._filled_at = now
        self._tokens = min(self._tokens + passed / REFILL_SECONDS, float(BURST))
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
