"""Metrics: the values in a scrape after an observation and passes, and the
limit of their number.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any

import pytest

from eviction.records.passes import Pass, PassResult, Timings, Trigger
from eviction.surface.metrics import BUCKETS, LARGEST_SERIES, Metrics
from eviction.types import Decision, NodeCondition, Threshold
from eviction.wording.status import NodeStatus, Status, ThresholdStatusJson, threshold_statuses
from reclaim.cri import cri_pb2
from reclaim.functions.table import FUNCTIONS
from reclaim.images.records import Returned
from reclaim.types import Action, Amounts, Kind, Outcome, Reason, ReclaimResult, Result, Verdict
from signals.interval import FillRate, update_fill_rate
from signals.types import KUBELET_SIGNALS, FilesystemIdentity, FsLayout, Signal, SignalObservations
from tests.pages import EVICTION, words
from tests.pure.values import GIB, MIB, image, image_id, observation, observations_of, threshold

LOW = threshold(Signal.NODEFS_AVAILABLE, "10%")
SEEN = observations_of(
    replace(
        observation(Signal.NODEFS_AVAILABLE, 20 * GIB, time=90.0), promised=MIB, needed=12 * GIB
    ),
    observation(Signal.NODEFS_INODES_FREE, 7, 9),
)
DISK = FilesystemIdentity("/", 1, "/dev/sda", "ext4")


def status_of(
    mark: Threshold, observations: SignalObservations = SEEN, fill: FillRate | None = None
) -> ThresholdStatusJson:
    """The status of one threshold, whose filesystem is filled like this."""
    on_disk = {
        signal: replace(one, filesystem=DISK) for signal, one in observations.signals.items()
    }
    rates = {} if fill is None else {(DISK.device_id, mark.signal.counts_inodes): fill}
    (status,) = threshold_statuses([mark], replace(observations, signals=on_disk), rates)
    return status


MARK = replace(status_of(LOW), effective=10 * GIB, headroom_seconds=12.5)
QUIET = NodeStatus(Status(heartbeat_age_seconds=0.5, thresholds=[MARK]), SEEN, now=100.0)


def standing(status: NodeStatus = QUIET, **fields: Any) -> NodeStatus:
    """The daemon with other fields in its document."""
    return replace(status, document=replace(status.document, **fields))


def verdict(kind: Kind, reason: Reason, action: Action = Action.REMOVE) -> Verdict:
    return Verdict(kind, "sha256:secret-id", "secret/name:1", action, reason, MIB)


def a_pass(*functions: ReclaimResult, result: PassResult = PassResult.SATISFIED) -> Pass:
    return Pass(
        "id",
        0.0,
        Trigger.INTERVAL,
        SEEN,
        Decision(frozenset(), (), LOW, (), FsLayout.SINGLE),
        functions=functions,
        result=result,
        timings=Timings(detect_seconds=0.02),
    )


IMAGES = ReclaimResult(
    "DeleteUnusedImages",
    (
        Outcome(verdict(Kind.IMAGE, Reason.UNUSED), Result.REMOVED, freed=Amounts(2 * MIB)),
        Outcome(verdict(Kind.IMAGE, Reason.UNUSED), Result.FAILED),
    ),
    (Outcome(verdict(Kind.IMAGE, Reason.IN_USE, Action.KEEP)),),
    list_seconds=0.1,
    remove_seconds=0.3,
)


def scraped(metrics: Metrics) -> dict[str, float]:
    """Every series of a scrape with its value, without those of the process."""
    lines = metrics.page().body.decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith("reclaimd_"))
    return {series: float(number) for series, _, number in pairs}


def test_a_scrape_has_the_last_observation() -> None:
    """Available, capacity, age of the reading, mark and the time to it."""
    found = scraped(Metrics(lambda: QUIET))
    assert found['reclaimd_signal_available{signal="nodefs.available"}'] == 20 * GIB
    assert found['reclaimd_signal_capacity{signal="nodefs.available"}'] == 100 * GIB
    assert found['reclaimd_signal_available{signal="nodefs.inodesFree"}'] == 7
    assert found['reclaimd_stats_age_seconds{signal="nodefs.available"}'] == 10.0
    assert found['reclaimd_signal_stale{signal="nodefs.available"}'] == 0
    assert found['reclaimd_threshold{kind="hard",signal="nodefs.available"}'] == 10 * GIB
    assert found['reclaimd_headroom_seconds{kind="hard",signal="nodefs.available"}'] == 12.5
    assert found['reclaimd_condition{condition="ReclaimPressure"}'] == 0
    assert found["reclaimd_heartbeat_age_seconds"] == 0.5
    assert found["reclaimd_held_off"] == 0
    assert found['reclaimd_filesystem_promised_bytes{filesystem="nodefs"}'] == MIB
    assert found['reclaimd_filesystem_needed_bytes{filesystem="nodefs"}'] == 12 * GIB


def test_what_came_back_after_our_removals_is_counted() -> None:
    """Not what something else had removed."""
    metrics = Metrics(lambda: QUIET)
    assert scraped(metrics)["reclaimd_images_returned_total"] == 0
    for by_us in (True, False, True):
        metrics.returned(Returned(image(1, size_bytes=3 * MIB), image_id(1), by_us, 0.0))
    found = scraped(metrics)
    assert (
        found["reclaimd_images_returned_total"],
        found["reclaimd_image_returned_bytes_total"],
    ) == (2, 6 * MIB)


@pytest.mark.parametrize(
    ("known", "reported", "value"), [(False, set(), None), (True, set(), 0.0), (True, {1}, 1.0)]
)
def test_disk_pressure_has_a_series_where_the_kubelets_marks_are_known(
    known: bool, reported: set[int], value: float | None
) -> None:
    """1 while the kubelet's own mark is crossed, whatever ours is."""
    conditions = frozenset({NodeCondition.DISK_PRESSURE} if reported else ())
    found = scraped(
        Metrics(
            lambda: standing(conditions=conditions, disk_pressure=bool(reported) if known else None)
        )
    )
    assert found.get('reclaimd_condition{condition="DiskPressure"}') == value
    assert found['reclaimd_condition{condition="ReclaimPressure"}'] == 0


