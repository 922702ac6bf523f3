"""Metrics for Prometheus. The only module that uses prometheus-client; imported only by a daemon that serves them.

The values come from what the daemon has anyway: the last observation, its marks, and the record of each pass.
(prometheus-client's own counters would be a second state, and files where PROMETHEUS_MULTIPROC_DIR is set.) Counting
takes a few additions under a lock; the text is made when it is scraped. The names follow the vocabulary of KEP-6053
(observability of image garbage collection) and the kubelet's `runtime_operations_*`.

The values of labels are words from closed sets (signals, reasons, results, operations), never a name, an id or a path,
so the number of series is at most `LARGEST_SERIES`, whatever runs on the node. Units: bytes, inodes, seconds.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata

from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from eviction.record import Pass, PassResult, Trigger
from eviction.reporting.status import NodeStatus
from eviction.telemetry.http_server import Page
from eviction.types import NodeCondition
from reclaim.functions import FUNCTIONS, FunctionTable
from reclaim.pods.states import Why
from reclaim.types import Result

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LARGEST_SERIES = 2000
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

# CRI call -> the kubelet's operation_type (`pkg/kubelet/kuberuntime/instrumented_services.go`).
OPERATION_TYPES = {
    "Version": "version",
    "Status": "status",
    "ListContainers": "list_containers",
    "ContainerStatus": "container_status",
    "ListContainerStats": "list_container_stats",
    "StopContainer": "stop_container",
    "RemoveContainer": "remove_container",
    "ListPodSandbox": "list_podsandbox",
    "PodSandboxStatus": "podsandbox_status",
    "StopPodSandbox": "stop_podsandbox",
    "RemovePodSandbox": "remove_podsandbox",
    "ListImages": "list_images",
    "ImageStatus": "image_status",
    "RemoveImage": "remove_image",
    "ImageFsInfo": "image_fs_info",
    # the streamed lists, which have no operation_type in the kubelet
    "StreamContainers": "stream_containers",
    "StreamPodSandboxes": "stream_podsandboxes",
    "StreamImages": "stream_images",
}

Rows = Iterable[tuple[Sequence[str], float]]
"""Values of the labels, and the value of the series."""


class Bytes(StrEnum):
    """How reclaimed bytes are counted: measured on the filesystem, or by the sizes that the runtime had reported."""

    MEASURED = "measured"
    NOMINAL = "nominal"


@dataclass(slots=True)
class Histogram:
    """Durations counted by bucket."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Counts one duration."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """The cumulative counts that Prometheus expects: up to each bound, `+Inf` last."""
        bounds, sums, so_far = [*map(str, BUCKETS), "+Inf"], [], 0
        for bound, count in zip(bounds, self.counts, strict=True):
            so_far += count
            sums.append((bound, float(so_far)))
        return sums


