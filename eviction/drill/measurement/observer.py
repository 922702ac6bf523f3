"""The observer of a drill: turns readings of the filesystems, and the conditions that the daemon reports, into samples,
pressure episodes and condition periods."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from eviction.decision.thresholds import thresholds_met, usable
from eviction.drill.measurement.downsample import downsample
from eviction.drill.measurement.measurements import (
    Available,
    ConditionPeriod,
    Episode,
    MeasuredFilesystem,
    Sample,
)
from eviction.types import NodeCondition, Threshold
from signals.types import FilesystemRole, FsLayout, SignalObservations

RELIEF_RISE = (1 << 20, 32)
"""A rise by this many bytes, or inodes, counts as relief. Smaller changes happen on any node."""
LARGEST_SAMPLES = 40_000
FEWER_SAMPLES = 20_000


class Observer:
    """Collects samples, crossings and reliefs, and the conditions that the daemon reports.

    `thresholds` returns the thresholds in force in a layout. Call `record_conditions` from one thread only; `sample`
    may be called from any thread.
    """

    def __init__(self, thresholds: Callable[[FsLayout | None], tuple[Threshold, ...]]):
        self._thresholds = thresholds
        self.filesystems: tuple[MeasuredFilesystem, ...] = ()
        self.samples: list[Sample] = []
        self.episodes: list[Episode] = []
        self.condition_periods: list[ConditionPeriod] = []
        self.observations: SignalObservations | None = None
        self._lock = threading.Lock()
        self._lowest: dict[tuple[int, bool], int] = {}  # (filesystem, inodes?) below a mark -> lowest since crossing

    @property
    def under_pressure(self) -> bool:
        """True from crossing a mark until every threshold is clear with its minimum reclaim."""
        return bool(self.episodes) and self.episodes[-1].relieved is None

    @property
    def last_relief(self) -> float | None:
        """When pressure was last relieved; None before the first relief, and under pressure."""
        return self.episodes[-1].relieved if self.episodes else None

    def sample(self, observations: SignalObservations, seconds: float) -> None:
        """Takes one observation of the filesystems, the observer's own or the daemon's.

        Both count, since on a busy machine one may miss a crossing that the other sees. Ignored are observations in
        which a filesystem could not be read (an old number proves no relief) and those older than the last sample.
        """
        with self._lock:
            if not self.samples or seconds >= self.samples[-1].seconds:
                self._sample(observations, seconds)

    def _sample(self, observations: SignalObservations, seconds: float) -> None:
        if observations.layout is None or any(observation.stale for observation in observations.signals.values()):
            return
        if not self.filesystems:
            self.filesystems = _measured_filesystems(observations)
        read = [observations.filesystems.get(FilesystemRole(each.name)) for each in self.filesystems]
        available = tuple((found[1].available_bytes, found[1].inodes_free) for found in read if found is not None)
        if len(available) < len(self.filesystems):
            return
        self.observations = observations
        self.samples.append(Sample(seconds, available))
        if len(self.samples) > LARGEST_SAMPLES:  # a run of hours
            self.samples = downsample(self.samples, FEWER_SAMPLES)
        thresholds = self._thresholds(observations.layout)
        met = thresholds_met(thresholds, usable(observations.signals), enforce_min_reclaim=self.under_pressure)
        if met and not self.under_pressure:
            self.episodes.append(Episode(seconds))
            self._lowest = {}
        if self.under_pressure and self.episodes[-1].first_rise is None and self._has_risen(available, met):
            self.episodes[-1] = replace(self.episodes[-1], first_rise=seconds)
        if self.under_pressure and not met:
            self.episodes[-1] = replace(self.episodes[-1], relieved=seconds)

    def _has_risen(self, available: tuple[Available, ...], met: tuple[Threshold, ...]) -> bool:
        """True if an amount that was below its mark has risen above its lowest since the crossing."""
        below = {
            (index, threshold.signal.counts_inodes)
            for threshold in met
            for index, filesystem in enumerate(self.filesystems)
            if threshold.signal.filesystem in filesystem.roles
        }
        risen = False
        for index, inodes in below | self._lowest.keys():
            amount = available[index][inodes]
            lowest = self._lowest[index, inodes] = min(amount, self._lowest.get((index, inodes), amount))
            risen |= amount >= lowest + RELIEF_RISE[inodes]
        return risen

    def record_conditions(self, reported: frozenset[NodeCondition], seconds: float) -> None:
        """Takes the conditions that the daemon reports after an observation of its own."""
        for index, period in enumerate(self.condition_periods):
            if period.to_seconds is None and period.condition not in reported:
                self.condition_periods[index] = replace(period, to_seconds=seconds)
        lasting = {period.condition for period in self.condition_periods if period.to_seconds is None}
        self.condition_periods += [ConditionPeriod(condition, seconds) for condition in sorted(reported - lasting)]


def _measured_filesystems(observations: SignalObservations) -> tuple[MeasuredFilesystem, ...]:
    """The distinct filesystems of an observation, each named for its first role."""
    roles: dict[int, list[FilesystemRole]] = {}
    for role, (identity, _) in observations.filesystems.items():
        roles.setdefault(identity.device_id, []).append(role)
    measured = []
    for names in roles.values():
        stats = observations.filesystems[names[0]][1]
        measured.append(MeasuredFilesystem(names[0], tuple(names), stats.capacity_bytes, stats.inodes_total))
    return tuple(measured)
