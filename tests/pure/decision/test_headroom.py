"""How far from the marks, how fast towards them, and when to look again: over all thresholds of a look."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.headroom import Pace, fills_after, marks_ahead, most_pressing, time_to_look
from eviction.types import Threshold, ThresholdValue
from reclaim.disk_need import Need
from signals.interval import Fill
from signals.types import FilesystemIdentity, FilesystemRole, FsLayout, Signal, SignalObservation, SignalObservations
from tests.pure.values import GIB, MIB, stats

PACE = Pace(0.01, 10.0, 500.0 * MIB)
NODEFS, IMAGEFS = FilesystemIdentity("/kubelet", 1), FilesystemIdentity("/images", 2)


def look(time: float = 0.0, **available: int) -> SignalObservations:
    """A look at two filesystems; keywords are signals with `_` for the dot."""
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


def test_the_nearest_mark_of_all_filesystems_decides() -> None:
    """1000 MiB above at 500 MiB/s is 2 s away: look in 1 s; the other filesystem would have had time."""
    thresholds = [below(Signal.NODEFS_AVAILABLE, GIB), below(Signal.IMAGEFS_AVAILABLE, GIB)]
    seen = look(nodefs_available=100 * GIB, imagefs_available=GIB + 1000 * MIB)
    assert time_to_look(thresholds, seen, {}, PACE) == 1.0


def test_inodes_count_beside_bytes() -> None:
    """4 000 inodes above their mark at 20 000 a second: look in 100 ms."""
    thresholds = [below(Signal.NODEFS_AVAILABLE, GIB), below(Signal.NODEFS_INODES_FREE, 1000)]
    seen = look(nodefs_available=100 * GIB, nodefs_inodesFree=5000)
    assert time_to_look(thresholds, seen, {}, PACE) == 0.1


def test_a_fill_seen_on_another_filesystem_is_not_this_ones() -> None:
    """imagefs fills at 5 GiB/s, so imagefs is looked at sooner, and nodefs is not."""
    seen = look(nodefs_available=6 * GIB, imagefs_available=6 * GIB)
    fills = {(IMAGEFS.device_id, False): Fill(0, 0.0, 5.0 * GIB)}
    assert time_to_look([below(Signal.NODEFS_AVAILABLE, GIB)], seen, fills, PACE) == 5.12
    assert time_to_look([below(Signal.IMAGEFS_AVAILABLE, GIB)], seen, fills, PACE) == 0.5


def test_a_mark_that_is_crossed_does_not_hasten_the_next_look() -> None:
    """A soft threshold in its grace period is met; what counts is the hard one below it."""
    soft, hard = below(Signal.NODEFS_AVAILABLE, 6 * GIB, 60.0), below(Signal.NODEFS_AVAILABLE, GIB)
    seen = look(nodefs_available=6 * GIB - 1)
    assert time_to_look([soft, hard], seen, {}, PACE) > 5.0
    assert marks_ahead([soft, hard], seen, {}, PACE)["/kubelet"].available_bytes == GIB


def test_the_glances_go_by_the_next_mark_below_on_each_filesystem() -> None:
    """Of several marks the highest that is not crossed; a filesystem without one is not glanced at."""
    thresholds = [
        below(Signal.NODEFS_AVAILABLE, GIB),
        below(Signal.NODEFS_AVAILABLE, 2 * GIB, 60.0),
        below(Signal.NODEFS_INODES_FREE, 700),
        below(Signal.IMAGEFS_AVAILABLE, 9 * GIB),
    ]
    seen = look(nodefs_available=3 * GIB, nodefs_inodesFree=700, imagefs_available=GIB)
    found = marks_ahead(thresholds, seen, {}, PACE)
    assert set(found) == {"/kubelet"}
    assert (found["/kubelet"].available_bytes, found["/kubelet"].inodes_free) == (2 * GIB, 700)
    assert (found["/kubelet"].bytes_per_second, found["/kubelet"].inodes_per_second) == (500.0 * MIB, 20_000.0)


def test_two_roles_on_one_device_are_glanced_at_once() -> None:
    """The same filesystem at two paths is one; the higher mark counts."""
    here = SignalObservation(Signal.IMAGEFS_AVAILABLE, 5 * GIB, 2**40, 0.0, filesystem=FilesystemIdentity("/other", 1))
    seen = look(nodefs_available=5 * GIB)
    seen = SignalObservations({**seen.signals, Signal.IMAGEFS_AVAILABLE: here}, FsLayout.SINGLE, 0.0)
    thresholds = [below(Signal.NODEFS_AVAILABLE, GIB), below(Signal.IMAGEFS_AVAILABLE, 2 * GIB)]
    found = marks_ahead(thresholds, seen, {}, PACE)
    assert [(path, marks.available_bytes) for path, marks in found.items()] == [("/kubelet", 2 * GIB)]


def test_fills_are_kept_by_device_and_forgotten_with_it() -> None:
    """512 MiB in 1 s on nodefs are seen there; a device that is gone leaves nothing behind."""
    first = fills_after({(9, False): Fill(0, 0.0, 1e9)}, look(0.0, nodefs_available=GIB))
    assert set(first) == {(1, False), (1, True), (2, False), (2, True)}
    second = fills_after(first, look(1.0, nodefs_available=512 * MIB))
    assert second[1, False].fastest == 512.0 * MIB
    assert second[2, False].fastest == 0.0


def test_the_need_is_that_of_the_filesystem_that_is_full_first() -> None:
    """nodefs has 50 MiB left at 100 MiB/s, imagefs 200 MiB at 10: it is that of nodefs, with its minimum reclaim."""
    nodefs = Threshold(
        Signal.NODEFS_AVAILABLE,
        ThresholdValue(quantity=Fraction(60 * MIB)),
        min_reclaim=ThresholdValue(quantity=Fraction(5 * MIB)),
    )
    imagefs, inodes = below(Signal.IMAGEFS_AVAILABLE, GIB), below(Signal.NODEFS_INODES_FREE, 1000)
    now = look(1.0, nodefs_available=50 * MIB, imagefs_available=200 * MIB, nodefs_inodesFree=900)
    first = fills_after({}, look(0.0, nodefs_available=150 * MIB, imagefs_available=210 * MIB))
    fills = fills_after(first, now)
    assert most_pressing([imagefs, nodefs, inodes], now, fills) == Need(15 * MIB, 50 * MIB, 100.0 * MIB)
    assert most_pressing([inodes], now, fills) == Need(100, 900, 0.0, inodes=True)
    assert most_pressing([imagefs], now, {}) == Need(GIB - 200 * MIB, 200 * MIB, 0.0)
    assert most_pressing([], now, fills) is None
    assert most_pressing([imagefs], look(), fills) is None


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=5), st.integers(0, 2**40), st.floats(0, 1e12))
def test_the_next_look_is_always_within_bounds_and_no_later_than_any_glance(
    amounts: list[int], available: int, fastest: float
) -> None:
    """Whatever the marks and the fill; and the first glance is due no later than the look would have been."""
    thresholds = [below(Signal.NODEFS_AVAILABLE, amount) for amount in amounts]
    seen = look(nodefs_available=available)
    fills = {(1, False): Fill(available, 0.0, fastest)}
    seconds = time_to_look(thresholds, seen, fills, PACE)
    assert 0.01 <= seconds <= 10.0
    for marks in marks_ahead(thresholds, seen, fills, PACE).values():
        glance = marks.next_glance(available, 500)
        assert 0.01 <= glance <= seconds
