"""The next look is due when the filesystem could have come half the way to its mark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signals.interval import HALF_LIFE_SECONDS, Fill, Marks, next_fill, next_interval
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
def test_the_interval_is_half_the_time_to_the_mark(watched: list[tuple[int, float]], seconds: float) -> None:
    """500 MiB above the mark at 100 MiB/s is 5 s away: look again in 2.5 s, never outside 10 ms to 10 s."""
    assert next_interval(watched, FLOOR, CEILING) == pytest.approx(seconds)


@given(st.lists(st.tuples(headrooms, rates), max_size=6))
def test_the_interval_is_never_outside_its_bounds(watched: list[tuple[int, float]]) -> None:
    """Whatever is watched, the next look is due in 10 ms to 10 s."""
    assert FLOOR <= next_interval(watched, FLOOR, CEILING) <= CEILING


@given(st.lists(st.tuples(headrooms, rates), max_size=4), headrooms, st.integers(0, 2**40), rates)
def test_more_headroom_never_brings_the_next_look_forward(
    others: list[tuple[int, float]], headroom: int, more: int, rate: float
) -> None:
    """The interval is monotone in each headroom."""
    near = next_interval([*others, (headroom, rate)], FLOOR, CEILING)
    far = next_interval([*others, (headroom + more, rate)], FLOOR, CEILING)
    assert near <= far


@given(headrooms, rates, st.floats(1, 1000))
def test_a_faster_fill_never_puts_the_next_look_off(headroom: int, rate: float, faster: float) -> None:
    """The interval is monotone in the fill."""
    assert next_interval([(headroom, rate * faster)], FLOOR, CEILING) <= next_interval(
        [(headroom, rate)], FLOOR, CEILING
    )


def test_the_first_reading_shows_no_fill() -> None:
    """One reading alone says nothing of a rate."""
    assert next_fill(None, 5 * GIB, 100.0) == Fill(5 * GIB, 100.0, 0.0)


def test_a_fall_of_100_mib_in_2_s_is_50_mib_a_second() -> None:
    """The fill is the fall between two readings over the time between them."""
    fill = next_fill(Fill(500 * MIB, 10.0), 400 * MIB, 12.0)
    assert (fill.available, fill.time, fill.fastest, fill.lately) == (400 * MIB, 12.0, 50.0 * MIB, 50.0 * MIB)


def test_a_rise_is_a_fall_of_0() -> None:
    """Space that comes back is no fill, and does not cancel one that was seen."""
    assert next_fill(Fill(0, 10.0), GIB, 11.0).fastest == 0.0
    assert next_fill(Fill(0, 10.0, fastest=8.0), GIB, 10.0 + HALF_LIFE_SECONDS).fastest == pytest.approx(4.0)


@pytest.mark.parametrize(("seconds", "left"), [(60.0, 512.0), (120.0, 256.0), (600.0, 1.0)])
def test_a_fill_that_was_seen_decays_by_half_every_minute(seconds: float, left: float) -> None:
    """A burst of 1024 units a second counts 512 after 60 s and 1 after 10 minutes."""
    assert next_fill(Fill(GIB, 0.0, fastest=1024.0), GIB, seconds).fastest == pytest.approx(left)


@given(st.floats(0, 1e12), st.lists(st.floats(0.01, 100.0), min_size=1, max_size=20))
def test_decay_does_not_depend_on_how_often_one_looks(fastest: float, steps: list[float]) -> None:
    """Many short looks leave as much of a fill as one long one."""
    fill = Fill(GIB, 0.0, fastest)
    for step in steps:
        fill = next_fill(fill, GIB, fill.time + step)
    once = next_fill(Fill(GIB, 0.0, fastest), GIB, fill.time)
    assert fill.fastest == pytest.approx(once.fastest, rel=1e-6)


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.floats(0, 1e6), st.floats(0, 1e12))
def test_a_reading_no_newer_than_the_last_changes_no_fill(before: int, after: int, back: float, fastest: float) -> None:
    """A repeated reading, one within 1 ms, or a clock that went back does not divide by zero and shows no fill."""
    fill = next_fill(Fill(before, 1e6, fastest), after, 1e6 - back)
    assert (fill.available, fill.fastest) == (before, fastest)


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.floats(1e-3, 1e6), st.floats(0, 1e12))
def test_the_fastest_fill_is_never_negative_nor_below_the_fall_just_seen(
    before: int, after: int, elapsed: float, fastest: float
) -> None:
    """What was just seen is believed at once; only the past decays."""
    fill = next_fill(Fill(before, 0.0, fastest), after, elapsed)
    assert fill.fastest >= max((before - after) / elapsed, 0.0)


def seen(*readings: tuple[float, int]) -> Fill:
    """The fill after these readings: (time, available)."""
    fill = None
    for time, available in readings:
        fill = next_fill(fill, available, time)
    assert fill is not None
    return fill


def test_the_fill_of_lately_is_known_half_a_second_after_it_has_begun() -> None:
    """100 MiB/s after a minute of rest: three quarters of it are seen by then, and nothing of it is left a second after
    its end, while the fastest fill is remembered for minutes."""
    rest = [(float(second), 1000 * MIB) for second in range(60)]
    fills = [(59.25, 975 * MIB), (59.5, 950 * MIB)]
    assert seen(*rest, *fills).lately == pytest.approx(75 * MIB, rel=0.05)
    over = seen(*rest, *fills, (60.5, 950 * MIB))
    assert over.lately < 5 * MIB
    assert over.fastest > 95 * MIB


def test_one_write_seen_for_10_ms_is_no_rate_yet() -> None:
    """What a cold start sees between its first two looks says nothing."""
    assert seen((0.0, GIB), (0.01, GIB - MIB)).lately == 0.0


def test_space_that_comes_back_is_no_fill_of_lately() -> None:
    """A rise counts as time in which nothing fell."""
    assert seen((0.0, GIB), (0.25, 2 * GIB), (0.5, 3 * GIB)).lately == 0.0


@given(st.lists(st.tuples(st.floats(0.001, 20.0), st.integers(0, 2**50)), min_size=2, max_size=20))
def test_the_fill_of_lately_is_never_negative_nor_above_the_fastest_ever_seen(steps: list[tuple[float, int]]) -> None:
    """It is a mean of falls."""
    time, fill, fastest = 0.0, None, 0.0
    for elapsed, available in steps:
        time += elapsed
        if fill is not None:
            fastest = max(fastest, (fill.available - available) / (time - fill.time))
        fill = next_fill(fill, available, time)
    assert fill is not None
    assert 0.0 <= fill.lately <= fastest * (1 + 1e-9)


MARKS = Marks(GIB, 1000, 500.0 * MIB, 20_000.0, FLOOR, CEILING)


@pytest.mark.parametrize(
    ("available_bytes", "inodes_free", "crossed"),
    [(GIB, 1000, False), (GIB - 1, 1000, True), (GIB, 999, True), (0, 0, True), (2**62, 2**62, False)],
)
def test_a_mark_is_crossed_below_it_not_at_it(available_bytes: int, inodes_free: int, crossed: bool) -> None:
    """Of bytes or of inodes; equal is clear."""
    assert MARKS.crossed(available_bytes, inodes_free) is crossed


def test_without_marks_nothing_is_crossed() -> None:
    """A filesystem without a threshold is glanced at as seldom as possible."""
    none = Marks(None, None, 1.0, 1.0, FLOOR, CEILING)
    assert not none.crossed(0, 0)
    assert none.next_glance(0, 0) == CEILING


def test_the_nearer_of_bytes_and_inodes_decides_the_next_glance() -> None:
    """1000 MiB above at 500 MiB/s are 1 s; 2000 inodes above at 20 000 a second are 50 ms."""
    assert MARKS.next_glance(GIB + 1000 * MIB, 10**9) == pytest.approx(1.0)
    assert MARKS.next_glance(GIB + 1000 * MIB, 3000) == pytest.approx(0.05)


@given(st.integers(0, 2**50), st.integers(0, 2**40), st.floats(0, 1e12), st.floats(0, 1e12))
def test_a_fill_that_a_glance_saw_only_brings_the_next_one_forward(
    available_bytes: int, inodes_free: int, bytes_fill: float, inodes_fill: float
) -> None:
    """Never later than without it, never outside the bounds."""
    seen = (available_bytes, inodes_free)
    assert FLOOR <= MARKS.next_glance(*seen, bytes_fill, inodes_fill) <= MARKS.next_glance(*seen) <= CEILING


@given(st.integers(0, 2**50), st.integers(0, 2**40))
def test_what_stands_still_is_glanced_at_half_as_often(available_bytes: int, inodes_free: int) -> None:
    """Not halved: before that time no fill that is assumed can reach the mark from where it is; close to the mark every
    30 ms instead of 10, and never later than the ceiling."""
    moving, still = (MARKS.next_glance(available_bytes, inodes_free, still=still) for still in (False, True))
    if moving >= 1.5 * FLOOR:
        assert still == min(2 * moving, CEILING)
    else:
        assert moving >= FLOOR
        assert still == 3 * FLOOR


@pytest.mark.parametrize(
    ("bytes_fill", "inodes_fill", "still"),
    [(0.0, 0.0, True), (-5e9, -5e9, True), (7.8 * MIB, 312.0, True), (7.9 * MIB, 0.0, False), (0.0, 313.0, False)],
)
def test_a_sixty_fourth_of_the_assumed_fill_is_next_to_nothing(
    bytes_fill: float, inodes_fill: float, still: bool
) -> None:
    """Below 7.8125 MiB/s of 500, and below 312.5 inodes a second of 20 000."""
    assert MARKS.still(bytes_fill, inodes_fill) is still


@given(
    st.integers(0, 100 * GIB),
    st.floats(float(MIB), 1000.0 * MIB),
    st.lists(st.just(0.0) | st.floats(0.01, 1.0), min_size=1, max_size=50),  # to be told in whole bytes, or no fill
)
def test_no_fill_up_to_twice_the_assumed_one_is_seen_later_than_one_floor_after_it_crossed(
    headroom: int, rate: float, shares: list[float]
) -> None:
    """Because the time to the mark is halved: a fill of up to 1000 MiB/s, where 500 are assumed, is seen below the mark
    at most 10 ms after it crossed, whatever it did between the glances."""
    available, now, crossed_at = float(GIB + headroom), 0.0, None
    for step in range(400):
        wait = MARKS.next_glance(int(available), 10**9)
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
    st.floats(float(MIB), 500.0 * MIB),
    st.lists(st.just(0.0) | st.floats(0.01, 1.0), min_size=1, max_size=50),
)
def test_no_fill_up_to_the_assumed_one_is_seen_later_than_30_ms_after_it_crossed_though_it_began_from_rest(
    headroom: int, rate: float, shares: list[float]
) -> None:
    """What stands still is glanced at half as often: a fill of up to the 500 MiB/s that are assumed is seen below the
    mark at most 30 ms after it crossed, whenever it begins and whatever it does."""
    available, now, crossed_at, still = float(GIB + headroom), 0.0, None, True
    for step in range(400):
        wait = MARKS.next_glance(int(available), 10**9, still=still)
        speed = rate * shares[step % len(shares)]
        still = MARKS.still(speed, 0.0)
        if available - GIB < speed * wait and crossed_at is None:
            crossed_at = now + max(available - GIB, 0.0) / speed
        available, now = available - speed * wait, now + wait
        if int(available) < GIB:
            assert crossed_at is not None
            assert now - crossed_at <= 3 * FLOOR + 1e-6
            return
