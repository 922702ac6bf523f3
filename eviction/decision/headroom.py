"""How far each amount is above its thresholds, and how fast it falls: when to observe, what has to come free.

Covers: fill rates, jumps, headrooms, the levels that the polls compare with, what is missing to a threshold that is
met. Does not cover: the arithmetic of the interval (`signals.interval`), who polls (`signals.probe`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from eviction.types import Threshold
from reclaim.disk_need import Need
from signals import steady_fill
from signals.interval import (
    ASSUMED_INODES_PER_SECOND,
    FillRate,
    WatchedLevels,
    is_negligible,
    next_interval,
    update_fill_rate,
)
from signals.steady_fill import Step
from signals.types import SignalObservation, SignalObservations

FillRates = Mapping[tuple[int, bool], FillRate]
"""(device, whether inodes) -> how fast that amount falls."""


@dataclass(frozen=True, slots=True)
class PollPolicy:
    """How often a filesystem is read: at least `floor_seconds` and at most `ceiling_seconds` apart.

    `assumed_fill_rate`: bytes a second; a fill of this rate is always taken to be possible.
    """

    floor_seconds: float
    ceiling_seconds: float
    assumed_fill_rate: float

    def assumed_rate(self, *, inodes: bool) -> float:
        """The rate of a fill that is always taken to be possible, units a second."""
        return ASSUMED_INODES_PER_SECOND if inodes else self.assumed_fill_rate


def update_fill_rates(fill_rates: FillRates, observations: SignalObservations) -> dict[tuple[int, bool], FillRate]:
    """The fill rates after an observation and those of its polls that came after the last one; the rates of filesystems
    that are gone are forgotten."""
    after: dict[tuple[int, bool], FillRate] = {}
    for role, (identity, stats) in observations.filesystems.items():
        of_bytes, of_inodes = (identity.device_id, False), (identity.device_id, True)
        if of_bytes in after:  # another role of the same filesystem
            continue
        polls = observations.polls.get(role, ())
        polled_bytes = [(poll.time, poll.available_bytes) for poll in polls]
        polled_inodes = [(poll.time, poll.inodes_free) for poll in polls]
        after[of_bytes] = update_fill_rate(fill_rates.get(of_bytes), stats.available_bytes, stats.time, polled_bytes)
        after[of_inodes] = update_fill_rate(fill_rates.get(of_inodes), stats.inodes_free, stats.time, polled_inodes)
    return after


def faster(some: FillRates, others: FillRates) -> FillRates:
    """Of each amount the fill rate that is steadily faster; of equals, and where one is missing, that of `others`."""
    return {
        key: some[key] if key in some and some[key].steady_rate > rate.steady_rate else rate
        for key, rate in others.items()
    }


def newest(some: FillRates, others: FillRates) -> FillRates:
    """Of each amount the fill rate that was updated last."""
    return {**others, **{key: rate for key, rate in some.items() if key not in others or rate.time > others[key].time}}


def nothing_fills(fill_rates: FillRates, policy: PollPolicy) -> bool:
    """Whether no filesystem was filled recently, at a rate that counts (`signals.interval.is_negligible`)."""
    return all(
        is_negligible(rate.recent_rate, policy.assumed_rate(inodes=inodes)) for (_, inodes), rate in fill_rates.items()
    )


def observation_interval(
    thresholds: Iterable[Threshold], observations: SignalObservations, fill_rates: FillRates, policy: PollPolicy
) -> float:
    """Seconds until the next observation, within [floor, ceiling]: half the time in which an amount could reach the
    first threshold that it is not below yet.

    A threshold that is met already does not shorten the interval: it is served now, or has to wait. `thresholds`: the
    kubelet's own among them where they are known, so that its marks are not passed unseen either.
    """
    headrooms = [
        (headroom, _fastest(observation, fill_rates, policy))
        for _, observation, headroom in _known(thresholds, observations)
        if headroom >= 0
    ]
    return next_interval(headrooms, policy.floor_seconds, policy.ceiling_seconds)


def near_their_marks(
    thresholds: Iterable[Threshold],
    observations: SignalObservations,
    fill_rates: FillRates,
    policy: PollPolicy,
    before: Container[int] = (),
) -> frozenset[int]:
    """The devices of the filesystems that are worth a watch: those that could be at a mark within the ceiling.

    Farther away the next reading comes in time for every fill that is taken to be possible. Those of `before` stay
    until it takes twice the ceiling, from where on the interval is the ceiling.
    """
    near = set()
    for _, observation, headroom in _known(thresholds, observations):
        assert observation.filesystem is not None
        device = observation.filesystem.device_id
        seconds = headroom / _fastest(observation, fill_rates, policy)
        if 0 <= seconds < policy.ceiling_seconds * (2 if device in before else 1):
            near.add(device)
    return frozenset(near)


def levels_to_watch(
    thresholds: Iterable[Threshold], observations: SignalObservations, fill_rates: FillRates, policy: PollPolicy
) -> dict[str, WatchedLevels]:
    """For each filesystem, by the path that it is read at, the next thresholds that it could fall below.

    A filesystem that is above none of its thresholds is left out.
    """
    highest: dict[int, dict[bool, int]] = {}
    paths: dict[int, str] = {}
    for threshold, observation, headroom in _known(thresholds, observations):
        if headroom < 0 or observation.filesystem is None:
            continue
        device, inodes = observation.filesystem.device_id, threshold.signal.counts_inodes
        paths.setdefault(device, observation.filesystem.path)  # several roles of one device are read at several paths
        levels = highest.setdefault(device, {})
        levels[inodes] = max(levels.get(inodes, 0), observation.available - headroom)
    return {
        path: WatchedLevels(
            available_bytes=highest[device].get(False),
            inodes_free=highest[device].get(True),
            bytes_per_second=_fastest_of(device, False, fill_rates, policy),
            inodes_per_second=_fastest_of(device, True, fill_rates, policy),
            floor_seconds=policy.floor_seconds,
            ceiling_seconds=policy.ceiling_seconds,
        )
        for device, path in paths.items()
    }


def most_urgent_need(
    unmet: Iterable[Threshold], observations: SignalObservations, fill_rates: FillRates
) -> Need | None:
    """What has to be freed for the one of these thresholds whose filesystem is full first at its steady fill rate.

    The minimum reclaim counts. A jump (`signals.steady_fill`) is no rate. None where no signal of them is known.
    """
    needs = []
    for threshold, observation, _ in _known(unmet, observations):
        assert observation.filesystem is not None
        inodes = threshold.signal.counts_inodes
        rate = fill_rates.get((observation.filesystem.device_id, inodes))
        wanted = threshold.mark_with_min_reclaim(observation.capacity)
        needs.append(
            Need(
                missing=wanted - observation.available,
                left=observation.available,
                fill_per_second=0.0 if rate is None else rate.steady_rate,
                inodes=inodes,
                after_jump=jump_below(threshold, observations, fill_rates) is not None,
            )
        )
    return min(needs, key=lambda need: need.seconds_to_full, default=None)


def met_soon_in_a_hurry(
    thresholds: Iterable[Threshold], observations: SignalObservations, fill_rates: FillRates, seconds: float
) -> tuple[Threshold, ...]:
    """Those that are not met and could be within so many seconds, on a disk whose bytes then run out within a minute.

    At the faster one of the recent and the steady rate: to be ready for a fill costs little, so a jump counts as one.
    """
    soon = []
    for threshold, observation, headroom in _known(thresholds, observations):
        assert observation.filesystem is not None
        inodes = threshold.signal.counts_inodes
        rate = fill_rates.get((observation.filesystem.device_id, inodes))
        if rate is None or headroom < 0:
            continue
        fill = max(rate.recent_rate, rate.steady_rate)
        need = Need(missing=0, left=observation.available, fill_per_second=fill, inodes=inodes)
        if need.full_within_a_minute and headroom < fill * seconds:
            soon.append(threshold)
    return tuple(soon)


def jump_below(threshold: Threshold, observations: SignalObservations, fill_rates: FillRates) -> Step | None:
    """The jump by which the signal fell below this threshold; None if it was a fill, or is not known. Bytes only: what
    has to be freed in inodes is never in a hurry."""
    if threshold.signal.counts_inodes:
        return None
    for _, observation, _ in _known([threshold], observations):
        assert observation.filesystem is not None
        rate = fill_rates.get((observation.filesystem.device_id, False))
        if rate is not None:
            return steady_fill.jump_below(threshold.mark(observation.capacity), rate.steps, rate.steady_rate)
    return None


def would_hurry(threshold: Threshold, observations: SignalObservations, fill_rates: FillRates) -> bool:
    """Whether the filesystem would be full within a minute if the jump were a rate, and is not without it."""
    need = most_urgent_need([threshold], observations, fill_rates)
    observation = observations.signals.get(threshold.signal)
    if need is None or need.full_within_a_minute or observation is None or observation.filesystem is None:
        return False
    rate = fill_rates.get((observation.filesystem.device_id, threshold.signal.counts_inodes))
    return rate is not None and replace(need, fill_per_second=rate.recent_rate).full_within_a_minute


def _known(
    thresholds: Iterable[Threshold], observations: SignalObservations
) -> Iterable[tuple[Threshold, SignalObservation, int]]:
    """The thresholds whose signal was read, with how far it is above the threshold (below 0: it is met)."""
    for threshold in thresholds:
        observation = observations.signals.get(threshold.signal)
        if observation is not None and observation.filesystem is not None:
            yield threshold, observation, observation.available - threshold.mark(observation.capacity)


def _fastest(observation: SignalObservation, fill_rates: FillRates, policy: PollPolicy) -> float:
    assert observation.filesystem is not None
    return _fastest_of(observation.filesystem.device_id, observation.signal.counts_inodes, fill_rates, policy)


def _fastest_of(device: int, inodes: bool, fill_rates: FillRates, policy: PollPolicy) -> float:
    rate = fill_rates.get((device, inodes))
    return max(policy.assumed_rate(inodes=inodes), rate.fastest if rate is not None else 0.0)
