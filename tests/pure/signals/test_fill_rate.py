"""How fast a filesystem fills now, and on the mean: of a fill, of one jump, of bursts, and when it has stopped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signals.interval import MOST_STEPS, TOLD_SECONDS, WINDOW_SECONDS, FillRate, update_fill_rate
from tests.pure.values import MIB

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
    """A fill by `rate` bytes a second, read after each of these intervals; `after` is what was read before it."""
    readings = list(after or [(0.0, 0.0)])
    for interval in intervals:
        readings.append((readings[-1][0] + interval, readings[-1][1] + rate * interval))
    return readings


@pytest.mark.parametrize("rate", [20 * MIB, 100 * MIB, 400 * MIB])
@pytest.mark.parametrize("interval", [0.01, 0.03, 0.25, 1.0])
def test_a_fill_that_begins_is_known_after_a_quarter_of_a_second(rate: int, interval: float) -> None:
    """From rest the rate rises with the time that it goes on, or is known at the first reading that comes later."""
    for number, fill in enumerate(each_seen(filled(rate, [interval] * 40, REST))[-40:], 1):
        part = min(number * interval / WINDOW_SECONDS, 1.0)
        assert fill.rate == pytest.approx(part * rate, rel=0.01)


@given(
    st.sampled_from([20 * MIB, 100 * MIB, 400 * MIB, 1000 * MIB]),
    st.lists(st.floats(0.005, 0.02), min_size=60, max_size=80),
    st.booleans(),
)
def test_a_fill_is_its_rate_however_the_polls_jitter(rate: int, intervals: list[float], rested: bool) -> None:
    """After 0.3 s, from rest or from a start of the daemon, within a hundredth."""
    assert seen(filled(rate, intervals, REST if rested else ())).rate == pytest.approx(rate, rel=0.01)


JUMPS = [32, 64, 128, 257, 514, 1028]  # MiB that XFS took at once for one file that grew to 1 GiB


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("interval", [0.01, 0.03, 0.125])
def test_one_jump_is_over_after_a_quarter_of_a_second(jump: int, interval: float) -> None:
    """On a disk that stands still. For looking again it is a fast fill for minutes."""
    after = [(59.0 + interval * (count + 1), float(jump * MIB)) for count in range(40)]
    for count, fill in enumerate(each_seen([*REST, *after])[-40:]):
        expected = jump * MIB / WINDOW_SECONDS if count * interval < WINDOW_SECONDS - interval else 0.0
        if not WINDOW_SECONDS - interval <= count * interval <= WINDOW_SECONDS:
            assert fill.rate == pytest.approx(expected, rel=0.01)
    assert seen([*REST, after[0]]).fastest == pytest.approx(jump * MIB / interval)


changes = st.lists(st.tuples(st.floats(0.002, 11.0), st.integers(-(2**33), 2**33)), min_size=2, max_size=60)


@given(changes, st.floats(0.3, 100.0))
def test_no_rate_is_above_the_fastest_fall_and_all_end_with_the_silence(
    readings: list[tuple[float, int]], silence: float
) -> None:
    """Whatever was read before; that of now ends within a quarter of a second, the mean within half a minute."""
    fill, fastest = update_fill_rate(None, 1 << 60, 0.0), 0.0
    for interval, fallen in readings:
        fill = update_fill_rate(fill, fill.available - fallen, fill.time + interval)
        fastest = max(fastest, fallen / interval)
        assert 0.0 <= fill.rate <= fastest * (1 + 1e-6)
        assert 0.0 <= fill.told_rate <= fastest * (1 + 1e-6)
    after = update_fill_rate(fill, fill.available, fill.time + silence)
    assert after.rate == 0.0
    assert after.told_rate <= sum(step.fall for step in fill.steps) / silence * (1 + 1e-9)
    if silence > TOLD_SECONDS:
        assert after.told_rate == 0.0


@pytest.mark.regression
def test_polls_tell_when_it_fell_between_two_observations() -> None:
    """Both fell by 100 MiB in the half of a second since the last observation, one of them at its beginning."""
    before = seen(REST)
    polls = [(59.0 + POLL * count, 2 * MIB * count) for count in range(1, 50)]
    filled_up = update_fill_rate(before, FULL - 100 * MIB, 59.5, [(at, FULL - fallen) for at, fallen in polls])
    jumped = update_fill_rate(before, FULL - 100 * MIB, 59.5, [(at, FULL - 100 * MIB) for at, _ in polls])
    assert filled_up.rate == pytest.approx(200 * MIB, rel=0.05)
    assert jumped.rate == 0.0
    assert filled_up.fastest == jumped.fastest == 200 * MIB


@pytest.mark.parametrize("interval", [POLL, 0.5])
def test_a_fill_in_bursts_is_told_as_its_mean(interval: float) -> None:
    """100 MiB every 5 s, as ext4 commits: 15 to 25 MiB/s at any moment, not silence."""
    readings = [(count * interval, 100.0 * MIB * (count * interval // 5)) for count in range(int(60 / interval))]
    shown = [fill.told_rate for fill in each_seen(readings) if fill.time > 30]
    assert min(shown) > 14 * MIB
    assert max(shown) < 27 * MIB


def test_a_fill_that_has_stopped_is_told_less_and_less() -> None:
    """After 500 MiB/s for 2 s: a third of it at most after one second, nothing half a minute later. The fastest fill,
    by which the next reading is chosen, forgets slowly."""
    readings = filled(500 * MIB, [POLL] * 200)
    began, fallen = readings[-1]
    for silence, at_most in ((1.0, 500 * MIB / 2), (10.0, 500 * MIB / 10), (31.0, 0.0)):
        stopped = seen([*readings, (began + silence, fallen)])
        assert stopped.told_rate <= at_most
        assert stopped.fastest >= 500 * MIB * 0.5 ** (silence / 60.0) * 0.99


def test_no_more_than_64_steps_are_kept() -> None:
    """Memory does not grow with a fill, and steps of more than half a minute ago are forgotten."""
    fill = seen(filled(20 * MIB, [POLL] * 300))
    assert len(fill.steps) == MOST_STEPS
    assert fill.told_rate == pytest.approx(20 * MIB, rel=0.01)
    assert update_fill_rate(fill, fill.available, fill.time + TOLD_SECONDS + 1.0).steps == ()
