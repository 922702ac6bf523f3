"""The runtime's lists, read shortly before a mark is reached, so that the first byte does not wait for them.

On a node with hundreds of containers and images the lists take as long as everything else before the first removal
together. So where a disk that fills fast comes near a mark, they are read just before it; a pass that begins in time
plans on them, and checks each object right before its removal as it always does (`Collector.read_ahead`).

Covers: when. Does not cover: what is read, and how long it may be used (`reclaim.functions`).
"""

from __future__ import annotations

from contextlib import suppress

from eviction.daemon.worker import TICK_SECONDS
from eviction.node.node import Node
from reclaim.execution.readings import ReadingHangs, ReadingsInTime
from reclaim.execution.workers import NoThread, Workers
from reclaim.types import RuntimeUnavailable
from signals.types import SignalObservations

AHEAD_SECONDS = TICK_SECONDS + 0.15  # before the mark: the loop observes each tick, so one observation falls into it
LONGEST_SECONDS = 0.5  # how long a pass may have to wait for a reading that was begun for it
SHORTEST_REST_SECONDS = 1.0  # after a reading that no pass has used
REST_TIMES = 20  # at most a twentieth of the time is spent on readings that no pass uses


class ReadingAhead:
    """Decides when to read ahead, and reads, on one of these threads at most. For one thread at a time."""

    def __init__(self, node: Node, threads: Workers):
        self._node = node
        self._in_time = ReadingsInTime(threads, LONGEST_SECONDS)
        self._rests_until = float("-inf")

    def due(self, observations: SignalObservations, now: float) -> bool:
        """Whether to read now (monotonic seconds): a pass in a hurry may begin within 0.4 s."""
        return now >= self._rests_until and self._node.responder.hurries_within(AHEAD_SECONDS, observations)

    def pass_begins(self) -> None:
        """What was read is used now, or of no use any more: the next mark may be read ahead for at once."""
        self._rests_until = float("-inf")

    def read(self) -> None:
        """Reads, for half a second at most. Without an answer nothing is read ahead: the pass asks for itself."""
        clock, collector = self._node.clock, self._node.collector
        began = clock.monotonic()
        with suppress(RuntimeUnavailable, ReadingHangs, NoThread):
            collector.keep_read_ahead(self._in_time(collector.read_ahead))
        now = clock.monotonic()
        self._rests_until = now + max(SHORTEST_REST_SECONDS, REST_TIMES * (now - began))
