"""How far each amount is above its thresholds and how fast it falls: when to observe, how urgent it
is, and what must be available for what is coming.

Urgency is one number: the seconds until a filesystem reaches the level that it must not reach (the
kubelet's mark if it is known, else full), from the space left and the rate of the fill. It covers
bytes only: how many inodes an object frees is unknown until it is removed, and a single `tar` uses
up a minute's worth of them.

Removals take time: on a disk that is written at full speed, containerd's fsync alone takes
seconds. So what is written within that time (the *lead*) is coming. On XFS a growing file takes its
next step at once, and to free so much takes longer: a step that falls due soon is coming, too. What
is coming has to fit above the kubelet's mark.

The arithmetic of the interval is in `signals.interval`, the polls are in `signals.samplers`, and
what a pass does is in `eviction.engine.relief`.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

from eviction.types import Threshold
from reclaim.types import NEVER
from signals.interval import (
    ASSUMED_INODES_PER_SECOND,
    FillRate,
    WatchedLevels,
    is_negligible,
    next_interval,
    until_below,
    update_fill_rate,
)
from signals.types import FilesystemIdentity, FsStats, SignalObservations

STEP_SECONDS = 10.0  # a step of a growing file that falls due within this time is coming

Amount = tuple[int, bool]
"""What is left on a device: (its id, whether inodes are counted)."""

FillRates = Mapping[Amount, FillRate]
"""How fast each amount falls."""


class Headroom(NamedTuple):
    """How far what is available on a filesystem is above a threshold; negative: it is met."""

    threshold: Threshold
    filesystem: FilesystemIdentity
    available: int
    above: int

    @property
    def amount(self) -> Amount:
        """What the threshold is about."""
        return self.filesystem.device_id, self.threshold.signal.counts_inodes


def _headrooms(
    thresholds: Iterable[Threshold], observations: SignalObservations
) -> Iterator[Headroom]:
    """Of the thresholds whose signal was read."""
    for threshold in thresholds:
        seen = observations.signals.get(threshold.signal)
        if seen is not None:
            yield Headroom(
                threshold,
                seen.filesystem,
                available=seen.available,
                above=seen.available - threshold.mark(seen.capacity),
            )


def _next_marks(headrooms: Iterable[Headroom]) -> dict[Amount, int]:
    """The highest mark of each amount that it is not below yet."""
    marks: dict[Amount, int] = {}
    for headroom in headrooms:
        if headroom.above >= 0:
            mark = headroom.available - headroom.above
            marks[headroom.amount] = max(marks.get(headroom.amount, 0), mark)
    return marks


def update_fill_rates(
    fill_rates: FillRates,
    observations: SignalObservations,
    shortest_seconds: float = 0.0,
    *,
    incomplete: Container[int] = (),
) -> dict[Amount, FillRate]:
    """The fill rates after an observation, including its polls since the previous one. Rates of
    filesystems that are gone are dropped. `shortest_seconds`: a reading sooner after the last one
    says nothing about a rate. `incomplete`: devices of which more is to come, such as the polls of
    another path: their rates stay."""
    after: dict[Amount, FillRate] = {}
    for role, (identity, stats) in observations.filesystems.items():
        polls = observations.polls.get(role, ())
        for inodes, field in ((False, "unwritten_bytes"), (True, "inodes_free")):
            amount = identity.device_id, inodes
            known = fill_rates.get(amount)
            if amount in after:  # another role of the same filesystem
                continue
            if identity.device_id in incomplete:
                if known is not None:
                    after[amount] = known
                continue
            read = attrgetter(field)
            after[amount] = update_fill_rate(
                known,
                read(stats),
                stats.time,
                polled=[(poll.time, read(poll)) for poll in polls],
                shortest_seconds=shortest_seconds,
            )
    return after


class Outlook(NamedTuple):
    """What was read of a node, how fast its filesystems fill, and how often they are read: at least
    `floor_seconds` and at most `ceiling_seconds` apart.

    `assumed_fill_rate`: bytes a second; a fill this fast is always assumed to be possible.
    """

    observations: SignalObservations
    fill_rates: FillRates
    floor_seconds: float
    ceiling_seconds: float
    assumed_fill_rate: float

    def nothing_fills(self) -> bool:
        """Whether nothing was filled lately at a rate that counts (`is_negligible`)."""
        return all(
            is_negligible(fill.rate, self._assumed(amount))
            for amount, fill in self.fill_rates.items()
        )

    def interval(self, thresholds: Iterable[Threshold]) -> float:
        """Seconds until the next observation, within [floor, ceiling]: half the time in which an
        amount could reach the first threshold that it is not below yet.

        A threshold that is already met does not shorten the interval: it is acted on now, or has to
        wait. `thresholds` include the kubelet's own if they are known, so that its marks do not
        pass unseen either.
        """
        ahead = (
            self._seconds_to(headroom)
            for headroom in _headrooms(thresholds, self.observations)
            if headroom.above >= 0
        )
        return next_interval(ahead, self.floor_seconds, self.ceiling_seconds)

    def near_their_marks(
        self, thresholds: Iterable[Threshold], before: Container[int]
    ) -> frozenset[int]:
        """The devices that are worth a watch: they could reach a mark within the ceiling.

        Farther away, the next reading is early enough for every fill that is assumed to be
        possible. Those in `before` stay until it takes twice the ceiling, beyond which the interval
        is the ceiling.
        """
        near = set()
        for headroom in _headrooms(thresholds, self.observations):
            device = headroom.filesystem.device_id
            ceiling = self.ceiling_seconds * (2 if device in before else 1)
            if 0 <= self._seconds_to(headroom) < ceiling:
                near.add(device)
        return frozenset(near)

    def nearing(self, thresholds: Iterable[Threshold], seconds: float) -> Iterator[Headroom]:
        """The headrooms in bytes that a fill uses up within so many seconds, or has used up."""
        for headroom in _headrooms(thresholds, self.observations):
            fill = self.fill_rates.get(headroom.amount)
            if headroom.threshold.signal.counts_inodes or fill is None:
                continue
            fills = not is_negligible(fill.rate, self.assumed_fill_rate)
            if fills and headroom.above < fill.rate * seconds:
                yield headroom

    def levels_to_watch(self, thresholds: Iterable[Threshold]) -> dict[str, WatchedLevels]:
        """For each filesystem, by its path, the next thresholds that it could fall below.

        A filesystem that is above none of its thresholds is left out.
        """
        headrooms = list(_headrooms(thresholds, self.observations))
        marks = _next_marks(headrooms)
        paths: dict[int, str] = {}
        for headroom in headrooms:
            if headroom.above >= 0:
                # a device with several roles is read at several paths
                paths.setdefault(headroom.filesystem.device_id, headroom.filesystem.path)
        return {
            path: WatchedLevels(
                levels=(marks.get((device, False)), marks.get((device, True))),
                rates=(self._fastest((device, False)), self._fastest((device, True))),
                floor_seconds=self.floor_seconds,
                ceiling_seconds=self.ceiling_seconds,
            )
            for device, path in paths.items()
        }

    def _assumed(self, amount: Amount) -> float:
        """The fill rate that is always assumed to be possible, units a second."""
        return ASSUMED_INODES_PER_SECOND if amount[1] else self.assumed_fill_rate

    def _fastest(self, amount: Amount) -> float:
        """The fastest fill of an amount that is taken to be possible, units a second."""
        fill = self.fill_rates.get(amount)
        return max(self._assumed(amount), fill.fastest if fill is not None else 0.0)

    def _seconds_to(self, headroom: Headroom) -> float:
        """How long until a threshold could be met; negative if it is."""
        signal = headroom.threshold.signal
        above = headroom.above
        if not signal.counts_inodes:
            above = until_below(above, self.observations.filesystems[signal.filesystem][1])
        return above / self._fastest(headroom.amount)


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
    limits = _next_marks(_headrooms(kubelets, observations))
    soonest = NEVER
    for headroom in _headrooms(thresholds, observations):
        signal = headroom.threshold.signal
        fill = fill_rates.get(headroom.amount)
        if signal.counts_inodes or fill is None or fill.rate <= 0:
            continue
        _, stats = observations.filesystems[signal.filesystem]
        left = max(headroom.available - limits.get(headroom.amount, 0), 0)
        if left < stats.step_bytes:
            left = 0  # the next step goes beyond it; until then nothing falls
        soonest = min(soonest, (stats.preallocated_bytes + left) / fill.rate)
    return soonest


def headroom_seconds(
    threshold: Threshold, observations: SignalObservations, fill_rates: FillRates
) -> float | None:
    """How long until a threshold is met at the present fill rate; 0: it is; None: never, or that is
    not known. A jump does not count as a rate, and a fill that has stopped counts less with each
    second, and not at all after 30."""
    for headroom in _headrooms([threshold], observations):
        needed = observations.signals[threshold.signal].needed if threshold.hard else 0
        above = min(headroom.above, headroom.available - needed)
        fill = fill_rates.get(headroom.amount)
        if above < 0:
            return 0.0
        if fill is not None and fill.rate > 0:
            return round(above / fill.rate, 3)
    return None


def with_needed(
    observations: SignalObservations,
    fill_rates: FillRates,
    *,
    kubelets: Iterable[Threshold],
    lead_seconds: float,
) -> SignalObservations:
    """The observations with what must be available above the kubelet's hard marks for what is
    coming. `lead_seconds`: 0: nothing is done ahead."""
    if not lead_seconds:
        return observations
    hard = (threshold for threshold in kubelets if threshold.hard)
    limits = _next_marks(_headrooms(hard, observations))
    signals = dict(observations.signals)
    for signal, seen in observations.signals.items():
        if signal.counts_inodes:
            continue
        _, stats = observations.filesystems[signal.filesystem]
        amount = (seen.filesystem.device_id, False)
        limit = limits.get(amount)
        coming = coming_bytes(stats, fill_rates.get(amount), lead_seconds)
        if limit is not None and coming:
            signals[signal] = seen._replace(needed=limit + coming)
    return observations._replace(signals=signals)


def coming_bytes(stats: FsStats, fill: FillRate | None, lead_seconds: float) -> int:
    """What a filesystem takes within the lead, or with the next step if that falls due soon."""
    rate = 0.0 if fill is None else fill.rate
    written = int(rate * lead_seconds)
    if stats.preallocated_bytes < rate * STEP_SECONDS:
        return max(written, stats.step_bytes)
    return max(written - stats.preallocated_bytes, 0)


def faster(before: FillRates, now: FillRates) -> FillRates:
    """For each amount, the faster rate; that of `now` if equal, or one is missing."""
    return {
        key: max(rate, before.get(key, rate), key=attrgetter("rate")) for key, rate in now.items()
    }
