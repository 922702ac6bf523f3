"""What a drill measured: everything that is judged and reported. Values only, filled in by a run.

Times are seconds since the first pressure began. Only `passes` and `conditions` come from
the daemon. The drill reads the filesystems itself, and the embedded runtime records what
it really removed and when.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eviction.drill.schedule import FaultOccurrence, PressurePeriod
from eviction.records.json_shapes import Count, RoleName
from eviction.records.passes import Pass
from eviction.types import NodeCondition, Thresholds
from signals.types import Signal, SignalObservations

# the daemon may see a crossing and act before the observer's next reading
OBSERVER_LAG_SECONDS = 0.05
PLURALS = {"container": "containers", "sandbox": "sandboxes", "log": "logs", "image": "images"}

Available = tuple[int, int]
"""Bytes available and inodes free on one filesystem."""

Objects = Mapping[tuple[str, str], str]
"""What a node has: (kind, id) -> name; the id of a log directory is its name."""


class Sample(NamedTuple):
    """One reading of all filesystems, in the order of `Measurements.filesystems`."""

    seconds: float
    available: tuple[Available, ...]


@dataclass(frozen=True)
class MeasuredFilesystem:
    """One filesystem."""

    name: RoleName
    """Its first role."""
    roles: tuple[RoleName, ...]
    """All its roles."""
    capacity_bytes: Count
    """Its capacity in bytes."""
    inodes_total: Count
    """How many inodes it has."""


@dataclass(slots=True)
class Episode:
    """One stretch of pressure: from crossing a mark until every threshold is clear.

    `relieved`: when all were clear with their minimum reclaim (None: not yet). `first_rise`: when
    the available amount first rose, which is the first relief.
    """

    crossed: float
    relieved: float | None = None
    first_rise: float | None = None


@dataclass(slots=True)
class ConditionPeriod:
    """A period during which a node condition was reported."""

    condition: NodeCondition
    """The condition."""
    from_seconds: float
    """Since the start."""
    to_seconds: float | None = None
    """Since the start; null: until the end."""


@dataclass(frozen=True)
class MeasuredRemoval:
    """An object that was removed, by whatever component, or a pod that ran and has ended."""

    seconds: float
    """Since the start."""
    kind: str
    """Its kind: container, sandbox, image, log, pod, or a kind of another function."""
    name: str
    """Its name for people."""
    id: str = ""
    """Its id in the runtime; of a pod its UID."""


@dataclass
class Measurements:
    """A whole run, which began at `began_wall`, in wall-clock seconds.

    `observations`: the last complete ones. `before` and `after`: the objects on the node.
    `would_restart`: containers that the kubelet would start after the run and would not have
    started before it. `new_pod_problem`: why a new pod could not start; empty if it did, None if
    none was tried. `last_change`: when something last happened.
    `lists_apart_seconds`: the longest time between two polls of the runtime's lists; None if the
    removals are from the embedded runtime's record.
    """

    began_wall: float = 0.0
    filesystems: Sequence[MeasuredFilesystem] = ()
    samples: list[Sample] = field(default_factory=list)
    thresholds: Thresholds = ()
    observations: SignalObservations | None = None
    episodes: list[Episode] = field(default_factory=list)
    conditions: list[ConditionPeriod] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    removals: list[MeasuredRemoval] = field(default_factory=list)
    ended_pods: list[MeasuredRemoval] = field(default_factory=list)
    pressures: Sequence[PressurePeriod] = ()
    faults: list[FaultOccurrence] = field(default_factory=list)
    before: Objects = field(default_factory=dict)
    after: Objects = field(default_factory=dict)
    would_restart: Sequence[str] = ()
    new_pod_problem: str | None = None
    last_change: float = 0.0
    ended: float = 0.0
    lists_apart_seconds: float | None = None

    @property
    def under_pressure(self) -> bool:
        """True from the crossing of a mark until all are clear with their minimum reclaim."""
        return bool(self.episodes) and self.episodes[-1].relieved is None

    @property
    def last_relief(self) -> float | None:
        """When pressure was last relieved; None before the first relief, and under pressure."""
        return self.episodes[-1].relieved if self.episodes else None

    @property
    def crossed_seconds(self) -> float | None:
        """When a mark was first crossed."""
        return self.episodes[0].crossed if self.episodes else None

    @property
    def first_removal_seconds(self) -> float | None:
        """When the first object was removed; removals before the first crossing do not count."""
        since = (self.crossed_seconds or 0.0) - OBSERVER_LAG_SECONDS
        return min(
            (removal.seconds for removal in self.removals if removal.seconds >= since), default=None
        )

    @property
    def relieved_seconds(self) -> float | None:
        """When the first crossing was relieved."""
        return self.episodes[0].relieved if self.episodes else None

    @property
    def from_crossing_to_first_removal_seconds(self) -> float | None:
        return later(self.crossed_seconds, self.first_removal_seconds)

    @property
    def from_crossing_to_first_relief_seconds(self) -> float | None:
        """Seconds from the first crossing to the first rise of the available amount."""
        return later(self.crossed_seconds, self.episodes[0].first_rise) if self.episodes else None

    @property
    def from_crossing_to_relief_seconds(self) -> float | None:
        """The longest time from crossing to relief; None if pressure never was, or remained."""
        took = [later(episode.crossed, episode.relieved) for episode in self.episodes]
        known = [seconds for seconds in took if seconds is not None]
        return max(known, default=None) if len(known) == len(took) else None

    def lowest(self, signal: Signal) -> int | None:
        """A signal's lowest amount; None if it was not measured."""
        for place, filesystem in enumerate(self.filesystems):
            if signal.filesystem in filesystem.roles:
                unit = signal.counts_inodes
                return min((each.available[place][unit] for each in self.samples), default=None)
        return None


def later(began: float | None, ended: float | None) -> float | None:
    """How long after one time another was; None if one of them never was."""
    return None if began is None or ended is None else max(ended - began, 0.0)


def downsample(samples: Sequence[Sample], limit: int) -> list[Sample]:
    """At most `limit` samples, in their order. `limit` must be at least two per filesystem.

    Of each of several equally long stretches the samples with the lowest bytes and the lowest
    inodes of each filesystem are kept, so the lowest point of every line is among them.
    """
    if len(samples) <= limit:
        return list(samples)
    lines = [(place, unit) for place in range(len(samples[0].available)) for unit in (0, 1)]
    step = math.ceil(len(samples) / (limit // len(lines)))
    lowest = {
        min(stretch, key=lambda at: samples[at].available[place][unit])
        for start in range(0, len(samples), step)
        for stretch in [range(len(samples))[start : start + step]]
        for place, unit in lines
    }
    return [samples[at] for at in sorted(lowest)]
