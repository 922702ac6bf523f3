"""The status of the node at one moment: the last observations, the thresholds, and the time until each could be met.

Values for metrics, health pages and the control socket. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from eviction.decision.headroom import FillRates
from eviction.reporting.conditions import disk_pressure
from eviction.reporting.json_shapes import Count, Seconds, Time, one_of
from eviction.reporting.observations_json import ObservationJson, ThresholdJson, observations_json, threshold_json
from eviction.reporting.pass_shapes import (
    AmountsJson,
    BytesJson,
    ConditionName,
    FunctionJson,
    KindWord,
    LayoutName,
    PassJson,
)
from eviction.types import API_VERSION, NodeCondition, Threshold
from reclaim.execution.removals import Removal
from reclaim.pods.states import Doubt, Why
from signals.interval import FillRate
from signals.types import SignalObservations

# Observing three filesystems that all hang takes 6 s; a loop that is 2 s later than that hangs itself.
LARGEST_DELAY_SECONDS = 8.0


class ThresholdStatusJson(ThresholdJson):
    """A threshold with the time that is left."""

    headroom_seconds: Seconds | None
    """Until it could be met at the present fill; 0: it is met; null: nothing fills the filesystem."""


class ParkedJson(TypedDict):
    """A removal that was sent, and that no pass waits for any longer."""

    kind: KindWord
    """What it is."""
    id: str
    """The runtime's id of it."""
    name: str
    """For people."""
    seconds: float
    """Since it was sent."""


class PodDirectoriesJson(TypedDict):
    """Whether the kubelet's directories are believed when they say which pods exist."""

    believed: bool
    """While they are not, no pod counts as gone."""
    why: Annotated[str, one_of(Why)] | None
    """Why not, in a word; null if they are."""
    sentence: str | None
    """Why not, for people; null if they are."""


class LastCallJson(FunctionJson):
    """The last call of a reclaim function."""

    started: Time
    """When its pass began."""


class FunctionTotalJson(TypedDict):
    """What a reclaim function has done since the daemon started."""

    calls: Count
    """How often it was called."""
    removed: Count
    """How many objects."""
    measured: AmountsJson
    """What the filesystems gained."""
    nominal: BytesJson
    """The sizes of what was removed."""
    seconds: Seconds
    """How long it took."""
    last: LastCallJson
    """Its last call."""


class StatusFieldsJson(TypedDict):
    """What the daemon sees and does."""

    heartbeat_age_seconds: Seconds
    """Since the last observation."""
    pods_problem: str | None
    """Why the kubelet gave no list of its pods; null if it did, or is not asked."""
    pod_directories: PodDirectoriesJson
    """Whether the kubelet's directories of pods are believed."""
    warnings: list[str]
    """What is wrong or doubtful about the configuration: no threshold, a kubelet that was not found."""
    dry_run: bool
    """Whether nothing is removed."""
    held_off: str | None
    """Why nothing may be removed now; null if it may."""
    doing: str | None
    """What it does now; null while it only watches."""
    stalled_seconds: Seconds
    """How long that has not gone forward."""
    parked: list[ParkedJson]
    """Removals that no pass waits for any longer."""
    requests_waiting: Count
    """Commands that wait for a pass."""
    paused_for_seconds: Seconds
    """How long a row rests that was not enough."""
    lead_seconds: Seconds
    """What removals have lately taken: a pass begins when the kubelet's mark is nearer than that. 0: lead is 0s."""
    conditions: list[ConditionName]
    """The node conditions that are reported: ReclaimPressure is ours, DiskPressure the kubelet's."""
    disk_pressure: bool | None
    """Whether the kubelet would report DiskPressure now; null where its thresholds are not known."""
    layout: LayoutName | None
    """How the roles are spread over filesystems; null while that is not known."""
    observations: list[ObservationJson]
    """The last ones, in the order of the signals."""
    thresholds: list[ThresholdStatusJson]
    """Those in force."""
    functions: dict[str, FunctionTotalJson]
    """By the name of the function."""
    passes: list[PassJson]
    """The last 20, the oldest first."""
    history: NotRequired[dict[str, Any]]
    """With --history: the last observations and decisions, to be replayed. Its form is not part of this contract."""


class StatusJson(StatusFieldsJson):
    """What the daemon sees and does: the answer of `reclaimd status`."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]
    """The version of this format. Fields may be added to it."""
    kind: Literal["Status"]
    """What the document is."""
    configuration: dict[str, list[list[object]]]
    """The fingerprint of the configuration: files with their time and size, flags, environment. Two that are equal are
    the same configuration."""


@dataclass(frozen=True, slots=True)
class ThresholdStatus:
    """One threshold at the current capacity. `mark`: bytes or inodes, None while the capacity is not known.

    `headroom_seconds`: time until the threshold could be met at the present fill rate, 0 if it is met; None if nothing
    fills the filesystem. A fill that has stopped counts less with each second, and is none after 30.
    """

    threshold: Threshold
    mark: int | None
    headroom_seconds: float | None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The daemon at one moment.

    `observations`: the last ones, None before the first. `heartbeat_age_seconds`: since then. `late_seconds`: since the
    next observation was due, negative before. `now`: monotonic seconds. `stalled_seconds`: since the pass that runs has
    gone forward. `removal_in_flight_seconds`: since the oldest removal was sent that is not answered. `parked`:
    removals that no pass waits for any longer. `threads_not_started`: starts of a thread that have failed. `doubt`: why
    the kubelet's directories of pods are not believed. `dry_run`: whether nothing is removed. `kubelets`: its
    thresholds, None where they are not known, so that it cannot be told if it would report DiskPressure. The others are
    as in `StatusFieldsJson`.
    """

    observations: SignalObservations | None
    conditions: frozenset[NodeCondition]
    thresholds: tuple[ThresholdStatus, ...]
    heartbeat_age_seconds: float
    late_seconds: float
    now: float
    stalled_seconds: float = 0.0
    removal_in_flight_seconds: float = 0.0
    parked: tuple[Removal, ...] = ()
    threads_not_started: int = 0
    doubt: Doubt | None = None
    dry_run: bool = False
    kubelets: tuple[Threshold, ...] | None = None
    pods_problem: str | None = None
    warnings: tuple[str, ...] = ()
    held_off: str | None = None
    doing: str | None = None
    requests_waiting: int = 0
    paused_for_seconds: float = 0.0
    lead_seconds: float = 0.0
    functions: Mapping[str, FunctionTotalJson] = field(default_factory=dict)
    passes: Sequence[PassJson] = ()


