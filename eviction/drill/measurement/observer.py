"""The observer of a drill: what it makes of each look at the filesystems, and of each decision of the daemon."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from eviction.decision.thresholds import thresholds_met, usable
from eviction.drill.measurement.downsample import thinned
from eviction.drill.measurement.measurements import (
    Band,
    Episode,
    FilesystemSeen,
    Room,
    Sample,
    filesystems_of,
    rooms_of,
)
from eviction.types import NodeCondition, Threshold
from signals.types import FsLayout, SignalObservations

RISE = (1 << 20, 32)
"""A rise of so many bytes, or inodes, counts as relief: less comes and goes by itself."""
LARGEST_SAMPLES = 40_000
FEWER_SAMPLES = 20_000


class Observer:
    """Gathers samples, crossings and reliefs, and the conditions that the daemon reports.

    `thresholds`: those in force in a layout. `conditions` is called from one thread, `sample` from any.
    """

    def __init__(self, thresholds: Callable[[FsLayout | None], tuple[Threshold, ...]]):
        self._thresholds = thresholds
        self.filesystems: tuple[FilesystemSeen, ...] = ()
        self.samples: list[Sample] = []
        self.episodes: list[Episode] = []
        self.bands: list[Band] = []
        self.last_observations: SignalObservations | None = None
        self._lock = threading.Lock()
        self._lows: dict[tuple[int, bool], int] = {}  # since crossing, of what is below a mark

    @property
    def waiting(self) -> bool:
        """Whether a mark was crossed and is not relieved, with its minimum reclaim, yet."""
        return bool(self.episodes) and self.episodes[-1].relieved is None

    @property
    def last_relief(self) -> float | None:
        """When pressure was last relieved; None before, and while it lasts."""
        return self.episodes[-1].relieved if self.episodes else None

    def sample(self, observations: SignalObservations, seconds: float) -> None:
        """One look, the observer's own or the daemon's: on a busy machine one may see a crossing that the other sleeps
        through. One at which not all filesystems could be read tells nothing: an old number is no relief. One that
        comes after a later one is late, and tells nothing either."""
        with self._lock:
            if not self.samples or seconds >= self.samples[-1].seconds:
                self._sample(observations, seconds)

    def _sample(self, observations: SignalObservations, seconds: float) -> None:
        if observations.layout is None or any(observation.stale for observation in observations.signals.values()):
            return
        if not self.filesystems:
            self.filesystems = filesystems_of(observations)
        rooms = rooms_of(observations, self.filesystems)
        if rooms is None:
            return
        self.last_observations = observations
        self.samples.append(Sample(seconds, rooms))
        if len(self.samples) > LARGEST_SAMPLES:  # of hours there are too many
            self.samples = thinned(self.samples, FEWER_SAMPLES)
        thresholds = self._thresholds(observations.layout)
        met = thresholds_met(thresholds, usable(observations.signals), enforce_min_reclaim=self.waiting)
        if met and not self.waiting:
            self.episodes.append(Episode(seconds))
            self._lows = {}
        if self.waiting and self.episodes[-1].first_rise is None and self._risen(rooms, met):
            self.episodes[-1] = replace(self.episodes[-1], first_rise=seconds)
        if self.waiting and not met:
            self.episodes[-1] = replace(self.episodes[-1], relieved=seconds)

    def _risen(self, rooms: tuple[Room, ...], met: tuple[Threshold, ...]) -> bool:
        """Whether anything that was below its mark has more room than its lowest since then."""
        below = {
            (place, threshold.signal.counts_inodes)
            for threshold in met
            for place, filesystem in enumerate(self.filesystems)
            if threshold.signal.filesystem in filesystem.roles
        }
        risen = False
        for place, inodes in below | self._lows.keys():
            left = rooms[place][inodes]
            low = self._lows[place, inodes] = min(left, self._lows.get((place, inodes), left))
            risen |= left >= low + RISE[inodes]
        return risen

    def conditions(self, reported: frozenset[NodeCondition], seconds: float) -> None:
        """What the daemon reports after a look of its own."""
        for place, band in enumerate(self.bands):
            if band.ended is None and band.condition not in reported:
                self.bands[place] = replace(band, ended=seconds)
        lasting = {band.condition for band in self.bands if band.ended is None}
        self.bands += [Band(condition, seconds) for condition in sorted(reported - lasting)]
