"""How fast an amount falls steadily: the rate that is left when its one largest step is taken away.

An amount that falls at once is no fill. XFS reserves as much again behind the end of a file that grows, up to 8 GiB,
and gives it back minutes later (xfs(5), `allocsize`); a file is allocated at once (fallocate(2)); a shared extent is
copied at the first write. Such a jump is one step between two readings, or, where it takes some milliseconds, several
that are each faster than a fill is expected to be: within 60 ms they count as one. So one step does not count, that
without which the rate is lowest, and neither does the time in which it was seen, nor that of the largest rise (a file
that was deleted). What is left is the steady rate: exact for a fill that goes on from reading to reading, before a jump
and after it. It takes two falls to believe in a fill at all.

The mean is taken over the last quarter of a second, or, where that gives more, back to the fourth last burst of some
size: a fill that is written in bursts, each second or as each commit of ext4 after 5 s, counts as its mean.

For people a fill that has stopped should be over within seconds, so what they are shown is bounded by the silence: a
fill that goes on would have come with its next burst by now, unless it is slower than one burst in the time of silence.

Covers: steps, the steady rate, the rate at present, the jump below a mark. Does not cover: when to read (`interval`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WINDOW_SECONDS = 0.25  # a burst of some polls is no rate either: it counts over at least this time
FARTHEST_SECONDS = 30.0  # six commits of ext4: an earlier step counts no longer
ENOUGH_SECONDS = 0.04  # what was seen in less counts over so much: a single write of somebody would look like a rate
TOGETHER_SECONDS = 0.06  # falls so near to each other may be one: two polls of a filesystem that stood still
FASTEST_FILL = float(512 << 20)  # bytes a second: a bit more than the fill that is always taken to be possible
BURSTS = 4  # so many bursts of some size show a fill that is written in bursts
OF_SOME_SIZE = 1 / 8  # of the second largest burst
MOST_STEPS = 64
JUMP_TIMES = 2  # a step is a jump if it is more than so many times what the steady rate explains
JUMP_BYTES = 16 << 20  # less is what somebody writes in one go; the first jump of XFS that counts is 32 MiB


@dataclass(frozen=True, slots=True)
class Step:
    """A change between two readings, made at `since` and `time` (monotonic seconds). `after`: the later amount."""

    since: float
    time: float
    fall: int
    after: int

    @property
    def seconds(self) -> float:
        """The time between the two readings."""
        return self.time - self.since


def steps_after(steps: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    """The steps with one more, which is left out where nothing changed; the last 64 of the last 30 s are kept."""
    oldest = step.time - FARTHEST_SECONDS
    if not step.fall:
        return steps if not steps or steps[0].time > oldest else tuple(each for each in steps if each.time > oldest)
    return (*(each for each in steps[-MOST_STEPS + 1 :] if each.time > oldest), step)


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


def present_rate(steps: tuple[Step, ...], steady: float, now: float) -> float:
    """The steady rate as far as the silence allows: at most the second largest burst in the time since the last one of
    some size, as the largest may be a jump. Units a second; 0 after 30 s in which nothing fell.

    `steps`: oldest first. `steady`: their steady rate. `now`: when the amount was read last, monotonic seconds.
    """
    bursts = [burst for burst in _bursts(steps) if burst.time > now - FARTHEST_SECONDS]
    if not bursts:
        return 0.0
    silence, second_largest = now - bursts[-1].time, sorted(burst.fall for burst in bursts)[-2:][0]
    return min(steady, second_largest / silence) if silence > 0 else steady


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
            joined[-1] = Step(before.since, step.time, before.fall + step.fall, step.after)
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


def jump_below(mark: int, steps: Sequence[Step], rate: float) -> Step | None:
    """The step by which the amount last went from `mark` or more to less than it, if it is a jump: 16 MiB or more, and
    more than twice what the steady rate explains. None if it is not, or is not known. Bytes; the rate a second."""
    crossing = [step for step in _joined(steps, FASTEST_FILL) if step.after < mark <= step.after + step.fall]
    if not crossing or crossing[-1].fall < max(JUMP_BYTES, JUMP_TIMES * rate * crossing[-1].seconds):
        return None
    return crossing[-1]
