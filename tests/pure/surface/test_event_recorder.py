"""Events to the API server: one object a reason, counted, at most one write a
minute; and `warned` never waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from io import StringIO

import pytest

from eviction.surface.api_server import NoAnswer
from eviction.surface.kubernetes_events import LONGEST_MESSAGE, WRITE_SECONDS, Event, EventRecorder
from eviction.types import Decision
from eviction.wording.log import Log
from reclaim.types import EventReason, GCEvent
from tests.pure.values import SteppedClock, observations_of

MET = GCEvent(EventReason.EVICTION_THRESHOLD_MET, "Attempting to reclaim ephemeral-storage")
FAILED = GCEvent(EventReason.CONTAINER_GC_FAILED, "it is away")
LONGEST_SECONDS = 20.0
SEEN = observations_of()
CALM = Decision(frozenset(), (), None, row=(), layout=None)
AWAY = NoAnswer("it cannot be reached")


class Cluster:
    """An API server: keeps the count of each write, and what it has of each reason; fails
    at first with `failures`.
    """

    def __init__(self, *failures: Exception):
        self.events: dict[str, Event] = {}
        self.writes: list[tuple[str, int]] = []
        self.before: Callable[[], None] = lambda: None
        self._failures = list(failures)

    def write(self, event: Event) -> None:
        """A new one, or one that happened again."""
        self.writes.append((event["reason"], event["count"]))
        self.before()
        if self._failures:
            raise self._failures.pop(0)
        self.events[event["reason"]] = event


class Story:
    """A recorder to a cluster, on a stepped clock."""

    def __init__(self, cluster: Cluster):
        self.clock = SteppedClock()
        self.out = StringIO()
        log = Log(self.clock.wall, stream=self.out)
        self.recorder = EventRecorder(cluster.write, "node-1", log, clock=self.clock)

    def tell(self, *events: GCEvent, after: float = 0.0) -> None:
        """So long after what was told before; writes what is due then."""
        self.clock.step(after)
        for event in events:
            self.recorder.warned(event)
        self.recorder.write_due()

    def observe(self, after: float = 0.0) -> None:
        """So long after what was told before, the node is observed."""
        self.clock.step(after)
        self.recorder.observed(SEEN, CALM)

    @property
    def said(self) -> list[str]:
        """The lines of the log."""
        return [line.split(" ", 1)[1].strip() for line in self.out.getvalue().splitlines()]


def test_an_event_becomes_an_object_at_once() -> None:
    """Named after the node, with the kubelet's reason."""
    cluster = Cluster()
    story = Story(cluster)
    story.tell(MET)
    event = cluster.events[MET.reason]
    assert event["metadata"]["name"] == f"node-1.evictionthresholdmet.{1_800_000_000 * 10**9:x}"
    assert (event["message"], event["count"]) == (MET.message, 1)
    assert story.said == []


def test_a_reason_is_one_object_with_the_latest_message_and_the_count_of_all() -> None:
    """Also of events that differ only in a number, and of those that came
    while nothing was written.
    """
    cluster = Cluster()
    story = Story(cluster)
    story.tell(*(GCEvent(FAILED.reason, f"freed {number} bytes") for number in range(30)))
    story.tell(GCEvent(FAILED.reason, "x" * 2000), after=3600.0)
    event = cluster.events[FAILED.reason]
    assert cluster.writes == [(FAILED.reason, 30), (FAILED.reason, 31)]
    assert event["message"] == "x" * LONGEST_MESSAGE
    assert (event["firstTimestamp"], event["lastTimestamp"]) == (
        "2027-01-15T08:00:00.000Z",
        "2027-01-15T09:00:00.000Z",
    )


def test_a_reason_is_written_at_most_once_a_minute() -> None:
    """Each for itself; what came in between is in the next write."""
    cluster = Cluster()
    story = Story(cluster)
    story.tell(MET)
    story.tell(MET, FAILED, after=20.0)
    story.tell(MET, after=WRITE_SECONDS - 21.0)
    assert cluster.writes == [(MET.reason, 1), (FAILED.reason, 1)]
    story.tell(after=1.0)
    assert cluster.writes == [(MET.reason, 1), (FAILED.reason, 1), (MET.reason, 3)]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (AWAY, "warning an event did not reach the API server: it cannot be reached"),
        (KeyError("defect"), "warning sending an event: KeyError: 'defect'"),
    ],
)
def test_what_could_not_be_written_is_tried_again_a_minute_later(
    error: Exception, line: str
) -> None:
    """With what came meanwhile; another reason does not wait for it."""
    cluster = Cluster(error)
    story = Story(cluster)
    story.tell(MET, FAILED)
    story.tell(MET, after=30.0)
    story.tell(after=30.0)
    assert cluster.writes == [(MET.reason, 1), (FAILED.reason, 1), (MET.reason, 2)]
    assert story.said[0] == line


def test_a_cluster_that_is_down_is_told_once_a_minute_and_that_it_is_back() -> None:
    """However many events there are, they are few objects: nothing is lost, and nothing grows."""
    cluster = Cluster(*[AWAY] * 5)
    story = Story(cluster)
    for _ in range(5):
        story.tell(*[MET] * 1000, after=WRITE_SECONDS)
    assert len(story.said) == 5
    story.tell(after=WRITE_SECONDS)
    assert cluster.events[MET.reason]["count"] == 5000
    assert story.said[5:] == ["info    the API server accepts events again"]


def test_what_was_not_written_is_written_once_the_node_is_observed_after_a_minute() -> None:
    """And at the end what is due."""
    cluster = Cluster(AWAY)
    story = Story(cluster)
    story.recorder.start()
    story.recorder.warned(MET)
    assert story.recorder.done(LONGEST_SECONDS)
    story.observe(after=WRITE_SECONDS - 1.0)
    assert story.recorder.done(LONGEST_SECONDS)
    assert cluster.events == {}
    story.observe(after=1.0)
    assert story.recorder.done(LONGEST_SECONDS)
    assert cluster.events.keys() == {MET.reason}
    story.clock.step(WRITE_SECONDS)
    story.recorder.warned(FAILED)
    assert story.recorder.finish(LONGEST_SECONDS)
    assert cluster.events.keys() == {MET.reason, FAILED.reason}


def test_the_end_waits_for_no_further_try() -> None:
    """The thread ends although the next one would be in a minute."""
    cluster = Cluster(*[AWAY] * 10)
    story = Story(cluster)
    story.recorder.start()
    story.recorder.warned(MET)
    assert story.recorder.finish(LONGEST_SECONDS)
    assert cluster.writes == [(MET.reason, 1)]


def test_an_api_server_that_hangs_holds_up_nobody() -> None:
    """`warned` counts, and `finish` ends, while a write is under way."""
    reached, over = threading.Event(), threading.Event()
    cluster = Cluster()
    story = Story(cluster)

    def hang() -> None:
        reached.set()
        over.wait(LONGEST_SECONDS)

    cluster.before = hang
    story.recorder.start()
    story.recorder.warned(MET)
    assert reached.wait(LONGEST_SECONDS)
    story.recorder.warned(MET)
    story.recorder.finish(0.0)
    assert cluster.events == {}
    over.set()
