"""When an observation is due between two observations: a threshold is crossed, or a fill begins.

On stepped time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from signals.interval import ThresholdNotifier, WatchedLevels
from signals.types import Poll
from tests.pure.values import GIB, MIB

FLOOR = 0.01
MANY_INODES = 10**9
LEVELS = WatchedLevels((GIB, 1000), (500.0 * MIB, 20_000.0), FLOOR, 10.0)

Amounts = Callable[[float], tuple[int, int]]
"""Seconds -> bytes available and inodes free at that time."""


def no_notification() -> None:
    """Is never called: the notifier only answers."""


def polls(
    levels: WatchedLevels, amounts: Amounts, begin: float, end: float
) -> tuple[list[float], bool]:
    """The times of the polls in [begin, end), each when it is due, and whether the last one says
    that an observation is due."""
    notifier, now, times = ThresholdNotifier(levels, no_notification), begin, list[float]()
    while now < end:
        times.append(now)
        if notifier.update(Poll(now, *amounts(now))):
            return times, True
        now = notifier.due_at
    return times, False


def constant(available_bytes: int, inodes_free: int = MANY_INODES) -> Amounts:
    """A filesystem that is not in use."""
    return lambda _: (available_bytes, inodes_free)


def falling(start: float, bytes_per_second: float, inodes_per_second: float = 0.0) -> Amounts:
    """2 GiB and 100 000 inodes, idle until `start`, which fall from then on."""

    def amounts(now: float) -> tuple[int, int]:
        elapsed = max(now - start, 0.0)
        return int(2 * GIB - elapsed * bytes_per_second), int(100_000 - elapsed * inodes_per_second)

    return amounts


@pytest.mark.parametrize(
    ("available_bytes", "inodes_free", "due"),
    [(GIB, 1000, False), (GIB - 1, 1000, True), (GIB, 999, True)],
    ids=["at both levels", "one byte below", "one inode below"],
)
def test_an_observation_is_due_below_a_level(
    available_bytes: int, inodes_free: int, due: bool
) -> None:
    """The first poll finds it, and needs no earlier one."""
    notifier = ThresholdNotifier(LEVELS, no_notification)
    assert notifier.due_at < 0.0, "the first poll is due at once"
    assert notifier.update(Poll(7.0, available_bytes, inodes_free)) is due


def test_the_levels_are_compared_however_long_the_filesystem_was_idle() -> None:
    """A hundred polls with the same numbers, then one byte less than the level."""
    notifier, now = ThresholdNotifier(LEVELS, no_notification), 0.0
    for _ in range(100):
        assert not notifier.update(Poll(now, GIB, MANY_INODES))
        now = notifier.due_at
    assert notifier.update(Poll(now, GIB - 1, MANY_INODES))


@pytest.mark.parametrize("available_bytes", [GIB, GIB + 30 * MIB, 3 * GIB])
def test_an_idle_filesystem_is_polled_as_seldom_as_the_interval_allows(
    available_bytes: int,
) -> None:
    """Two polls show that it is idle; all later ones are one idle interval apart,
    50 ms close to the level.
    """
    times, due = polls(LEVELS, constant(available_bytes), 0.0, 100.0)
    assert not due
    idle = LEVELS.poll_interval((available_bytes, MANY_INODES), idle=True)
    gaps = [later - earlier for earlier, later in pairwise(times[1:])]
    assert gaps == pytest.approx([idle] * len(gaps))
    assert len(gaps) > 10


@pytest.mark.parametrize(
    "amounts",
    [falling(1.0, 200.0 * MIB), falling(1.0, 0.0, 2000.0)],
    ids=["200 MiB/s", "2000 inodes/s"],
)
def test_a_fill_that_begins_makes_an_observation_due_before_a_level_is_crossed(
    amounts: Amounts,
) -> None:
    """The filesystem is idle for 1 s and fills from then on: the next poll or the one after it
    finds the fill, so its rate is known when the level comes."""
    levels = WatchedLevels((GIB, 1000), (500.0 * MIB, 20_000.0), FLOOR, FLOOR)
    times, due = polls(levels, amounts, 0.0, 2.0)
    assert due
    assert 1.0 < times[-1] <= 1.0 + 2 * FLOOR
    assert not levels.crossed(amounts(times[-1]))


def test_a_fill_that_goes_on_makes_no_observation_due_until_a_level_is_crossed() -> None:
    """It was there at the first poll: 2 GiB at 200 MiB/s are at the level of 1 GiB after 5.12 s."""
    times, due = polls(LEVELS, falling(0.0, 200.0 * MIB), 0.0, 100.0)
    assert due
    assert 5.12 < times[-1] <= 5.12 + FLOOR


def test_a_fill_faster_than_assumed_shortens_the_interval_for_a_minute_after_its_end() -> None:
    """1 000 MiB/s are found where 500 are assumed: half a minute later the filesystem is still
    polled more often, and after three minutes as seldom as before."""
    notifier = ThresholdNotifier(LEVELS, no_notification)
    notifier.update(Poll(0.0, 4 * GIB, MANY_INODES))
    notifier.update(Poll(1.024, 3 * GIB, MANY_INODES))
    for now in (2.0, 30.0):
        assert not notifier.update(Poll(now, 3 * GIB, MANY_INODES))
        assert notifier.due_at - now < LEVELS.poll_interval((3 * GIB, MANY_INODES), idle=True) * 0.8
    assert not notifier.update(Poll(180.0, 3 * GIB, MANY_INODES))
    assert notifier.due_at - 180.0 == pytest.approx(
        LEVELS.poll_interval((3 * GIB, MANY_INODES), idle=True)
    )


def test_writes_in_bursts_cause_at_most_four_observations_a_second() -> None:
    """A write of 1 MiB at every second poll and idleness in between; each notification
    sets the same levels again.
    """
    levels = WatchedLevels((0, None), (1.0 * MIB, 1e12), 0.002, 0.002)
    poll, now, due_at = 0, 0.0, list[float]()
    notifier = ThresholdNotifier(levels, no_notification)
    while now < 5.0:
        poll += 1
        if notifier.update(Poll(now, 4096 * MIB - poll // 2 * MIB, MANY_INODES)):
            due_at.append(now)
            notifier = ThresholdNotifier(levels, no_notification)
        now = max(now, notifier.due_at)
    assert len(due_at) > 10
    assert all(later - earlier >= 0.25 for earlier, later in pairwise(due_at))


def test_two_polls_at_one_moment_say_nothing_about_a_rate() -> None:
    """Less than 1 ms apart; nothing is divided by 0, and no fill begins."""
    notifier = ThresholdNotifier(LEVELS, no_notification)
    assert not notifier.update(Poll(1.0, 4 * GIB, MANY_INODES))
    assert not notifier.update(Poll(2.0, 4 * GIB, MANY_INODES))
    assert not notifier.update(Poll(2.0, 3 * GIB, MANY_INODES))
    assert notifier.due_at > 2.0
