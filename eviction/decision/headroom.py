"""How far each amount is above its marks, how fast it falls, and what follows: when to look, what has to come free
(pure).

Covers: fills, headrooms, the marks that the glances go by, what is missing to a mark that is met. Does not cover: the
arithmetic of the interval (`signals.interval`), who glances (`signals.statvfs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eviction.types import Threshold
from reclaim.disk_need import Need
from signals.interval import ASSUMED_INODES_PER_SECOND, Fill, Marks, next_fill, next_interval, stands_still
from signals.types import SignalObservation, SignalObservations

Fills = Mapping[tuple[int, bool], Fill]
"""(device, whether inodes) -> what is known of its fill."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often is looked: seconds; `assumed_fill_rate` in bytes a second is never gone below."""

    floor_seconds: float
    ceiling_seconds: float
    assumed_fill_rate: float

    def assumed(self, *, inodes: bool) -> float:
        """The slowest fill that is assumed to be possible, units a second."""
        return ASSUMED_INODES_PER_SECOND if inodes else self.assumed_fill_rate


def fills_after(fills: Fills, look: SignalObservations) -> dict[tuple[int, bool], Fill]:
    """The fills after a look; those of filesystems that are not there any more are forgotten."""
    after: dict[tuple[int, bool], Fill] = {}
    for identity, stats in look.filesystems.values():
        for inodes, available in ((False, stats.available_bytes), (True, stats.inodes_free)):
            key = (identity.device_id, inodes)
            after[key] = next_fill(fills.get(key), available, stats.time)
    return after


def quiet(fills: Fills, pace: Pace) -> bool:
    """Whether no filesystem was filled lately by more than is next to nothing."""
    return all(stands_still(fill.lately, pace.assumed(inodes=inodes)) for (_, inodes), fill in fills.items())


def time_to_look(thresholds: Iterable[Threshold], look: SignalObservations, fills: Fills, pace: Pace) -> float:
    """Seconds until the first mark that is not crossed could be half-way reached, in [floor, ceiling].

    A mark that is crossed already says nothing of the next look: it is met, and is served or has to wait.
    """
    headrooms = [
        (headroom, _fastest(observation, fills, pace))
        for _, observation, headroom in _known(thresholds, look)
        if headroom >= 0
    ]
    return next_interval(headrooms, pace.floor_seconds, pace.ceiling_seconds)


def marks_ahead(
    thresholds: Iterable[Threshold], look: SignalObservations, fills: Fills, pace: Pace
) -> dict[str, Marks]:
    """For each filesystem, by the path that it is read at, the next marks that it could fall below."""
    highest: dict[int, dict[bool, int]] = {}
    paths: dict[int, str] = {}
    for threshold, observation, headroom in _known(thresholds, look):
        if headroom < 0 or observation.filesystem is None:
            continue
        device, inodes = observation.filesystem.device_id, threshold.signal.counts_inodes
        paths.setdefault(device, observation.filesystem.path)  # several roles of one device are read at several paths
        marks = highest.setdefault(device, {})
        marks[inodes] = max(marks.get(inodes, 0), observation.available - headroom)
    return {
        path: Marks(
            available_bytes=highest[device].get(False),
            inodes_free=highest[device].get(True),
            bytes_per_second=_fastest_of(device, False, fills, pace),
            inodes_per_second=_fastest_of(device, True, fills, pace),
            floor_seconds=pace.floor_seconds,
            ceiling_seconds=pace.ceiling_seconds,
        )
        for device, path in paths.items()
    }


def most_pressing(unmet: Iterable[Threshold], look: SignalObservations, fills: Fills) -> Need | None:
    """Of these thresholds the need of the one whose filesystem is full first at the fill of lately; the minimum reclaim
    counts. None where nothing is known."""
    needs = []
    for threshold, observation, _ in _known(unmet, look):
        assert observation.filesystem is not None
        inodes = threshold.signal.counts_inodes
        fill = fills.get((observation.filesystem.device_id, inodes))
        wanted = threshold.mark_with_min_reclaim(observation.capacity)
        needs.append(
            Need(
                missing=wanted - observation.available,
                left=observation.available,
                fill_per_second=0.0 if fill is None else fill.lately,
                inodes=inodes,
            )
        )
    return min(needs, key=lambda need: need.seconds_to_full, default=None)


def _known(
    thresholds: Iterable[Threshold], look: SignalObservations
) -> Iterable[tuple[Threshold, SignalObservation, int]]:
    """The thresholds whose signal was read, with how far it is above the mark."""
    for threshold in thresholds:
        observation = look.signals.get(threshold.signal)
        if observation is not None and observation.filesystem is not None:
            yield threshold, observation, observation.available - threshold.mark(observation.capacity)


def _fastest(observation: SignalObservation, fills: Fills, pace: Pace) -> float:
    assert observation.filesystem is not None
    return _fastest_of(observation.filesystem.device_id, observation.signal.counts_inodes, fills, pace)


def _fastest_of(device: int, inodes: bool, fills: Fills, pace: Pace) -> float:
    fill = fills.get((device, inodes))
    return max(pace.assumed(inodes=inodes), fill.fastest if fill is not None else 0.0)
