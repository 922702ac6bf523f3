"""How far above the thresholds, how fast towards them, and when to observe again: over all thresholds at once."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.headroom import (
    PollPolicy,
    faster,
    jump_below,
    levels_to_watch,
    met_soon_in_a_hurry,
    most_urgent_need,
    near_their_marks,
    observation_interval,
    update_fill_rates,
    would_hurry,
)
from eviction.types import Threshold, ThresholdValue
from reclaim.disk_need import Need
from signals.interval import FillRate
from signals.types import (
    FilesystemIdentity,
    FilesystemRole,
    FsLayout,
    Poll,
    Signal,
    SignalObservation,
    SignalObservations,
)
from tests.pure.values import GIB, MIB, filling, stats

POLICY = PollPolicy(0.01, 10.0, 500.0 * MIB)
NODEFS, IMAGEFS = FilesystemIdentity("/kubelet", 1), FilesystemIdentity("/images", 2)


def observed(time: float = 0.0, **available: int) -> SignalObservations:
    """An observation of two filesystems; keywords are signals with `_` for the dot."""
    signals = {}
    for name, amount in available.items():
        signal = Signal(name.replace("_", "."))
        where = NODEFS if signal.filesystem is FilesystemRole.NODEFS else IMAGEFS
        signals[signal] = SignalObservation(signal, amount, 2**40, time, filesystem=where)
    seen = {
        FilesystemRole.NODEFS: (NODEFS, stats(available_bytes=available.get("nodefs_available", GIB), time=time)),
        FilesystemRole.IMAGEFS: (IMAGEFS, stats(available_bytes=available.get("imagefs_available", GIB), time=time)),
    }
    return SignalObservations(signals, FsLayout.DEDICATED_IMAGEFS, time, filesystems=seen)


def below(signal: Signal, amount: int, grace_seconds: float = 0.0) -> Threshold:
    """A threshold in bytes or inodes."""
    return Threshold(signal, ThresholdValue(quantity=Fraction(amount)), grace_seconds)


def test_the_nearest_threshold_of_all_filesystems_decides() -> None:
    """1000 MiB above it at 500 MiB/s are 2 s: observe after 1 s; the other filesystem would have had time."""
    thresholds = [below(Signal.NODEFS_AVAILABLE, GIB), below(Signal.IMAGEFS_AVAILABLE, GIB)]
    seen = observed(nodefs_available=100 * GIB, imagefs_available=GIB + 1000 * MIB)
    assert observation_interval(thresholds, seen, {}, POLICY) == 1.0


def test_inodes_count_beside_bytes() -> None:
    """4 000 inodes above their threshold at 20 000 a second: observe after 100 ms."""
    thresholds = [below(Signal.NODEFS_AVAILABLE, GIB), below(Signal.NODEFS_INODES_FREE, 1000)]
    seen = observed(nodefs_available=100 * GIB, nodefs_inodesFree=5000)
    assert observation_interval(thresholds, seen, {}, POLICY) == 0.1


def test_a_fill_of_another_filesystem_does_not_count() -> None:
    """imagefs fills at 5 GiB/s: that shortens the interval of imagefs, and not the one of nodefs."""
    seen = observed(nodefs_available=6 * GIB, imagefs_available=6 * GIB)
    fill_rates = {(IMAGEFS.device_id, False): FillRate(0, 0.0, 5.0 * GIB)}
    assert observation_interval([below(Signal.NODEFS_AVAILABLE, GIB)], seen, fill_rates, POLICY) == 5.12
    assert observation_interval([below(Signal.IMAGEFS_AVAILABLE, GIB)], seen, fill_rates, POLICY) == 0.5


def test_a_threshold_that_is_met_does_not_shorten_the_interval() -> None:
    """A soft threshold in its grace period is met; what counts is the hard one below it."""
    soft, hard = below(Signal.NODEFS_AVAILABLE, 6 * GIB, 60.0), below(Signal.NODEFS_AVAILABLE, GIB)
    seen = observed(nodefs_available=6 * GIB - 1)
    assert observation_interval([soft, hard], seen, {}, POLICY) > 5.0
    assert levels_to_watch([soft, hard], seen, {}, POLICY)["/kubelet"].available_bytes == GIB


def test_the_polls_compare_with_the_next_threshold_below_on_each_filesystem() -> None:
    """Of several thresholds the highest that is not crossed; a filesystem without one is not polled."""
    thresholds = [
        below(Signal.NODEFS_AVAILABLE, GIB),
        below(Signal.NODEFS_AVAILABLE, 2 * GIB, 60.0),
        below(Signal.NODEFS_INODES_FREE, 700),
        below(Signal.IMAGEFS_AVAILABLE, 9 * GIB),
    ]
    seen = observed(nodefs_available=3 * GIB, nodefs_inodesFree=700, imagefs_available=GIB)
    found = levels_to_watch(thresholds, seen, {}, POLICY)
    assert set(found) == {"/kubelet"}
    assert (found["/kubelet"].available_bytes, found["/kubelet"].inodes_free) == (2 * GIB, 700)
    assert (found["/kubelet"].bytes_per_second, found["/kubelet"].inodes_per_second) == (500.0 * MIB, 20_000.0)


def test_two_roles_on_one_device_are_polled_as_one_filesystem() -> None:
    """The same filesystem at two paths is one; the higher threshold counts."""
    here = SignalObservation(Signal.IMAGEFS_AVAILABLE, 5 * GIB, 2**40, 0.0, filesystem=FilesystemIdentity("/other", 1))
    seen = observed(nodefs_available=5 * GIB)
    seen = SignalObservations({**seen.signals, Signal.IMAGEFS_AVAILABLE: here}, FsLayout.SINGLE, 0.0)
    thresholds = [below(Signal.NODEFS_AVAILABLE, GIB), below(Signal.IMAGEFS_AVAILABLE, 2 * GIB)]
    found = levels_to_watch(thresholds, seen, {}, POLICY)
    assert [(path, levels.available_bytes) for path, levels in found.items()] == [("/kubelet", 2 * GIB)]


def test_fill_rates_are_kept_by_device_and_forgotten_with_it() -> None:
    """512 MiB in 1 s on nodefs count there; a device that is gone leaves nothing behind."""
    first = update_fill_rates({(9, False): FillRate(0, 0.0, 1e9)}, observed(0.0, nodefs_available=GIB))
    assert set(first) == {(1, False), (1, True), (2, False), (2, True)}
    second = update_fill_rates(first, observed(1.0, nodefs_available=512 * MIB))
    assert second[1, False].fastest == 512.0 * MIB
    assert second[2, False].fastest == 0.0


def test_the_need_is_that_of_the_filesystem_that_is_full_first() -> None:
    """nodefs has 50 MiB left at 100 MiB/s, imagefs 200 MiB at 10: the need is of nodefs, with its minimum reclaim."""
    nodefs = Threshold(
        Signal.NODEFS_AVAILABLE,
        ThresholdValue(quantity=Fraction(60 * MIB)),
        min_reclaim=ThresholdValue(quantity=Fraction(5 * MIB)),
    )
    imagefs, inodes = below(Signal.IMAGEFS_AVAILABLE, GIB), below(Signal.NODEFS_INODES_FREE, 1000)
    now = observed(1.0, nodefs_available=50 * MIB, imagefs_available=200 * MIB, nodefs_inodesFree=900)
    first = update_fill_rates({}, observed(-1.0, nodefs_available=250 * MIB, imagefs_available=220 * MIB))
    once = update_fill_rates(first, observed(0.0, nodefs_available=150 * MIB, imagefs_available=210 * MIB))
    fill_rates = update_fill_rates(once, now)
    assert most_urgent_need([imagefs, nodefs, inodes], now, fill_rates) == Need(15 * MIB, 50 * MIB, 100.0 * MIB)
    assert most_urgent_need([inodes], now, fill_rates) == Need(100, 900, 0.0, inodes=True)
    assert most_urgent_need([imagefs], now, {}) == Need(GIB - 200 * MIB, 200 * MIB, 0.0)
    assert most_urgent_need([], now, fill_rates) is None
    assert most_urgent_need([imagefs], observed(), fill_rates) is None


@pytest.mark.regression
def test_a_jump_across_the_mark_is_no_hurry_and_its_removals_go_one_at_a_time() -> None:
    """10 GiB went at once, and 5 GiB are left: as a rate that would be full within a second."""
    mark = below(Signal.NODEFS_AVAILABLE, 8 * GIB)
    rates = update_fill_rates(
        update_fill_rates({}, observed(0.0, nodefs_available=15 * GIB)), observed(1.0, nodefs_available=15 * GIB)
    )
    polls = {FilesystemRole.NODEFS: (Poll(1.49, 15 * GIB, 500), Poll(1.5, 5 * GIB, 500))}
    now = replace(observed(1.51, nodefs_available=5 * GIB), polls=polls)
    rates = update_fill_rates(rates, now)
    jump = jump_below(mark, now, rates)
    assert jump is not None
    assert jump.fall == 10 * GIB
    assert would_hurry(mark, now, rates)
    need = most_urgent_need([mark], now, rates)
    assert need == Need(3 * GIB, 5 * GIB, 0.0, after_jump=True)
    assert [need.max_in_flight(parallel) for parallel in (1, 2, 8)] == [1, 1, 1]
    fills = {key: filling(rate, GIB) for key, rate in rates.items()}
    assert jump_below(mark, now, fills) is None
    assert not would_hurry(mark, now, fills), "it is in a hurry without the jump"
    assert jump_below(below(Signal.NODEFS_INODES_FREE, 8 * GIB), now, rates) is None
    assert jump_below(mark, now, {}) is None


def test_the_faster_of_two_fills_of_one_amount_counts() -> None:
    """As before the first removal, or as it is now; a filesystem that is gone is left out."""
    rest = update_fill_rates({}, observed(0.0))
    fills = {key: filling(rate, 100.0 * MIB) for key, rate in rest.items()}
    assert faster(fills, rest) == faster(rest, fills) == fills
    assert faster({**fills, (9, False): FillRate(0, 0.0)}, rest) == fills
    assert faster({}, rest) == rest


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=5), st.integers(0, 2**40), st.floats(0, 1e12))
def test_the_interval_is_always_within_bounds_and_no_poll_is_later(
    amounts: list[int], available: int, fastest: float
) -> None:
    """Whatever the thresholds and the fill; the second poll is due no later than the observation would have been."""
    thresholds = [below(Signal.NODEFS_AVAILABLE, amount) for amount in amounts]
    seen = observed(nodefs_available=available)
    fill_rates = {(1, False): FillRate(available, 0.0, fastest)}
    seconds = observation_interval(thresholds, seen, fill_rates, POLICY)
    assert 0.01 <= seconds <= 10.0
    for levels in levels_to_watch(thresholds, seen, fill_rates, POLICY).values():
        poll = levels.poll_interval(available, 500)
        assert 0.01 <= poll <= seconds


@given(
    st.integers(0, 2**36),
    st.integers(-(2**36), 2**36),
    st.floats(0.0, 100.0),
    st.floats(0.001, 1.0),
    st.floats(1.0, 3600.0),
    st.floats(float(MIB), 5000.0 * MIB),
    st.floats(0, 5000.0 * MIB),
    st.booleans(),
)
def test_no_fill_that_is_taken_to_be_possible_reaches_a_mark_before_the_next_reading(
    ours: int, above: int, seconds: float, floor: float, ceiling: float, assumed: float, seen_fill: float, idle: bool
) -> None:
    """It begins right after a reading, at the assumed rate or the fastest seen, so many seconds above our mark,
    whatever `pollCeiling` is and wherever the kubelet's mark is: from a reading above a mark by more than it writes in
    three floors, the next observation is above that mark too, and so is the next poll."""
    policy, fastest = PollPolicy(floor, ceiling, assumed), max(assumed, seen_fill)
    kubelets, available = max(ours - above, 0), ours + int(seconds * fastest)
    marks = [below(Signal.NODEFS_AVAILABLE, mark) for mark in (ours, kubelets)]
    seen, fill_rates = observed(nodefs_available=available), {(1, False): FillRate(available, 0.0, seen_fill)}
    waits = [observation_interval(marks, seen, fill_rates, policy)]
    for levels in levels_to_watch(marks, seen, fill_rates, policy).values():
        waits.append(levels.poll_interval(available, 10**9, idle=idle))
    for mark in (ours, kubelets):
        if available - mark > 3 * floor * fastest * 1.001:
            assert all(available - wait * fastest > mark for wait in waits)


@pytest.mark.parametrize(
    ("headroom", "near", "still_near"),
    [
        (-1, False, False),
        (0, True, True),
        (5000 * MIB - 1, True, True),
        (5000 * MIB, False, True),
        (10_000 * MIB - 1, False, True),
        (10_000 * MIB, False, False),
    ],
)
def test_a_filesystem_is_near_its_mark_within_the_ceiling_and_no_longer_beyond_twice_that(
    headroom: int, near: bool, still_near: bool
) -> None:
    """At 500 MiB/s and 10 s: from 5 000 MiB above the mark down to it, and then up to 10 000."""
    marks, seen = [below(Signal.NODEFS_AVAILABLE, GIB)], observed(nodefs_available=GIB + headroom)
    assert near_their_marks(marks, seen, {}, POLICY) == ({1} if near else set())
    assert near_their_marks(marks, seen, {}, POLICY, {1}) == ({1} if still_near else set())


def test_a_faster_fill_than_assumed_brings_the_mark_nearer() -> None:
    """At 1 000 MiB/s, seen lately, 9 GiB are near; another filesystem with as much is not."""
    marks = [below(signal, GIB) for signal in (Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE)]
    seen = observed(nodefs_available=10 * GIB, imagefs_available=10 * GIB)
    assert near_their_marks(marks, seen, {(1, False): FillRate(0, 0.0, 1000.0 * MIB)}, POLICY) == {1}


def approaching(rate: float, *, steady: float | None = None) -> dict[tuple[int, bool], FillRate]:
    """Both disks fall by so many bytes a second recently, and steadily unless that is said."""
    recent = FillRate(0, 0.0, recent_fall=rate, watched_seconds=1.0, steady_rate=rate if steady is None else steady)
    return {(1, False): recent, (2, False): recent, (1, True): recent}


@pytest.mark.parametrize(
    ("fill_rates", "expected"),
    [
        (approaching(100 * MIB), True),
        (approaching(100 * MIB, steady=0), True),
        (approaching(0, steady=100 * MIB), True),
        (approaching(30 * MIB), False),
        (approaching(0), False),
        ({}, False),
    ],
    ids=["fills fast", "only recently", "steadily, not just now", "more than a second away", "stands still", "unknown"],
)
def test_a_mark_that_is_near_on_a_disk_that_fills_fast_is_met_soon(
    fill_rates: dict[tuple[int, bool], FillRate], expected: bool
) -> None:
    """50 MiB above the mark, within a second."""
    threshold = below(Signal.NODEFS_AVAILABLE, GIB)
    now = observed(nodefs_available=GIB + 50 * MIB)
    soon = met_soon_in_a_hurry([threshold], now, fill_rates, 1.0)
    assert soon == ((threshold,) if expected else ())


@pytest.mark.parametrize(
    ("threshold", "available"),
    [
        (below(Signal.NODEFS_AVAILABLE, GIB), GIB - 1),
        (below(Signal.NODEFS_AVAILABLE, 100 * GIB), 100 * GIB + MIB),
        (below(Signal.IMAGEFS_AVAILABLE, GIB), 0),
    ],
    ids=["is met already", "lasts for more than a minute", "was not read"],
)
def test_what_is_met_lasts_or_is_not_known_is_not_met_soon(threshold: Threshold, available: int) -> None:
    """At 100 MiB/s, within a second."""
    now = observed(nodefs_available=available)
    assert met_soon_in_a_hurry([threshold], now, approaching(100 * MIB), 1.0) == ()


def test_inodes_are_never_in_a_hurry_ahead_either() -> None:
    """How many an image frees is not known."""
    threshold = below(Signal.NODEFS_INODES_FREE, 1000)
    now = observed(nodefs_inodesFree=1001)
    assert met_soon_in_a_hurry([threshold], now, approaching(1000.0), 1.0) == ()
