"""The node at one moment: the documents of `status` and `check`, and what else the metrics need.

Decides nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Literal, NamedTuple

from eviction.decision.headroom import FillRates, headroom_seconds
from eviction.records.json_shapes import (
    Count,
    Document,
    ObservationJson,
    Seconds,
    ThresholdJson,
    Time,
    Versioned,
    threshold_json,
)
from eviction.records.pass_json import BytesJson, FunctionJson, KindWord, PassJson
from eviction.types import NodeCondition, Threshold
from eviction.wording.explain import LadderMark
from reclaim.evidence.states import Distrust, Why
from reclaim.removals import Claim, StageId
from reclaim.types import Amounts
from signals.types import FsLayout, SignalObservations


class ThresholdStatusJson(ThresholdJson):
    """A threshold with the time that is left."""

    headroom_seconds: Seconds | None
    """Until it would be met at the present fill rate.

    0: it is met. null: nothing fills the filesystem.
    """


class Parked(Document):
    """A removal that was sent, and that no pass waits for any longer."""

    kind: KindWord
    """What is being removed."""
    id: str
    """The runtime's id for it."""
    name: str
    """Its name, for people."""
    seconds: float
    """How long ago the removal was sent."""


class PodDirectories(Document):
    """Whether the kubelet's pod directories are believed to show which pods exist."""

    believed: bool = True
    """Whether they are; while they are not, no pod counts as gone."""
    why: Why | None = None
    """Why they are not, in a word; null if they are."""
    sentence: str | None = None
    """Why they are not, for people; null if they are."""


class LastCallJson(FunctionJson):
    """The last call of a reclaim function."""

    started: Time
    """When the pass began."""


class FunctionTotalJson(Document):
    """What a reclaim function has done since the daemon started."""

    calls: Count
    """How often it was called."""
    removed: Count
    """How many objects it removed."""
    measured: Amounts
    """What the filesystems gained."""
    nominal: BytesJson
    """The reported sizes of the removed objects."""
    seconds: Seconds
    """How long its calls took together."""
    last: LastCallJson
    """Its last call."""


class Status(Versioned):
    """What the daemon sees and does: the answer of `reclaimd status`."""

    kind: Literal["Status"] = "Status"
    configuration: dict[str, list[list[object]]] = field(default_factory=dict)
    """The fingerprint of the configuration: its files with time and size, its flags and
    environment. The same configuration has the same fingerprint."""
    heartbeat_age_seconds: Seconds = 0.0
    """How long ago the last observation was."""
    next_look_seconds: Seconds | None = None
    """How long until the node is observed again; null while it is."""
    next_look_why: str = ""
    """Why then, for people."""
    pods_problem: str | None = None
    """Why the kubelet gave no list of its pods; null if it did, or is not asked."""
    pod_directories: PodDirectories = field(default_factory=PodDirectories)
    """Whether the kubelet's pod directories are believed."""
    reload_problem: str | None = None
    """Why the last reload was rejected, so that an older configuration is in
    force; null if it was accepted.
    """
    warnings: list[str] = field(default_factory=list)
    """What is wrong or doubtful about the configuration, such as a kubelet that was not found."""
    dry_run: bool = False
    """Whether removals are only reported, and not made."""
    held_off: str | None = None
    """Why nothing may be removed now; null if removals are allowed."""
    pause_left_seconds: Seconds = 0.0
    """How much longer an operator's pause lasts; 0 without one."""
    doing: str | None = None
    """What it is doing; null while it only watches."""
    stalled_seconds: Seconds = 0.0
    """How long that has made no progress."""
    parked: list[Parked] = field(default_factory=list)
    """Removals that no pass waits for any longer."""
    events_dropped: Count = 0
    """Events that log, metrics and history were not told of, because too many waited."""
    listener_failures: Count = 0
    """How often one of these has failed, and lost an event."""
    requests_waiting: Count = 0
    """Commands that wait for a pass."""
    paused_for_seconds: Seconds = 0.0
    """How long until a row that was not enough is tried again."""
    lead_seconds: Seconds = 0.0
    """What removals have lately taken: what is written within that time has to fit above the
    kubelet's mark, or a pass begins. 0: lead is 0s, or extent all.
    """
    conditions: frozenset[NodeCondition] = frozenset()
    """The node conditions that are reported:

    ReclaimPressure is ours, DiskPressure the kubelet's.
    """
    disk_pressure: bool | None = None
    """Whether the kubelet would report DiskPressure now; null if its thresholds are not known."""
    layout: FsLayout | None = None
    """How the roles are spread over filesystems; null while that is not known."""
    observations: list[ObservationJson] = field(default_factory=list)
    """The last observations, in the order of the signals."""
    thresholds: list[ThresholdStatusJson] = field(default_factory=list)
    """The thresholds in force."""
    ladder: tuple[LadderMark, ...] = ()
    """Our marks and the kubelet's, as a filling filesystem reaches them."""
    functions: dict[str, FunctionTotalJson] = field(default_factory=dict)
    """What each reclaim function has done, by its name."""
    passes: list[PassJson] = field(default_factory=list)
    """The last 20 passes, the oldest first."""


class NodeStatus(NamedTuple):
    """The daemon at one moment."""

    document: Status = Status()
    """Its answer to `status`."""
    observations: SignalObservations | None = None
    """The last ones; None before the first."""
    now: float = 0.0
    """Monotonic seconds."""
    wall: float = 0.0
    """The same moment, in seconds since the epoch."""
    removal_in_flight_seconds: float = 0.0
    """Since the oldest unanswered removal was sent."""
    threads_not_started: int = 0
    """How many starts of a thread have failed."""
    accepted_wall: float | None = None
    """When a configuration was accepted last, in seconds since the epoch."""


def parked_removal(claim: Claim, now: float) -> Parked:
    """A parked removal; `seconds`: since it was sent, or since its check began."""
    verdict = claim.verdict
    since = claim.claimed_at if claim.sent_at is None else claim.sent_at
    return Parked.of(verdict, seconds=round(now - since, 3))


def hanging_sentences(hanging: Iterable[StageId]) -> Iterator[str]:
    """One sentence for each stage whose plan hangs."""
    for stage in sorted(hanging):
        yield (
            f"{stage.function}, stage {stage.number}: its plan hangs on a thread that is left"
            " behind; no pass asks for it again until it has ended"
        )


def pod_directories(doubt: Distrust | None) -> PodDirectories:
    return PodDirectories() if doubt is None else PodDirectories.of(doubt, believed=False)


def threshold_statuses(
    thresholds: Iterable[Threshold], observations: SignalObservations, fill_rates: FillRates
) -> list[ThresholdStatusJson]:
    """Each with the seconds until it would be met."""
    return [
        ThresholdStatusJson.of(
            threshold_json(threshold, observations),
            headroom_seconds=headroom_seconds(threshold, observations, fill_rates),
        )
        for threshold in thresholds
    ]
