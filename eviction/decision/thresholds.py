"""Threshold arithmetic.

Rules (kubelet, `pkg/kubelet/eviction/helpers.go`):

* A threshold is met when its mark is *above* the available amount. If both are equal, it is clear.
* A hard threshold of ours is met, too, while what is coming would reach the kubelet's mark before
  removals can prevent it (`decision.headroom`). The kubelet's own go by what filesystems show.
* The minimum reclaim does not trigger anything. It is added to the mark in two places only: for a
  threshold that has been acted on, and to tell whether reclaim was successful.
* A grace period starts when the threshold is first met; one pass without it starts it over. It is
  over once `now - first observed >= grace`.
* A condition is reported from the first pass at which a threshold is met, whatever its grace
  period, until the transition period after the last one is over. Here that applies to
  ReclaimPressure, as the thresholds are ours. DiskPressure is what the kubelet would report for the
  observation by its own thresholds; its transition period is up to the kubelet.
* A threshold is acted on only with a reading that is newer than that of the previous pass.

The kubelet leaves the order of several thresholds open. Ours: the largest deficit relative to the
mark first, then the order of the signals.

A signal without an observation, or with a stale one, is skipped: it raises no
condition and blocks nothing.

Thresholds that are configured for containerfs never take effect: they are derived.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from eviction.types import NodeCondition, Threshold, Thresholds
from signals.types import (
    FilesystemRole,
    FsLayout,
    Signal,
    SignalObservation,
    SignalObservations,
)

Observations = Mapping[Signal, SignalObservation]


def usable(observations: Observations) -> dict[Signal, SignalObservation]:
    """The observations that are not stale: a stale one is neither pressure nor its end."""
    return {
        signal: observation for signal, observation in observations.items() if not observation.stale
    }


def thresholds_met(
    thresholds: Iterable[Threshold],
    observations: Observations,
    *,
    enforce_min_reclaim: bool = False,
    ahead: bool = True,
) -> Thresholds:
    """The thresholds whose mark is above the available amount, in the order given. `ahead`: a hard
    one is met, too, while less is available than is needed for what is coming."""

    def mark(threshold: Threshold, observation: SignalObservation) -> int:
        reached = threshold.mark(observation.capacity)
        if enforce_min_reclaim:
            reached = threshold.mark_with_min_reclaim(observation.capacity)
        return max(reached, observation.needed) if ahead and threshold.hard else reached

    return tuple(
        threshold
        for threshold in thresholds
        if (observation := observations.get(threshold.signal)) is not None
        and not observation.stale
        and mark(threshold, observation) > observation.available
    )


def is_coming(threshold: Threshold, observations: Observations) -> bool:
    """Whether it is met only because of what is coming."""
    observation = observations[threshold.signal]
    mark = threshold.mark(observation.capacity)
    return threshold.hard and mark <= observation.available < observation.needed


def kubelets_met(kubelets: Iterable[Threshold], observations: Observations) -> Thresholds:
    """The thresholds of the kubelet's that are met, by what the filesystems show."""
    return thresholds_met(kubelets, as_shown(observations))


def as_shown(observations: Observations) -> dict[Signal, SignalObservation]:
    """The observations as the kubelet sees them."""
    return {signal: observation.shown() for signal, observation in observations.items()}


def raise_pressure(thresholds: Iterable[Threshold]) -> bool:
    """Whether these raise ReclaimPressure: those of the kubelet's disk signals do, those of
    filesystems that the configuration adds do not."""
    return any(threshold.signal.filesystem.kubelets for threshold in thresholds)


def node_conditions(*, reclaim_pressure: bool, disk_pressure: bool) -> frozenset[NodeCondition]:
    """The conditions to report."""
    holds = {
        NodeCondition.RECLAIM_PRESSURE: reclaim_pressure,
        NodeCondition.DISK_PRESSURE: disk_pressure,
    }
    return frozenset(condition for condition in holds if holds[condition])


def below_kubelets_marks(kubelets: Thresholds, observations: Observations, *, before: bool) -> bool:
    """Whether a signal is below a mark of the kubelet's, so it would report DiskPressure.

    `before`: whether one was at the last observation. If so, it counts as below until all of these
    signals are read again: an unread signal neither raises a condition nor ends it.
    """
    if kubelets_met(kubelets, observations):
        return True
    stale = {signal for signal, observation in observations.items() if observation.stale}
    return before and any(threshold.signal in stale for threshold in kubelets)