def test_every_family_has_a_help_text_and_those_of_the_page_are_families() -> None:
    """The page leaves the rest to the help texts."""
    lines = Metrics(lambda: QUIET).page().body.decode().splitlines()
    helped = {
        line.split()[2]: line.split()[3:] for line in lines if line.startswith("# HELP reclaimd_")
    }
    exposed = {line.split()[2] for line in lines if line.startswith("# TYPE reclaimd_")}
    assert exposed == {name for name, text in helped.items() if text}
    assert {word for word in words(EVICTION) if word.startswith("reclaimd_")} <= exposed


def test_a_node_without_a_threshold_is_seen_in_a_metric() -> None:
    """0 as soon as the node was observed; before that nothing is known."""
    assert scraped(Metrics(lambda: QUIET))["reclaimd_thresholds_in_force"] == len(
        QUIET.document.thresholds
    )
    assert scraped(Metrics(lambda: standing(thresholds=[])))["reclaimd_thresholds_in_force"] == 0
    unknown = scraped(Metrics(NodeStatus))
    assert "reclaimd_thresholds_in_force" not in unknown


def test_events_that_listeners_lost_are_counted() -> None:
    """Those that nobody was told of, and those that one has failed at."""
    found = scraped(Metrics(lambda: standing(events_dropped=5, listener_failures=3)))
    assert found["reclaimd_listener_events_dropped_total"] == 5
    assert found["reclaimd_listener_failures_total"] == 3


def test_records_of_the_history_are_counted() -> None:
    """Those that were written, and those that were dropped."""
    found = scraped(Metrics(lambda: QUIET, counts=lambda: (0, 7, 2)))
    assert found["reclaimd_history_records_total"] == 7
    assert found["reclaimd_history_dropped_total"] == 2


def test_pressure_and_hold_off_have_gauges() -> None:
    """1 while the condition is reported, 1 while nothing may be removed."""
    conditions = frozenset({NodeCondition.RECLAIM_PRESSURE})
    pressed = standing(conditions=conditions, held_off="the kubelet does not answer")
    found = scraped(Metrics(lambda: pressed))
    assert found['reclaimd_condition{condition="ReclaimPressure"}'] == 1
    assert found["reclaimd_held_off"] == 1


def test_before_the_first_observation_there_are_no_signals() -> None:
    """No series of a signal, not even with the value 0."""
    found = scraped(Metrics(NodeStatus))
    assert not [series for series in found if "signal=" in series]


