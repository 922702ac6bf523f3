"""What the observer makes of looks and decisions: crossings, reliefs, conditions."""

from __future__ import annotations

from dataclasses import replace

from eviction.drill.measurement.measurements import Band, Episode
from eviction.drill.measurement.observer import LARGEST_SAMPLES, Observer
from eviction.types import NodeCondition, ThresholdValue
from signals.quantity import parse_quantity
from signals.types import (
    FilesystemIdentity,
    FilesystemRole,
    FsLayout,
    FsStats,
    Signal,
    SignalObservation,
    SignalObservations,
)
from tests.drill.documents import MARK, MIB

RELEASE = replace(MARK, min_reclaim=ThresholdValue(quantity=parse_quantity("5Mi")))
PRESSURE = frozenset({NodeCondition.DISK_PRESSURE})


def observations_of(
    available: int, *, stale: bool = False, layout: FsLayout | None = FsLayout.SINGLE
) -> SignalObservations:
    """A look at one filesystem for everything."""
    identity = FilesystemIdentity("/", 7)
    stats = FsStats(available, available, 100 * MIB, 900, 1000, 0.0)
    observation = SignalObservation(Signal.NODEFS_AVAILABLE, available, 100 * MIB, 0.0, stale, identity)
    filesystems = dict.fromkeys(FilesystemRole, (identity, stats))
    return SignalObservations({Signal.NODEFS_AVAILABLE: observation}, layout, 0.0, filesystems=filesystems)


def observer_of(*amounts_mib: int) -> Observer:
    """An observer that saw these amounts, one a second."""
    made = Observer(lambda _: (RELEASE,))
    for second, amount in enumerate(amounts_mib):
        made.sample(observations_of(amount * MIB), float(second))
    return made


def test_a_crossing_lasts_until_minimum_reclaim_is_reached() -> None:
    """Above the mark again is not relieved; entering the same region from above is no crossing."""
    seen = observer_of(20, 12, 9, 12, 14, 15, 12, 20)
    assert seen.episodes == [Episode(2.0, 5.0, first_rise=3.0)]
    assert not seen.waiting
    assert seen.last_relief == 5.0


def test_a_mark_can_be_crossed_again() -> None:
    """Each time is an episode of its own; the last one is still waited for."""
    seen = observer_of(20, 9, 20, 8, 9)
    assert seen.episodes == [Episode(1.0, 2.0, first_rise=2.0), Episode(3.0, first_rise=4.0)]
    assert seen.waiting
    assert seen.last_relief is None


def test_the_first_relief_is_a_rise_and_no_flutter() -> None:
    """A few blocks up and down while a disk fills are none; a mebibyte above the lowest point is one."""
    seen = Observer(lambda _: (RELEASE,))
    for second, amount in enumerate([20 * MIB, 9 * MIB, 8 * MIB, 8 * MIB + 4096, 7 * MIB, 8 * MIB]):
        seen.sample(observations_of(amount), float(second))
    assert seen.episodes == [Episode(1.0, first_rise=5.0)]


def test_hours_of_samples_are_kept_as_fewer_without_losing_the_low_point() -> None:
    """What an observer keeps has an end, and the lowest point is among it."""
    seen = Observer(lambda _: ())
    for n in range(LARGEST_SAMPLES * 2):
        seen.sample(observations_of(5 * MIB if n == 12_345 else 20 * MIB), n / 50)
    assert len(seen.samples) <= LARGEST_SAMPLES
    assert min(sample.rooms[0][0] for sample in seen.samples) == 5 * MIB


def test_what_could_not_be_read_is_no_relief() -> None:
    """A stale reading and a layout that is not known leave no sample and end nothing."""
    seen = observer_of(20, 9)
    seen.sample(observations_of(50 * MIB, stale=True), 2.0)
    seen.sample(observations_of(50 * MIB, layout=None), 3.0)
    assert seen.waiting
    assert [sample.seconds for sample in seen.samples] == [0.0, 1.0]


def test_a_look_of_the_daemon_counts_and_one_that_comes_late_does_not() -> None:
    """The observer slept through a crossing that the daemon's look saw; an older look afterwards changes nothing."""
    seen = Observer(lambda _: (RELEASE,))
    seen.sample(observations_of(20 * MIB), 1.0)
    seen.sample(observations_of(9 * MIB), 1.5)  # the daemon's
    seen.sample(observations_of(20 * MIB), 2.0)
    seen.sample(observations_of(9 * MIB), 1.9)  # the daemon's, delivered late
    assert seen.episodes == [Episode(1.5, 2.0, first_rise=2.0)]
    assert [sample.seconds for sample in seen.samples] == [1.0, 1.5, 2.0]


def test_roles_on_one_device_are_one_filesystem() -> None:
    """It is named for its first role."""
    (filesystem,) = observer_of(20).filesystems
    assert filesystem.name is FilesystemRole.NODEFS
    assert filesystem.roles == tuple(FilesystemRole)


def test_a_condition_is_a_band_from_its_first_to_its_last_report() -> None:
    """What is reported again begins a band of its own."""
    seen = observer_of()
    for second, reported in enumerate([frozenset(), PRESSURE, PRESSURE, frozenset(), PRESSURE]):
        seen.conditions(reported, float(second))
    assert seen.bands == [Band(NodeCondition.DISK_PRESSURE, 1.0, 3.0), Band(NodeCondition.DISK_PRESSURE, 4.0)]