def thresholds_met_grace_period(
    first_observed: Mapping[Threshold, float], now: float
) -> Thresholds:
    """The thresholds that have been met for their grace period; hard ones at once."""
    return tuple(
        threshold
        for threshold, seen in first_observed.items()
        if now - seen >= threshold.grace_seconds
    )


def thresholds_updated_stats(
    thresholds: Iterable[Threshold], observations: Observations, previous: Observations
) -> Thresholds:
    """The thresholds whose signal has a newer reading than in the previous pass. `observations`:
    those that are not stale."""
    return tuple(
        threshold
        for threshold in thresholds
        if (observation := observations.get(threshold.signal)) is not None
        and ((last := previous.get(threshold.signal)) is None or observation.time > last.time)
    )


def deficit(threshold: Threshold, observations: Observations) -> Fraction:
    """How far below its mark the signal, which was read, is, as a share of the mark: negative if it
    is clear."""
    observation = observations[threshold.signal]
    mark = threshold.mark(observation.capacity)
    return Fraction(mark - observation.available, mark) if mark else Fraction(0)


def unreadable(observations: SignalObservations, thresholds: Thresholds) -> Thresholds:
    """The thresholds whose filesystem could not be read. A filesystem that does not count inodes
    has no inode signal, which is not a failure."""
    roles = {unavailable.role for unavailable in observations.unavailable}
    return tuple(threshold for threshold in thresholds if threshold.signal.filesystem in roles)


def highest_mark(
    thresholds: Iterable[Threshold], observations: SignalObservations, role: FilesystemRole
) -> int:
    """How many bytes have to stay available on the filesystem of a role, minimum reclaim included:
    the highest such mark of all its signals, 0 without a threshold or a reading."""
    if role not in observations.filesystems:
        return 0
    filesystem, _ = observations.filesystems[role]
    marks = (
        threshold.mark_with_min_reclaim(observation.capacity)
        for threshold in thresholds
        if not threshold.signal.counts_inodes
        and (observation := observations.signals.get(threshold.signal)) is not None
        and observation.filesystem.device_id == filesystem.device_id
    )
    return max(marks, default=0)


def short_of_min_reclaim(threshold: Threshold, observation: SignalObservation) -> bool:
    """Whether a threshold stays met only because its minimum reclaim is not reached."""
    capacity = observation.capacity
    return (
        threshold.mark(capacity)
        <= observation.available
        < threshold.mark_with_min_reclaim(capacity)
    )


def filesystem_of_writable_layers(layout: FsLayout) -> FilesystemRole:
    """The filesystem that holds the writable layers from the kubelet's point of view; the
    thresholds of containerfs are derived from its thresholds. (In the split layout they may be
    elsewhere, but still have the thresholds of nodefs.)
    """
    return FilesystemRole.IMAGEFS if layout is FsLayout.DEDICATED_IMAGEFS else FilesystemRole.NODEFS


@lru_cache(maxsize=16)  # asked at every step, always about the same
def update_container_fs_thresholds(thresholds: Thresholds, layout: FsLayout | None) -> Thresholds:
    """The thresholds with those of containerfs derived (kubelet, UpdateContainerFsThresholds).

    A containerfs threshold is a copy of that of the filesystem with the writable layers: imagefs if
    it is dedicated, else nodefs. Unit and hard or soft must match; of several, the last wins.
    Configured containerfs thresholds are dropped, even if there is nothing to copy and while the
    layout is unknown (None).
    """
    source = None if layout is None else filesystem_of_writable_layers(layout)
    kept = [
        threshold
        for threshold in thresholds
        if threshold.signal.filesystem is not FilesystemRole.CONTAINERFS
    ]
    derived: dict[tuple[bool, bool], Threshold] = {}
    for threshold in kept:
        if threshold.signal.filesystem is source:
            signal = threshold.signal.on(FilesystemRole.CONTAINERFS)
            copy = replace(threshold, signal=signal, origin=f"derived from {threshold.signal}")
            derived[not threshold.hard, signal.counts_inodes] = copy
    return (*kept, *(derived[key] for key in sorted(derived)))
