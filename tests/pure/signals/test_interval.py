"""When a filesystem is read again, which fills call for an observation, and how fast a fill is."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signals.interval import (
    FillRate,
    ThresholdNotifier,
    WatchedLevels,
    next_interval,
    update_fill_rate,
)
from signals.types import FsStats
from tests.pure.values import GIB, MIB
from tests.rows import rows

FLOOR, CEILING = 0.01, 10.0
FULL, MANY = 1 << 50, 10**9
LEVELS = WatchedLevels((GIB, 1000), (500.0 * MIB, 20_000.0), FLOOR, CEILING)
POLL = 0.01
REST = [(float(second), 0.0) for second in range(60)]
JUMPS = [32, 257, 1028]  # MiB that XFS took at once for one file that grew to 1 GiB
Readings = list[tuple[float, float]]
"""Seconds since the start, and how much has fallen since then."""

amounts = st.integers(0, 2**62)


def polled(
    time: float, available: int, inodes: int, preallocated: int = 0, step: int = 0
) -> FsStats:
    """What a poll reads at this time."""
    return FsStats(available, available, FULL, inodes, MANY, time, 0, preallocated, step)


# ---- when to read again


def test_a_level_is_crossed_below_it_not_at_it() -> None:
    """In bytes or in inodes; without a level nothing is crossed, and polls are seldom."""
    seen = [(GIB, 1000), (GIB - 1, 1000), (GIB, 999)]
    assert list(map(LEVELS.crossed, seen)) == [False, True, True]
    none = LEVELS._replace(levels=(None, None))
    assert (none.crossed((0, 0)), none.poll_interval(polled(0.0, 0, 0))) == (False, CEILING)


@given(amounts, amounts, st.floats(0, 1e12), st.floats(0, 1e12))
def test_polls_are_as_often_as_the_nearer_of_bytes_and_inodes_asks(
    available: int, inodes: int, bytes_rate: float, inodes_rate: float
) -> None:
    """2000 inodes above at 20 000 a second are 50 ms. A fill that the polls found only shortens
    that; an idle filesystem is polled every 50 ms at most."""
    poll = polled(0.0, available, inodes)
    usual = LEVELS.poll_interval(poll)
    above = [(available - GIB) / (500.0 * MIB), (inodes - 1000) / 20_000.0]
    assert usual == next_interval(above, FLOOR, CEILING)
    assert FLOOR <= LEVELS.poll_interval(poll, (bytes_rate, inodes_rate)) <= usual
    assert LEVELS.poll_interval(poll, idle=True) == max(usual, 5 * FLOOR)


def test_less_than_a_sixty_fourth_of_the_assumed_rate_counts_as_no_fill() -> None:
    """Below 7.8125 MiB/s of 500, and below 312.5 inodes a second of 20 000."""
    rates = [(0.0, 0.0), (-5e9, -5e9), (7.8 * MIB, 312.0), (7.9 * MIB, 0.0), (0.0, 313.0)]
    assert list(map(LEVELS.is_idle, rates)) == [True, True, True, False, False]


# ---- the fastest fill


@given(amounts, amounts, st.floats(1e-3, 1e6), st.floats(0, 1e12))
def test_the_fastest_fill_is_the_last_fall_or_what_is_left_of_an_earlier_one(
    before: int, after: int, elapsed: float, fastest: float
) -> None:
    """A new rate counts in full at once, the past is halved every minute, and a rise is no fill."""
    assert update_fill_rate(None, before, 0.0) == FillRate(before, 0.0)
    fill = update_fill_rate(FillRate(before, 0.0, fastest), after, elapsed)
    assert (fill.available, fill.time) == (after, elapsed)
    assert fill.fastest == pytest.approx(
        max(fastest * 0.5 ** (elapsed / 60), (before - after) / elapsed), rel=1e-6
    )


@given(amounts, amounts, st.floats(0, 1e6), st.floats(0, 1e12))
def test_a_reading_no_newer_than_the_last_changes_no_rate(
    before: int, after: int, back: float, fastest: float
) -> None:
    """A repeated reading, one within 1 ms, or a clock that went back: no division by zero, and no
    fill."""
    fill = update_fill_rate(FillRate(before, 1e6, fastest), after, 1e6 - back)
    assert (fill.available, fill.fastest) == (before, fastest)


# ---- the rate of a fill


def each_seen(readings: Iterable[tuple[float, float]]) -> list[FillRate]:
    """The fill rate after each of these observations."""
    fills: list[FillRate] = []
    for time, fallen in readings:
        fills.append(update_fill_rate(fills[-1] if fills else None, FULL - int(fallen), time))
    return fills


def seen(readings: Iterable[tuple[float, float]]) -> FillRate:
    """The fill rate after these observations."""
    return each_seen(readings)[-1]


def filled(rate: float, intervals: Iterable[float], after: Readings = REST) -> Readings:
    """A fill by `rate` bytes a second, read after each of these intervals; `after` is what was
    read before it."""
    readings = list(after)
    for interval in intervals:
        readings.append((readings[-1][0] + interval, readings[-1][1] + rate * interval))
    return readings


@rows("""
    what                  | interval | rest | tenth | quarter | half | nearly
    polls                 | 0.01     | yes  | 4     | 7       | 13   | 23
    slower polls          | 0.03     | yes  | 3     | 3       | 5    | 8
    observations          | 0.25     | yes  |       |         | 3    | 3
    polls after a start   | 0.01     |      |       |         | 13   | 23
    slower ones           | 0.03     |      |       |         | 5    |
    observations, as well | 0.25     |      |       |         |      | 2