class Metrics:
    """The counters, and the page with all metrics. All methods may be called from any thread.

    `status`: called at each scrape; it reads no disk. `held_off`: why nothing may be removed yet, or None.
    `functions`: their names and kinds are values of labels. `log_lines_dropped`: since the start. `history_counts`:
    records of the history that were written, and that were dropped.
    """

    def __init__(
        self,
        status: Callable[[], NodeStatus],
        held_off: Callable[[], str | None] = lambda: None,
        functions: FunctionTable = FUNCTIONS,
        log_lines_dropped: Callable[[], int] = lambda: 0,
        history_counts: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ):
        self._status = status
        self._history_counts = history_counts
        self._log_lines_dropped = log_lines_dropped
        self._held_off = held_off
        self._functions = functions
        self._kinds = tuple(dict.fromkeys(kind for each in functions.values() for kind in each.kinds))
        self._lock = threading.Lock()
        self._passes: Counter[tuple[str, str]] = Counter()
        self._removals: Counter[tuple[str, str]] = Counter()
        self._reclaimed: Counter[tuple[str, str]] = Counter()
        self._kept: Counter[tuple[str, str]] = Counter()
        self._calls: Counter[str] = Counter()
        self._call_errors: Counter[str] = Counter()
        self._watch_events = 0
        self._detect = Histogram()
        self._reclaim = {name: Histogram() for name in functions}
        self._call_seconds: dict[str, Histogram] = {}
        self._registry = CollectorRegistry()
        self._registry.register(_Scrape(self.collect))
        ProcessCollector(registry=self._registry)

    def page(self) -> Page:
        """The metrics as text."""
        return Page(200, generate_latest(self._registry), CONTENT_TYPE)

    def count_pass(self, record: Pass) -> None:
        """Counts a pass by its record."""
        with self._lock:
            self._passes[record.trigger, record.result] += 1
            self._detect.add(record.timings.detect_seconds)
            for function in record.functions:
                if not function.skipped:
                    self._reclaim.setdefault(function.operation, Histogram()).add(function.seconds)
                self._reclaimed[function.operation, Bytes.MEASURED] += function.freed_bytes
                self._reclaimed[function.operation, Bytes.NOMINAL] += function.nominal_bytes
            for outcome in record.removals:
                if outcome.result is not None:
                    self._removals[outcome.verdict.kind, outcome.result] += 1
            self._kept = Counter((o.verdict.kind, o.verdict.reason) for o in record.kept)

    def count_call(self, call: str, seconds: float, failed: bool) -> None:  # the form of a CallObserver
        """Counts one call of the runtime."""
        operation = OPERATION_TYPES.get(call, "other")
        with self._lock:
            self._calls[operation] += 1
            self._call_errors[operation] += failed
            self._call_seconds.setdefault(operation, Histogram()).add(seconds)

    def count_watch_event(self) -> None:
        """Counts an observation that was requested by a watch event."""
        with self._lock:
            self._watch_events += 1

    def collect(self) -> Iterator[Metric]:
        """All families."""
        status = self._status()
        yield from _of_status(status)
        held = self._held_off() is not None
        yield _gauge(
            "held_off", "1 while nothing is removed: after a start, or while it is paused", [((), float(held))]
        )
        text = "Lines of the log that nobody read or that could not be written"
        yield _counter("log_lines_dropped", text, [((), float(self._log_lines_dropped()))])
        written, dropped = self._history_counts()
        yield _counter("history_records", "Records written into the history", [((), float(written))])
        yield _counter("history_dropped", "Records of the history that could not be written", [((), float(dropped))])
        with self._lock:
            families = list(self._counted())
        yield from families

    def _counted(self) -> Iterator[Metric]:
        version = metadata.version("reclaimd")
        yield _gauge("build_info", "Always 1; the version is the label", [((version,), 1.0)], "version")
        passes = {(trigger, result): self._passes[trigger, result] for trigger in Trigger for result in PassResult}
        yield _counter("passes", "Passes that did or tried anything", passes.items(), "trigger", "result")
        removals = {(kind, result): self._removals[kind, result] for kind in self._kinds for result in Result}
        yield _counter("removals", "Objects that were to be removed, by result", removals.items(), "kind", "result")
        reclaimed = {(name, counted): self._reclaimed[name, counted] for name in self._functions for counted in Bytes}
        text = "Bytes freed: measured on the filesystem, and nominal as the runtime had reported"
        yield _counter("reclaimed_bytes", text, reclaimed.items(), "operation", "kind")
        kept = [((kind, reason), float(count)) for (kind, reason), count in self._kept.items()]
        yield _gauge("kept", "Objects kept in the last pass, by reason", kept, "kind", "reason")
        text = "Seconds that a reclaim function took"
        yield _histogram("reclaim_duration_seconds", text, self._reclaim, "operation")
        text = "Seconds from the reading that crossed a mark to the start of the pass"
        yield _histogram("detect_seconds", text, {"": self._detect})
        calls = {(operation,): count for operation, count in self._calls.items()}
        yield _counter("runtime_operations", "Calls of the container runtime", calls.items(), "operation_type")
        errors = {(operation,): self._call_errors[operation] for operation in self._calls}
        yield _counter("runtime_operations_errors", "Calls that failed", errors.items(), "operation_type")
        text = "Seconds that calls of the container runtime took"
        yield _histogram("runtime_operations_duration_seconds", text, self._call_seconds, "operation_type")
        yield _counter("watch_events", "Observations requested by watch events", [((), self._watch_events)])


