"""What the daemon tells: lines of its log, and events to the API server, one object a reason; and what
it keeps: image records on a thread of their own, sums of its passes, and hints."""

from __future__ import annotations

import io
import json
import threading
from io import StringIO
from pathlib import Path

import pytest

from eviction.cli.status import function_lines
from eviction.cli.xfs_hint import read_size
from eviction.configuration.effective import load
from eviction.engine.node import Node
from eviction.records.json_shapes import to_json
from eviction.records.passes import Pass, PassResult, Timings, Trigger
from eviction.records.state_file import RecordFile
from eviction.surface.announcements import Announcements
from eviction.surface.daemon import KEPT_PASSES, Totals
from eviction.surface.kept_files import ImageRecordsSaver
from eviction.surface.kubernetes_events import (
    LONGEST_MESSAGE,
    Event,
    EventRecorder,
    NoAnswer,
    counted,
)
from eviction.surface.xfs_hints import usual_directories
from eviction.types import Decision
from eviction.wording.log import Log
from reclaim.images.records import ImageRecords
from reclaim.types import (
    Action,
    Amounts,
    EventReason,
    GCEvent,
    Image,
    ImageRecord,
    Kind,
    Outcome,
    Reason,
    ReclaimResult,
    Result,
    Verdict,
)
from signals.clock import SystemClock
from signals.types import Signal
from tests.expected import expect
from tests.pure.records.documents import a_pass
from tests.pure.values import GIB, MIB, SteppedClock, observation, observations_of, threshold
from tests.rows import rows, rows_of
from tests.thread_limit import no_thread_starts

CALM = Decision(frozenset(), (), None, row=(), layout=None)
MET = GCEvent(EventReason.THRESHOLD_MET, "Attempting to reclaim ephemeral-storage")
FAILED = GCEvent(EventReason.CONTAINER_GC_FAILED, "it is away")
AWAY = NoAnswer("it cannot be reached")
LONGEST_SECONDS = 60.0


def a_dry_run() -> Pass:
    """A pass that would remove two images."""
    verdicts = [
        Verdict(Kind.IMAGE, name, f"registry.example/{name}:1", Action.REMOVE, Reason.UNUSED)
        for name in "ab"
    ]
    planned = tuple(Outcome(verdict, Result.PLANNED) for verdict in verdicts)
    reason = "would remove 2 objects"
    function = ReclaimResult("DeleteUnusedImages", planned)
    return a_pass(function, id="1", started_wall=0.0, result=PassResult.DRY_RUN, reason=reason)


def relieved(signal: Signal, seconds: float | None, *kinds: str, trigger: Trigger) -> Pass:
    """A pass that removed one object of each kind because of this signal, and was enough."""
    outcomes = tuple(
        Outcome(Verdict(kind, kind, f"{kind}-1", Action.REMOVE, Reason.UNUSED), Result.REMOVED)
        for kind in kinds
    )
    return a_pass(
        ReclaimResult("DeleteUnusedImages", outcomes),
        met=threshold(signal, "10%"),
        id=f"a{len(kinds)}",
        trigger=trigger,
        observations=observations_of(observation(signal, GIB)),
        measured=Amounts(93 * MIB, 4711),
        result=PassResult.SATISFIED,
        reason="removed them; no threshold is met any more",
        timings=Timings(total_seconds=0.071),
        seconds_to_eviction=seconds,
    )


def test_relief_is_one_line_and_a_normal_event_that_says_how_near_eviction_was() -> None:
    """By the kubelet's mark, if it was near; bytes or inodes, as what was short. None of a filesystem
    that is not the kubelet's, nor if nothing was removed."""

    class Heard:
        def __init__(self) -> None:
            self.events: list[Event] = []

        def warned(self, event: GCEvent) -> None:
            self.events.append(counted(event, None, "node-1", wall=0.0))

    clock, out, heard = SteppedClock(), StringIO(), Heard()
    node = Node(load(None, {}, {"kubeletConfig": ""}), clock=clock)
    node.listeners.add(heard)
    announcements = Announcements(node, Log(clock.wall, journal=True, stream=out))
    for row in rows_of("""
        signal            | seconds | removed                                     | trigger
        imagefs.available | 1.96    | image image image image image image image   | WATCH
        nodefs.inodesFree | 0       | container container sandbox sandbox pod_log | LEAD
        imagefs.available |         | image                                       | INTERVAL
        imagefs.available | 7200    | rotated_log                                 | INTERVAL
        cache.available   |         | listed                                      | INTERVAL
        imagefs.available | 1       |                                             | INTERVAL
    """):
        seconds = float(row["seconds"]) if row["seconds"] else None
        kinds, trigger = row["removed"].split(), Trigger[row["trigger"]]
        announcements.passed(relieved(Signal(row["signal"]), seconds, *kinds, trigger=trigger))
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
        self._failures = list(failures)
        self.clock, self._out = SteppedClock(), StringIO()
        log = Log(self.clock.wall, stream=self._out)
        self.recorder = EventRecorder(self._write, "node-1", log, clock=self.clock)

    def _write(self, event: Event) -> None:
        self.writes.append((event["reason"], event["count"]))
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


