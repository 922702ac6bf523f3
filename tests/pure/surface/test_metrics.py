"""Metrics: a scrape after an observation and passes, whole, and the limit of its series."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from eviction.records.passes import Pass, PassResult, Timings, Trigger
from eviction.surface.daemon import NodeStatus, Status, ThresholdStatusJson, threshold_statuses
from eviction.surface.metrics import LARGEST_SERIES, Metrics
from eviction.types import Threshold
from reclaim.cri import cri_pb2
from reclaim.functions.table import FUNCTIONS
from reclaim.images.records import Returned
from reclaim.types import Action, Amounts, Kind, Outcome, Reason, ReclaimResult, Result, Verdict
from signals.interval import FillRate, update_fill_rate
from signals.types import KUBELET_SIGNALS, FilesystemIdentity, Signal, SignalObservations
from tests.expected import expect
from tests.pages import DOCS, words
from tests.pure.records.documents import a_pass
from tests.pure.values import GIB, MIB, image, image_id, observation, observations_of, threshold
from tests.rows import rows

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
    document = Status(heartbeat_age_seconds=0.5, thresholds=[mark])
    return NodeStatus(
        replace(document, **fields), SEEN, now=100.0, wall=1e9, accepted_wall=1e9 - 60.5
    )


def outcome(
    kind: Kind, reason: Reason, result: Result | None = Result.REMOVED, **fields: Any
) -> Outcome:
    """What became of one object of 1 MiB; None: it is kept."""
    action = Action.KEEP if result is None else Action.REMOVE
    verdict = Verdict(kind, "sha256:secret-id", "secret/name:1", action, reason, MIB)
    return Outcome(verdict, result, **fields)


def done(*functions: ReclaimResult, **fields: Any) -> Pass:
    """A pass that was enough, with these results."""
    usual = {"observations": SEEN, "result": PassResult.SATISFIED, "timings": Timings(0.02)}
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
    expect(Path(__file__).with_name("expected") / "metrics.txt", "\n".join(sorted(busy)) + "\n")
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
    found = scraped(NodeStatus())
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
