"""Events to the API server: aggregated, limited, retried, dropped; and `warn` never waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from io import StringIO

from eviction.reporting.log import Log
from eviction.telemetry.kubernetes_events import (
    AGAIN_SECONDS,
    BURST,
    COMBINED,
    FEWEST_SIMILAR,
    MOST_QUEUED,
    MOST_REMEMBERED,
    MOST_TRIES,
    REFILL_SECONDS,
    SIMILAR_SECONDS,
    Event,
    EventCorrelator,
    EventNotSent,
    EventRecorder,
)
from reclaim.types import EventReason, GCEvent
from tests.pure.values import SteppedClock, SteppedEvent

MET = GCEvent(EventReason.EVICTION_THRESHOLD_MET, "Attempting to reclaim ephemeral-storage")
FAILED = GCEvent(EventReason.CONTAINER_GC_FAILED, "it is away")
LONGEST_SECONDS = 20.0
NAME = f"node-1.{1_800_000_000 * 10**9:x}"


class Cluster:
    """An API server: keeps what is written, and answers the first requests with `refusals`."""

    def __init__(self, *refusals: EventNotSent):
        self.events: dict[str, Event] = {}
        self.requests: list[str] = []
        self.before: Callable[[], None] = lambda: None
        self._refusals = list(refusals)

    def write(self, event: Event) -> None:
        """A new one, or one that happened again."""
        self.requests.append("create" if event["count"] == 1 else "update_count")
        self.before()
        if self._refusals:
            raise self._refusals.pop(0)
        self.events[event["metadata"]["name"]] = event


class Story:
    """A recorder to a cluster on a stepped clock; `tell` sends events one after the other, and returns the log."""

    def __init__(self, cluster: Cluster):
        self.clock = SteppedClock()
        self.out = StringIO()
        self._cluster = cluster
        self.recorder = EventRecorder(
            lambda: self._cluster.write,
            "node-1",
            Log(self.clock.wall, stream=self.out),
            self.clock,
            lambda: SteppedEvent(self.clock),
        )

    def tell(self, *events: GCEvent) -> list[str]:
        """What was said in the log."""
        for event in events:
            self.recorder.warn(event)
        self.recorder.start()
        self.recorder.finish(LONGEST_SECONDS)
        return [line.split(" ", 1)[1].strip() for line in self.out.getvalue().splitlines()]


def test_an_event_becomes_an_object() -> None:
    """Named after the node, with the kubelet's reason."""
    cluster = Cluster()
    assert Story(cluster).tell(MET) == []
    assert list(cluster.events) == [NAME]
    event = cluster.events[NAME]
    assert (event["reason"], event["message"], event["count"]) == (MET.reason, MET.message, 1)


def test_equal_events_are_counted() -> None:
    """Three of one kind and one of another: two objects."""
    cluster = Cluster()
    Story(cluster).tell(MET, MET, FAILED, MET)
    assert cluster.requests == ["create", "update_count", "create", "update_count"]
    assert [event["count"] for event in cluster.events.values()] == [3, 1]


def test_to_a_cluster_that_is_down_events_are_retried_every_10_s() -> None:
    """Logged once, and when it accepts events again; the event that waited arrives first."""
    cluster = Cluster(*[EventNotSent("it cannot be reached", retriable=True)] * 3)
    story = Story(cluster)
    assert story.tell(MET, FAILED) == [
        "warning an event did not reach the API server: it cannot be reached",
        "info    the API server accepts events again",
    ]
    assert story.clock.monotonic() - 1000.0 == 3 * AGAIN_SECONDS
    assert [event["reason"] for event in cluster.events.values()] == [MET.reason, FAILED.reason]


def test_an_event_is_given_up_after_twelve_tries() -> None:
    """The next one is sent all the same."""
    cluster = Cluster(*[EventNotSent("it cannot be reached", retriable=True)] * MOST_TRIES)
    Story(cluster).tell(MET, FAILED)
    assert cluster.requests == ["create"] * (MOST_TRIES + 1)
    assert [event["reason"] for event in cluster.events.values()] == [FAILED.reason]


def test_a_refused_event_is_not_retried() -> None:
    """403 will not change: it is logged, and the next event is sent."""
    cluster = Cluster(EventNotSent("it answered 403"))
    story = Story(cluster)
    assert story.tell(MET)[0] == "warning an event did not reach the API server: it answered 403"
    assert cluster.requests == ["create"]
    assert story.clock.monotonic() == 1000.0


def test_a_full_queue_drops_events_without_delay() -> None:
    """Events beyond the queue are dropped, which is logged once; what is in it is counted, and a burst arrives."""
    cluster = Cluster()
    events = [GCEvent(EventReason.IMAGE_GC_FAILED, str(number % 20)) for number in range(3 * MOST_QUEUED)]
    said = Story(cluster).tell(*events)
    assert said == ["warning events are lost: the API server accepts none, and the queue is full"]
    assert len(cluster.requests) == BURST