""")
def test_how_many_readings_show_a_steady_fill(
    interval: float,
    rest: bool,
    tenth: int | None,
    quarter: int | None,
    half: int | None,
    nearly: int | None,
) -> None:
    """How many readings after the start of a fill show which part of its rate: one fall alone is
    never believed, so a burst of some polls is no fill, and all of it is known after a quarter of a
    second, also after a start."""
    for rate in (20 * MIB, 400 * MIB):
        fills = each_seen(filled(rate, [interval] * 89, REST if rest else REST[:1]))[-89:]
        for part, count in ((0.1, tenth), (0.25, quarter), (0.5, half), (0.9, nearly)):
            shown = [fill.rate >= part * rate * 0.999 for fill in fills]
            assert count is None or shown == [False] * (count - 1) + [True] * (90 - count)


@pytest.mark.parametrize("rate", [20 * MIB, 400 * MIB])
@pytest.mark.parametrize("jump", [-1028, *JUMPS])
def test_a_jump_followed_by_a_steady_fill_is_the_rate_of_the_fill(rate: int, jump: int) -> None:
    """Down or up (a file that was deleted, whose one step counts as time in which nothing fell),
    before the fill and amid it."""
    before = [*REST, (59.01, float(jump * MIB))]
    assert seen(filled(rate, [POLL] * 40, before)).rate == pytest.approx(rate, rel=1e-6)
    amid = filled(rate, [POLL] * 40)
    jumped = [*amid[:91], *((time, fallen + jump * MIB) for time, fallen in amid[91:])]
    assert seen(jumped).rate == pytest.approx(rate, rel=0.01 if jump > 0 else 0.05)


rests = st.lists(st.tuples(st.floats(0.002, 11.0), st.floats(0, 1)), min_size=1, max_size=40)
jumps = st.integers(-(2**40), 0) | st.integers(2**34, 2**40)  # up, or by more than any other fall


@given(rests, st.floats(0, 1e9), st.integers(0, 39), jumps, st.floats(0.1, 100))
def test_with_one_jump_anywhere_the_rate_is_never_above_the_fastest_of_the_rest(
    rest: list[tuple[float, float]], most: float, where: int, jump: int, silence: float
) -> None:
    """So a disk is full within a minute only if the rest alone fills it: whatever the intervals,
    and whether the jump is down or up. Once nothing has fallen for three readings it is 0."""
    readings = [(0.0, 0.0)]
    for number, (interval, share) in enumerate(rest):
        fall = most * share * interval + (jump if number == where % len(rest) else 0)
        readings.append((readings[-1][0] + interval, readings[-1][1] + fall))
    rounding = len(rest) / 0.002  # each reading is cut to whole bytes
    assert 0 <= seen(readings).rate <= most * (1 + 1e-6) + rounding
    assert seen(filled(0.0, [silence] * 3, readings)).rate == 0.0


def test_polls_tell_a_jump_from_a_fill_between_two_observations() -> None:
    """Both fell by 100 MiB in the quarter of a second since the last observation; only the polls
    differ. Those within 1 ms of an observation are passed over."""
    times = [59.0, *(59.0 + POLL * count for count in range(1, 25)), 59.2495]
    filling, jumped = (
        update_fill_rate(
            seen(REST), FULL - 100 * MIB, 59.25, polled=zip(times, [0, *polled, 0], strict=True)
        )
        for polled in ([FULL - 4 * MIB * n for n in range(1, 25)], [FULL - 100 * MIB] * 24)
    )
    assert filling.rate == pytest.approx(400 * MIB, rel=0.05)
    assert jumped.rate == 0.0
    assert filling.fastest == jumped.fastest == 400 * MIB


@pytest.mark.parametrize("trickle", [0, 4096])
def test_a_fill_that_has_stopped_is_over_within_seconds(trickle: int) -> None:
    """After 500 MiB/s for 2 s the rate falls as the silence grows; what a log writes meanwhile is
    none of it. The fastest fill forgets slowly, the falls at once: three are kept at least."""
    readings = filled(500 * MIB, [POLL] * 200)
    for seconds, at_most in ((1.0, 30 * MIB), (10.0, 3 * MIB), (31.0, 0), (480.0, 0)):
        stopped = seen(filled(trickle * 2, [0.5] * round(seconds * 2), readings))
        assert stopped.rate <= max(at_most, 2 * trickle) * 1.01
        assert stopped.fastest >= 500 * MIB * 0.5 ** (seconds / 60.0) * 0.99
        if seconds > 1:
            assert [fall.amount for fall in stopped.falls] == [trickle] * 3
    time, fallen = readings[-1]
    assert seen([*readings, *((time + 0.1 * count, fallen) for count in (1, 2, 3))]).rate == 0.0


# ---- when an observation is due between two observations


def never() -> None:
    """The notifier only answers."""


@rows("""
    what                              | left    | since | mib | inodes | ceiling | due
    idle at its level                 | 1024    | 0     | 0   | 0      | 10      |
    close to it                       | 1054    | 0     | 0   | 0      | 10      |
    far from it                       | 3072    | 0     | 0   | 0      | 10      |
    a fill that begins, of bytes      | 2048    | 1     | 200 | 0      | 0.01    | 1.01
    or of inodes                      | 2048    | 1     | 0   | 2000   | 0.01    | 1.01
    one that goes on: below the level | 2048    | 0     | 200 | 0      | 10      | 5.125
