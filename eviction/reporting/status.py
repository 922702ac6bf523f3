"""The node at one moment: the documents of `status` and `check`, and what the metrics need beside them.

Values only. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from eviction.decision.headroom import FillRates
from eviction.reporting.filesystem_facts import FilesystemFacts
from eviction.reporting.json_shapes import LEFT_OUT, Count, LeftOut, RoleName, Seconds, Time, VersionedJson
from eviction.reporting.observations_json import ObservationJson, ThresholdJson, threshold_json
from eviction.reporting.pass_record import (
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
from signals.types import FsLayout, SignalObservations

# Observing three filesystems that all hang takes 6 s; a loop that is 2 s later than that hangs itself.
LARGEST_DELAY_SECONDS = 8.0


class ThresholdStatusJson(ThresholdJson):
    """A threshold with the time that is left."""

    headroom_seconds: Seconds | None
    """Until it could be met at the present fill; 0: it is met; null: nothing fills the filesystem."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A removal that was sent, and that no pass waits for any longer."""

    kind: KindWord
    """What it is."""
    id: str
    """The runtime's id of it."""
    name: str
    """For people."""
    seconds: float
    """Since it was sent."""


@dataclass(frozen=True, slots=True)
class PodDirectories:
    """Whether the kubelet's directories are believed when they say which pods exist."""

    believed: bool
    """While they are not, no pod counts as gone."""
    why: Why | None
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


@dataclass(frozen=True, slots=True)
class Status:
    """What the daemon sees and does: the answer of `reclaimd status`."""

    apiVersion: Literal["reclaimd.io/v1alpha1"] = API_VERSION  # noqa: N815 # the name that Kubernetes gives it
    """The version of this format. Fields may be added to it."""
    kind: Literal["Status"] = "Status"
    """What the document is."""
    configuration: dict[str, list[list[object]]] = field(default_factory=dict)
    """The fingerprint of the configuration: files with their time and size, flags, environment. Two that are equal are
    the same configuration."""
    heartbeat_age_seconds: Seconds = 0.0
    """Since the last observation."""
    pods_problem: str | None = None
    """Why the kubelet gave no list of its pods; null if it did, or is not asked."""
    pod_directories: PodDirectories = PodDirectories(True, None, None)
    """Whether the kubelet's directories of pods are believed."""
    warnings: list[str] = field(default_factory=list)
    """What is wrong or doubtful about the configuration: no threshold, a kubelet that was not found."""
    dry_run: bool = False
    """Whether nothing is removed."""
    held_off: str | None = None
    """Why nothing may be removed now; null if it may."""
    doing: str | None = None
    """What it does now; null while it only watches."""
    stalled_seconds: Seconds = 0.0
    """How long that has not gone forward."""
    parked: list[Parked] = field(default_factory=list)
    """Removals that no pass waits for any longer."""
    requests_waiting: Count = 0
    """Commands that wait for a pass."""
    paused_for_seconds: Seconds = 0.0
    """How long a row rests that was not enough."""
    lead_seconds: Seconds = 0.0
    """What removals have lately taken: a pass begins when the kubelet's mark is nearer than that. 0: lead is 0s."""
    conditions: frozenset[NodeCondition] = frozenset()
    """The node conditions that are reported: ReclaimPressure is ours, DiskPressure the kubelet's."""
    disk_pressure: bool | None = None
    """Whether the kubelet would report DiskPressure now; null where its thresholds are not known."""
    layout: FsLayout | None = None
    """How the roles are spread over filesystems; null while that is not known."""
    observations: list[ObservationJson] = field(default_factory=list)
    """The last ones, in the order of the signals."""
    thresholds: list[ThresholdStatusJson] = field(default_factory=list)
    """Those in force."""
    functions: dict[str, FunctionTotalJson] = field(default_factory=dict)
    """By the name of the function."""
    passes: list[PassJson] = field(default_factory=list)
    """The last 20, the oldest first."""
    history: dict[str, Any] | LeftOut = LEFT_OUT
    """With --history: the last observations and decisions, to be replayed. Its form is not part of this contract."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The daemon at one moment.

    `document`: what it says of it. `observations`: the last ones, None before the first. `now`: monotonic seconds.
    `removal_in_flight_seconds`: since the oldest removal was sent that is not answered. `threads_not_started`: starts
    of a thread that have failed.
    """

    document: Status = Status()
    observations: SignalObservations | None = None
    now: float = 0.0
    removal_in_flight_seconds: float = 0.0
    threads_not_started: int = 0


