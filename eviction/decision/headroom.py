"""How far each amount is above its thresholds and how fast it falls: when to observe, how urgent it
is, and when a pass begins before its mark is reached.

Urgency is one number: the seconds until a filesystem reaches the level that it must not reach (the
kubelet's mark if it is known, else full), from the space left and the steady fill rate. It covers
bytes only: how many inodes an object frees is unknown until it is removed, and a single `tar` uses
up a minute's worth of them.

Removals take time: on a disk that is written at full speed, containerd's fsync alone takes
seconds. So a pass begins when the urgency is less than removals have taken lately (the *lead*),
and at the latest at our own mark.

The arithmetic of the interval is in `signals.interval`, the polls are in `signals.samplers`, and
what a pass does is in `eviction.engine.relief`.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from eviction.types import Threshold
from reclaim.types import NEVER
from signals.interval import (
    ASSUMED_INODES_PER_SECOND,
    FillRate,
    WatchedLevels,
    is_negligible,
    next_interval,
    update_fill_rate,
)
from signals.types import FilesystemIdentity, SignalObservations

FillRates = Mapping[tuple[int, bool], FillRate]
"""(device, whether inodes) -> how fast that amount falls."""


@dataclass(frozen=True, slots=True)
class PollPolicy:
    """How often a filesystem is read: at least `floor_seconds` and at most `ceiling_seconds` apart.

    `assumed_fill_rate`: bytes a second; a fill this fast is always assumed to be possible.
    """

    floor_seconds: float
    ceiling_seconds: float
    assumed_fill_rate: float

    def assumed_rate(self, *, inodes: bool) -> float:
        """The fill rate that is always assumed to be possible, units a second."""
        return ASSUMED_INODES_PER_SECOND if inodes else self.assumed_fill_rate


def update_fill_rates(
    fill_rates: FillRates,
    observations: SignalObservations,
    shortest_seconds: float = 0.0,
    *,
    incomplete: Container[int] = (),
) -> dict[tuple[int, bool], FillRate]:
    """The fill rates after an observation, including its polls since the previous one. Rates of
    filesystems that are gone are dropped. `shortest_seconds`: a reading sooner after the last one
    says nothing about a rate. `incomplete`: devices of which more is to come, such as the polls of
    another path: their rates stay."""
    after: dict[tuple[int, bool], FillRate] = {}
    for role, (identity, stats) in observations.filesystems.items():
        of_bytes, of_inodes = (identity.device_id, False), (identity.device_id, True)
        if of_bytes in after:  # another role of the same filesystem
            continue
        if identity.device_id in incomplete:
            after |= {key: fill_rates[key] for key in (of_bytes, of_inodes) if key in fill_rates}
            continue
        polls, known = observations.polls.get(role, ()), fill_rates.get(of_bytes)
        if known is not None:  # there are many, and most of them are older
            polls = polls[bisect(polls, known.time, key=attrgetter("time")) :]
        polled_bytes = ((poll.time, poll.available_bytes) for poll in polls)
        polled_inodes = ((poll.time, poll.inodes_free) for poll in polls)
        after[of_bytes] = update_fill_rate(
            known,
            stats.available_bytes,
            stats.time,
            polled=polled_bytes,
            shortest_seconds=shortest_seconds,
        )
        after[of_inodes] = update_fill_rate(
            fill_rates.get(of_inodes),
            stats.inodes_free,
            stats.time,
            polled=polled_inodes,
            shortest_seconds=shortest_seconds,
        )
    return after


def nothing_fills(fill_rates: FillRates, policy: PollPolicy) -> bool:
    """Whether no filesystem has been filled lately at a rate that counts
    (`signals.interval.is_negligible`).
    """
    return all(
        is_negligible(rate.steady_rate, policy.assumed_rate(inodes=inodes))
        for (_, inodes), rate in fill_rates.items()
    )


def observation_interval(
    thresholds: Iterable[Threshold],
    observations: SignalObservations,
    fill_rates: FillRates,
    *,
    policy: PollPolicy,
) -> float:
    """Seconds until the next observation, within [floor, ceiling]: half the time in which an amount
    could reach the first threshold that it is not below yet.

    A threshold that is already met does not shorten the interval: it is acted on now, or
    has to wait. `thresholds` include the kubelet's own if they are known, so that its marks
    do not pass unseen either.
    """
    headrooms = [
        (
            headroom,
            _fastest(where.device_id, threshold.signal.counts_inodes, fill_rates, policy=policy),
        )
        for threshold, where, _, headroom in _known(thresholds, observations)
        if headroom >= 0
    ]
    return next_interval(headrooms, policy.floor_seconds, policy.ceiling_seconds)


def near_their_marks(
    thresholds: Iterable[Threshold],
    observations: SignalObservations,
    fill_rates: FillRates,
    *,
    policy: PollPolicy,
    before: Container[int] = (),
) -> frozenset[int]:
    """The devices of the filesystems that are worth a watch: those that could reach
    a mark within the ceiling.

    Farther away, the next reading is early enough for every fill that is assumed to
    be possible. Those in `before` stay until it takes twice the ceiling, beyond which
    the interval is the ceiling.
    """
    near = set()
    for threshold, where, _, headroom in _known(thresholds, observations):
        seconds = headroom / _fastest(
            where.device_id, threshold.signal.counts_inodes, fill_rates, policy=policy
        )
        if 0 <= seconds < policy.ceiling_seconds * (2 if where.device_id in before else 1):
            near.add(where.device_id)
    return frozenset(near)


def levels_to_watch(
    thresholds: Iterable[Threshold],
    observations: SignalObservations,
    fill_rates: FillRates,
    *,
    policy: PollPolicy,
) -> dict[str, WatchedLevels]:
    """For each filesystem, by the path that it is read at, the next thresholds
    that it could fall below.

    A filesystem that is above none of its thresholds is left out.
    """
    highest: dict[int, dict[bool, int]] = {}
    paths: dict[int, str] = {}
    for threshold, where, available, headroom in _known(thresholds, observations):
        if headroom >= 0:
            # a device with several roles is read at several paths
            paths.setdefault(where.device_id, where.path)
            levels, inodes = highest.setdefault(where.device_id, {}), threshold.signal.counts_inodes
            levels[inodes] = max(levels.get(inodes, 0), available - headroom)
    return {
        path: WatchedLevels(
            (highest[device].get(False), highest[device].get(True)),
            (
                _fastest(device, False, fill_rates, policy=policy),
                _fastest(device, True, fill_rates, policy=policy),
            ),
            policy.floor_seconds,
            policy.ceiling_seconds,
        )
        for device, path in paths.items()
    }


def urgency(
    thresholds: Iterable[Threshold],
    observations: SignalObservations,
    fill_rates: FillRates,
    *,
    kubelets: Iterable[Threshold] = (),
) -> float:
    """Seconds until the first of these thresholds' filesystems reaches the level that it must not
    reach. `kubelets`: the kubelet's own thresholds.

    Below the kubelet's mark it is the time until nothing is left.
    """
    if not any(rate.steady_rate for (_, inodes), rate in fill_rates.items() if not inodes):
        return NEVER
    limits, seconds = _kubelets_marks(kubelets, observations), NEVER
    for _, where, available, _ in _known(_of_bytes(thresholds), observations):
        rate = fill_rates.get((where.device_id, False))
        if rate is not None and rate.steady_rate > 0:
            left = available - limits.get(where.device_id, 0)
            seconds = min(seconds, max(left, 0) / rate.steady_rate)
    return seconds


def _kubelets_marks(
    kubelets: Iterable[Threshold], observations: SignalObservations
) -> dict[int, int]:
    """The kubelet's mark in bytes by device: the highest one that is not reached yet."""
    marks: dict[int, int] = {}
    for _, where, available, headroom in _known(_of_bytes(kubelets), observations):
        if headroom > 0:
            marks[where.device_id] = max(marks.get(where.device_id, 0), available - headroom)
    return marks


