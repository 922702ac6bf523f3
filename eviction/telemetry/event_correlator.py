"""Aggregates equal events to one object with a count, and limits their rate.

The rules are those of client-go (`tools/record/events_cache.go`):

* Equal events become one object with a count.
* From the tenth message of one reason on, with never more than 10 minutes between two, new messages become one object
  too, which says the latest of them.
* Beyond a burst of 25 events about one node only one in 5 minutes is sent. All are counted.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from reclaim.events import EventReason, GCEvent

BURST = 25
REFILL_SECONDS = 300.0
MOST_REMEMBERED = 64  # different events
LONGEST_MESSAGE = 1024  # characters: what events.k8s.io allows for its note
FEWEST_SIMILAR = 10  # messages of one reason
SIMILAR_SECONDS = 600.0
COMBINED = "(combined from similar events): "


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One event as an object of the API. `count`: how often it happened from `first` to `last` (wall seconds)."""

    name: str
    reason: EventReason
    message: str
    count: int
    first: float
    last: float


@dataclass(slots=True)
class _Similar:
    """The last different messages of one reason, in the order of their first appearance. `last`: monotonic seconds."""

    messages: dict[str, None]
    last: float


class EventCorrelator:
    """Decides which object is sent for each event. `node_name`: the prefix of the objects' names, as in the kubelet."""

    def __init__(self, node_name: str):
        self._node_name = node_name
        self._known: OrderedDict[tuple[EventReason, str], NodeEvent] = OrderedDict()
        self._similar: dict[EventReason, _Similar] = {}
        self._number = 0
        self._tokens = float(BURST)
        self._filled_at: float | None = None

    def correlate(self, event: GCEvent, wall: float, now: float) -> NodeEvent | None:
        """The object to send: a new one, or a known one with a higher count; None: the rate limit is reached.

        `wall`: when it happened, wall seconds. `now`: monotonic seconds, for the rate limit.
        """
        message = event.message[:LONGEST_MESSAGE]
        key = (event.reason, message)
        if self._is_one_of_many(event.reason, message, now):
            message, key = f"{COMBINED}{message}"[:LONGEST_MESSAGE], (event.reason, COMBINED)
        known = self._known.pop(key, None)
        if known is None:
            counted = NodeEvent(self._new_name(wall), event.reason, message, 1, wall, wall)
        else:
            counted = replace(known, message=message, count=known.count + 1, last=wall)
        self._known[key] = counted
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return counted if self._take_token(now) else None

    def _is_one_of_many(self, reason: EventReason, message: str, now: float) -> bool:
        """Whether this reason has come with so many different messages lately that they are combined."""
        similar = self._similar.get(reason)
        if similar is None or now - similar.last > SIMILAR_SECONDS:
            similar = self._similar[reason] = _Similar({}, now)
        similar.messages[message], similar.last = None, now
        if len(similar.messages) < FEWEST_SIMILAR:
            return False
        del similar.messages[next(iter(similar.messages))]
        return True

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