def test_passes_are_counted_by_their_record() -> None:
    """Trigger and result, removals by kind and result, bytes measured and
    nominal, durations by function.
    """
    metrics = Metrics(lambda: QUIET)
    metrics.passed(a_pass(IMAGES))
    metrics.passed(a_pass(IMAGES, result=PassResult.NOT_ENOUGH))
    found = scraped(metrics)
    assert found['reclaimd_passes_total{result="satisfied",trigger="interval"}'] == 1
    assert found['reclaimd_passes_total{result="not_enough",trigger="interval"}'] == 1
    assert found['reclaimd_passes_total{result="failed",trigger="request"}'] == 0, (
        "there before it happens"
    )
    assert found['reclaimd_removals_total{kind="image",result="removed"}'] == 2
    assert found['reclaimd_removals_total{kind="image",result="failed"}'] == 2
    assert (
        found['reclaimd_reclaimed_bytes_total{kind="measured",operation="DeleteUnusedImages"}']
        == 4 * MIB
    )
    assert (
        found['reclaimd_reclaimed_bytes_total{kind="nominal",operation="DeleteUnusedImages"}']
        == 2 * MIB
    )
    assert found[
        'reclaimd_reclaim_duration_seconds_sum{operation="DeleteUnusedImages"}'
    ] == pytest.approx(0.8)
    assert (
        found['reclaimd_reclaim_duration_seconds_bucket{le="0.25",operation="DeleteUnusedImages"}']
        == 0
    )
    assert (
        found['reclaimd_reclaim_duration_seconds_bucket{le="0.5",operation="DeleteUnusedImages"}']
        == 2
    )
    assert (
        found['reclaimd_reclaim_duration_seconds_bucket{le="+Inf",operation="DeleteUnusedImages"}']
        == 2
    )
    assert found["reclaimd_detect_seconds_count"] == 2


@pytest.mark.regression
def test_what_the_periodic_loops_remove_is_counted_too() -> None:
    """By kind and result, with the nominal bytes and the time of each loop; what they
    keep is not the last pass's.
    """
    metrics = Metrics(lambda: QUIET)
    before = scraped(metrics)
    assert (
        before['reclaimd_reclaimed_bytes_total{kind="nominal",operation="GarbageCollectImages"}']
        == 0
    )
    assert before['reclaimd_reclaim_duration_seconds_count{operation="GarbageCollect"}'] == 0
    dead = Outcome(verdict(Kind.CONTAINER, Reason.OLDER_COPY), Result.REMOVED)
    containers = ReclaimResult("GarbageCollect", (dead, dead), IMAGES.kept, remove_seconds=0.5)
    metrics.collected(a_pass(containers))
    metrics.collected(a_pass(replace(IMAGES, operation="GarbageCollectImages")))
    found = scraped(metrics)
    assert found['reclaimd_removals_total{kind="container",result="removed"}'] == 2
    assert found['reclaimd_removals_total{kind="image",result="removed"}'] == 1
    assert found['reclaimd_removals_total{kind="image",result="failed"}'] == 1
    assert (
        found['reclaimd_reclaimed_bytes_total{kind="nominal",operation="GarbageCollectImages"}']
        == MIB
    )
    assert (
        'reclaimd_reclaimed_bytes_total{kind="measured",operation="GarbageCollectImages"}'
        not in found
    )
    assert found['reclaimd_reclaim_duration_seconds_sum{operation="GarbageCollect"}'] == 0.5
    assert not [series for series in found if series.startswith("reclaimd_kept{")]
    assert found['reclaimd_passes_total{result="satisfied",trigger="interval"}'] == 0


def test_removed_images_are_counted_by_the_kubelets_reasons() -> None:
    """`age` and `space`, whoever removed them; one that stayed is none, nor is a container."""
    metrics = Metrics(lambda: QUIET)

    def counted() -> dict[str, float]:
        name = "reclaimd_image_garbage_collected_total"
        return {
            series: value for series, value in scraped(metrics).items() if series.startswith(name)
        }

    age, space = (
        f'reclaimd_image_garbage_collected_total{{reason="{reason}"}}'
        for reason in ("age", "space")
    )
    assert counted() == {age: 0, space: 0}
    metrics.passed(a_pass(IMAGES))
    aged = Outcome(verdict(Kind.IMAGE, Reason.MAXIMUM_AGE), Result.REMOVED)
    stays = Outcome(verdict(Kind.IMAGE, Reason.MAXIMUM_AGE), Result.IN_USE)
    dead = Outcome(verdict(Kind.CONTAINER, Reason.POD_GONE), Result.REMOVED)
    outcomes = (aged, aged, stays, IMAGES.outcomes[0], dead)
    metrics.collected(a_pass(ReclaimResult("GarbageCollectImages", outcomes)))
    assert counted() == {age: 2, space: 2}


@pytest.mark.parametrize(
    ("problem", "value"), [(None, 1), ("the configuration was not reloaded", 0)]
)
def test_a_rejected_reload_is_a_gauge(problem: str | None, value: int) -> None:
    """And when one was accepted last."""
    found = scraped(
        Metrics(lambda: replace(standing(reload_problem=problem), accepted_wall=1_800_000_000.5))
    )
    assert found["reclaimd_config_last_reload_successful"] == value
    assert found["reclaimd_config_last_reload_success_timestamp_seconds"] == 1_800_000_000.5


def test_kept_is_about_the_last_pass() -> None:
    """Objects that only an earlier pass kept are not counted."""
    metrics = Metrics(lambda: QUIET)
    metrics.passed(a_pass(IMAGES))
    assert scraped(metrics)['reclaimd_kept{kind="image",reason="in_use"}'] == 1
    metrics.passed(a_pass())
    assert not [series for series in scraped(metrics) if series.startswith("reclaimd_kept{")]