class _Scrape(Collector):
    """The collector that is registered."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]):
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()


def _of_status(status: NodeStatus) -> Iterator[Metric]:
    yield _gauge(
        "heartbeat_age_seconds", "Seconds since the last observation", [((), max(status.heartbeat_age_seconds, 0.0))]
    )
    yield _gauge("dry_run", "1 while nothing is removed, and what would be is only told", [((), float(status.dry_run))])
    text = "Seconds since the oldest removal was sent that is not answered"
    yield _gauge("removal_in_flight_seconds", text, [((), status.removal_in_flight_seconds)])
    yield _gauge("removals_parked", "Removals that no pass waits for any longer", [((), float(len(status.parked)))])
    text = "Starts of a thread that have failed; nothing that a pass needs depends on one"
    yield _counter("threads_not_started", text, [((), float(status.threads_not_started))])
    known = [NodeCondition.RECLAIM_PRESSURE, *([NodeCondition.DISK_PRESSURE] if status.kubelets is not None else [])]
    conditions = [((str(condition),), float(condition in status.conditions)) for condition in known]
    text = (
        "ReclaimPressure: 1 while reclaimd's own mark is crossed, and for the transition period after it; "
        "DiskPressure: 1 while the kubelet's own mark is crossed, no series where that mark is not known"
    )
    yield _gauge("condition", text, conditions, "condition")
    doubts = [((str(why),), float(status.doubt is not None and status.doubt.why is why)) for why in Why]
    text = "1 while the kubelet's directories of pods are not believed, by the reason: then no pod counts as gone"
    yield _gauge("pod_directories_doubted", text, doubts, "why")
    marked: Rows = [] if status.observations is None else [((), float(len(status.thresholds)))]
    yield _gauge("thresholds_in_force", "Thresholds of disks; 0: nothing is ever relieved", marked)
    seen = list(status.observations.signals.values()) if status.observations is not None else []
    rows = [((str(one.signal),), float(one.available)) for one in seen]
    yield _gauge("signal_available", "Bytes or inodes available", rows, "signal")
    rows = [((str(one.signal),), float(one.capacity)) for one in seen]
    yield _gauge("signal_capacity", "Bytes or inodes in all", rows, "signal")
    rows = [((str(one.signal),), max(status.now - one.time, 0.0)) for one in seen if one.time is not None]
    yield _gauge("stats_age_seconds", "Seconds since the filesystem was last read", rows, "signal")
    rows = [((str(one.signal),), float(one.stale)) for one in seen]
    yield _gauge("signal_stale", "1 while the filesystem does not answer", rows, "signal")
    marks = [(str(m.threshold.signal), "hard" if m.threshold.hard else "soft", m) for m in status.thresholds]
    found = [((signal, kind), float(m.mark)) for signal, kind, m in marks if m.mark is not None]
    yield _gauge("threshold", "The mark in bytes or inodes at the present capacity", found, "signal", "kind")
    text = (
        "Seconds until the mark would be reached at the present fill; no series while nothing fills, 0 below the mark"
    )
    found = [((signal, kind), m.headroom_seconds) for signal, kind, m in marks if m.headroom_seconds is not None]
    yield _gauge("headroom_seconds", text, found, "signal", "kind")


def _gauge(name: str, text: str, rows: Rows, *labels: str) -> Metric:
    family = GaugeMetricFamily(f"reclaimd_{name}", text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _counter(name: str, text: str, rows: Rows, *labels: str) -> Metric:
    family = CounterMetricFamily(f"reclaimd_{name}", text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _histogram(name: str, text: str, histograms: dict[str, Histogram], *labels: str) -> Metric:
    family = HistogramMetricFamily(f"reclaimd_{name}", text, labels=labels)
    for word, histogram in histograms.items():
        family.add_metric([word] if labels else [], histogram.cumulative(), histogram.total)
    return family
