"""Metrics for Prometheus. The only module that uses prometheus-client; imported only by a
daemon that serves metrics.

The state of the node comes from what the daemon has anyway: the last observation and its marks.
prometheus-client counts what happened, in memory even if PROMETHEUS_MULTIPROC_DIR is set, and
without `_created` series; it chooses the format and the compression of each scrape. The names
follow KEP-6053 (observability of image garbage collection) and the kubelet's
`runtime_operations_*`.

The values of labels come from closed sets (signals, reasons, results, operations) and are never a
name, an id or a path, so there are at most `LARGEST_SERIES` series whatever runs on the node.
A family has one unit, which its name says: bytes, inodes, seconds.
"""

import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from itertools import product
from typing import Any

import prometheus_client
from prometheus_client import Histogram, values
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from eviction.records.passes import OF_PASSES, Pass, PassResult
from eviction.surface.daemon import NodeStatus
from eviction.surface.http_server import Headers, Page
from eviction.types import NodeCondition
from reclaim.evidence.states import Why
from reclaim.functions.table import CONTAINER_GC, FUNCTIONS, FunctionTable
from reclaim.functions.unused_images import IMAGE_GC
from reclaim.images.records import Returned
from reclaim.types import Kind, Reason, Result
from signals.types import AVAILABLE, INODES_FREE

LARGEST_SERIES = 2000
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
# what the periodic loops call; they do not measure the filesystem
PERIODIC = (CONTAINER_GC, IMAGE_GC)
CONDITIONS = (
    "ReclaimPressure: 1 while reclaimd's own mark is crossed, and for the transition period after"
    " it; DiskPressure: 1 while the kubelet's own mark is crossed, no series if that mark is not"
    " known"
)
HEADROOM = (
    "Seconds until the threshold is met at the present fill rate; no series while nothing fills, 0"
    " while it is met"
)
# family, what it says, attribute of an observation or a threshold, unit of its signals
OF_SIGNALS = (
    ("signal_available_bytes", "Bytes available", "available", AVAILABLE),
    ("signal_inodes_free", "Inodes available", "available", INODES_FREE),
    ("signal_capacity_bytes", "Bytes in total", "capacity", AVAILABLE),
    ("signal_inodes", "Inodes in total", "capacity", INODES_FREE),
    ("signal_stale", "1 while the filesystem does not answer", "stale", ""),
)
OF_MARKS = (
    ("threshold_bytes", "The mark in bytes at the present capacity", "effective", AVAILABLE),
    ("threshold_inodes", "The mark in inodes at the present capacity", "effective", INODES_FREE),
    ("headroom_seconds", HEADROOM, "headroom_seconds", ""),
)
DEPRECATED = {  # a name of the release before -> the families that have its series now
    "signal_available": ("signal_available_bytes", "signal_inodes_free"),
    "signal_capacity": ("signal_capacity_bytes", "signal_inodes"),
    "threshold": ("threshold_bytes", "threshold_inodes"),
    "heartbeat_age_seconds": ("last_observation_timestamp_seconds",),
    "stats_age_seconds": ("signal_read_timestamp_seconds",),
    "removal_in_flight_seconds": ("oldest_removal_timestamp_seconds",),
}


