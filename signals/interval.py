"""How fast a filesystem is filled, how soon to read it again, and whether what was read calls for an observation.

**The interval.** A reading costs microseconds, so the next one is due when the filesystem *could* have come half the
way to its next threshold: the distance to it divided by the fastest fill, halved, between a floor and a ceiling. Far
from the threshold the daemon sleeps for seconds; close to it, it reads up to a hundred times a second. earlyoom chooses
its sleep in the same way (`sleep_time_ms` in https://github.com/rfjakob/earlyoom/blob/master/main.c).

The fastest fill is never taken to be less than a configured rate. A faster one that was observed counts half as much
after each minute, so one burst keeps the daemon watchful for some minutes and not for ever. For looking again a jump
counts as a fast fill, as looking is cheap; what decides a hurry is the steady rate.

**The steady rate** is what is left when the one largest step is taken away. An amount that falls at once is no fill:
XFS reserves as much again behind the end of a file that grows, up to 8 GiB, and gives it back minutes later (xfs(5),
`allocsize`); a file is allocated at once (fallocate(2)); a shared extent is copied at the first write. Such a jump is
one step between two readings, or, where it takes some milliseconds, several that are each faster than a fill is
expected to be: within 60 ms they count as one. So one step does not count, that without which the rate is lowest, and
neither does the time in which it was seen, nor that of the largest rise (a file that was deleted). What is left is
exact for a fill that goes on from reading to reading, before a jump and after it. It takes two falls to believe in a
fill at all.

The mean is taken over the last quarter of a second, or, where that gives more, back to the fourth last burst of some
size: a fill that is written in bursts, each second or as each commit of ext4 after 5 s, counts as its mean.

For people a fill that has stopped should be over within seconds, so what they are shown is bounded by the silence: a
fill that goes on would have come with its next burst by now, unless it is slower than one burst in the time of silence.

**Polls.** An observation reads everything and is followed by a decision; that is too expensive to do a hundred times a
second. So between two of them a poll reads the bytes available and the inodes free of one filesystem and compares them
with two numbers. The kubelet's ThresholdNotifier does this for memory (`pkg/kubelet/eviction/types.go`).

Covers: fill rates, intervals, the levels of one filesystem, when to notify. Does not cover: who reads, on which thread
(`probe`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from signals.types import Poll

HALF_LIFE_SECONDS = 60.0  # of the fastest fill that was observed: a burst that comes back within minutes is expected
SHORTEST_SECONDS = 0.001  # readings that are closer together say nothing about a rate
ASSUMED_INODES_PER_SECOND = 20_000.0  # about half of what ext4 creates on one core
IDLE_FLOORS = 3  # polls while nobody fills are so many floors apart: waking up costs more than a poll
IDLE_SHARE = 1 / 64  # of the assumed rate, 7.8 MiB/s by default: a slower fill counts as none, as logs always grow
MIN_NOTIFY_SECONDS = 0.25  # whoever writes in bursts causes at most one observation in this time

WINDOW_SECONDS = 0.25  # a burst of some polls is no rate either: it counts over at least this time
FARTHEST_SECONDS = 30.0  # six commits of ext4: an earlier step counts no longer
ENOUGH_SECONDS = 0.04  # what was seen in less counts over so much: a single write of somebody would look like a rate
TOGETHER_SECONDS = 0.06  # falls so near to each other may be one: two polls of a filesystem that stood still
FASTEST_FILL = float(512 << 20)  # bytes a second: a bit more than the fill that is always taken to be possible
BURSTS = 4  # so many bursts of some size show a fill that is written in bursts
OF_SOME_SIZE = 1 / 8  # of the second largest burst
MOST_STEPS = 64

Notify = Callable[[], None]
"""Says that an observation is due. Called on the thread of the filesystem: it must return at once and raise nothing."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change between two readings, made at `since` and `time` (monotonic seconds)."""

    since: float
    time: float
    fall: int

    @property
    def seconds(self) -> float:
        """The time between the two readings."""
        return self.time - self.since