""")
def test_an_observation_is_due_when_a_fill_begins_or_has_crossed_a_level(
    left: int, since: float, mib: float, inodes: float, ceiling: float, due: float | None
) -> None:
    """Of so many MiB and 100 000 inodes: the poll after its beginning, or the next one, finds a
    fill, so its rate is known when the level of 1 GiB comes; what was there at the first poll is
    none that begins. Idle, polls are as seldom as the interval allows: two show that it is."""
    levels = LEVELS._replace(ceiling_seconds=ceiling)
    notifier, now, times = ThresholdNotifier(levels, never), 0.0, list[float]()
    assert notifier.due_at < 0.0, "the first poll is due at once"
    while now < 100.0:
        gone = max(now - since, 0.0)
        amounts = int((left - gone * mib) * MIB), int(100_000 - gone * inodes)
        times.append(now)
        if notifier.update(polled(now, *amounts)):
            break
        now = notifier.due_at
    if due is not None:
        assert now == pytest.approx(due, abs=FLOOR)
    else:
        gaps = [later - earlier for earlier, later in pairwise(times[1:])]
        idle = LEVELS.poll_interval(polled(0.0, left * MIB, 100_000), idle=True)
        assert gaps == pytest.approx([idle] * len(gaps))
        assert len(gaps) > 9


@rows("""
    what                     | preallocated | step | seconds
    stays above the level    | 100          | 900  | 1
    goes below it, in 100 MiB| 100          | 2048 | 0.1
    is due                   | 0            | 2048 | 0.01
    but other files grow     | 2000         | 2048 | 1
""")
def test_the_next_step_of_xfs_is_polled_for(preallocated: int, step: int, seconds: float) -> None:
    """1 000 MiB above the level, at 500 MiB/s."""
    poll = polled(0.0, GIB + 1000 * MIB, MANY, preallocated * MIB, step * MIB)
    assert LEVELS.poll_interval(poll) == pytest.approx(seconds)


def test_a_fill_faster_than_assumed_shortens_the_interval_for_a_minute_after_its_end() -> None:
    """1 000 MiB/s are found where 500 are assumed: half a minute later the filesystem is still
    polled more often, and after three minutes as seldom as before. Two polls at one moment say
    nothing about a rate."""
    notifier, waits = ThresholdNotifier(LEVELS, never), list[float]()
    for now, available in ((0.0, 4), (1.024, 3), (1.024, 2), (2.0, 3), (30.0, 3), (180.0, 3)):
        assert not notifier.update(polled(now, available * GIB, MANY))
        waits.append(notifier.due_at - now)
    idle = LEVELS.poll_interval(polled(0.0, 3 * GIB, MANY), idle=True)
    assert max(waits[3:5]) < idle * 0.8
    assert waits[5] == pytest.approx(idle)


def test_writes_in_bursts_cause_at_most_four_observations_a_second() -> None:
    """A write of 1 MiB at every second poll and idleness in between; each notification sets the
    same levels again."""
    levels = WatchedLevels((0, None), (1.0 * MIB, 1e12), 0.002, 0.002)
    poll, now, due_at = 0, 0.0, list[float]()
    notifier = ThresholdNotifier(levels, never)
    while now < 5.0:
        poll += 1
        if notifier.update(polled(now, 4096 * MIB - poll // 2 * MIB, MANY)):
            due_at.append(now)
            notifier = ThresholdNotifier(levels, never)
        now = max(now, notifier.due_at)
    assert len(due_at) > 10
    assert all(later - earlier >= 0.25 for earlier, later in pairwise(due_at))
