"""What a drill saw: everything that is judged and reported. Values only.

Times are seconds since the first pressure began. Nothing here is the daemon's word but `passes` and `bands`: the
observer reads the filesystems itself, and the runtime writes down when it really removed something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eviction.drill.pressure.schedule import Period, Strike
from eviction.reporting.pass_record import Pass
from eviction.types import NodeCondition, Threshold
from signals.types import FilesystemRole, FsStats, Signal, SignalObservations

CROSSING_SEEN_LATE_SECONDS = 0.05  # a daemon may see a crossing, and act, before the observer's next reading
PLURALS = {"container": "containers", "sandbox": "sandboxes", "log": "logs", "image": "images"}

Room = tuple[int, int]
"""Bytes available and inodes free on one filesystem."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of all filesystems, in the order of `Seen.filesystems`."""

    seconds: float
    rooms: tuple[Room, ...]


@dataclass(frozen=True, slots=True)
class FilesystemSeen:
    """One filesystem: the role that names it, all its roles, and its size."""

    name: FilesystemRole
    roles: tuple[FilesystemRole, ...]
    capacity_bytes: int
    inodes_total: int


@dataclass(frozen=True, slots=True)
class Episode:
    """From crossing a mark to every threshold clear with its minimum reclaim (None: not yet).

    `first_rise`: when what is available had risen for the first time, which is the first relief.
    """

    crossed: float
    relieved: float | None = None
    first_rise: float | None = None


@dataclass(frozen=True, slots=True)
class Band:
    """A condition while it was reported (`ended` None: to the end)."""

    condition: NodeCondition
    began: float
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class RemovalSeen:
    """One object that really went."""

    seconds: float
    kind: str
    name: str
    id: str


@dataclass(frozen=True, slots=True)
class EndedPod:
    """A pod whose sandbox was READY and is so no more: it ended, was killed, or was evicted."""

    seconds: float
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PassSeen:
    """A pass, when it began, and which of the node's collectors made it (the first is 1)."""

    seconds: float
    record: Pass
    collector: int = 1


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object as the runtime lists it."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class LayerSeen:
    """One layer of an image: equal names are one layer on disk."""

    name: str
    bytes: int
    inodes: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A whole run.

    `before` and `after`: what was there. `layers`: reference of an image -> its layers.
    `restarted`: what the kubelet would start after the run and would not have started before. `new_pod`: why no new pod
    starts, empty where one did, None where it was not tried. `quiet_since`: the last time that anything happened.
    """

    filesystems: tuple[FilesystemSeen, ...] = ()
    samples: tuple[Sample, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    observations: SignalObservations | None = None
    episodes: tuple[Episode, ...] = ()
    bands: tuple[Band, ...] = ()
    passes: tuple[PassSeen, ...] = ()
    removals: tuple[RemovalSeen, ...] = ()
    ended_pods: tuple[EndedPod, ...] = ()
    periods: tuple[Period, ...] = ()
    strikes: tuple[Strike, ...] = ()
    before: frozenset[NamedObject] = frozenset()
    after: frozenset[NamedObject] = frozenset()
    layers: Mapping[str, tuple[LayerSeen, ...]] | None = None
    restarted: tuple[str, ...] = ()
    new_pod: str | None = None
    quiet_since: float = 0.0
    ended: float = 0.0

    @property
    def crossed(self) -> float | None:
        """When a mark was first crossed."""
        return self.episodes[0].crossed if self.episodes else None

    @property
    def first_removal(self) -> float | None:
        """When the first object went; of a node on which things go at all times, the first one from crossing on."""
        since = 0.0 if self.crossed is None else self.crossed - CROSSING_SEEN_LATE_SECONDS
        return next((removal.seconds for removal in self.removals if removal.seconds >= since), None)

    @property
    def relieved(self) -> float | None:
        """When the first crossing was relieved."""
        return self.episodes[0].relieved if self.episodes else None

    @property
    def to_first_removal(self) -> float | None:
        """From the first crossing to the first object gone."""
        if self.crossed is None or self.first_removal is None:
            return None
        return max(self.first_removal - self.crossed, 0.0)

    @property
    def to_first_relief(self) -> float | None:
        """From the first crossing to the first rise of what is available."""
        if not self.episodes or self.episodes[0].first_rise is None:
            return None
        return self.episodes[0].first_rise - self.episodes[0].crossed

    @property
    def to_relief(self) -> float | None:
        """The longest from crossing to relief; None if there was no crossing, or one was never relieved."""
        took = [None if one.relieved is None else one.relieved - one.crossed for one in self.episodes]
        known = [seconds for seconds in took if seconds is not None]
        return max(known) if known and len(known) == len(took) else None

    def series(self, signal: Signal) -> list[tuple[float, int]]:
        """What was available of a signal: (seconds, amount), empty where its filesystem was not seen."""
        for place, filesystem in enumerate(self.filesystems):
            if signal.filesystem in filesystem.roles:
                unit = int(signal.counts_inodes)
                return [(sample.seconds, sample.rooms[place][unit]) for sample in self.samples]
        return []

    def lowest(self, signal: Signal) -> int | None:
        """The lowest point of a signal."""
        return min((amount for _, amount in self.series(signal)), default=None)


def filesystems_of(observations: SignalObservations) -> tuple[FilesystemSeen, ...]:
    """The distinct filesystems of a look, each named for its first role."""
    roles: dict[int, list[FilesystemRole]] = {}
    stats: dict[int, FsStats] = {}
    for role, (identity, found) in observations.filesystems.items():
        roles.setdefault(identity.device_id, []).append(role)
        stats[identity.device_id] = found
    return tuple(
        FilesystemSeen(names[0], tuple(names), stats[device].capacity_bytes, stats[device].inodes_total)
        for device, names in roles.items()
    )


def rooms_of(observations: SignalObservations, filesystems: tuple[FilesystemSeen, ...]) -> tuple[Room, ...] | None:
    """What is free on each filesystem; None where one is missing in this look."""
    if any(filesystem.name not in observations.filesystems for filesystem in filesystems):
        return None
    stats = [observations.filesystems[filesystem.name][1] for filesystem in filesystems]
    return tuple((found.available_bytes, found.inodes_free) for found in stats)