def test_calls_of_the_runtime_have_the_kubelets_words() -> None:
    """operation_type as in the kubelet."""
    metrics = Metrics(lambda: QUIET)
    metrics.called("ListImages", 0.2, False)
    metrics.called("ListImages", 0.2, True)
    metrics.watched()
    found = scraped(metrics)
    assert found['reclaimd_runtime_operations_total{operation_type="list_images"}'] == 2
    assert found['reclaimd_runtime_operations_errors_total{operation_type="list_images"}'] == 1
    assert (
        found['reclaimd_runtime_operations_duration_seconds_count{operation_type="list_images"}']
        == 2
    )
    assert found["reclaimd_watch_events_total"] == 1


def test_no_name_is_ever_a_label_and_the_series_are_bounded() -> None:
    """Everything that can happen, a thousand times: no name, no id, and not more
    series than were promised.
    """
    marks = [status_of(threshold(signal, "1")) for signal in KUBELET_SIGNALS]
    every = [replace(mark, effective=1, headroom_seconds=1.0) for mark in marks]
    metrics = Metrics(lambda: standing(thresholds=every))
    for trigger in Trigger:
        for result in PassResult:
            all_outcomes = tuple(
                Outcome(verdict(k, r), outcome) for k in Kind for r in Reason for outcome in Result
            )
            kept = tuple(Outcome(verdict(k, r, Action.KEEP)) for k in Kind for r in Reason)
            functions = tuple(ReclaimResult(str(f), all_outcomes, kept) for f in FUNCTIONS)
            metrics.passed(replace(a_pass(*functions, result=result), trigger=trigger))
    messages = (
        name for name in cri_pb2.DESCRIPTOR.message_types_by_name if name.endswith("Request")
    )
    streams = ("StreamContainers", "StreamPodSandboxes", "StreamImages")
    for call in (*(name.removesuffix("Request") for name in messages), *streams):
        metrics.called(call, 1000.0, True)
    text = metrics.page().body.decode()
    assert "secret" not in text
    assert len([line for line in text.splitlines() if not line.startswith("#")]) <= LARGEST_SERIES


def test_every_label_is_a_word() -> None:
    """No path, no digest, no space: what a closed set holds."""
    metrics = Metrics(lambda: QUIET)
    metrics.passed(a_pass(IMAGES))
    metrics.called("ListImages", 0.2, True)
    for series in scraped(metrics):
        for word in re.findall(r'="([^"]*)"', series):
            assert re.fullmatch(r"[A-Za-z0-9_.+]+", word)


def test_counts_from_many_threads_are_all_there() -> None:
    """8 threads, 500 calls each, scraped meanwhile."""
    metrics = Metrics(lambda: QUIET)

    def work() -> None:
        for _ in range(500):
            metrics.called("ImageStatus", 0.001, False)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        metrics.page()
    for thread in threads:
        thread.join()
    assert (
        scraped(metrics)['reclaimd_runtime_operations_total{operation_type="image_status"}'] == 4000
    )


@pytest.mark.parametrize("seconds", [0.0, *BUCKETS, 1e9])
def test_a_duration_on_a_bound_counts_below_it(seconds: float) -> None:
    """As Prometheus has it: `le` is less or equal."""
    metrics = Metrics(lambda: QUIET)
    metrics.passed(replace(a_pass(), timings=Timings(detect_seconds=seconds)))
    found = scraped(metrics)
    for bound in BUCKETS:
        assert found[f'reclaimd_detect_seconds_bucket{{le="{bound}"}}'] == (seconds <= bound)


def test_the_time_to_a_mark_follows_from_the_fill() -> None:
    """1 GiB a second, 8 GiB above what is needed for what is coming: 8 s; below the mark 0; unknown
    without a fill or without the signal. A jump is no fill."""
    first = update_fill_rate(None, 40 * GIB, 0.0)
    jumped = update_fill_rate(first, 30 * GIB, 10.0)
    filling = update_fill_rate(jumped, 20 * GIB, 20.0)
    mark = LOW.mark(100 * GIB)
    assert status_of(LOW, SEEN, jumped).headroom_seconds is None
    assert status_of(LOW, SEEN, filling).headroom_seconds == 8.0
    assert (
        status_of(
            LOW, observations_of(observation(Signal.NODEFS_AVAILABLE, GIB)), filling
        ).headroom_seconds
        == 0.0
    )
    unfilled, unseen = status_of(LOW), status_of(LOW, observations_of(), filling)
    assert (unfilled.effective, unfilled.headroom_seconds) == (mark, None)
    assert (unseen.effective, unseen.headroom_seconds) == (None, None)