class UnavailableJson(TypedDict):
    """A filesystem that could not be read."""

    filesystem: RoleName
    """Its role."""
    reason: str
    """Why, for people."""


class CheckJson(VersionedJson):
    """One observation: the answer of `reclaimd check`."""

    kind: Literal["Check"]
    """What the document is."""
    endpoint: str
    """The runtime's."""
    conditions: list[ConditionName]
    """The node conditions that are reported: ReclaimPressure is ours, DiskPressure the kubelet's."""
    disk_pressure: bool | None
    """Whether the kubelet would report DiskPressure now; null where its thresholds are not known."""
    layout: LayoutName | None
    """How the roles are spread over filesystems; null where that is not known."""
    filesystems: list[FilesystemFacts]
    """What the filesystems of the signals are."""
    observations: list[ObservationJson]
    """In the order of the signals."""
    thresholds: list[ThresholdJson]
    """Those in force."""
    thresholds_met: list[ThresholdJson]
    """Those that are met."""
    unavailable: list[UnavailableJson]
    """The filesystems that could not be read."""


def why_not_alive(late_seconds: float, stalled_seconds: float, stalled_limit_seconds: float) -> str | None:
    """Why the daemon should be started anew, as a sentence; None if it works.

    A pass that waits for the runtime goes forward: each call is answered or has a deadline, and a removal is parked. So
    one that does not is stuck in something else. `late_seconds`: since the next observation was due;
    `stalled_seconds`: since the pass has gone forward, to which the limit belongs.
    """
    if late_seconds > LARGEST_DELAY_SECONDS:
        return f"the next observation is {late_seconds:.1f} s late"
    if stalled_seconds > stalled_limit_seconds:
        return f"the pass has not gone forward for {stalled_seconds:.0f} s"
    return None


def parked_removal(removal: Removal, now: float) -> Parked:
    """A parked removal; `seconds`: since it was sent, or since its check began."""
    verdict, since = removal.verdict, removal.started if removal.sent is None else removal.sent
    return Parked(verdict.kind, verdict.id, verdict.name, round(now - since, 3))


def pod_directories(doubt: Doubt | None) -> PodDirectories:
    """Whether the kubelet's directories of pods are believed, and if not, why."""
    return PodDirectories(True, None, None) if doubt is None else PodDirectories(False, doubt.why, doubt.sentence)


def threshold_statuses(
    thresholds: Iterable[Threshold], observations: SignalObservations, fill_rates: FillRates
) -> list[ThresholdStatusJson]:
    """Each threshold with the seconds until it could be met at the present fill rate."""
    statuses = []
    for threshold in thresholds:
        observation, fill = observations.signals.get(threshold.signal), None
        if observation is not None and observation.filesystem is not None:
            fill = fill_rates.get((observation.filesystem.device_id, threshold.signal.counts_inodes))
        statuses.append(threshold_status(threshold, observations, fill))
    return statuses


def threshold_status(
    threshold: Threshold, observations: SignalObservations, fill: FillRate | None
) -> ThresholdStatusJson:
    """One threshold with the seconds until it could be met at the present fill rate, as far as the last readings allow
    it: a jump is no rate, and a fill that has stopped counts less with each second and is none after 30."""
    observation, headroom_seconds = observations.signals.get(threshold.signal), None
    if observation is not None:
        above = observation.available - threshold.mark(observation.capacity)
        rate = 0.0 if fill is None else fill.steady_rate
        if above < 0:
            headroom_seconds = 0.0
        elif rate > 0:
            headroom_seconds = round(above / rate, 3)
    return {**threshold_json(threshold, observations), "headroom_seconds": headroom_seconds}