@dataclass(frozen=True, slots=True)
class FillRate:
    """How fast one amount of one filesystem (bytes available or inodes free) falls.

    `available`, `time`: the last reading, `time` in monotonic seconds. `fastest`: the fastest fall between two
    observations, units a second, halved every minute; a jump counts. `steps`: the changes of the last 30 s, 64 at most,
    also those between polls, oldest first, since the amount was first read at `watched_since` (not said: long ago).
    `steady_rate`: how fast it falls when its largest step is taken away, units a second, at least 0.
    """

    available: int
    time: float
    fastest: float = 0.0
    steps: tuple[Step, ...] = ()
    watched_since: float = -math.inf
    steady_rate: float = 0.0

    @property
    def recent_rate(self) -> float:
        """The mean fall over the last quarter of a second, or between the last two readings where these are further
        apart; jumps included, units a second, at least 0."""
        recent = [step for step in self.steps if step.time > self.time - WINDOW_SECONDS]
        fallen = max(sum(step.fall for step in recent), 0)
        return fallen / max(self.time - recent[0].since, WINDOW_SECONDS) if recent else 0.0

    @property
    def present_rate(self) -> float:
        """The steady rate as far as the silence allows, units a second, at least 0: what people are shown.

        At most the second largest burst in the time since the last one of some size, as the largest may be a jump; 0
        after 30 s in which nothing fell.
        """
        bursts = [burst for burst in _bursts(self.steps) if burst.time > self.time - FARTHEST_SECONDS]
        if not bursts:
            return 0.0
        silence, second_largest = self.time - bursts[-1].time, sorted(burst.fall for burst in bursts)[-2:][0]
        return min(self.steady_rate, second_largest / silence) if silence > 0 else self.steady_rate


def update_fill_rate(
    previous: FillRate | None, available: int, now: float, polled: Iterable[tuple[float, int]] = ()
) -> FillRate:
    """The fill rate after an observation of `available` units at `now` (monotonic seconds).

    A rise counts as a fall of 0. A reading less than 1 ms after the previous one changes nothing. `previous` is None
    for the first reading. `polled`: time and amount of polls since then, oldest first.
    """
    if previous is None:
        return FillRate(available, now, watched_since=now)
    elapsed = now - previous.time
    if elapsed < SHORTEST_SECONDS:
        return previous
    polls = [poll for poll in polled if now - poll[0] >= SHORTEST_SECONDS]
    steps = _steps(previous, [*polls, (now, available)])
    return FillRate(
        available=available,
        time=now,
        fastest=max(
            previous.fastest * 0.5 ** (elapsed / HALF_LIFE_SECONDS), (previous.available - available) / elapsed
        ),
        steps=steps,
        watched_since=previous.watched_since,
        steady_rate=steady_rate(steps, previous.watched_since, now),
    )


def _steps(previous: FillRate, readings: Sequence[tuple[float, int]]) -> tuple[Step, ...]:
    """The steps after these readings; none is of readings less than 1 ms apart, nor of equal ones."""
    steps, time, amount = list(previous.steps), previous.time, previous.available
    for at, read in readings:
        if at - time >= SHORTEST_SECONDS:
            if read != amount:
                steps.append(Step(time, at, amount - read))
            time, amount = at, read
    return tuple(step for step in steps[-MOST_STEPS:] if step.time > time - FARTHEST_SECONDS)


def steady_rate(steps: tuple[Step, ...], watched_since: float, now: float) -> float:
    """Units a second by which the amount falls without its largest step, at least 0; 0 until it fell twice.

    `steps`: oldest first. `watched_since`: when the amount was first read. Times are monotonic seconds.
    """
    bursts = _bursts(steps)
    if not bursts:
        return 0.0
    joined, window = _joined(steps, FASTEST_FILL), max(now - WINDOW_SECONDS, watched_since)
    of_bursts = max(min(window, bursts[-BURSTS:][0].since), watched_since)
    return max(_rate_since(joined, start, now) for start in {window, of_bursts})


def _bursts(steps: tuple[Step, ...]) -> list[Step]:
    """The falls, those near to each other as one, without those that are small beside the second largest."""
    bursts = _joined((step for step in steps if step.fall > 0), 0.0)
    second_largest = sorted(burst.fall for burst in bursts)[-2:][:1]
    return [burst for burst in bursts if burst.fall >= second_largest[0] * OF_SOME_SIZE]


def _joined(steps: Iterable[Step], faster_than: float) -> list[Step]:
    """The steps; falls that are faster than so many units a second and near enough to each other are one."""
    joined: list[Step] = []
    for step in steps:
        before = joined[-1] if joined else None
        if (
            before is not None
            and step.time - before.since <= TOGETHER_SECONDS
            and step.fall > faster_than * step.seconds
            and before.fall > faster_than * before.seconds
        ):
            joined[-1] = Step(before.since, step.time, before.fall + step.fall)
        else:
            joined.append(step)
    return joined


def _rate_since(steps: Sequence[Step], start: float, now: float) -> float:
    """The fall a second from `start` to `now` without that step, and its time, without which it is slowest."""
    inside = [step for step in steps if step.time > start]
    falls = [step for step in inside if step.fall > 0]
    if len(falls) < 2:
        return 0.0
    risen = min(inside, key=lambda step: step.fall)
    seconds = now - min(start, inside[0].since) - (risen.seconds if risen.fall < 0 else 0.0)
    fallen = sum(step.fall for step in falls)
    return min((fallen - step.fall) / max(seconds - step.seconds, ENOUGH_SECONDS) for step in falls)


