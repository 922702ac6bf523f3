"""When to read a filesystem again, and whether a reading calls for an observation.

A reading costs microseconds, so the next one is due when the filesystem *could* have come halfway
to its next threshold: the distance to it divided by the fastest fill, halved, between a floor and a
ceiling. Far from the threshold the daemon sleeps for seconds; close to it, it reads up to a hundred
times a second. earlyoom chooses its sleep in the same way (`sleep_time_ms` in
https://github.com/rfjakob/earlyoom/blob/master/main.c).

The fastest fill is never taken to be slower than a configured rate. A faster one that was observed
loses half its weight every minute, so one burst keeps the daemon alert for some minutes but not
forever. A jump counts as a fast fill here, because reading again is cheap.

How urgent a fill is depends on its *rate*: the mean of the last quarter of a second, or of the
last three readings if they are farther apart, without the one that shows the largest fall, and its
time.
So a jump is no fill: a file can be allocated at once (fallocate(2)), a shared extent is copied at
the first write. The steps in which XFS preallocates are left out before
(`FsStats.unwritten_bytes`).

An observation reads everything and is followed by a decision; that is too expensive to do a hundred
times a second. So between two of them a poll reads the bytes available and the inodes free of one
filesystem and compares them with two numbers. The kubelet's ThresholdNotifier does this for memory
(`pkg/kubelet/eviction/types.go`). `samplers` has the threads that read.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from signals.types import FsStats

HALF_LIFE_SECONDS = 60.0  # of the fastest observed fill: a burst may well come back within minutes
SHORTEST_SECONDS = 0.001  # readings closer together say nothing about a rate
WINDOW_SECONDS = 0.25  # over which the rate of a fill is measured: a burst of some polls is none
LEAST_READINGS = 3  # that it is measured by
ASSUMED_INODES_PER_SECOND = 20_000.0  # about half of what ext4 creates on one core
IDLE_FLOORS = 5  # between polls while nothing fills: waking up costs more than a poll
# of the assumed rate, 7.8 MiB/s by default; a slower fill counts as none, as logs always grow
IDLE_SHARE = 1 / 64
MIN_NOTIFY_SECONDS = 0.25  # bursts of writes cause at most one observation in this time


class Fall(NamedTuple):
    """By how much an amount fell between two readings, in units; 0: it did not."""

    time: float
    """Of the later one (monotonic seconds)."""
    seconds: float
    """Between them."""
    amount: int

    @property
    def since(self) -> float:
        """The time of the earlier one."""
        return self.time - self.seconds


class FillRate(NamedTuple):
    """How fast one amount of one filesystem (bytes or inodes) falls."""

    available: int
    """Of the last reading."""
    time: float
    """Of the last reading (monotonic seconds)."""
    fastest: float = 0.0
    """The fastest fall between two observations, units a second, halved every minute; jumps
    count."""
    falls: tuple[Fall, ...] = ()
    """Those of the last quarter of a second, at least three, oldest first."""

    @property
    def rate(self) -> float:
        """Units a second by which it falls, without the largest fall; at least 0."""
        if len(self.falls) < 2:
            return 0.0
        start = min(self.time - WINDOW_SECONDS, self.falls[-LEAST_READINGS:][0].since)
        largest = max(self.falls, key=lambda fall: fall.amount)
        fallen = 0.0
        seconds = 0.0
        for fall in self.falls:
            if fall is not largest:
                share = min((fall.time - start) / fall.seconds, 1.0)
                fallen += fall.amount * share
                seconds += fall.seconds * share
        return fallen / max(seconds, WINDOW_SECONDS - largest.seconds)


def update_fill_rate(
    previous: FillRate | None,
    available: int,
    now: float,
    *,
    polled: Iterable[tuple[float, int]] = (),
    shortest_seconds: float = SHORTEST_SECONDS,
) -> FillRate:
    """The fill rate after an observation of `available` units at `now` (monotonic seconds).

    A rise counts as a fall of 0. A reading sooner than `shortest_seconds` (at least 1 ms) after the
    previous one changes nothing. `previous` is None for the first reading. `polled`: the times and
    amounts of the polls since then, oldest first.
    """
    if previous is None:
        return FillRate(available, now)
    elapsed = now - previous.time
    if elapsed < max(shortest_seconds, SHORTEST_SECONDS):
        return previous
    falls = list(previous.falls)
    time_before = previous.time
    amount_before = previous.available
    for time, amount in (*polled, (now, available)):
        if time - time_before < SHORTEST_SECONDS or now - SHORTEST_SECONDS < time < now:
            continue
        falls.append(Fall(time, time - time_before, max(amount_before - amount, 0)))
        time_before = time
        amount_before = amount
    recent = sum(fall.time > now - WINDOW_SECONDS for fall in falls)
    return FillRate(
        available,
        now,
        fastest=max(_faded(previous.fastest, elapsed), (previous.available - available) / elapsed),
        falls=tuple(falls[-max(recent, LEAST_READINGS) :]),
    )


def _faded(rate: float, seconds: float) -> float:
    """What a rate that was observed so long ago still counts."""
    return rate * math.exp2(-seconds / HALF_LIFE_SECONDS)


def next_interval(seconds: Iterable[float], floor_seconds: float, ceiling_seconds: float) -> float:
    """Seconds until the next observation, within [floor, ceiling].

    `seconds`: for each watched amount, how long until it could reach its threshold, by the fastest
    fill that is assumed to be possible; negative counts as 0. The first one decides.
    """
    soonest = min(seconds, default=math.inf)
    return min(max(soonest / 2, floor_seconds), ceiling_seconds)


def until_below(above: int, seen: FsStats) -> int:
    """How many bytes can be written before an amount that is so far `above` a level is below it.
    XFS takes its next step at once, as soon as what it has preallocated is used up."""
    return min(above, seen.preallocated_bytes) if seen.step_bytes > above else above


def is_negligible(rate: float, assumed: float) -> bool:
    """Whether a fill counts as none: it is below 1/64 of the assumed rate.

    Both are in units a second.
    """
    return rate < assumed * IDLE_SHARE


class WatchedLevels(NamedTuple):
    """What the polls of one filesystem compare with, and how often it is polled.

    All pairs are of bytes available and inodes free. `levels`: the highest threshold that the
    amount is not below yet; None if there is none. `rates`: the fastest fills that are
    assumed to be possible, units a second, above 0. Polls are at least `floor_seconds` and at
    most `ceiling_seconds` apart.
    """

    levels: tuple[int | None, int | None]
    rates: tuple[float, float]
    floor_seconds: float
    ceiling_seconds: float

    def crossed(self, amounts: Iterable[int]) -> bool:
        """Whether an amount is below its level; equal does not count."""
        return any(
            level is not None and amount < level
            for amount, level in zip(amounts, self.levels, strict=True)
        )

    def is_idle(self, rates: Iterable[float]) -> bool:
        """Whether fills at these rates (units a second) both count as none."""
        return all(map(is_negligible, rates, self.rates))

    def poll_interval(
        self, poll: FsStats, rates: Iterable[float] = (0.0, 0.0), *, idle: bool = False
    ) -> float:
        """Seconds from this poll to the next one, within [floor, ceiling].

        `rates`: the fastest fills that the polls have seen, units a second. `idle`: nothing fills
        the filesystem now, so polls are at least five floors apart.
        """
        of_bytes, of_inodes = self.levels
        fastest_bytes, fastest_inodes = map(max, self.rates, rates)
        seconds = list[float]()
        if of_bytes is not None:
            seconds.append(until_below(poll.available_bytes - of_bytes, poll) / fastest_bytes)
        if of_inodes is not None:
            seconds.append((poll.inodes_free - of_inodes) / fastest_inodes)
        return next_interval(
            seconds, self.floor_seconds * (IDLE_FLOORS if idle else 1), self.ceiling_seconds
        )


class ThresholdNotifier:
    """Watches one filesystem until an observation is due. Not thread-safe: one thread polls.

    `notify`: reports that it is due; it returns at once and does not raise. `due_at`: when the next
    poll is due (monotonic seconds); the first one is due at once.
    """

    def __init__(self, levels: WatchedLevels, notify: Callable[[], None]):
        self.levels = levels
        self.notify = notify
        self.due_at = -math.inf
        self._last: FsStats | None = None
        self._first_poll = math.inf
        self._fastest = [0.0, 0.0]  # halved every minute
        self._idle = False

    def update(self, poll: FsStats) -> bool:
        """Records a poll. True if an observation is due.

        It is due when an amount is below its level, and when a fill begins on an idle filesystem,
        so that its rate is known before it reaches the level; the latter no sooner than 0.25 s
        after the first poll. Otherwise polling continues at `due_at`.
        """
        if self.levels.crossed((poll.available_bytes, poll.inodes_free)):
            return True
        last = self._last or poll
        was_idle = self._idle
        self._last = poll
        self._first_poll = min(self._first_poll, poll.time)
        elapsed = poll.time - last.time
        if elapsed >= SHORTEST_SECONDS:
            rates = [
                (last.unwritten_bytes - poll.unwritten_bytes) / elapsed,
                (last.inodes_free - poll.inodes_free) / elapsed,
            ]
            faded = [_faded(rate, elapsed) for rate in self._fastest]
            self._fastest = list(map(max, faded, rates))
            self._idle = self.levels.is_idle(rates)
        self.due_at = poll.time + self.levels.poll_interval(poll, self._fastest, idle=self._idle)
        return was_idle and not self._idle and poll.time - self._first_poll >= MIN_NOTIFY_SECONDS
