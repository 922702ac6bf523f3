"""The arithmetic of thresholds: which are met, since when, and which comes first.

Source: kubelet, `pkg/kubelet/eviction/helpers.go`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.thresholds import (
    by_priority,
    deficit,
    highest_mark,
    raise_pressure,
    thresholds_met,
    thresholds_met_grace_period,
    thresholds_updated_stats,
    usable,
)
from eviction.types import NodeCondition, Threshold
from signals.types import KUBELET_SIGNALS, FilesystemRole, Signal, SignalObservation
from tests.pure.values import (
    GIB,
    MIB,
    observation,
    observations_of,
    seen_filesystems,
    stats,
    threshold,
    value,
)

NODEFS, NODEFS_INODES = Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE
IMAGEFS, IMAGEFS_INODES = Signal.IMAGEFS_AVAILABLE, Signal.IMAGEFS_INODES_FREE
PRESSURE = NodeCondition.RECLAIM_PRESSURE


@pytest.mark.parametrize(
    ("mark", "capacity", "available", "met"),
    [
        ("1Gi", 100 * GIB, GIB - 1, True),
        ("1Gi", 100 * GIB, GIB, False),
        ("1Gi", 100 * GIB, GIB + 1, False),
        ("1Gi", 100 * GIB, -5, True),
        ("100m", 1000, 0, True),
        ("100m", 1000, 1, False),
        ("10%", 100 * GIB, 10737418399, True),
        ("10%", 100 * GIB, 10737418240, True),  # exactly one tenth
        ("10%", 100 * GIB, 10737418400, False),
        ("70%", 100, 69, False),
        ("70%", 100, 68, True),
        ("100%", 100, 99, True),
        ("100%", 100, 100, False),
        ("0%", 100, 0, False),
        ("10%", 0, 0, False),
        ("1", 0, 0, True),
    ],
)
def test_met_means_that_the_mark_is_above_what_is_available(
    mark: str, capacity: int, available: int, met: bool
) -> None:
    """Equal is not met; a percentage is of the present capacity; a tenth of a
    byte is more than nothing.
    """
    one = threshold(NODEFS, mark)
    seen = {NODEFS: observation(NODEFS, available, capacity)}
    assert thresholds_met([one], seen, enforce_min_reclaim=False) == ((one,) if met else ())


def test_what_is_coming_meets_hard_thresholds_only() -> None:
    """Less is available than what is coming needs; a soft threshold is met by what has come."""
    hard, soft = threshold(NODEFS, "1Gi"), threshold(NODEFS, "1Gi", grace_seconds=60.0)
    seen = {NODEFS: replace(observation(NODEFS, 2 * GIB, 100 * GIB), needed=3 * GIB)}
    met = partial(thresholds_met, [hard, soft], seen, enforce_min_reclaim=False)
    assert (met(ahead=False), met()) == ((), (hard,))


@pytest.mark.parametrize(
    ("mark", "min_reclaim", "available", "met"),
    [
        ("1Gi", "500Mi", GIB + 500 * MIB - 1, True),
        ("1Gi", "500Mi", GIB + 500 * MIB, False),
        ("10%", "1Gi", 10737418400 + GIB - 1, True),
        ("1Gi", "10%", GIB + 10737418400, False),
        ("1Gi", "", GIB, False),
        ("0%", "1Gi", GIB - 1, True),
        ("1Gi", "500%", GIB, False),  # it is left out: no filesystem has as much
    ],
)
def test_minimum_reclaim_is_on_top_of_the_mark_only_where_it_is_enforced(
    mark: str, min_reclaim: str, available: int, met: bool
) -> None:
    """Of a filesystem of 100Gi; a minimum reclaim of one kind may go with a mark of the other."""
    one = threshold(NODEFS, mark, min_reclaim=min_reclaim)
    seen = {NODEFS: observation(NODEFS, available)}
    assert thresholds_met([one], seen, enforce_min_reclaim=True) == ((one,) if met else ())
    assert thresholds_met([one], seen, enforce_min_reclaim=False) == ()


def test_a_fraction_of_a_byte_is_rounded_up_once() -> None:
    """1.5 bytes are met by 1 and not by 2; with a minimum reclaim of 1.5 bytes
    the mark is 3, and not 4.
    """
    one = threshold(NODEFS, "1500m", min_reclaim="1500m")
    assert (one.mark(100), one.mark_with_min_reclaim(100)) == (2, 3)
    met = [
        thresholds_met([one], {NODEFS: observation(NODEFS, n)}, enforce_min_reclaim=False)
        for n in (1, 2)
    ]
    assert met == [(one,), ()]


def test_the_shares_of_mark_and_minimum_reclaim_are_truncated_separately() -> None:
    """Of 10 inodes: 33% are 3 and 38% are 3, together 6 and not 7."""
    one = threshold(NODEFS_INODES, "33%", min_reclaim="38%")
    assert [
        bool(
            thresholds_met(
                [one],
                {NODEFS_INODES: observation(NODEFS_INODES, free, 10)},
                enforce_min_reclaim=True,
            )
        )
        for free in (5, 6)
    ] == [True, False]


def test_a_signal_without_a_reading_and_a_stale_one_are_skipped() -> None:
    """Neither is met: 0 bytes in a stale reading are no pressure."""
    both = [threshold(NODEFS, "1Gi"), threshold(IMAGEFS, "1Gi")]
    seen = {IMAGEFS: observation(IMAGEFS, 0, stale=True)}
    assert thresholds_met(both, seen, enforce_min_reclaim=True) == ()
    assert usable(seen) == {}


thresholds = st.builds(
    threshold,
    st.sampled_from(KUBELET_SIGNALS),
    st.sampled_from(["1Gi", "1", "100m", "10%", "0%", "100%"]),
    grace_seconds=st.sampled_from([0.0, 60.0]),
    min_reclaim=st.sampled_from(["", "1Gi", "2%"]),
)
amounts = st.integers(0, 200 * GIB)


@given(
    st.lists(thresholds),
    st.dictionaries(st.sampled_from(KUBELET_SIGNALS), st.tuples(amounts, amounts)),
)
def test_what_is_met_is_met_with_minimum_reclaim_too(
    configured: list[Threshold], readings: dict[Signal, tuple[int, int]]
) -> None:
    """Minimum reclaim only adds, and the order given is kept."""

    seen = {signal: observation(signal, *numbers) for signal, numbers in readings.items()}
    met = thresholds_met(configured, seen, enforce_min_reclaim=False)
    held = thresholds_met(configured, seen, enforce_min_reclaim=True)
    assert [one for one in configured if one in met] == list(met)
    assert set(met) <= set(held)


@pytest.mark.parametrize(
    ("grace_seconds", "held_seconds", "served"),
    [(0.0, 0.0, True), (120.0, 119.9, False), (120.0, 120.0, True), (120.0, 500.0, True)],
)
def test_a_grace_period_ends_inclusively(
    grace_seconds: float, held_seconds: float, served: bool
) -> None:
    """A hard threshold at once; a soft one of 2 minutes at exactly 120 s."""
    one = threshold(NODEFS, "1Gi", grace_seconds=grace_seconds)
    assert thresholds_met_grace_period({one: 100.0}, 100.0 + held_seconds) == (
        (one,) if served else ()
    )


def test_every_disk_signal_raises_our_condition() -> None:
    """All six do, and nothing does not."""
    assert all(raise_pressure([threshold(signal, "1")]) for signal in KUBELET_SIGNALS)
    assert not raise_pressure([])


@pytest.mark.parametrize(
    ("before", "now", "is_new"),
    [(10.0, 20.0, True), (10.0, 10.0, False), (10.0, 9.0, False)],
)
def test_only_a_newer_reading_is_acted_on(before: float, now: float, is_new: bool) -> None:
    """The same or an earlier time is the same reading."""
    one = threshold(NODEFS, "1Gi")
    seen = {NODEFS: observation(NODEFS, 0, time=now)}
    previous = {NODEFS: observation(NODEFS, 0, time=before)}
    assert thresholds_updated_stats([one], seen, previous) == ((one,) if is_new else ())


def test_a_signal_that_returns_counts_as_new() -> None:
    """No reading before makes this one new; no reading now makes none."""
    one = threshold(NODEFS, "1Gi")
    assert thresholds_updated_stats([one], {NODEFS: observation(NODEFS, 0)}, {}) == (one,)
    assert thresholds_updated_stats([one], {}, {NODEFS: observation(NODEFS, 0)}) == ()


def test_the_largest_deficit_relative_to_its_mark_comes_first() -> None:
    """Half of 10 000 inodes missing is more than a tenth of 100Gi missing."""
    space, inodes = threshold(NODEFS, "100Gi"), threshold(IMAGEFS_INODES, "10k")
    seen = {
        NODEFS: observation(NODEFS, 90 * GIB),
        IMAGEFS_INODES: observation(IMAGEFS_INODES, 5000, 10**6),
    }
    assert by_priority([space, inodes], seen) == (inodes, space)
    assert deficit(space, seen) * 10 == deficit(inodes, seen) * 2 == 1


def test_equal_deficits_go_in_the_order_of_the_signals_then_hard_before_soft() -> None:
    """The choice is the same whatever the order of the configuration."""
    hard, soft = threshold(NODEFS, "2Gi"), threshold(NODEFS, "2Gi", grace_seconds=60.0)
    images = threshold(IMAGEFS, "2Gi")
    seen = {NODEFS: observation(NODEFS, GIB), IMAGEFS: observation(IMAGEFS, GIB)}
    for order in ([images, soft, hard], [soft, hard, images], [hard, images, soft]):
        assert by_priority(order, seen) == (hard, soft, images)


def test_the_deficit_of_a_mark_of_0_and_of_no_reading_is_0() -> None:
    """Nothing is divided by zero."""
    assert deficit(threshold(NODEFS, "0%"), {NODEFS: observation(NODEFS, 5)}) == 0
    assert deficit(threshold(NODEFS, "1Gi"), {}) == 0


@pytest.mark.parametrize(
    ("written", "printed"),
    [("10%", "10%"), ("1Gi", "1Gi"), ("1024Mi", "1Gi"), ("1000", "1000"), ("100m", "0.1")],
)
def test_a_threshold_value_is_printed_for_people(written: str, printed: str) -> None:
    """A percentage as it was written, a quantity in its largest binary unit."""
    assert str(value(written)) == printed


def test_what_has_to_stay_available_is_the_highest_mark_of_a_disk() -> None:
    """In bytes, minimum reclaim included: not the mark of inodes, of another
    disk, or of what was not read.
    """
    disks = seen_filesystems(
        {FilesystemRole.NODEFS: (1, stats()), FilesystemRole.IMAGEFS: (2, stats())}
    )
    seen = [
        SignalObservation(signal, 50 * GIB, 100 * GIB, 0.0, filesystem=disks[signal.filesystem][0])
        for signal in (NODEFS, NODEFS_INODES, IMAGEFS)
    ]
    observations = replace(observations_of(*seen), filesystems=disks)
    marks = [
        threshold(NODEFS, "10Gi", min_reclaim="1Gi"),
        threshold(NODEFS, "5Gi", grace_seconds=60.0),
        threshold(NODEFS_INODES, "90%"),
        threshold(IMAGEFS, "50%"),
        threshold(Signal.CONTAINERFS_AVAILABLE, "70%"),
    ]
    assert highest_mark(marks, observations, FilesystemRole.NODEFS) == 11 * GIB
    assert highest_mark(marks, observations, FilesystemRole.IMAGEFS) == 50 * GIB
    assert highest_mark(marks, observations, FilesystemRole.CONTAINERFS) == 0
    assert highest_mark([], observations, FilesystemRole.NODEFS) == 0
