"""A jump is no rate; a steady fill is recognised as soon as ever, and a fill in
bursts counts as its mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signals.interval import FillRate, update_fill_rate
from tests.pure.values import GIB, MIB

FULL = 1 << 50
POLL = 0.01
REST = [(float(second), 0) for second in range(60)]

Readings = Iterable[tuple[float, float]]
"""Seconds since the start, and how much has fallen since then."""


def each_seen(readings: Readings) -> list[FillRate]:
    """The fill rate after each of these observations."""
    fills: list[FillRate] = []
    for time, fallen in readings:
        fills.append(update_fill_rate(fills[-1] if fills else None, FULL - int(fallen), time))
    return fills


def seen(readings: Readings) -> FillRate:
    """The fill rate after these observations."""
    return each_seen(readings)[-1]


def filled(
    rate: float, intervals: Sequence[float], after: Sequence[tuple[float, float]] = ()
) -> list[tuple[float, float]]:
    """A fill by `rate` bytes a second, read after each of these intervals; `after`
    is what was read before it.
    """
    readings = list(after or [(0.0, 0.0)])
    for interval in intervals:
        readings.append((readings[-1][0] + interval, readings[-1][1] + rate * interval))
    return readings


@pytest.mark.parametrize("rate", [20 * MIB, 100 * MIB, 400 * MIB])
@pytest.mark.parametrize(
    ("interval", "before", "part", "readings"),
    [
        (0.01, REST, 0.1, 4),
        (0.01, REST, 0.25, 7),
        (0.01, REST, 0.5, 13),
        (0.01, REST, 0.9, 23),
        (0.03, REST, 0.1, 3),
        (0.03, REST, 0.25, 3),
        (0.03, REST, 0.5, 5),
        (0.03, REST, 0.9, 8),
        (0.01, [], 0.5, 13),
        (0.01, [], 0.9, 23),
        (0.03, [], 0.5, 5),
        (0.25, REST, 0.5, 3),
        (0.25, REST, 0.9, 3),
        (0.25, [], 0.9, 2),
    ],
)
def test_how_many_readings_show_a_steady_fill(
    rate: int, interval: float, before: list[tuple[float, float]], part: float, readings: int
) -> None:
    """How many readings after the start of a fill show which part of its rate: one fall
    alone is never believed, and all of it is known after a quarter of a second, also after
    a start of the daemon."""
    fills = each_seen(filled(rate, [interval] * 89, before))[-89:]
    shown = [fill.rate >= part * rate * 0.999 for fill in fills]
    assert shown.index(True) + 1 == readings
    assert all(shown[readings - 1 :])


@given(
    st.sampled_from([20 * MIB, 100 * MIB, 400 * MIB, 1000 * MIB]),
    st.lists(st.floats(0.005, 0.02), min_size=60, max_size=80),
    st.booleans(),
)
def test_a_steady_fill_is_its_rate_however_the_polls_jitter(
    rate: int, intervals: list[float], rested: bool
) -> None:
    """After 0.3 s, from rest or from a start, within a hundredth, as no part of a step counts."""
    assert seen(filled(rate, intervals, REST if rested else ())).rate == pytest.approx(
        rate, rel=0.01
    )


JUMPS = [32, 64, 128, 257, 514, 1028]  # MiB that XFS took at once for one file that grew to 1 GiB


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("interval", [0.01, 0.03, 0.25, 1.0])
def test_one_jump_is_no_rate(jump: int, interval: float) -> None:
    """On a disk that stands still: 0 at once and ever after.

    For looking again it is a fast fill.
    """
    after = [(59.0 + interval * (count + 1), float(jump * MIB)) for count in range(40)]
    for count in range(1, 40):
        assert seen([*REST, *after[:count]]).rate == 0.0
    assert seen([*REST, after[0]]).fastest == pytest.approx(jump * MIB / interval)


@pytest.mark.parametrize("rate", [20 * MIB, 100 * MIB, 400 * MIB])
@pytest.mark.parametrize("jump", [-1028, *JUMPS])
def test_a_jump_followed_by_a_steady_fill_is_the_rate_of_the_fill(rate: int, jump: int) -> None:
    """Down or up (a file that was deleted, whose one step counts as time in which nothing
    fell), at once and later.
    """
    before = [*REST, (59.01, float(jump * MIB))]
    assert seen(filled(rate, [POLL] * 40, before)).rate == pytest.approx(rate, rel=1e-6)
    amid = filled(rate, [POLL] * 40, REST)
    jumped = [
        (time, fallen + jump * MIB * (number > len(REST) + 30))
        for number, (time, fallen) in enumerate(amid)
    ]
    assert seen(jumped).rate == pytest.approx(rate, rel=0.01 if jump > 0 else 0.05)


rests = st.lists(st.tuples(st.floats(0.002, 11.0), st.floats(0, 1)), min_size=1, max_size=40)


@given(rests, st.floats(0, 1e9), st.integers(0, 39), st.integers(-(2**40), 2**40))
def test_with_one_jump_anywhere_the_rate_is_never_above_the_fastest_of_the_rest(
    rest: list[tuple[float, float]], most: float, where: int, jump: int
) -> None:
    """So a disk is full within a minute only if the rest alone fills it: whatever the intervals,
    and whether the jump is down or up."""
    readings = [(0.0, 0.0)]
    for number, (interval, share) in enumerate(rest):
        fall = most * share * interval + (jump if number == where % len(rest) else 0)
        readings.append((readings[-1][0] + interval, readings[-1][1] + fall))
    rounding = len(rest) / 0.002  # each reading is cut to whole bytes
    assert seen(readings).rate <= most * (1 + 1e-6) + rounding


@given(st.sampled_from([20 * MIB, 400 * MIB]), st.integers(1, 60), st.integers(1, 2**40))
def test_space_that_comes_free_hides_no_fill(rate: int, where: int, freed: int) -> None:
    """One rise among the readings of the last second: the rate of the fill, within a tenth."""
    readings = filled(rate, [POLL] * 100, REST)
    with_rise = [
        (t, fallen - freed * (number >= len(REST) + 40 + where))
        for number, (t, fallen) in enumerate(readings)
    ]
    assert seen(with_rise).rate == pytest.approx(rate, rel=0.1)


def test_the_end_of_a_fill_is_seen_within_three_readings() -> None:
    """After ten seconds of 100 MiB/s: nothing a quarter of a second later."""
    readings = filled(100 * MIB, [POLL] * 1000)
    time, fallen = readings[-1]
    silence = [(time + 0.1 * count, fallen) for count in (1, 2, 3)]
    assert seen([*readings, *silence]).rate == 0.0


@pytest.mark.regression
def test_polls_tell_a_jump_from_a_fill_between_two_observations() -> None:
    """Both fell by 100 MiB in the quarter of a second since the last
    observation; only the polls differ.
    """
    before = seen(REST)
    polls = [(59.0 + POLL * count, 4 * MIB * count) for count in range(1, 25)]
    filled_up = update_fill_rate(
        before, FULL - 100 * MIB, 59.25, polled=[(at, FULL - fallen) for at, fallen in polls]
    )
    jumped = update_fill_rate(
        before, FULL - 100 * MIB, 59.25, polled=[(at, FULL - 100 * MIB) for at, _ in polls]
    )
    assert filled_up.rate == pytest.approx(400 * MIB, rel=0.05)
    assert jumped.rate == 0.0
    assert filled_up.fastest == jumped.fastest == 400 * MIB


@pytest.mark.regression
@pytest.mark.parametrize(
    ("silence_seconds", "at_most"),
    [(1.0, 30 * MIB), (3.0, 10 * MIB), (10.0, 3 * MIB), (31.0, 0), (480.0, 0)],
)
@pytest.mark.parametrize("trickle", [0, 4096])
def test_a_fill_that_has_stopped_is_over_within_seconds(
    silence_seconds: float, at_most: float, trickle: int
) -> None:
    """After 500 MiB/s for 2 s the rate falls as the silence grows; what a log writes meanwhile is
    none of it. The fastest fill, by which the next reading is chosen, forgets slowly as before."""
    readings = filled(500 * MIB, [POLL] * 200)
    began, fallen = readings[-1]
    steps = round(silence_seconds / 0.5)
    silent = [(began + 0.5 * (count + 1), fallen + trickle * (count + 1)) for count in range(steps)]
    stopped = seen([*readings, *silent])
    assert stopped.rate <= max(at_most, 2 * trickle) * 1.01
    assert stopped.fastest >= 500 * MIB * 0.5 ** (silence_seconds / 60.0) * 0.99


changes = st.lists(
    st.tuples(st.floats(0.002, 11.0), st.integers(-(2**33), 2**33)), min_size=2, max_size=60
)


@given(changes, st.floats(0.01, 100.0))
def test_the_rate_is_consistent_with_the_silence(
    readings: list[tuple[float, int]], silence: float
) -> None:
    """Whatever was read before: never below 0, and 0 once nothing has fallen for three readings."""
    fill = update_fill_rate(None, 1 << 60, 0.0)
    for interval, fallen in readings:
        fill = update_fill_rate(fill, fill.available - fallen, fill.time + interval)
    assert fill.rate >= 0.0
    for _ in range(3):
        fill = update_fill_rate(fill, fill.available, fill.time + max(silence, 0.1))
    assert fill.rate == 0.0


def test_what_is_older_than_a_quarter_of_a_second_is_forgotten() -> None:
    """Memory does not grow with a fill; three readings are kept however old they are."""
    fill = seen(filled(20 * MIB, [POLL] * 300))
    assert len(fill.falls) in (25, 26)
    for seconds in (31.0, 31.0, 31.0):
        fill = update_fill_rate(fill, fill.available, fill.time + seconds)
    assert [fall.amount for fall in fill.falls] == [0, 0, 0]


def test_a_fill_that_is_faster_than_that_is_believed_all_the_same() -> None:
    """4 GiB/s, half after 0.2 s."""
    shown = seen(filled(4.0 * GIB, [POLL] * 20, REST)).rate
    assert shown >= 2 * GIB


def test_a_burst_of_some_polls_counts_over_a_quarter_of_a_second() -> None:
    """20 MiB in 50 ms are no 400 MiB/s."""
    readings = filled(400 * MIB, [POLL] * 5, REST)
    assert seen(readings).rate <= 20 * MIB / 0.25
