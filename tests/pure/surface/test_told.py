"""What the daemon tells: lines of its log, and events to the API server, one object a reason; what
it keeps: image records on a thread of their own, sums of its passes, and hints; and metrics: a
scrape after an observation and passes, whole, and the limit of its series."""

import gzip
import io
import json
import re
import threading
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from eviction.cli.status import function_lines
from eviction.cli.xfs_hint import read_size
from eviction.configuration.effective import load
from eviction.engine.node import Node
from eviction.records.json_shapes import to_json
from eviction.records.passes import Pass, PassResult, Timings, Trigger
from eviction.records.state_file import RecordFile
from eviction.surface.announcements import Announcements
from eviction.surface.daemon import (
    NodeStatus,
    ThresholdStatusJson,
    Totals,
    threshold_statuses,
)
from eviction.surface.kept_files import ImageRecordsSaver
from eviction.surface.kubernetes_events import (
    LONGEST_MESSAGE,
    Event,
    EventRecorder,
    NoAnswer,
    counted,
)
from eviction.surface.metrics import LARGEST_SERIES, Metrics
from eviction.surface.xfs_hints import usual_directories
from eviction.types import Decision, Threshold
from eviction.wording.log import Log
from reclaim.cri import cri_pb2
from reclaim.functions.table import FUNCTIONS
from reclaim.images.records import ImageRecords, Returned
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
from signals.clock import Clock, SystemClock
from signals.interval import FillRate, update_fill_rate
from signals.types import KUBELET_SIGNALS, FilesystemIdentity, Signal, SignalObservations
from tests.expected import expect
from tests.pages import DOCS, words
from tests.pure.records.documents import a_pass, a_status
from tests.pure.records.documents import outcome as one_outcome
from tests.pure.values import (
    GIB,
    MIB,
    InterruptedClock,
    Interruption,
    SteppedClock,
    image,
    image_id,
    observation,
    observations_of,
    threshold,
)
from tests.rows import rows, rows_of
from tests.thread_limit import no_thread_starts

CALM = Decision(frozenset(), (), None, row=(), layout=None)
MET = GCEvent(EventReason.THRESHOLD_MET, "Attempting to reclaim ephemeral-storage")
FAILED = GCEvent(EventReason.CONTAINER_GC_FAILED, "it is away")
AWAY = NoAnswer("it cannot be reached")
LONGEST_SECONDS = 60.0
EXPECTED = Path(__file__).with_name("expected")


def a_dry_run() -> Pass:
    """A pass that would remove two images."""
    planned = tuple(one_outcome(number, result=Result.PLANNED) for number in (1, 2))
    function, reason = ReclaimResult("DeleteUnusedImages", planned), "would remove 2 objects"
    return a_pass(function, id="1", started_wall=0.0, result=PassResult.DRY_RUN, reason=reason)


