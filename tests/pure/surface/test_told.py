"""What the daemon tells: lines of its log, and events to the API server, one object a reason."""

from __future__ import annotations

import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from eviction.configuration.effective import load
from eviction.engine.node import Node
from eviction.records.listener import Listener
from eviction.records.passes import Pass, PassResult, Timings, Trigger
from eviction.surface.announcements import Announcements
from eviction.surface.kubernetes_events import (
    LONGEST_MESSAGE,
    Event,
    EventRecorder,
    NoAnswer,
    counted,
)
from eviction.types import Decision
from eviction.wording.log import Log
from reclaim.types import (
    Action,
    Amounts,
    EventReason,
    GCEvent,
    Kind,
    Outcome,
    Reason,
    ReclaimResult,
    Result,
    Verdict,
)
from signals.types import Signal
from tests.expected import expect
from tests.pure.values import GIB, MIB, SteppedClock, observation, observations_of, threshold

CALM = Decision(frozenset(), (), None, row=(), layout=None)
MET = GCEvent(EventReason.THRESHOLD_MET, "Attempting to reclaim ephemeral-storage")
FAILED = GCEvent(EventReason.CONTAINER_GC_FAILED, "it is away")
AWAY = NoAnswer("it cannot be reached")
LONGEST_SECONDS = 20.0


def a_dry_run() -> Pass:
    """A pass that would remove two images."""
    verdicts = [
        Verdict(Kind.IMAGE, name, f"registry.example/{name}:1", Action.REMOVE, Reason.UNUSED)
        for name in "ab"
    ]
    planned = tuple(Outcome(verdict, Result.PLANNED) for verdict in verdicts)
    functions = (ReclaimResult("DeleteUnusedImages", planned),)
    result, reason = PassResult.DRY_RUN, "would remove 2 objects"
    return Pass(
        "1",
        0.0,
        Trigger.INTERVAL,
        observations_of(),
        CALM,
        functions=functions,
        result=result,
        reason=reason,
    )


def relieved(signal: Signal, seconds: float | None, *kinds: str, trigger: Trigger) -> Pass:
    """A pass that removed one object of each kind because of this signal, and was enough."""
    met = threshold(signal, "10%")
    outcomes = tuple(
        Outcome(Verdict(kind, kind, f"{kind}-1", Action.REMOVE, Reason.UNUSED), Result.REMOVED)
        for kind in kinds
    )
    return Pass(
        f"a{len(kinds)}",
        0.0,
        trigger,
        observations_of(observation(signal, GIB)),
        CALM._replace(acted_on=met),
        functions=(ReclaimResult("DeleteUnusedImages", outcomes),),
        measured=Amounts(93 * MIB, 4711),
        result=PassResult.SATISFIED,
        reason="removed them; no threshold is met any more",
        timings=Timings(total_seconds=0.071),
        seconds_to_eviction=seconds,
    )


def test_relief_is_one_line_and_a_normal_event_that_says_how_near_eviction_was() -> None:
    """By the kubelet's mark, if it was near; bytes or inodes, as what was short. None of a filesystem
    that is not the kubelet's, nor if nothing was removed."""

    class Heard(Listener):
        def __init__(self) -> None:
            self.events: list[Event] = []

        def warned(self, event: GCEvent) -> None:
            self.events.append(counted(event, None, "node-1", wall=0.0))

    clock, out, heard = SteppedClock(), StringIO(), Heard()
    node = Node(load(None, {}, {"kubeletConfig": ""}), clock=clock)
    node.listeners.add(heard)
    announcements = Announcements(node, Log(clock.wall, journal=True, stream=out))
    images, inodes = Signal.IMAGEFS_AVAILABLE, Signal.NODEFS_INODES_FREE
    for signal, seconds, kinds, trigger in (
        (images, 1.96, ["image"] * 7, Trigger.WATCH),
        (inodes, 0.0, ["container", "container", "sandbox", "sandbox", "pod_log"], Trigger.LEAD),
        (images, None, ["image"], Trigger.INTERVAL),
        (images, 7200.0, ["rotated_log"], Trigger.INTERVAL),
        (Signal("cache.available"), None, ["listed"], Trigger.INTERVAL),
        (images, 1.0, [], Trigger.INTERVAL),
    ):
        announcements.passed(relieved(signal, seconds, *kinds, trigger=trigger))
    assert node.listeners.done(LONGEST_SECONDS)
    told = [f"{event['type']} {event['reason']}: {event['message']}" for event in heard.events]
    expect(Path(__file__).with_name("expected") / "relief.txt", out.getvalue() + "\n".join(told))


@pytest.mark.regression
@pytest.mark.parametrize("as_json", [False, True])
def test_what_repeats_is_said_once_or_once_a_minute(as_json: bool) -> None:
    """Each new problem of the kubelet and its end once; a pass and what it would remove, what takes
    long, what listeners lose, once a minute. JSON has the names in the record."""
    clock, out = SteppedClock(), StringIO()
    fields = {"kubeletConfig": "", "kubeletEndpoint": "auto"}
    node = Node(load(None, {}, fields), clock=clock)
    announcements = Announcements(node, Log(clock.wall, as_json=as_json, stream=out))
    problem = "kubeletEndpoint auto found no way"
    for each in (None, problem, problem, "403", None, None, problem):
        announcements.runtime_asked(None, each)
    for seconds in (12.0, 13.0):
        announcements.takes_long("relieving nodefs.available", seconds)
    for number in (1, 2):
        announcements.listener_failed("Metrics", KeyError("kind"))
        announcements.events_dropped(number)
    for _ in range(3):
        announcements.passed(a_dry_run())
        clock.step(31.0)
    name = f"announcements.{'json' if as_json else 'txt'}"
    expect(Path(__file__).with_name("expected") / name, out.getvalue())


