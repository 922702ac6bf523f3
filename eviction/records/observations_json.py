"""Observations and thresholds in JSON, a stable interface for programs, as in `pass_record`."""

from datetime import UTC, datetime

from eviction.records.json_shapes import (
    LEFT_OUT,
    Count,
    Document,
    LeftOut,
    Seconds,
    SignalName,
    Time,
)
from eviction.types import Threshold
from signals.types import SignalObservations, in_order


class FilesystemJson(Document):
    """What a filesystem is, and where."""

    path: str
    """The path that was read."""
    device: str
    """The device that is mounted there."""
    type: str
    """The kernel's name for its type, such as ext4 or xfs."""


class ObservationJson(Document):
    """One observed signal."""

    signal: SignalName
    """Its name."""
    available: Count
    """In bytes, or in inodes for an inode signal."""
    capacity: Count
    """Of the whole filesystem, in the same unit."""
    promised: Count | LeftOut = LEFT_OUT
    """Bytes that btrfs has promised to files and statvfs does not show. They count as used here,
    and not for the kubelet; missing if there are none."""
    time: Time | None
    """When the filesystem was read; null if it never was."""
    stale: bool
    """The filesystem did not answer in time, so this is an earlier reading."""
    filesystem: FilesystemJson | None
    """The filesystem; null if it is not known."""


class ThresholdJson(Document):
    """One threshold."""

    signal: SignalName
    """The signal that it is for."""
    value: str
    """A quantity or a percentage, as in the configuration."""
    margin: str | None
    """What is added to the value, so that reclaimd acts before the kubelet; null: nothing."""
    effective: Count | None
    """The mark in bytes or inodes; null while the capacity is not known."""
    needed: Count | LeftOut = LEFT_OUT
    """How many bytes must be available for what is coming, or it reaches the kubelet's mark. The
    threshold is met below this, too; missing if nothing is coming."""
    min_reclaim: str | None
    """How far above the mark the signal must rise to clear it; null: not at all."""
    hard: bool
    """Whether it acts without a grace period."""
    grace_seconds: Seconds
    """How long it must have been met before it acts."""
    origin: str
    """Where the value comes from, for people."""


def timestamp(wall: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC with milliseconds."""
    return (
        datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def observations_json(observations: SignalObservations) -> list[ObservationJson]:
    started = observations.wall_time - observations.time
    signals = observations.signals
    return [
        ObservationJson.of(
            observation,
            promised=observation.promised or None,
            time=timestamp(started + observation.time),
            filesystem=None
            if observation.filesystem is None
            else FilesystemJson.of(observation.filesystem),
        )
        for observation in map(signals.__getitem__, in_order(signals))
    ]


def threshold_json(threshold: Threshold, observations: SignalObservations) -> ThresholdJson:
    seen = observations.signals.get(threshold.signal)
    if seen is None:
        return ThresholdJson.of(threshold, effective=None)
    return ThresholdJson.of(
        threshold,
        effective=threshold.mark(seen.capacity),
        needed=seen.needed if threshold.hard and seen.needed else None,
    )