def begins_by_lead(
    thresholds: Iterable[Threshold],
    observations: SignalObservations,
    fill_rates: FillRates,
    *,
    kubelets: Iterable[Threshold],
    lead_seconds: float,
) -> tuple[Threshold, ...]:
    """The hard thresholds that are not met but whose pass begins now, because the time until the
    kubelet's mark is less than the lead. None if that mark is unknown."""
    thresholds, kubelets = tuple(thresholds), tuple(kubelets)
    if urgency(thresholds, observations, fill_rates, kubelets=kubelets) >= lead_seconds:
        return ()
    marks = _kubelets_marks(kubelets, observations)
    return tuple(
        threshold
        for threshold, where, _, headroom in _known(thresholds, observations)
        if threshold.hard
        and headroom >= 0
        and where.device_id in marks
        and urgency([threshold], observations, fill_rates, kubelets=kubelets) < lead_seconds
    )


def faster(some: FillRates, others: FillRates) -> FillRates:
    """For each amount, the steadily faster fill rate; that of `others` if they
    are equal or one is missing.
    """
    return {
        key: some[key] if key in some and some[key].steady_rate > rate.steady_rate else rate
        for key, rate in others.items()
    }


def _of_bytes(thresholds: Iterable[Threshold]) -> Iterable[Threshold]:
    return (one for one in thresholds if not one.signal.counts_inodes)


def _known(
    thresholds: Iterable[Threshold], observations: SignalObservations
) -> Iterable[tuple[Threshold, FilesystemIdentity, int, int]]:
    """The thresholds whose signal was read on a filesystem, with that filesystem, what is
    available, and its distance above the threshold (negative: it is met)."""
    for threshold in thresholds:
        seen = observations.signals.get(threshold.signal)
        if seen is not None and seen.filesystem is not None:
            yield (
                threshold,
                seen.filesystem,
                seen.available,
                seen.available - threshold.mark(seen.capacity),
            )


def _fastest(device: int, inodes: bool, fill_rates: FillRates, *, policy: PollPolicy) -> float:
    rate = fill_rates.get((device, inodes))
    return max(policy.assumed_rate(inodes=inodes), rate.fastest if rate is not None else 0.0)