def why_not_alive(late_seconds: float, stalled_seconds: float, stalled_limit_seconds: float) -> str | None:
    """Why the daemon should be started anew, as a sentence; None if it works.

    A pass that waits for the runtime goes forward: each call is answered or has a deadline, and a removal is parked. So
    one that does not is stuck in something else. `late_seconds`, `stalled_seconds`: see `NodeStatus`; the limit is for
    the latter.
    """
    if late_seconds > LARGEST_DELAY_SECONDS:
        return f"the next observation is {late_seconds:.1f} s late"
    if stalled_seconds > stalled_limit_seconds:
        return f"the pass has not gone forward for {stalled_seconds:.0f} s"
    return None


def status_json(
    status: NodeStatus, fingerprint: dict[str, list[list[object]]], history: dict[str, Any] | None = None
) -> StatusJson:
    """The answer of the daemon. `fingerprint`: of the configuration that it runs with; `history`: if it is wanted."""
    seen = status.observations
    found: StatusJson = {
        "apiVersion": API_VERSION,
        "kind": "Status",
        "heartbeat_age_seconds": round(status.heartbeat_age_seconds, 3),
        "pods_problem": status.pods_problem,
        "pod_directories": pod_directories_json(status.doubt),
        "warnings": list(status.warnings),
        "dry_run": status.dry_run,
        "held_off": status.held_off,
        "doing": status.doing,
        "stalled_seconds": round(status.stalled_seconds, 3),
        "parked": [parked_json(removal, status.now) for removal in status.parked],
        "requests_waiting": status.requests_waiting,
        "paused_for_seconds": round(status.paused_for_seconds, 3),
        "lead_seconds": round(status.lead_seconds, 3),
        "conditions": sorted(map(str, status.conditions)),
        "disk_pressure": disk_pressure(status.conditions, status.kubelets),
        "layout": None if seen is None or seen.layout is None else str(seen.layout),
        "observations": [] if seen is None else observations_json(seen),
        "thresholds": [] if seen is None else threshold_statuses_json(status.thresholds, seen),
        "functions": dict(status.functions),
        "passes": list(status.passes),
        "configuration": fingerprint,
    }
    if history is not None:
        found["history"] = history
    return found


def parked_json(removal: Removal, now: float) -> ParkedJson:
    """A parked removal; `seconds`: since it was sent, or since its check began."""
    verdict, since = removal.verdict, removal.started if removal.sent is None else removal.sent
    return {"kind": verdict.kind, "id": verdict.id, "name": verdict.name, "seconds": round(now - since, 3)}


def threshold_statuses(
    thresholds: Iterable[Threshold], observations: SignalObservations, fill_rates: FillRates
) -> tuple[ThresholdStatus, ...]:
    """Each threshold with the seconds until it could be met at the present fill rate."""
    statuses = []
    for threshold in thresholds:
        observation, fill = observations.signals.get(threshold.signal), None
        if observation is not None and observation.filesystem is not None:
            fill = fill_rates.get((observation.filesystem.device_id, threshold.signal.counts_inodes))
        statuses.append(threshold_status(threshold, observations, fill))
    return tuple(statuses)


def threshold_statuses_json(
    statuses: Iterable[ThresholdStatus], observations: SignalObservations
) -> list[ThresholdStatusJson]:
    """Each threshold as in the record of a pass, with its headroom in seconds."""
    return [
        {
            **threshold_json(status.threshold, observations),
            "headroom_seconds": None if status.headroom_seconds is None else round(status.headroom_seconds, 3),
        }
        for status in statuses
    ]


def pod_directories_json(doubt: Doubt | None) -> PodDirectoriesJson:
    """Whether the kubelet's directories of pods are believed, and if not, why: one word and one sentence."""
    return {
        "believed": doubt is None,
        "why": None if doubt is None else str(doubt.why),
        "sentence": None if doubt is None else doubt.sentence,
    }


def threshold_status(threshold: Threshold, observations: SignalObservations, fill: FillRate | None) -> ThresholdStatus:
    """One threshold with the seconds until it could be met at the present fill rate, as far as the last readings allow
    it: a jump is no rate, and a fill that has stopped is one no longer. 0 where it is met, whatever fills."""
    observation = observations.signals.get(threshold.signal)
    if observation is None:
        return ThresholdStatus(threshold, None, None)
    mark = threshold.mark(observation.capacity)
    if observation.available < mark:
        return ThresholdStatus(threshold, mark, 0.0)
    rate = 0.0 if fill is None else fill.steady_rate
    return ThresholdStatus(threshold, mark, (observation.available - mark) / rate if rate > 0 else None)
