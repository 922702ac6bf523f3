"""When to read a filesystem again, and whether a reading calls for an observation.

A reading costs microseconds, so the next one is due when the filesystem *could* have come halfway
to its next threshold: the distance to it divided by the fastest fill, halved, between a floor and a
ceiling. Far from the threshold the daemon sleeps for seconds; close to it, it reads up to a hundred
times a second. earlyoom chooses its sleep in the same way (`sleep_time_ms` in
https://github.com/rfjakob/earlyoom/blob/master/main.c).

The fastest fill is never taken to be slower than a configured rate. A faster one that was observed
loses half its weight every minute, so one burst keeps the daemon alert for some minutes but not
forever. A jump counts as a fast fill here, because reading again is cheap.

Urgency depends on the *steady rate*, in which a jump does not count. XFS preallocates as much again
behind the end of a growing file, up to 8 GiB, and releases it minutes later (xfs(5), `allocsize`);
a file can be allocated at once (fallocate(2)); a shared extent is copied at the first write. So one
step is left out, together with its time: the one without which the rate is lowest. It takes two
falls to count as a fill at all. The mean is taken over the last quarter of a second, or back to the
fourth-last burst if that is longer ago. So a fill that is written in bursts, or read seldom, counts
at its mean rate, and one that has stopped fades with time.

An observation reads everything and is followed by a decision; that is too expensive to do a hundred
times a second. So between two of them a poll reads the bytes available and the inodes free of one
filesystem and compares them with two numbers. The kubelet's ThresholdNotifier does this for memory
(`pkg/kubelet/eviction/types.go`). `samplers` has the threads that read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from signals.types import Poll

HALF_LIFE_SECONDS = 60.0  # of the fastest observed fill: a burst may well come back within minutes
SHORTEST_SECONDS = 0.001  # readings closer together say nothing about a rate
# a burst of a few polls is not a rate: it is averaged over at least this time
WINDOW_SECONDS = 0.25
BURSTS = 4  # this many sizable falls show a fill that is written in bursts, or read seldom
# of the second-largest fall: a log that grows between the bursts does not hide them
SIZABLE = 1 / 8
FARTHEST_SECONDS = 30.0  # six commits of ext4; earlier steps no longer count
MOST_STEPS = 64  # kept in memory
ASSUMED_INODES_PER_SECOND = 20_000.0  # about half of what ext4 creates on one core
IDLE_FLOORS = 5  # between polls while nothing fills: waking up costs more than a poll
# of the assumed rate, 7.8 MiB/s by default; a slower fill counts as none, as logs always grow
IDLE_SHARE = 1 / 64
MIN_NOTIFY_SECONDS = 0.25  # bursts of writes cause at most one observation in this time


@dataclass(frozen=True, slots=True)
class Step:
    """A fall between two readings, made at `since` and `time` (monotonic seconds)."""

    since: float
    time: float
    fall: int


@dataclass(frozen=True, slots=True)
class FillRate:
    """How fast one amount of one filesystem (bytes available or inodes free) falls.

    `available`, `time`: the last reading; `time` in monotonic seconds. `fastest`: the fastest fall
    between two observations, units a second, halved every minute; jumps count. `steps`: the falls
    of the last 30 s, including those between polls. `watched_since`: when the amount was first
    read; by default, long ago. `steady_rate`: how fast the amount falls without its largest step,
    units a second, at least 0; it is 0 after 30 s without a fall.
    """

    available: int
    time: float
    fastest: float = 0.0
    steps: tuple[Step, ...] = ()
    watched_since: float = -math.inf
    steady_rate: float = 0.0


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
        return FillRate(available, now, watched_since=now)
    elapsed = now - previous.time
    if elapsed < max(shortest_seconds, SHORTEST_SECONDS):
        return previous
    steps = _steps(previous, [*polled, (now, available)])
    return replace(
        previous,
        available=available,
        time=now,
        fastest=max(_faded(previous.fastest, elapsed), (previous.available - available) / elapsed),
        steps=steps,
        steady_rate=steady_rate(steps, previous.watched_since, now),
    )


def _faded(rate: float, seconds: float) -> float:
    """What a rate that was observed so long ago still counts."""
    return rate * math.exp2(-seconds / HALF_LIFE_SECONDS)


def _steps(previous: FillRate, readings: Sequence[tuple[float, int]]) -> tuple[Step, ...]:
    """The falls so far, the last reading being the observation.

    Readings less than 1 ms apart do not count.
    """
    steps = list(previous.steps)
    now = readings[-1][0]
    time_before = previous.time
    amount_before = previous.available
    for time, amount in readings:
        if time - time_before < SHORTEST_SECONDS or now - SHORTEST_SECONDS < time < now:
            continue
        if amount < amount_before:
            steps.append(Step(time_before, time, amount_before - amount))
        time_before = time
        amount_before = amount
    return tuple(step for step in steps[-MOST_STEPS:] if step.time > now - FARTHEST_SECONDS)


def steady_rate(steps: Sequence[Step], watched_since: float, now: float) -> float:
    """Units a second by which the amount falls without its largest step.

    At least 0; 0 until it has fallen twice. `steps`: the falls, oldest first. `watched_since`: when
    the amount was first read. Times are in monotonic seconds.
    """
    if len(steps) < 2:
        return 0.0
    sizable = SIZABLE * sorted(step.fall for step in steps)[-2]
    bursts = [step for step in steps if step.fall >= sizable][-BURSTS:]
    start = max(min(now - WINDOW_SECONDS, bursts[0].since), watched_since)
    inside = [step for step in steps if step.time > start]
    if len(inside) < 2:
        return 0.0
    fallen = sum(step.fall for step in inside)
    seconds = max(now - min(start, inside[0].since), WINDOW_SECONDS)
    return min((fallen - step.fall) / (seconds - (step.time - step.since)) for step in inside)


def next_interval(
    headrooms: Iterable[tuple[int, float]], floor_seconds: float, ceiling_seconds: float
) -> float:
    """Seconds until the next observation, within [floor, ceiling].

    `headrooms`: for each watched amount, its distance above the threshold (units; negative counts
    as 0) and the fastest fill that is assumed to be possible (units a second, above 0). The amount
    that could reach its threshold first decides.
    """
    soonest = min((headroom / fastest for headroom, fastest in headrooms), default=math.inf)
    return min(max(soonest / 2, floor_seconds), ceiling_seconds)


def is_negligible(rate: float, assumed: float) -> bool:
    """Whether a fill counts as none: it is below 1/64 of the assumed rate.

    Both are in units a second.
    """
    return rate < assumed * IDLE_SHARE


@dataclass(frozen=True, slots=True)
class WatchedLevels:
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
        self, amounts: Iterable[int], rates: Iterable[float] = (0.0, 0.0), *, idle: bool = False
    ) -> float:
        """Seconds from a poll that read these amounts to the next one, within [floor, ceiling].

        `rates`: the fastest fills that the polls have seen, units a second. `idle`: nothing fills
        the filesystem now, so polls are at least five floors apart.
        """
        fastest = map(max, self.rates, rates)
        headrooms = [
            (amount - level, rate)
            for amount, level, rate in zip(amounts, self.levels, fastest, strict=True)
            if level is not None
        ]
        floor = self.floor_seconds * (IDLE_FLOORS if idle else 1)
        return next_interval(headrooms, floor, self.ceiling_seconds)


class ThresholdNotifier:
    """Watches one filesystem until an observation is due. Not thread-safe: one thread polls.

    `notify`: reports that it is due; it returns at once and does not raise. `due_at`: when the next
    poll is due (monotonic seconds); the first one is due at once.
    """

    def __init__(self, levels: WatchedLevels, notify: Callable[[], None]):
        self.levels = levels
        self.notify = notify
        self.due_at = -math.inf
        self._last: Poll | None = None
        self._first_poll = math.inf
        self._fastest = [0.0, 0.0]  # halved every minute
        self._idle = False

    def update(self, poll: Poll) -> bool:
        """Records a poll. True if an observation is due.

        It is due when an amount is below its level, and when a fill begins on an idle filesystem,
        so that its rate is known before it reaches the level; the latter no sooner than 0.25 s
        after the first poll. Otherwise polling continues at `due_at`.
        """
        amounts = (poll.available_bytes, poll.inodes_free)
        if self.levels.crossed(amounts):
            return True
        last = self._last or poll
        was_idle = self._idle
        self._last = poll
        self._first_poll = min(self._first_poll, poll.time)
        elapsed = poll.time - last.time
        if elapsed >= SHORTEST_SECONDS:
            rates = [
                (last.available_bytes - poll.available_bytes) / elapsed,
                (last.inodes_free - poll.inodes_free) / elapsed,
            ]
            faded = [_faded(rate, elapsed) for rate in self._fastest]
            self._fastest = list(map(max, faded, rates))
            self._idle = self.levels.is_idle(rates)
        self.due_at = poll.time + self.levels.poll_interval(amounts, self._fastest, idle=self._idle)
        return was_idle and not self._idle and poll.time - self._first_poll >= MIN_NOTIFY_SECONDS