def next_interval(headrooms: Iterable[tuple[int, float]], floor_seconds: float, ceiling_seconds: float) -> float:
    """Seconds until the next observation, within [floor, ceiling].

    `headrooms`: for each watched amount its distance above the threshold (units; below 0 counts as 0) and the fastest
    fill that is assumed to be possible (units a second, above 0). The amount that is soonest at its threshold decides.
    """
    soonest = min((max(headroom, 0) / fastest for headroom, fastest in headrooms), default=math.inf)
    return min(max(soonest / 2, floor_seconds), ceiling_seconds)


def is_negligible(rate: float, assumed: float) -> bool:
    """Whether a fill counts as none: it is below 1/64 of the rate that is assumed to be possible. Units a second."""
    return rate < assumed * IDLE_SHARE


@dataclass(frozen=True, slots=True)
class WatchedLevels:
    """What the polls of one filesystem compare with, and how often it is polled.

    `available_bytes`, `inodes_free`: the highest threshold that the amount is not below yet, as bytes and as inodes;
    None: there is none. The two rates are the fastest fills that are assumed to be possible, units a second, above 0.
    Polls are at least `floor_seconds` and at most `ceiling_seconds` apart.
    """

    available_bytes: int | None
    inodes_free: int | None
    bytes_per_second: float
    inodes_per_second: float
    floor_seconds: float
    ceiling_seconds: float

    def crossed(self, available_bytes: int, inodes_free: int) -> bool:
        """Whether an amount is below its level; equal is not."""
        return (self.available_bytes is not None and available_bytes < self.available_bytes) or (
            self.inodes_free is not None and inodes_free < self.inodes_free
        )

    def is_idle(self, bytes_rate: float, inodes_rate: float) -> bool:
        """Whether fills at these rates, units a second, both count as none."""
        return is_negligible(bytes_rate, self.bytes_per_second) and is_negligible(inodes_rate, self.inodes_per_second)

    def poll_interval(
        self,
        available_bytes: int,
        inodes_free: int,
        bytes_rate: float = 0.0,
        inodes_rate: float = 0.0,
        *,
        idle: bool = False,
    ) -> float:
        """Seconds from a poll that read these amounts to the next one, within [floor, ceiling].

        `bytes_rate`, `inodes_rate`: the fastest fills that the polls have found, units a second. `idle`: nothing fills
        the filesystem now. Then polls are at least three floors apart.
        """
        levels = (
            (self.available_bytes, available_bytes, max(self.bytes_per_second, bytes_rate)),
            (self.inodes_free, inodes_free, max(self.inodes_per_second, inodes_rate)),
        )
        headrooms = [(amount - level, fastest) for level, amount, fastest in levels if level is not None]
        return next_interval(headrooms, self.floor_seconds * (IDLE_FLOORS if idle else 1), self.ceiling_seconds)


class ThresholdNotifier:
    """Watches one filesystem until an observation is due. Not thread-safe: one thread polls.

    `due_at`: when the next poll is due, monotonic seconds; the first one is due at once.
    """

    def __init__(self, levels: WatchedLevels, notify: Notify):
        self.levels = levels
        self.notify = notify
        self.due_at = -math.inf
        self._last: Poll | None = None
        self._first_poll = math.inf
        self._fastest = (0.0, 0.0)  # the fills of bytes and of inodes, halved every minute
        self._idle = False

    def update(self, available_bytes: int, inodes_free: int, now: float) -> bool:
        """Takes in one poll, made at `now` (monotonic seconds). True when an observation is due.

        It is due when an amount is below its level, and when a fill begins on a filesystem that was idle, so that its
        rate is known before it comes to the level; the second at the earliest 0.25 s after the first poll. Otherwise
        polling continues at `due_at`.
        """
        if self.levels.crossed(available_bytes, inodes_free):
            return True
        last, self._last = self._last, Poll(now, available_bytes, inodes_free)
        self._first_poll = min(self._first_poll, now)
        was_idle = self._idle
        if last is not None and now - last.time >= SHORTEST_SECONDS:
            elapsed = now - last.time
            kept = 0.5 ** (elapsed / HALF_LIFE_SECONDS)
            bytes_rate = (last.available_bytes - available_bytes) / elapsed
            inodes_rate = (last.inodes_free - inodes_free) / elapsed
            self._fastest = max(self._fastest[0] * kept, bytes_rate), max(self._fastest[1] * kept, inodes_rate)
            self._idle = self.levels.is_idle(bytes_rate, inodes_rate)
        self.due_at = now + self.levels.poll_interval(available_bytes, inodes_free, *self._fastest, idle=self._idle)
        return was_idle and not self._idle and now - self._first_poll >= MIN_NOTIFY_SECONDS
