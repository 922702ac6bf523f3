"""XFS gives back what it allocated ahead, during one pass: first, and again between removals.

What was given back is kept apart from what removals free: `without` takes it out of the measurements between removals,
so that no object counts as having freed it, and nothing wrong is learned of what objects free.

Covers: which filesystems, measuring. Does not cover: pauses (`reclaim.xfs.release`), what follows (`responder`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from eviction.decision.headroom import FillRates
from eviction.decision.reclaim_table import XFS
from eviction.types import Threshold
from reclaim.released import Released
from reclaim.types import Usage
from reclaim.xfs.release import PreallocationRelease
from signals.types import Signal, SignalObservations

SWITCHED_OFF = "xfsHelperSocket is empty"


def xfs_mount_points(observations: SignalObservations, signals: Iterable[Signal]) -> tuple[str, ...]:
    """Where the XFS filesystems of these signals are mounted, each filesystem once."""
    found: dict[int, str] = {}
    for signal in signals:
        observation = observations.signals.get(signal)
        where = None if observation is None or observation.stale else observation.filesystem
        if where is not None and where.type == XFS and where.mount_point:
            found.setdefault(where.device_id, where.mount_point)
    return tuple(found.values())


def usage_of(observations: SignalObservations) -> Usage:
    """Available and free bytes and free inodes, summed over the distinct filesystems."""
    by_device = {identity.device_id: stats for identity, stats in observations.filesystems.values()}
    return Usage(
        sum(stats.available_bytes for stats in by_device.values()),
        sum(stats.free_bytes for stats in by_device.values()),
        sum(stats.inodes_free for stats in by_device.values()),
    )


class GivingBack:
    """One pass. `release`: None where nothing is to be given back. `released`: what was, so far. `rates_before`: the
    fill rates before anything was given back, None if nothing was."""

    def __init__(self, release: PreallocationRelease | None, observe: Callable[[], SignalObservations]):
        self._release = release
        self._observe = observe
        self._given = Usage()
        self.released = Released()
        self.rates_before: FillRates | None = None

    def begin(
        self, observations: SignalObservations, mount_points: tuple[str, ...], rates: FillRates
    ) -> SignalObservations:
        """The first calls of the pass; the observations after them. `rates`: the fill rates now."""
        self.released = replace(self.released, mount_points=mount_points)
        after = self._call(observations, mount_points, first=True)
        if self.released.calls:
            self.rates_before = rates
        return after

    def may_help(self, observations: SignalObservations, unmet: Iterable[Threshold]) -> bool:
        """Whether one of these thresholds is of an XFS filesystem that gives back in this pass."""
        return self._release is not None and bool(self._mount_points(observations, unmet))

    def again(self, observations: SignalObservations, unmet: Iterable[Threshold]) -> SignalObservations:
        """The same between removals, for the filesystems of these thresholds."""
        return self._call(observations, self._mount_points(observations, unmet), first=False)

    def without(self, usage: Usage) -> Usage:
        """A measurement without what was given back so far."""
        given = self._given
        return Usage(
            usage.available_bytes - given.available_bytes,
            usage.free_bytes - given.free_bytes,
            usage.inodes_free - given.inodes_free,
        )

    def _mount_points(self, observations: SignalObservations, unmet: Iterable[Threshold]) -> tuple[str, ...]:
        return xfs_mount_points(observations, [threshold.signal for threshold in unmet])

    def _call(
        self, observations: SignalObservations, mount_points: tuple[str, ...], *, first: bool
    ) -> SignalObservations:
        if self._release is None:
            self.released = replace(self.released, skipped=SWITCHED_OFF)
            return observations
        for mount_point in mount_points:
            why_not = self._release.call(mount_point, first=first)
            if why_not is not None:
                self.released = replace(self.released, skipped=why_not or self.released.skipped)
                continue
            after = self._observe()
            now, before = usage_of(after), usage_of(observations)
            gained_bytes, gained_inodes = now.gained_since(before)
            self._release.gained(mount_point, gained_bytes)
            self._given = Usage(
                self._given.available_bytes + max(now.available_bytes - before.available_bytes, 0),
                self._given.free_bytes + max(now.free_bytes - before.free_bytes, 0),
                self._given.inodes_free + max(gained_inodes, 0),
            )
            self.released = replace(
                self.released,
                bytes=self.released.bytes + max(gained_bytes, 0),
                inodes=self.released.inodes + max(gained_inodes, 0),
                calls=self.released.calls + 1,
                skipped="",
            )
            observations = after
        return observations
