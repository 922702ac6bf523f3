"""The next reading is due when the filesystem could have come half the way to its threshold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signals.interval import FillRate, WatchedLevels, next_interval, update_fill_rate
from tests.pure.values import GIB, MIB

FLOOR, CEILING = 0.01, 10.0

headrooms = st.integers(-(2**63), 2**63)
rates = st.floats(1e-3, 1e12)


@pytest.mark.parametrize(
    ("watched", "seconds"),
    [
        ([], 10.0),
        ([(500 * MIB, 100.0 * MIB)], 2.5),
        ([(100 * GIB, 500.0 * MIB)], 10.0),
        ([(MIB, 500.0 * MIB)], 0.01),
        ([(0, 500.0 * MIB)], 0.01),
        ([(-GIB, 500.0 * MIB)], 0.01),
        ([(1000 * MIB, 100.0 * MIB), (100 * MIB, 100.0 * MIB)], 0.5),
        ([(40_000, 20_000.0)], 1.0),
    ],
)
def test_the_interval_is_half_the_time_to_the_threshold(
    watched: list[tuple[int, float]], seconds: float
) -> None:
    """500 MiB above the threshold at 100 MiB/s are 5 s: observe again after 2.5 s,
    never outside 10 ms to 10 s.
    """
    assert next_interval(watched, FLOOR, CEILING) == pytest.approx(seconds)


@given(st.lists(st.tuples(headrooms, rates), max_size=6))
def test_the_interval_is_never_outside_its_bounds(watched: list[tuple[int, float]]) -> None:
    """Whatever is watched, the next observation is due after 10 ms to 10 s."""
    assert FLOOR <= next_interval(watched, FLOOR, CEILING) <= CEILING


@given(st.lists(st.tuples(headrooms, rates), max_size=4), headrooms, st.integers(0, 2**40), rates)
def test_more_headroom_never_shortens_the_interval(
    others: list[tuple[int, float]], headroom: int, more: int, rate: float
) -> None:
    """The interval is monotone in each headroom."""
    near = next_interval([*others, (headroom, rate)], FLOOR, CEILING)
    far = next_interval([*others, (headroom + more, rate)], FLOOR, CEILING)
    assert near <= far


@given(headrooms, rates, st.floats(1, 1000))
def test_a_faster_fill_never_lengthens_the_interval(
    headroom: int, rate: float, faster: float
) -> None:
    """The interval is monotone in the fill rate."""
    assert next_interval([(headroom, rate * faster)], FLOOR, CEILING) <= next_interval(
        [(headroom, rate)], FLOOR, CEILING
    )


def test_the_first_reading_shows_no_fill() -> None:
    """One reading alone says nothing about a rate."""
    assert update_fill_rate(None, 5 * GIB, 100.0) == FillRate(5 * GIB, 100.0)


def test_a_fall_of_100_mib_in_2_s_is_50_mib_a_second() -> None:
    """The rate is the fall between two readings over the time between them."""
    fill = update_fill_rate(FillRate(500 * MIB, 10.0), 400 * MIB, 12.0)
    assert (fill.available, fill.time, fill.fastest) == (400 * MIB, 12.0, 50.0 * MIB)


def test_a_rise_is_a_fall_of_0() -> None:
    """Space that comes free is no fill, and does not cancel one that was observed."""
    assert update_fill_rate(FillRate(0, 10.0), GIB, 11.0).fastest == 0.0
    assert update_fill_rate(FillRate(0, 10.0, fastest=8.0), GIB, 70.0).fastest == pytest.approx(4.0)


@pytest.mark.parametrize(("seconds", "left"), [(60.0, 512.0), (120.0, 256.0), (600.0, 1.0)])
def test_the_fastest_fill_is_halved_every_minute(seconds: float, left: float) -> None:
    """A burst of 1024 units a second counts as 512 after 60 s and as 1 after 10 minutes."""
    assert update_fill_rate(
        FillRate(GIB, 0.0, fastest=1024.0), GIB, seconds
    ).fastest == pytest.approx(left)


@given(st.floats(0, 1e12), st.lists(st.floats(0.01, 100.0), min_size=1, max_size=20))
def test_decay_does_not_depend_on_the_number_of_readings(
    fastest: float, steps: list[float]
) -> None:
    """Many readings leave as much of a rate as one at the end."""
    fill = FillRate(GIB, 0.0, fastest)
    for step in steps:
        fill = update_fill_rate(fill, GIB, fill.time + step)
    once = update_fill_rate(FillRate(GIB, 0.0, fastest), GIB, fill.time)
    assert fill.fastest == pytest.approx(once.fastest, rel=1e-6)


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.floats(0, 1e6), st.floats(0, 1e12))
def test_a_reading_no_newer_than_the_last_changes_no_rate(
    before: int, after: int, back: float, fastest: float
) -> None:
    """A repeated reading, one within 1 ms, or a clock that went back: no
    division by zero, and no fill.
    """
    fill = update_fill_rate(FillRate(before, 1e6, fastest), after, 1e6 - back)
    assert (fill.available, fill.fastest) == (before, fastest)


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.floats(1e-3, 1e6), st.floats(0, 1e12))
def test_the_fastest_fill_is_never_negative_nor_below_the_last_fall(
    before: int, after: int, elapsed: float, fastest: float
) -> None:
    """A new rate counts in full at once; only the past decays."""
    fill = update_fill_rate(FillRate(before, 0.0, fastest), after, elapsed)
    assert fill.fastest >= max((before - after) / elapsed, 0.0)


LEVELS = WatchedLevels((GIB, 1000), (500.0 * MIB, 20_000.0), FLOOR, CEILING)


@pytest.mark.parametrize(
    ("available_bytes", "inodes_free", "crossed"),
    [
        (GIB, 1000, False),
        (GIB - 1, 1000, True),
        (GIB, 999, True),
        (0, 0, True),
        (2**62, 2**62, False),
    ],
)
def test_a_level_is_crossed_below_it_not_at_it(
    available_bytes: int, inodes_free: int, crossed: bool
) -> None:
    """In bytes or in inodes; equal is not crossed."""
    assert LEVELS.crossed((available_bytes, inodes_free)) is crossed


def test_without_levels_nothing_is_crossed() -> None:
    """A filesystem without a threshold is polled as seldom as possible."""
    none = WatchedLevels((None, None), (1.0, 1.0), FLOOR, CEILING)
    assert not none.crossed((0, 0))
    assert none.poll_interval((0, 0)) == CEILING


def test_the_nearer_of_bytes_and_inodes_decides_the_poll_interval() -> None:
    """1000 MiB above at 500 MiB/s are 1 s; 2000 inodes above at 20 000 a second are 50 ms."""
    assert LEVELS.poll_interval((GIB + 1000 * MIB, 10**9)) == pytest.approx(1.0)
    assert LEVELS.poll_interval((GIB + 1000 * MIB, 3000)) == pytest.approx(0.05)


@given(st.integers(0, 2**50), st.integers(0, 2**40), st.floats(0, 1e12), st.floats(0, 1e12))
def test_a_fill_that_the_polls_found_only_shortens_the_interval(
    available_bytes: int, inodes_free: int, bytes_rate: float, inodes_rate: float
) -> None:
    """Never later than without it, never outside the bounds."""
    seen = (available_bytes, inodes_free)
    assert (
        FLOOR
        <= LEVELS.poll_interval(seen, (bytes_rate, inodes_rate))
        <= LEVELS.poll_interval(seen)
        <= CEILING
    )


@given(st.integers(0, 2**50), st.integers(0, 2**40))
def test_an_idle_filesystem_is_polled_every_50_ms_at_most(
    available_bytes: int, inodes_free: int
) -> None:
    """Close to the level every 50 ms instead of 10, else as often as one that is filled."""
    filling, idle = (
        LEVELS.poll_interval((available_bytes, inodes_free), idle=idle) for idle in (False, True)
    )
    assert idle == max(filling, 5 * FLOOR)


@pytest.mark.parametrize(
    ("bytes_rate", "inodes_rate", "idle"),
    [
        (0.0, 0.0, True),
        (-5e9, -5e9, True),
        (7.8 * MIB, 312.0, True),
        (7.9 * MIB, 0.0, False),
        (0.0, 313.0, False),
    ],
)
def test_less_than_a_sixty_fourth_of_the_assumed_rate_counts_as_no_fill(
    bytes_rate: float, inodes_rate: float, idle: bool
) -> None:
    """Below 7.8125 MiB/s of 500, and below 312.5 inodes a second of 20 000."""
    assert LEVELS.is_idle((bytes_rate, inodes_rate)) is idle


@given(
    st.integers(0, 100 * GIB),
    st.floats(float(MIB), 1000.0 * MIB),
    st.lists(
        st.just(0.0) | st.floats(0.01, 1.0), min_size=1, max_size=50
    ),  # large enough to show in whole bytes, or no fill
)
def test_no_fill_up_to_twice_the_assumed_rate_is_found_later_than_one_floor_after_the_crossing(
    headroom: int, rate: float, shares: list[float]
) -> None:
    """Because the time to the level is halved: a fill of up to 1000 MiB/s, where 500
    are assumed, is found below the level at most 10 ms after it crossed it, whatever it
    did between the polls."""
    available, now, crossed_at = float(GIB + headroom), 0.0, None
    for step in range(400):
        wait = LEVELS.poll_interval((int(available), 10**9))
        speed = rate * shares[step % len(shares)]
        if available - GIB < speed * wait and crossed_at is None:
            crossed_at = now + max(available - GIB, 0.0) / speed
        available, now = available - speed * wait, now + wait
        if int(available) < GIB:
            assert crossed_at is not None
            assert now - crossed_at <= FLOOR + 1e-6
            return


@given(
    st.integers(0, 100 * GIB),
    st.floats(float(MIB), 1000.0 * MIB),
    st.lists(st.just(0.0) | st.floats(0.01, 1.0), min_size=1, max_size=50),
)
def test_no_fill_up_to_twice_the_assumed_rate_that_begins_on_an_idle_filesystem_is_found_later_than_50_ms(
    headroom: int, rate: float, shares: list[float]
) -> None:
    """An idle filesystem is polled every 50 ms at most: a fill of up to 1000 MiB/s, where 500
    are assumed, is found below the level at most 50 ms after it crossed it, whenever it
    begins and whatever it does."""
    available, now, crossed_at, idle = float(GIB + headroom), 0.0, None, True
    for step in range(400):
        wait = LEVELS.poll_interval((int(available), 10**9), idle=idle)
        speed = rate * shares[step % len(shares)]
        idle = LEVELS.is_idle((speed, 0.0))
        if available - GIB < speed * wait and crossed_at is None:
            crossed_at = now + max(available - GIB, 0.0) / speed
        available, now = available - speed * wait, now + wait
        if int(available) < GIB:
            assert crossed_at is not None
            assert now - crossed_at <= 5 * FLOOR + 1e-6
            return