SPOKEN = {"met": MET, "failed": FAILED}


def assert_written(cluster: Cluster, story: str) -> None:
    """On each line, so long after the one before, these are told, some of them many times; then what
    was written of each reason by now, with its counts, and how many lines were said."""
    for row in rows_of(story):
        told = [each.split() for each in row["told"].split(", ") if each]
        events = [SPOKEN[what] for what, times in told for _ in range(int(times))]
        cluster.tell(*events, after=float(row["after"]))
        counts = [
            " ".join(str(count) for reason, count in cluster.writes if reason == each.reason)
            for each in SPOKEN.values()
        ]
        assert [*counts, str(len(cluster.said))] == [row["met"], row["failed"], row["lines"]]


def test_a_reason_is_one_object_at_most_once_a_minute() -> None:
    """At once, named after the node; then the latest message and the count of all, also of those
    that came while nothing was written, each reason for itself."""
    cluster = Cluster()
    assert_written(
        cluster,
        """
        after | told             | met | failed | lines
        0     | met 1            | 1   |        | 0
        20    | met 1, failed 30 | 1   | 30     | 0
        39    | met 1            | 1   | 30     | 0
        1     |                  | 1 3 | 30     | 0
        """,
    )
    name = f"node-1.reclaimdthresholdmet.{1_800_000_000 * 10**9:x}"
    assert cluster.events[MET.reason]["metadata"]["name"] == name
    cluster.tell(GCEvent(FAILED.reason, "x" * 2000), after=3560.0)
    event = cluster.events[FAILED.reason]
    assert (event["message"], event["count"]) == ("x" * LONGEST_MESSAGE, 31)
    times = [event[name][11:19] for name in ("firstTimestamp", "lastTimestamp")]
    assert times == ["08:00:20", "09:00:20"]


def test_what_could_not_be_written_is_tried_again_a_minute_later() -> None:
    """With what came meanwhile; another reason does not wait for it. It is told once a minute, and
    that it is over; nothing is lost, and nothing grows."""
    cluster = Cluster(KeyError("defect"), *[AWAY] * 2)
    assert_written(
        cluster,
        """
        after | told            | met         | failed | lines
        0     | met 1           | 1           |        | 1
        30    | met 1000        | 1           |        | 1
        30    |                 | 1 1001      |        | 2
        60    | met 1, failed 1 | 1 1001 1002 | 1      | 4
        59    |                 | 1 1001 1002 | 1      | 4
        1     |                 | 1 1001 1002 1002 | 1 | 4
        """,
    )
    assert cluster.events[MET.reason]["count"] == 1002
    assert cluster.said == [
        "warning sending an event: KeyError: 'defect'",
        *["warning an event did not reach the API server: it cannot be reached"] * 2,
        "info    the API server accepts events again",
    ]


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
    cluster.recorder.warned(MET)
    assert cluster.recorder.done(LONGEST_SECONDS)
    cluster.clock.step(60.0)
    assert cluster.recorder.finish(LONGEST_SECONDS)
    assert cluster.events[MET.reason]["count"] == 2
    away = Cluster(*[AWAY] * 10)
    away.recorder.start()
    away.recorder.warned(MET)
    assert away.recorder.finish(LONGEST_SECONDS)
    assert away.writes == [(MET.reason, 1)]


FIRST, SECOND = ("sha256:" + letter * 64 for letter in "ab")


class HeldClock(SystemClock):
    """Whoever asks for the wall time waits until `goes_on` is set; `asked` is set meanwhile."""

    def __init__(self) -> None:
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def wall(self) -> float:
        self.asked.set()
        self.goes_on.wait(LONGEST_SECONDS)
        return super().wall()


def saver_of(path: Path, clock: SystemClock) -> tuple[ImageRecords, ImageRecordsSaver, io.StringIO]:
    """Records of one image, what saves them, and its log."""
    out = io.StringIO()
    records = ImageRecords(seed={FIRST: ImageRecord(clock.monotonic())})
    log = Log(SystemClock().wall, stream=out)
    return records, ImageRecordsSaver(records, RecordFile(str(path), clock), log), out


