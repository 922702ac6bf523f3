"""The observer of a drill: what it makes of each look at the filesystems, and of each decision of the daemon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eviction.drill.seen import Band, Episode, FilesystemSeen, Sample, filesystems_of, rooms_of
from eviction.thresholds import thresholds_met, usable
from eviction.types import NodeCondition, Threshold
from signals.types import FsLayout, SignalObservations


class Observer:
    """Gathers samples, crossings and reliefs, and the conditions that the daemon reports.

    `thresholds`: those in force in a layout. `sample` is called from one thread, `conditions` from another one.
    """

    def __init__(self, thresholds: Callable[[FsLayout | None], tuple[Threshold, ...]]):
        self._thresholds = thresholds
        self.filesystems: tuple[FilesystemSeen, ...] = ()
        self.samples: list[Sample] = []
        self.episodes: list[Episode] = []
        self.bands: list[Band] = []
        self.look: SignalObservations | None = None

    @property
    def waiting(self) -> bool:
        """Whether a mark was crossed and is not relieved, with its minimum reclaim, yet."""
        return bool(self.episodes) and self.episodes[-1].relieved is None

    @property
    def last_relief(self) -> float | None:
        """When pressure was last relieved; None before, and while it lasts."""
        return self.episodes[-1].relieved if self.episodes else None

    def sample(self, look: SignalObservations, seconds: float) -> None:
        """One look. One at which not all filesystems could be read tells nothing: an old number is no relief."""
        if look.layout is None or any(observation.stale for observation in look.signals.values()):
            return
        if not self.filesystems:
            self.filesystems = filesystems_of(look)
        rooms = rooms_of(look, self.filesystems)
        if rooms is None:
            return
        self.look = look
        self.samples.append(Sample(seconds, rooms))
        thresholds = self._thresholds(look.layout)
        met = thresholds_met(thresholds, usable(look.signals), enforce_min_reclaim=self.waiting)
        if met and not self.waiting:
            self.episodes.append(Episode(seconds))
        elif self.waiting and not met:
            self.episodes[-1] = replace(self.episodes[-1], relieved=seconds)

    def conditions(self, reported: frozenset[NodeCondition], seconds: float) -> None:
        """What the daemon reports after a look of its own."""
        for place, band in enumerate(self.bands):
            if band.ended is None and band.condition not in reported:
                self.bands[place] = replace(band, ended=seconds)
        lasting = {band.condition for band in self.bands if band.ended is None}
        self.bands += [Band(condition, seconds) for condition in sorted(reported - lasting)]