def relieved(signal: Signal, seconds: float | None, *kinds: str, trigger: Trigger) -> Pass:
    """A pass that removed one object of each kind because of this signal, and was enough."""
    return a_pass(
        ReclaimResult("f", tuple(one_outcome(1, f"{kind}-1", kind=kind) for kind in kinds)),
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
    """By the kubelet's mark, if it was near; bytes or inodes, as what was short. None of a
    filesystem that is not the kubelet's, nor if nothing was removed."""

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
    expect(EXPECTED / "relief.txt", out.getvalue() + "\n".join(told))


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
        node.pods.list_problem = each
        announcements.runtime_asked("")
    for seconds in (12.0, 13.0):
        announcements.takes_long("relieving nodefs.available", seconds)
    for number in (1, 2):
        announcements.listener_failed("Metrics", KeyError("kind"))
        announcements.events_dropped(number)
    for _ in range(3):
        announcements.passed(a_dry_run())
        clock.step(31.0)
    name = f"announcements.{'json' if as_json else 'txt'}"
    expect(EXPECTED / name, out.getvalue())


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
    """On each line, so long after the one before, these are told, some of them many times; then
    what was written of each reason by now, with its counts, and how many lines were said."""
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
    """What is due; a failure waits for its minute."""
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


FIRST, SECOND = ("sha256:" + letter * 64 for letter in "ab")


def saver_of(path: Path, clock: Clock) -> tuple[ImageRecords, ImageRecordsSaver, io.StringIO]:
    """Records of one image, what saves them, and its log."""
    out = io.StringIO()
    records = ImageRecords(seed={FIRST: ImageRecord(clock.monotonic())})
    log = Log(SystemClock().wall, stream=out)
    return records, ImageRecordsSaver(records, RecordFile(str(path), clock), log), out


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


def test_what_was_detected_while_records_were_being_saved_is_saved_at_the_end(
    tmp_path: Path,
) -> None:
    """The save that has begun has the records as they were; the last one comes after it."""
    clock, path = InterruptedClock(), tmp_path / "state" / "images.json"
    records, saver, _ = saver_of(path, clock)
    both, detected = [Image(FIRST), Image(SECOND)], threading.Event()

    def detect() -> None:
        records.update(both, frozenset(), 1000.0, wall_now=1_800_000_000.0)
        detected.set()

    clock.interruption = Interruption(detect)
    saver.detected()
    assert detected.wait(LONGEST_SECONDS)
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
    expect(EXPECTED / "totals.txt", "\n".join(shown) + "\n")
    totals.passed(a_pass(ReclaimResult("prune", skipped="it rests for 9 s more")))
    last = totals.functions["prune"]["last"]
    assert (totals.functions["prune"]["calls"], last["skipped"]) == (2, "it rests for 9 s more")


def test_twenty_passes_stay_and_one_that_is_explained_later_keeps_its_place() -> None:
    """The oldest go first; a pass that is replaced is there once, and not counted twice."""
    totals, names = Totals(), [str(number) for number in range(21)]
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


LOW = threshold(Signal.NODEFS_AVAILABLE, "10%")
NEAR = observation(Signal.NODEFS_AVAILABLE, 20 * GIB, time=90.0)._replace(
    promised=MIB, needed=12 * GIB
)
SEEN = observations_of(NEAR, observation(Signal.NODEFS_INODES_FREE, 7, 9))
DISK = FilesystemIdentity("/", 1, "/dev/sda", "ext4")


def status_of(
    mark: Threshold, observations: SignalObservations = SEEN, fill: FillRate | None = None
) -> ThresholdStatusJson:
    """The status of one threshold, whose filesystem is filled like this."""
    on_disk = {
        signal: one._replace(filesystem=DISK) for signal, one in observations.signals.items()
    }
    rates = {} if fill is None else {(DISK.device_id, mark.signal.counts_inodes): fill}
    (status,) = threshold_statuses([mark], observations._replace(signals=on_disk), rates)
    return status


def node(**fields: Any) -> NodeStatus:
    """A daemon that has observed its node, with these fields in its document."""
    mark = replace(status_of(LOW), effective=10 * GIB, headroom_seconds=12.5)
    document = a_status(**{"heartbeat_age_seconds": 0.5, "thresholds": [mark], **fields})
    return NodeStatus(document, SEEN, 100.0, 1e9, 0.0, 0, accepted_wall=1e9 - 60.5)


def outcome(
    kind: Kind, reason: Reason, result: Result | None = Result.REMOVED, **fields: Any
) -> Outcome:
    """What became of one object of 1 MiB; None: it is kept."""
    action = Action.KEEP if result is None else Action.REMOVE
    verdict = Verdict(kind, "sha256:secret-id", "secret/name:1", action, reason, MIB)
    return Outcome(verdict, result, **fields)


def done(*functions: ReclaimResult, **fields: Any) -> Pass:
    """A pass that was enough, with these results."""
    usual = {
        "observations": SEEN,
        "result": PassResult.SATISFIED,
        "timings": Timings(detect_seconds=0.02),
    }
    return a_pass(*functions, met=LOW, **{**usual, **fields})


IMAGES = ReclaimResult(
    "DeleteUnusedImages",
    (
        outcome(Kind.IMAGE, Reason.UNUSED, freed=Amounts(2 * MIB)),
        outcome(Kind.IMAGE, Reason.UNUSED, Result.FAILED),
    ),
    (outcome(Kind.IMAGE, Reason.IN_USE, None),),
    list_seconds=0.1,
    remove_seconds=0.3,
)


def page(metrics: Metrics) -> list[str]:
    """The lines of a scrape, without those of the process."""
    lines = metrics.page({}).body.decode().splitlines()
    return [line for line in lines if "reclaimd_" in line and "build_info" not in line]


def scraped(status: NodeStatus) -> dict[str, float]:
    """Every series of a daemon that has done nothing, with its value."""
    pairs = (line.rpartition(" ") for line in page(Metrics(lambda: status)) if line[0] != "#")
    return {series: float(number) for series, _, number in pairs}


def test_a_scrape_after_passes_is_as_expected() -> None:
    """Marks, readings, passes and removals of rows and of periodic loops by what they did, kept
    objects of the last pass, images that came back after us, the kubelet's words for calls and
    reasons. Every label is a word: no path, no digest, no name."""
    metrics = Metrics(lambda: node(), counts=lambda: (0, 7, 2))
    metrics.passed(done(IMAGES, replace(IMAGES, operation="a"), result=PassResult.NOT_ENOUGH))
    metrics.passed(done(IMAGES, timings=Timings(detect_seconds=0.25)))
    dead = outcome(Kind.CONTAINER, Reason.OLDER_COPY)
    metrics.collected(done(ReclaimResult("GarbageCollect", (dead,) * 2, remove_seconds=0.5)))
    aged = outcome(Kind.IMAGE, Reason.MAXIMUM_AGE)
    stays = aged._replace(result=Result.IN_USE)
    metrics.collected(done(ReclaimResult("GarbageCollectImages", (aged, aged, stays, dead))))
    for by_us in (True, False, True):
        metrics.returned(Returned(image(1, size_bytes=3 * MIB), image_id(1), by_us, 0.0))
    for failed in (False, True):
        metrics.called("ListImages", 0.2, failed)
    metrics.watched()
    lines = page(metrics)
    shown = [line for line in lines if line[0] != "#" and "_bucket" not in line]
    busy = [line for line in shown if not line.endswith(" 0.0")]
    expect(EXPECTED / "metrics.txt", "\n".join(sorted(busy)) + "\n")
    for word in re.findall(r'="([^"]*)"', "".join(shown)):
        assert re.fullmatch(r"[A-Za-z0-9_.+]+", word)
    assert 'reclaimd_passes_total{result="failed",trigger="request"} 0.0' in shown, "before it is"
    metrics.passed(done())
    assert not [line for line in page(metrics) if line.startswith("reclaimd_kept{")]


@rows("""
    fields                                                               | series                                 | value
    {}                                                                   | thresholds_in_force                    | 1
    {thresholds: []}                                                     | thresholds_in_force                    | 0
    {}                                                                   | condition{condition="DiskPressure"}    |
    {disk_pressure: false}                                               | condition{condition="DiskPressure"}    | 0
    {disk_pressure: true}                                                | condition{condition="ReclaimPressure"} | 0
    {conditions: [DiskPressure, ReclaimPressure], disk_pressure: true}   | condition{condition="DiskPressure"}    | 1
    {conditions: [DiskPressure, ReclaimPressure], disk_pressure: true}   | condition{condition="ReclaimPressure"} | 1
    {held_off: the kubelet does not answer}                              | held_off                               | 1
    {}                                                                   | held_off                               | 0
    {events_dropped: 5}                                                  | listener_events_dropped_total          | 5
    {listener_failures: 3}                                               | listener_failures_total                | 3
    {}                                                                   | config_last_reload_successful          | 1
    {reload_problem: it was not reloaded}                                | config_last_reload_successful          | 0
""")
def test_a_field_of_the_status_is_a_series(
    fields: dict[str, Any], series: str, value: float | None
) -> None:
    """DiskPressure only where the kubelet's marks are known."""
    assert scraped(node(**fields)).get(f"reclaimd_{series}") == value


def test_before_the_first_observation_there_are_no_signals() -> None:
    """No series of a signal or a threshold, not even with the value 0."""
    found = scraped(NodeStatus(a_status(), None, 0.0, 0.0, 0.0, 0, accepted_wall=None))
    assert not [series for series in found if "signal=" in series or "thresholds_in" in series]


def test_every_family_has_a_help_text_and_those_of_the_page_are_families() -> None:
    """The page leaves the rest to the help texts."""
    lines = [line.split() for line in page(Metrics(node))]
    helped = {line[2] for line in lines if line[1] == "HELP" and line[3:]}
    exposed = {line[2] for line in lines if line[1] == "TYPE"}
    assert exposed == helped
    assert {
        word for word in words(DOCS / "monitoring.md") if word.startswith("reclaimd_")
    } <= exposed


def test_no_name_is_ever_a_label_and_the_series_are_bounded() -> None:
    """Everything that can happen: no name, no id, and not more series than were promised."""
    marks = [status_of(threshold(signal, "1")) for signal in KUBELET_SIGNALS]
    every = [replace(mark, effective=1, headroom_seconds=1.0) for mark in marks]
    metrics = Metrics(lambda: node(thresholds=every))
    pairs = [(kind, reason) for kind in Kind for reason in Reason]
    outcomes = tuple(outcome(*pair, result) for pair in pairs for result in Result)
    kept = tuple(outcome(*pair, None) for pair in pairs)
    functions = tuple(ReclaimResult(str(each), outcomes, kept) for each in FUNCTIONS)
    for trigger in Trigger:
        for result in PassResult:
            metrics.passed(done(*functions, result=result, trigger=trigger))
    messages = cri_pb2.DESCRIPTOR.message_types_by_name
    calls = [each.removesuffix("Request") for each in messages if each.endswith("Request")]
    for call in (*calls, "StreamContainers", "StreamPodSandboxes", "StreamImages"):
        metrics.called(call, 1000.0, True)
    text = metrics.page({}).body.decode()
    assert "secret" not in text
    assert len([line for line in text.splitlines() if not line.startswith("#")]) <= LARGEST_SERIES


def test_openmetrics_has_the_same_series() -> None:
    """For a client that prefers it, as the library's own parser reads it, compressed if asked."""
    metrics = Metrics(node)
    accepted = {"accept": "application/openmetrics-text", "accept-encoding": "br, gzip"}
    text = gzip.decompress(metrics.page(accepted).body).decode()
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    read = {sample.name for family in families for sample in family.samples}
    plain = {re.split("[{ ]", line)[0] for line in page(metrics) if line[0] != "#"}
    assert plain | {"reclaimd_build_info"} == {name for name in read if "reclaimd_" in name}


def test_the_time_to_a_mark_follows_from_the_fill() -> None:
    """1 GiB a second, 8 GiB above what is needed for what is coming: 8 s; below the mark 0; unknown
    without a fill or without the signal. A jump is no fill."""
    first = update_fill_rate(None, 40 * GIB, 0.0)
    jumped = update_fill_rate(first, 30 * GIB, 10.0)
    filling = update_fill_rate(jumped, 20 * GIB, 20.0)
    below = observations_of(observation(Signal.NODEFS_AVAILABLE, GIB))
    given = ((SEEN, None), (SEEN, jumped), (SEEN, filling), (below, filling))
    found = [status_of(LOW, seen, fill) for seen, fill in given]
    assert [each.headroom_seconds for each in found] == [None, None, 8.0, 0.0]
    assert [each.effective for each in found] == [LOW.mark(100 * GIB)] * 4
    unseen = status_of(LOW, observations_of(), filling)
    assert (unseen.effective, unseen.headroom_seconds) == (None, None)