@pytest.mark.regression
def test_records_that_were_not_saved_for_want_of_a_thread_are_saved_later(tmp_path: Path) -> None:
    """A warning meanwhile; the file is there after the next save."""
    path = tmp_path / "state" / "images.json"
    _, saver, out = saver_of(path, SystemClock())
    with no_thread_starts():
        saver.detected()
    assert "the image records are not saved: no thread can be started" in out.getvalue()
    for _ in range(int(LONGEST_SECONDS)):  # each waits a second for the file at most
        saver.finish()
        if path.exists():
            break
    assert path.exists()


@pytest.mark.regression
def test_what_was_detected_while_records_were_being_saved_is_saved_at_the_end(
    tmp_path: Path,
) -> None:
    """The save that has begun has the records as they were; the last one comes after it."""
    clock, path = HeldClock(), tmp_path / "state" / "images.json"
    records, saver, _ = saver_of(path, clock)
    saver.detected()
    assert clock.asked.wait(LONGEST_SECONDS)
    both = [Image(FIRST), Image(SECOND)]
    records.update(both, frozenset(), clock.monotonic(), wall_now=1_800_000_000.0)
    threading.Timer(0.0, clock.goes_on.set).start()
    saver.finish(LONGEST_SECONDS)
    assert SECOND in path.read_text()


def pruned(count: int, seconds: float = 0.5) -> ReclaimResult:
    """So many files of 1 MiB, which promised twice as much."""
    verdict = Verdict("file", "1", "1", Action.REMOVE, "old", 2 * MIB)
    gone = Outcome(verdict, Result.REMOVED, freed=Amounts(MIB, 1))
    return ReclaimResult("prune", (gone,) * count, remove_seconds=seconds)


def test_calls_are_summed_by_function_and_the_last_one_is_kept() -> None:
    """Measured, nominal, seconds, calls, as a table of the status; one that was skipped was not
    called. Nothing before the first call."""
    totals, away = Totals(), ReclaimResult("DeleteUnusedImages", error="no runtime")
    assert function_lines(totals.functions) == []
    totals.passed(a_pass(pruned(2)))
    totals.passed(a_pass(pruned(1, 0.25), away, started_wall=1_800_000_060.0))
    shown = [*function_lines(totals.functions), json.dumps(to_json(totals.functions), indent=1)]
    expect(Path(__file__).with_name("expected") / "totals.txt", "\n".join(shown) + "\n")
    totals.passed(a_pass(ReclaimResult("prune", skipped="it rests for 9 s more")))
    last = totals.functions["prune"]["last"]
    assert (totals.functions["prune"]["calls"], last["skipped"]) == (2, "it rests for 9 s more")


def test_twenty_passes_stay_and_one_that_is_explained_later_keeps_its_place() -> None:
    """The oldest go first; a pass that is replaced is there once, and not counted twice."""
    totals, names = Totals(), [str(number) for number in range(KEPT_PASSES + 1)]
    for name in names:
        totals.passed(a_pass(pruned(1), id=name))
    totals.attributed(a_pass(pruned(1), id="2", reason="explained"))
    kept = [(each.id, each.reason) for each in totals.passes()]
    assert kept == [(name, "explained" if name == "2" else "") for name in names[1:]]
    assert totals.functions["prune"]["calls"] == len(names)


@rows("""
    containerfs                               | layers                                              | what
    /c/io.containerd.snapshotter.v1.overlayfs | /c/io.containerd.snapshotter.v1.overlayfs/snapshots | containerd
    /storage/overlay-images                   | /storage/overlay                                    | CRI-O
    /storage/overlay-containers               | /storage/overlay                                    | with images elsewhere
    /var/lib/docker                           |                                                     | another
                                              |                                                     | the runtime has not answered
""")
def test_a_hint_is_for_the_kubelets_directories_and_those_in_which_layers_are_made(
    containerfs: str | None, layers: str
) -> None:
    """Of containerd and CRI-O."""
    configuration = load(None, {}, {"rootDirectory": "/k", "podLogsDir": "/l"})
    assert usual_directories(configuration, containerfs) == ["/k/pods", "/l", *layers.split()]


def test_a_size_is_written_as_for_mkfs_or_as_in_the_file() -> None:
    """`1m` is a mebibyte here; in a file it would be a thousandth of a byte."""
    assert [*map(read_size, ("1m", "64k", "1g", "1Mi"))] == [1 << 20, 64 << 10, 1 << 30, 1 << 20]
    with pytest.raises(ValueError, match="must be between 4Ki and 1Gi, but it was '2Gi'"):
        read_size("2g")