class Cluster:
    """An API server, a recorder of its events and its log, on a stepped clock: keeps what it has of
    each reason, and the count of each write; fails at first with `failures`."""

    def __init__(self, *failures: Exception):
        self.events: dict[str, Event] = {}
        self.writes: list[tuple[str, int]] = []
        self.before: Callable[[], object] = lambda: None
        self._failures = list(failures)
        self.clock, self._out = SteppedClock(), StringIO()
        log = Log(self.clock.wall, stream=self._out)
        self.recorder = EventRecorder(self._write, "node-1", log, clock=self.clock)

    def _write(self, event: Event) -> None:
        self.writes.append((event["reason"], event["count"]))
        self.before()
        if self._failures:
            raise self._failures.pop(0)
        self.events[event["reason"]] = event

    def tell(self, *events: GCEvent, after: float = 0.0) -> None:
        """So long after what was told before; writes what is due then."""
        self.clock.step(after)
        for event in events:
            self.recorder.warned(event)
        self.recorder.write_due()

    def observe(self, after: float) -> None:
        """So long after what was told before, the node is observed, and what is due is written."""
        self.clock.step(after)
        self.recorder.observed(observations_of(), CALM)
        assert self.recorder.done(LONGEST_SECONDS)

    @property
    def said(self) -> list[str]:
        """The lines of the log."""
        return [line.split(" ", 1)[1].strip() for line in self._out.getvalue().splitlines()]


def test_a_reason_is_one_object_at_most_once_a_minute() -> None:
    """At once, named after the node; then the latest message and the count of all, also of those
    that came while nothing was written, each reason for itself."""
    cluster = Cluster()
    cluster.tell(MET)
    name = f"node-1.reclaimdthresholdmet.{1_800_000_000 * 10**9:x}"
    assert cluster.events[MET.reason]["metadata"]["name"] == name
    freed = [GCEvent(FAILED.reason, f"freed {number} bytes") for number in range(30)]
    cluster.tell(MET, *freed, after=20.0)
    cluster.tell(MET, after=39.0)
    assert cluster.writes == [(MET.reason, 1), (FAILED.reason, 30)]
    cluster.tell(after=1.0)
    assert cluster.writes[2:] == [(MET.reason, 3)]
    cluster.tell(GCEvent(FAILED.reason, "x" * 2000), after=3560.0)
    event = cluster.events[FAILED.reason]
    assert (event["message"], event["count"]) == ("x" * LONGEST_MESSAGE, 31)
    times = [event[name][11:19] for name in ("firstTimestamp", "lastTimestamp")]
    assert (times, cluster.said) == (["08:00:20", "09:00:20"], [])


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
    """With what came meanwhile; another reason does not wait for it. It is told once a minute, and
    that it is over; nothing is lost, and nothing grows."""
    cluster = Cluster(error)
    cluster.tell(MET, FAILED)
    cluster.tell(MET, after=30.0)
    cluster.tell(after=30.0)
    assert cluster.writes == [(MET.reason, 1), (FAILED.reason, 1), (MET.reason, 2)]
    assert cluster.said[0] == line
    cluster = Cluster(*[AWAY] * 5)
    for _ in range(5):
        cluster.tell(*[MET] * 1000, after=60.0)
    assert len(cluster.said) == 5
    cluster.tell(after=60.0)
    assert cluster.events[MET.reason]["count"] == 5000
    assert cluster.said[5:] == ["info    the API server accepts events again"]


def test_its_thread_writes_when_the_node_is_observed_and_at_the_end() -> None:
    """What is due, with no further try; a failure waits for its minute."""
    cluster = Cluster(AWAY)
    cluster.recorder.start()
    cluster.recorder.warned(MET)
    assert cluster.recorder.done(LONGEST_SECONDS)
    cluster.observe(after=59.0)
    assert cluster.events == {}
    cluster.observe(after=1.0)
    assert cluster.events.keys() == {MET.reason}
    cluster.clock.step(60.0)
    cluster.recorder.warned(FAILED)
    assert cluster.recorder.finish(LONGEST_SECONDS)
    assert cluster.events.keys() == {MET.reason, FAILED.reason}
    away = Cluster(*[AWAY] * 10)
    away.recorder.start()
    away.recorder.warned(MET)
    assert away.recorder.finish(LONGEST_SECONDS)
    assert away.writes == [(MET.reason, 1)]


def test_an_api_server_that_hangs_holds_up_nobody() -> None:
    """`warned` counts, and `finish` ends, while a write is under way."""
    reached, over = threading.Event(), threading.Event()
    cluster = Cluster()

    def hang() -> None:
        reached.set()
        over.wait(LONGEST_SECONDS)

    cluster.before = hang
    cluster.recorder.start()
    cluster.recorder.warned(MET)
    assert reached.wait(LONGEST_SECONDS)
    cluster.recorder.warned(MET)
    cluster.recorder.finish(0.0)
    assert cluster.events == {}
    over.set()
