"""The observer turns observations and reported conditions into crossings, reliefs and periods."""

from __future__ import annotations

from dataclasses import replace

from eviction.drill.measurement.measurements import ConditionPeriod, Episode
from eviction.drill.measurement.observer import LARGEST_SAMPLES, Observer
from eviction.types import NodeCondition, ThresholdValue
from signals.quantity import parse_quantity
from signals.types import (
    KUBELET_ROLES,
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
PRESSURE = frozenset({NodeCondition.RECLAIM_PRESSURE})


def observations_of(
    available: int, *, stale: bool = False, layout: FsLayout | None = FsLayout.SINGLE
) -> SignalObservations:
    """An observation of one filesystem for everything."""
    identity = FilesystemIdentity("/", 7)
    stats = FsStats(available, available, 100 * MIB, 900, 1000, 0.0)
    observation = SignalObservation(
        Signal.NODEFS_AVAILABLE, available, 100 * MIB, 0.0, stale, identity
    )
    filesystems = dict.fromkeys(KUBELET_ROLES, (identity, stats))
    return SignalObservations(
        {Signal.NODEFS_AVAILABLE: observation}, layout, 0.0, filesystems=filesystems
    )


def observer_of(*amounts_mib: int) -> Observer:
    """An observer that sampled these amounts, one a second."""
    made = Observer(lambda _: (RELEASE,))
    for second, amount in enumerate(amounts_mib):
        made.sample(observations_of(amount * MIB), float(second))
    return made


def test_a_crossing_lasts_until_minimum_reclaim_is_reached() -> None:
    """Above the mark, but below minimum reclaim, is not relieved; falling there
    again is no new crossing.
    """
    observer = observer_of(20, 12, 9, 12, 14, 15, 12, 20)
    assert observer.episodes == [Episode(2.0, 5.0, first_rise=3.0)]
    assert not observer.under_pressure
    assert observer.last_relief == 5.0


def test_a_mark_can_be_crossed_again() -> None:
    """Each crossing is an episode of its own; the last one is not relieved yet."""
    observer = observer_of(20, 9, 20, 8, 9)
    assert observer.episodes == [Episode(1.0, 2.0, first_rise=2.0), Episode(3.0, first_rise=4.0)]
    assert observer.under_pressure
    assert observer.last_relief is None


def test_the_first_relief_is_a_rise_of_a_mebibyte() -> None:
    """A few blocks more or less are not relief; a mebibyte above the lowest point is."""
    observer = Observer(lambda _: (RELEASE,))
    for second, amount in enumerate([20 * MIB, 9 * MIB, 8 * MIB, 8 * MIB + 4096, 7 * MIB, 8 * MIB]):
        observer.sample(observations_of(amount), float(second))
    assert observer.episodes == [Episode(1.0, first_rise=5.0)]


def test_hours_of_samples_are_kept_as_fewer_without_losing_the_low_point() -> None:
    """The number of samples is bounded, and the lowest one is kept."""
    observer = Observer(lambda _: ())
    for n in range(LARGEST_SAMPLES * 2):
        observer.sample(observations_of(5 * MIB if n == 12_345 else 20 * MIB), n / 50)
    assert len(observer.samples) <= LARGEST_SAMPLES
    assert min(sample.available[0][0] for sample in observer.samples) == 5 * MIB


def test_an_unreadable_filesystem_is_no_relief() -> None:
    """Observations that are stale or have no layout are ignored."""
    observer = observer_of(20, 9)
    observer.sample(observations_of(50 * MIB, stale=True), 2.0)
    observer.sample(observations_of(50 * MIB, layout=None), 3.0)
    assert observer.under_pressure
    assert [sample.seconds for sample in observer.samples] == [0.0, 1.0]


def test_an_observation_of_the_daemon_counts_unless_it_comes_late() -> None:
    """A crossing that only the daemon observed counts; an older observation
    afterwards is ignored.
    """
    observer = Observer(lambda _: (RELEASE,))
    observer.sample(observations_of(20 * MIB), 1.0)
    observer.sample(observations_of(9 * MIB), 1.5)  # the daemon's
    observer.sample(observations_of(20 * MIB), 2.0)
    observer.sample(observations_of(9 * MIB), 1.9)  # the daemon's, delivered late
    assert observer.episodes == [Episode(1.5, 2.0, first_rise=2.0)]
    assert [sample.seconds for sample in observer.samples] == [1.0, 1.5, 2.0]


def test_roles_on_one_device_are_one_filesystem() -> None:
    """It is named for its first role."""
    (filesystem,) = observer_of(20).filesystems
    assert filesystem.name is FilesystemRole.NODEFS
    assert filesystem.roles == KUBELET_ROLES


def test_a_condition_period_lasts_from_its_first_to_its_last_report() -> None:
    """A condition that is reported again begins a new period."""
    observer = observer_of()
    for second, reported in enumerate([frozenset(), PRESSURE, PRESSURE, frozenset(), PRESSURE]):
        observer.record_conditions(reported, float(second))
    assert observer.conditions == [
        ConditionPeriod(NodeCondition.RECLAIM_PRESSURE, 1.0, 3.0),
        ConditionPeriod(NodeCondition.RECLAIM_PRESSURE, 4.0),
    ]