def test_a_defect_in_sending_concerns_one_event_only() -> None:
    """It is logged with its type, and the next event is sent."""
    cluster = Cluster()

    def break_once() -> None:
        if len(cluster.requests) == 1:
            raise KeyError("defect")

    cluster.before = break_once
    assert Story(cluster).tell(MET, FAILED) == ["warning sending an event: KeyError: 'defect'"]
    assert [event["reason"] for event in cluster.events.values()] == [FAILED.reason]


def test_without_a_writer_events_are_only_logged() -> None:
    """For example without the library: one sentence in the log, and `warn` still works."""

    def connect() -> Callable[[Event], None]:
        raise EventNotSent("the extra [kubernetes] is not installed")

    out, clock = StringIO(), SteppedClock()
    recorder = EventRecorder(connect, "node-1", Log(clock.wall, stream=out), clock)
    recorder.start()
    recorder.warn(MET)
    recorder.finish(LONGEST_SECONDS)
    assert out.getvalue().count("\n") == 1
    assert "events go only to the log: the extra [kubernetes] is not installed" in out.getvalue()


def test_finish_interrupts_the_wait_for_another_try() -> None:
    """The thread ends although it would wait 10 s, with events in the queue."""
    reached = threading.Event()
    cluster = Cluster(*[EventNotSent("it cannot be reached", retriable=True)] * MOST_TRIES)
    cluster.before = reached.set
    clock = SteppedClock()
    recorder = EventRecorder(lambda: cluster.write, "node-1", Log(clock.wall, stream=StringIO()), clock)
    recorder.warn(MET)
    recorder.warn(FAILED)
    recorder.start()
    assert reached.wait(LONGEST_SECONDS)
    recorder.finish(0.0)
    for thread in [thread for thread in threading.enumerate() if thread.name == "events"]:
        thread.join(AGAIN_SECONDS / 2)
        assert not thread.is_alive()
    assert cluster.requests == ["create"]


def test_beyond_a_burst_one_event_in_5_minutes_is_sent() -> None:
    """25 at once, the 26th not; the count continues meanwhile."""
    correlator = EventCorrelator("node-1")
    sent = [correlator.correlate(FAILED, 0.0, 0.0) for _ in range(BURST + 10)]
    assert [event is not None for event in sent] == [True] * BURST + [False] * 10
    later = correlator.correlate(FAILED, REFILL_SECONDS, REFILL_SECONDS)
    assert later is not None
    assert later["count"] == BURST + 11
    assert correlator.correlate(FAILED, REFILL_SECONDS, REFILL_SECONDS + 1.0) is None


def test_names_differ_although_the_clock_stands_still_or_steps_back() -> None:
    """And memory is bounded: the oldest message is forgotten, and becomes a new object."""
    correlator = EventCorrelator("node-1")
    names = set()
    for number in range(2 * MOST_REMEMBERED):
        event = correlator.correlate(GCEvent(FAILED.reason, str(number)), 100.0 - number, number * 3 * REFILL_SECONDS)
        assert event is not None
        names.add(event["metadata"]["name"])
    assert len(names) == 2 * MOST_REMEMBERED
    first = correlator.correlate(GCEvent(FAILED.reason, "0"), 100.0, 1e6)
    assert first is not None
    assert first["count"] == 1


def freed(number: int) -> GCEvent:
    """An event whose message has a number that changes from pass to pass."""
    return GCEvent(EventReason.FREE_DISK_SPACE_FAILED, f"freed {number} bytes")


def test_many_messages_of_one_reason_become_one_object() -> None:
    """From the tenth on, as in client-go: an object that says the latest message and counts them all."""
    correlator = EventCorrelator("node-1")
    sent = [correlator.correlate(freed(number), number, number * SIMILAR_SECONDS) for number in range(12)]
    messages = [event["message"] for event in sent if event is not None]
    alone = FEWEST_SIMILAR - 1
    assert messages[:alone] == [freed(number).message for number in range(alone)]
    assert messages[alone:] == [f"{COMBINED}{freed(number).message}" for number in range(alone, 12)]
    combined = [event for event in sent[alone:] if event is not None]
    assert [event["count"] for event in combined] == [1, 2, 3]
    assert len({event["metadata"]["name"] for event in combined}) == 1
    other = correlator.correlate(FAILED, 12.0, 12 * SIMILAR_SECONDS)
    assert other is not None
    assert other["message"] == FAILED.message, "each reason counts its own messages"
    later = correlator.correlate(freed(99), 100.0, 12 * SIMILAR_SECONDS + 1.0)
    assert later is not None
    assert later["message"] == freed(99).message, "after more than 10 minutes without one it begins anew"


def test_two_messages_that_alternate_are_never_combined() -> None:
    """Bytes and inodes run out together: two objects, each with its count."""
    correlator = EventCorrelator("node-1")
    inodes = GCEvent(MET.reason, "Attempting to reclaim inodes")
    sent = [correlator.correlate(event, 0.0, 0.0) for event in (MET, inodes) * FEWEST_SIMILAR]
    assert [event["count"] for event in sent[-2:] if event is not None] == [FEWEST_SIMILAR, FEWEST_SIMILAR]
    assert {event["message"] for event in sent if event is not None} == {MET.message, inodes.message}
