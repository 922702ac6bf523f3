"""How far above the thresholds, how fast towards them, and when to observe again:
over all thresholds at once.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.headroom import (
    PollPolicy,
    coming_bytes,
    faster,
    levels_to_watch,
    near_their_marks,
    observation_interval,
    update_fill_rates,
    urgency,
    with_needed,
)
from eviction.types import Threshold, ThresholdValue
from reclaim.types import NEVER
from signals.interval import FillRate
from signals.types import (
    FilesystemIdentity,
    FilesystemRole,
    FsLayout,
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
        FilesystemRole.NODEFS: (
            NODEFS,
            stats(available_bytes=available.get("nodefs_available", GIB), time=time),
        ),
        FilesystemRole.IMAGEFS: (
            IMAGEFS,
            stats(available_bytes=available.get("imagefs_available", GIB), time=time),
        ),
    }
    return SignalObservations(signals, FsLayout.DEDICATED_IMAGEFS, time, filesystems=seen)


def below(signal: Signal, amount: int, grace_seconds: float = 0.0) -> Threshold:
    """A threshold in bytes or inodes."""
    return Threshold(signal, ThresholdValue(quantity=Fraction(amount)), grace_seconds)


def test_the_nearest_threshold_of_all_filesystems_decides() -> None:
    """1000 MiB above it at 500 MiB/s are 2 s: observe after 1 s; the other
    filesystem would have had time.
    """
    thresholds = [below(Signal.NODEFS_AVAILABLE, GIB), below(Signal.IMAGEFS_AVAILABLE, GIB)]
    seen = observed(nodefs_available=100 * GIB, imagefs_available=GIB + 1000 * MIB)
    assert observation_interval(thresholds, seen, {}, policy=POLICY) == 1.0


def test_inodes_count_beside_bytes() -> None:
    """4 000 inodes above their threshold at 20 000 a second: observe after 100 ms."""
    thresholds = [below(Signal.NODEFS_AVAILABLE, GIB), below(Signal.NODEFS_INODES_FREE, 1000)]
    seen = observed(nodefs_available=100 * GIB, nodefs_inodesFree=5000)
    assert observation_interval(thresholds, seen, {}, policy=POLICY) == 0.1


def test_a_fill_of_another_filesystem_does_not_count() -> None:
    """imagefs fills at 5 GiB/s: that shortens the interval of imagefs, and not
    the one of nodefs.
    """
    seen = observed(nodefs_available=6 * GIB, imagefs_available=6 * GIB)
    fill_rates = {(IMAGEFS.device_id, False): FillRate(0, 0.0, 5.0 * GIB)}
    assert (
        observation_interval([below(Signal.NODEFS_AVAILABLE, GIB)], seen, fill_rates, policy=POLICY)
        == 5.12
    )
    assert (
        observation_interval(
            [below(Signal.IMAGEFS_AVAILABLE, GIB)], seen, fill_rates, policy=POLICY
        )
        == 0.5
    )


def test_a_threshold_that_is_met_does_not_shorten_the_interval() -> None:
    """A soft threshold in its grace period is met; what counts is the hard one below it."""
    soft, hard = below(Signal.NODEFS_AVAILABLE, 6 * GIB, 60.0), below(Signal.NODEFS_AVAILABLE, GIB)
    seen = observed(nodefs_available=6 * GIB - 1)
    assert observation_interval([soft, hard], seen, {}, policy=POLICY) > 5.0
    assert levels_to_watch([soft, hard], seen, {}, policy=POLICY)["/kubelet"].levels[0] == GIB


def test_the_polls_compare_with_the_next_threshold_below_on_each_filesystem() -> None:
    """Of several thresholds the highest that is not crossed; a filesystem
    without one is not polled.
    """
    thresholds = [
        below(Signal.NODEFS_AVAILABLE, GIB),
        below(Signal.NODEFS_AVAILABLE, 2 * GIB, 60.0),
        below(Signal.NODEFS_INODES_FREE, 700),
        below(Signal.IMAGEFS_AVAILABLE, 9 * GIB),
    ]
    seen = observed(nodefs_available=3 * GIB, nodefs_inodesFree=700, imagefs_available=GIB)
    found = levels_to_watch(thresholds, seen, {}, policy=POLICY)
    assert set(found) == {"/kubelet"}
    assert found["/kubelet"].levels == (2 * GIB, 700)
    assert found["/kubelet"].rates == (500.0 * MIB, 20_000.0)


def test_two_roles_on_one_device_are_polled_as_one_filesystem() -> None:
    """The same filesystem at two paths is one; the higher threshold counts."""
    here = SignalObservation(
        Signal.IMAGEFS_AVAILABLE, 5 * GIB, 2**40, 0.0, filesystem=FilesystemIdentity("/other", 1)
    )
    seen = observed(nodefs_available=5 * GIB)
    seen = SignalObservations(
        {**seen.signals, Signal.IMAGEFS_AVAILABLE: here}, FsLayout.SINGLE, 0.0
    )
    thresholds = [below(Signal.NODEFS_AVAILABLE, GIB), below(Signal.IMAGEFS_AVAILABLE, 2 * GIB)]
    found = levels_to_watch(thresholds, seen, {}, policy=POLICY)
    assert [(path, levels.levels[0]) for path, levels in found.items()] == [("/kubelet", 2 * GIB)]


def test_fill_rates_are_kept_by_device_and_forgotten_with_it() -> None:
    """512 MiB in 1 s on nodefs count there; a device that is gone leaves nothing behind."""
    first = update_fill_rates(
        {(9, False): FillRate(0, 0.0, 1e9)}, observed(0.0, nodefs_available=GIB)
    )
    assert set(first) == {(1, False), (1, True), (2, False), (2, True)}
    second = update_fill_rates(first, observed(1.0, nodefs_available=512 * MIB))
    assert second[1, False].fastest == 512.0 * MIB
    assert second[2, False].fastest == 0.0


def test_the_faster_of_two_fills_of_one_amount_counts() -> None:
    """As before the first removal, or as it is now; a filesystem that is gone is left out."""
    rest = update_fill_rates({}, observed(0.0))
    fills = {key: filling(rate, 100.0 * MIB) for key, rate in rest.items()}
    assert faster(fills, rest) == faster(rest, fills) == fills
    assert faster({**fills, (9, False): FillRate(0, 0.0)}, rest) == fills
    assert faster({}, rest) == rest


@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=5),
    st.integers(0, 2**40),
    st.floats(0, 1e12),
)
def test_the_interval_is_always_within_bounds_and_no_poll_is_later(
    amounts: list[int], available: int, fastest: float
) -> None:
    """Whatever the thresholds and the fill; the second poll is due no later than the
    observation would have been.
    """
    thresholds = [below(Signal.NODEFS_AVAILABLE, amount) for amount in amounts]
    seen = observed(nodefs_available=available)
    fill_rates = {(1, False): FillRate(available, 0.0, fastest)}
    seconds = observation_interval(thresholds, seen, fill_rates, policy=POLICY)
    assert 0.01 <= seconds <= 10.0
    for levels in levels_to_watch(thresholds, seen, fill_rates, policy=POLICY).values():
        poll = levels.poll_interval((available, 500))
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
    ours: int,
    above: int,
    seconds: float,
    floor: float,
    ceiling: float,
    assumed: float,
    seen_fill: float,
    idle: bool,
) -> None:
    """It begins right after a reading, at the assumed rate or the fastest seen, so many seconds
    above our mark, whatever `pollCeiling` is and wherever the kubelet's mark is: from a reading
    above a mark by more than it writes in five floors, the next observation is above that mark too,
    and so is the next poll."""
    policy, fastest = PollPolicy(floor, ceiling, assumed), max(assumed, seen_fill)
    kubelets, available = max(ours - above, 0), ours + int(seconds * fastest)
    marks = [below(Signal.NODEFS_AVAILABLE, mark) for mark in (ours, kubelets)]
    seen, fill_rates = (
        observed(nodefs_available=available),
        {(1, False): FillRate(available, 0.0, seen_fill)},
    )
    waits = [observation_interval(marks, seen, fill_rates, policy=policy)]
    for levels in levels_to_watch(marks, seen, fill_rates, policy=policy).values():
        waits.append(levels.poll_interval((available, 10**9), idle=idle))
    for mark in (ours, kubelets):
        if available - mark > 5 * floor * fastest * 1.001:
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
    assert near_their_marks(marks, seen, {}, policy=POLICY) == ({1} if near else set())
    assert near_their_marks(marks, seen, {}, policy=POLICY, before={1}) == (
        {1} if still_near else set()
    )


def test_a_faster_fill_than_assumed_brings_the_mark_nearer() -> None:
    """At 1 000 MiB/s, seen lately, 9 GiB are near; another filesystem with as much is not."""
    marks = [below(signal, GIB) for signal in (Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE)]
    seen = observed(nodefs_available=10 * GIB, imagefs_available=10 * GIB)
    assert near_their_marks(
        marks, seen, {(1, False): FillRate(0, 0.0, 1000.0 * MIB)}, policy=POLICY
    ) == {1}


def filled(rate: float) -> dict[tuple[int, bool], FillRate]:
    """Both disks are filled steadily, by so many bytes a second; nodefs loses inodes as fast."""
    each = filling(FillRate(0, 0.0), rate)
    return {(1, False): each, (2, False): each, (1, True): each}


MARK = below(Signal.NODEFS_AVAILABLE, GIB)
KUBELETS = below(Signal.NODEFS_AVAILABLE, 600 * MIB)


def test_urgency_is_the_time_until_the_kubelets_mark() -> None:
    """1000 MiB are available, its mark is 600, and 100 MiB/s are written: 4 s."""
    now = observed(nodefs_available=1000 * MIB)
    assert urgency([MARK], now, filled(100 * MIB), kubelets=[KUBELETS]) == 4.0


@pytest.mark.parametrize(
    ("kubelets", "available"), [([], 1000), ([KUBELETS], 500)], ids=["not known", "reached"]
)
def test_without_the_kubelets_mark_or_below_it_urgency_is_the_time_until_nothing_is_left(
    kubelets: list[Threshold], available: int
) -> None:
    """At 100 MiB/s."""
    now = observed(nodefs_available=available * MIB)
    assert urgency([MARK], now, filled(100 * MIB), kubelets=kubelets) == available / 100


def test_the_filesystem_that_is_there_first_decides() -> None:
    """50 MiB are left on nodefs, 200 on imagefs."""
    now = observed(nodefs_available=50 * MIB, imagefs_available=200 * MIB)
    thresholds = [below(Signal.IMAGEFS_AVAILABLE, GIB), MARK]
    assert urgency(thresholds, now, filled(100 * MIB)) == 0.5


def test_nothing_is_urgent_where_nothing_fills_nor_for_inodes_alone() -> None:
    """How many inodes an object frees is not known before it is removed."""
    now = observed(nodefs_available=50 * MIB, nodefs_inodesFree=10)
    assert urgency([MARK], now, filled(0.0)) == NEVER
    assert urgency([MARK], now, {}) == NEVER
    assert urgency([below(Signal.NODEFS_INODES_FREE, 100)], now, filled(100 * MIB)) == NEVER


@pytest.mark.parametrize(
    ("rate", "lead_seconds", "preallocated", "step", "coming"),
    [
        (100, 2.0, 0, 0, 200),
        (100, 0.0, 0, 0, 0),
        (0, 5.0, 0, 0, 0),
        (100, 2.0, 1500, 3000, 0),
        (100, 2.0, 900, 3000, 3000),
        (100, 0.0, 900, 3000, 3000),
        (0, 5.0, 900, 3000, 0),
        (2000, 2.0, 900, 3000, 4000),
    ],
    ids=[
        "what is written within the lead",
        "the lead is off",
        "nothing fills",
        "into what is preallocated, and the next step is 15 s away",
        "the next step is 9 s away",
        "however long the lead is",
        "a file that does not grow takes no step",
        "faster than its steps",
    ],
)
def test_what_is_coming(
    rate: int, lead_seconds: float, preallocated: int, step: int, coming: int
) -> None:
    """In MiB, and MiB/s."""
    on_xfs = replace(stats(), preallocated_bytes=preallocated * MIB, step_bytes=step * MIB)
    fill = filling(FillRate(0, 0.0), rate * MIB)
    assert coming_bytes(on_xfs, fill, lead_seconds) == coming * MIB


def needed(
    now: SignalObservations, kubelets: list[Threshold], rate: int = 100, lead: float = 2.0
) -> int:
    """What must be available on nodefs while both disks are filled by so many MiB/s, in MiB."""
    seen = with_needed(now, filled(rate * MIB), kubelets=kubelets, lead_seconds=lambda _: lead)
    return seen.signals[Signal.NODEFS_AVAILABLE].needed // MIB


def test_what_is_coming_has_to_fit_above_the_kubelets_mark() -> None:
    """600 MiB, and 200 that are written within the lead; nothing where its hard mark is not known,
    nothing is coming, or the lead is switched off. Below that mark, above nothing."""
    now = observed(nodefs_available=1200 * MIB)
    soft = below(Signal.NODEFS_AVAILABLE, GIB, grace_seconds=60.0)
    assert needed(now, [KUBELETS, soft]) == 800
    assert needed(now, [soft]) == needed(now, []) == needed(now, [KUBELETS], rate=0) == 0
    assert needed(observed(nodefs_available=500 * MIB), [KUBELETS]) == 0
    (role, (identity, stats)) = next(iter(now.filesystems.items()))
    step = replace(now, filesystems={role: (identity, replace(stats, step_bytes=GIB))})
    assert (needed(step, [KUBELETS]), needed(step, [KUBELETS], lead=0)) == (600 + 1024, 0)


def test_until_the_next_step_of_a_file_the_disk_does_not_fall() -> None:
    """900 MiB are preallocated and the step goes beyond the kubelet's mark: 9 s at 100 MiB/s."""
    now = observed(nodefs_available=1000 * MIB)
    on_xfs = replace(stats(), preallocated_bytes=900 * MIB, step_bytes=2000 * MIB)
    now = replace(now, filesystems={FilesystemRole.NODEFS: (NODEFS, on_xfs)})
    assert urgency([MARK], now, filled(100 * MIB), kubelets=[KUBELETS]) == 9.0