@dataclass(eq=False)
class Metrics(Collector):
    """The counters, and the page with all metrics. All methods may be called from any thread."""

    status: Callable[[], NodeStatus]
    """Called at each scrape; must not read a disk."""
    functions: FunctionTable = field(default_factory=lambda: FUNCTIONS)
    """Their names and kinds are values of labels."""
    counts: Callable[[], tuple[int, int, int]] = lambda: (0, 0, 0)
    """Log lines that were dropped, records of the history that were written, and those that were
    dropped."""

    def __post_init__(self) -> None:
        self._kinds = {kind for each in self.functions.values() for kind in each.kinds}
        self._kept: Counter[tuple[str, ...]] = Counter()
        values.ValueClass = values.MutexValue  # never a file
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        count = partial(self._made, prometheus_client.Counter)
        time = partial(self._made, partial(Histogram, buckets=BUCKETS))
        self._passes = count(
            "passes", "Passes that did or tried something", trigger=OF_PASSES, result=PassResult
        )
        self._removals = count(
            "removals", "Objects to be removed, by result", kind=self._kinds, result=Result
        )
        self._bytes = count(
            "reclaimed_bytes",
            "Bytes freed: measured on the filesystem, and nominal, as the runtime reported",
            operation=self.functions,
            kind=("measured", "nominal"),
        )
        for operation in PERIODIC:
            self._bytes.labels(operation, "nominal")
        self._returned = count(
            "images_returned", "Images that came back after the daemon had removed them"
        )
        self._returned_bytes = count(
            "image_returned_bytes", "Bytes of those images, as the runtime reports them"
        )
        self._calls = count(
            "runtime_operations", "Calls of the container runtime", operation_type=()
        )
        self._failed = count("runtime_operations_errors", "Calls that failed", operation_type=())
        self._watch_events = count("watch_events", "Observations requested by watch events")
        self._image_removals = count(
            "image_garbage_collected",
            "Images removed: not used for longer than the maximum age, or for space",
            reason=("age", "space"),  # as in the kubelet's image_garbage_collected_total
        )
        self._durations = time(
            "reclaim_duration_seconds",
            "Seconds that a reclaim function took",
            operation=(*self.functions, *PERIODIC),
        )
        self._detect = time(
            "detect_seconds",
            "Seconds from the reading that crossed a mark to the start of the pass",
        )
        self._call_durations = time(
            "runtime_operations_duration_seconds",
            "Seconds that calls of the container runtime took",
            operation_type=(),
        )
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def _made(self, family: Any, name: str, text: str, /, **labels: Iterable[str]) -> Any:
        """A counter or histogram. `labels`: each with its values, if these are known beforehand:
        series of closed sets exist before anything happens."""
        made = family(name, text, tuple(labels), namespace="reclaimd", registry=self._registry)
        if labels:
            for words in product(*labels.values()):
                made.labels(*words)
        return made

    def page(self, headers: Headers) -> Page:
        """In the format that the client prefers, and compressed if it accepts that."""
        encode, content_type = choose_encoder(headers.get("accept", ""))
        body = encode(self._registry)
        if gzip_accepted(headers.get("accept-encoding", "")):
            return Page(200, gzip.compress(body), content_type, "Content-Encoding: gzip")
        return Page(200, body, content_type)

    def passed(self, record: Pass) -> None:
        self._passes.labels(record.trigger, record.result).inc()
        self._detect.observe(record.timings.detect_seconds)
        for function in record.functions:
            self._bytes.labels(function.operation, "measured").inc(function.measured.bytes)
        self.collected(record)
        self._kept = Counter((each.verdict.kind, each.verdict.reason) for each in record.kept)

    def collected(self, record: Pass) -> None:
        for function in record.functions:
            if not function.skipped:
                self._durations.labels(function.operation).observe(function.seconds)
            self._bytes.labels(function.operation, "nominal").inc(max(function.nominal_bytes, 0))
        for outcome in record.removals:
            kind = outcome.verdict.kind
            if outcome.result is not None and kind in self._kinds:
                self._removals.labels(kind, outcome.result).inc()
            if outcome.result is Result.REMOVED and kind == Kind.IMAGE:
                aged = outcome.verdict.reason == Reason.MAXIMUM_AGE
                self._image_removals.labels("age" if aged else "space").inc()

    def called(self, call: str, seconds: float, failed: bool) -> None:
        operation = _operation_type(call)
        self._calls.labels(operation).inc()
        self._failed.labels(operation).inc(failed)
        self._call_durations.labels(operation).observe(seconds)

    def returned(self, returned: Returned) -> None:
        if returned.by_us:
            self._returned.inc()
            self._returned_bytes.inc(returned.image.size_bytes)

    def watched(self) -> None:
        self._watch_events.inc()

    def collect(self) -> Iterator[Metric]:
        lines_dropped, records, records_dropped = self.counts()
        status = self.status()
        families = {family.name: family for family in _of_status(status)}
        yield from families.values()
        yield from _deprecated(families, status.wall)
        yield from _families(
            CounterMetricFamily,
            (
                "log_lines_dropped",
                "Log lines dropped, as nobody read them or they could not be written",
                lines_dropped,
            ),
            ("history_records", "History records written", records),
            ("history_dropped", "History records that could not be written", records_dropped),
        )
        yield from _families(
            GaugeMetricFamily,
            (
                "build_info",
                "Always 1; the version is the label",
                {(metadata.version("reclaimd"),): 1.0},
                "version",
            ),
            ("kept", "Objects kept in the last pass, by reason", self._kept, "kind", "reason"),
        )


def _operation_type(call: str) -> str:
    """The kubelet's word for a call (`pkg/kubelet/kuberuntime/instrumented_services.go`):
    ListPodSandbox becomes list_podsandbox. A closed set: `reclaim.cri.client` names its calls
    after the messages of CRI."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", call.replace("PodSandbox", "Podsandbox")).lower()


def _of_status(status: NodeStatus) -> Iterator[Metric]:
    document = status.document
    observations = status.observations
    seen = () if observations is None else observations.signals.values()
    in_bytes = [each for each in seen if not each.signal.counts_inodes]
    marks = {(mark.signal, "hard" if mark.hard else "soft"): mark for mark in document.thresholds}
    conditions = {(word,): float(word in document.conditions) for word in NodeCondition}
    if document.disk_pressure is None:
        del conditions[NodeCondition.DISK_PRESSURE,]

    def at(age_seconds: float) -> float:
        """In seconds since the epoch; milliseconds, so that it stays as it is until it changes."""
        return round(status.wall - max(age_seconds, 0.0), 3)

    yield from _families(
        CounterMetricFamily,
        (
            "listener_events_dropped",
            "Events that log, metrics and history were not told of, as too many waited",
            document.events_dropped,
        ),
        (
            "listener_failures",
            "How often log, metrics or history failed, and lost an event",
            document.listener_failures,
        ),
        (
            "threads_not_started",
            "Threads that could not be started; no pass depends on one",
            status.threads_not_started,
        ),
    )
    yield from _families(
        GaugeMetricFamily,
        (
            "last_observation_timestamp_seconds",
            "When the node was last observed, in seconds since the epoch",
            at(document.heartbeat_age_seconds),
        ),
        ("dry_run", "1 during a dry run, in which nothing is removed", document.dry_run),
        (
            "held_off",
            "1 while nothing is removed: shortly after a start, or during a pause",
            document.held_off is not None,
        ),
        (
            "oldest_removal_timestamp_seconds",
            "When the oldest unanswered removal was sent, in seconds since the epoch",
            at(status.removal_in_flight_seconds) if status.removal_in_flight_seconds else None,
        ),
        ("removals_parked", "Removals that no pass waits for any longer", len(document.parked)),
        (
            "config_last_reload_successful",
            "1 if the last reload was accepted, or none was asked for since the start",
            document.reload_problem is None,
        ),
        (
            "config_last_reload_success_timestamp_seconds",
            (
                "When a configuration was accepted last, by the start or a reload, in seconds since"
                " the epoch"
            ),
            status.accepted_wall,
        ),
        ("condition", CONDITIONS, conditions, "condition"),
        (
            "pod_directories_doubted",
            (
                "1 while the kubelet's pod directories are not trusted, by reason; no pod counts as"
                " gone then"
            ),
            {(why,): document.pod_directories.why is why for why in Why},
            "why",
        ),
        (
            "thresholds_in_force",
            "Disk thresholds in force; 0: nothing is ever relieved",
            None if observations is None else len(document.thresholds),
        ),
        (
            "filesystem_promised_bytes",
            "Bytes that btrfs has promised to files and statvfs does not show; they count as used",
            {(each.signal.filesystem,): each.promised for each in in_bytes},
            "filesystem",
        ),
        (
            "filesystem_needed_bytes",
            "Bytes that must be available for what is coming, or it reaches the kubelet's mark",
            {(each.signal.filesystem,): each.needed for each in in_bytes},
            "filesystem",
        ),
        (
            "signal_read_timestamp_seconds",
            "When the filesystem was last read, in seconds since the epoch",
            {(each.signal,): at(status.now - each.time) for each in seen},
            "signal",
        ),
    )
    for table, found, *labels in (
        (OF_SIGNALS, {(each.signal,): each for each in seen}, "signal"),
        (OF_MARKS, marks, "signal", "kind"),
    ):
        for name, text, attribute, unit in table:
            known = {
                words: getattr(each, attribute)
                for words, each in found.items()
                if words[0].endswith(unit)
            }
            yield from _families(GaugeMetricFamily, (name, text, known, *labels))


def _families(kind: Any, *rows: tuple[Any, ...]) -> Iterator[Metric]:
    """Gauges or counters. A row: the name, what it says, its value by the values of its labels, and
    the labels' names. Without labels it is only a value. None: no series."""
    for name, text, known, *labels in rows:
        family = kind(f"reclaimd_{name}", text, labels=labels)
        for words, value in known.items() if isinstance(known, Mapping) else [((), known)]:
            if value is not None:
                family.add_metric([str(word) for word in words], float(value))
        yield family


def _deprecated(families: Mapping[str, Metric], wall: float) -> Iterator[Metric]:
    """The same series by the names of the release before: both units in one, ages for times."""
    for old, new in DEPRECATED.items():
        family = GaugeMetricFamily(
            f"reclaimd_{old}", f"DEPRECATED, gone in the next release: {', '.join(new)}"
        )
        for name in new:
            for _, labels, value, *_ in families[f"reclaimd_{name}"].samples:
                family.add_sample(
                    family.name, labels, wall - value if "timestamp" in name else value
                )
        yield family
