"""Rows of the configuration: in place of the built-in ones, and for filesystems of its own."""

from __future__ import annotations

from fractions import Fraction

import pytest

from eviction.decision.reclaim_table import RowEntry, row
from eviction.decision.synchronize import EvictionConfig, ManagerState, synchronize
from eviction.decision.thresholds import raise_pressure
from eviction.types import Threshold, ThresholdValue
from signals.quantity import parse_percentage
from signals.types import FsLayout, Signal, SignalObservation, SignalObservations

CACHE = Signal("buildcache.available")
NODEFS, CONTAINERFS = Signal.NODEFS_AVAILABLE, Signal.CONTAINERFS_AVAILABLE
AT_3 = ThresholdValue(quantity=Fraction(3))
ROWS = {NODEFS: (RowEntry("DeleteUnusedImages"), RowEntry("prune")), CACHE: (RowEntry("prune"),)}


def percent(text: str) -> ThresholdValue:
    """A share of the capacity."""
    return ThresholdValue(percentage=parse_percentage(text))


def seen(layout: FsLayout | None = FsLayout.SINGLE, **available: int) -> SignalObservations:
    """Observations: signal with `_` for `.` -> available of 100."""
    signals = {
        Signal(name.replace("_", ".")): SignalObservation(
            Signal(name.replace("_", ".")), amount, 100, 1.0
        )
        for name, amount in available.items()
    }
    return SignalObservations(signals, layout, 1.0)


@pytest.mark.parametrize("layout", FsLayout)
def test_a_configured_row_replaces_the_built_in_one_of_its_signal(layout: FsLayout) -> None:
    """In every layout; other signals keep theirs."""
    assert row(NODEFS, layout, rows=ROWS) == ("DeleteUnusedImages", "prune")
    assert row(Signal.NODEFS_INODES_FREE, layout, rows=ROWS) == row(
        Signal.NODEFS_INODES_FREE, layout
    )


def test_a_filesystem_of_ones_own_has_the_row_that_is_configured_and_else_none() -> None:
    """Also while the layout is not known, which says nothing about it."""
    for layout in (None, *FsLayout):
        assert row(CACHE, layout, rows=ROWS) == ("prune",)
        assert row(Signal("other.available"), layout, rows=ROWS) == ()
    assert row(NODEFS, None, rows=ROWS) == ()


def test_a_function_relieves_the_thresholds_of_the_rows_that_name_it() -> None:
    """Of the built-in functions only those that a configured row still names."""
    thresholds = (Threshold(NODEFS, percent("10%")), Threshold(CACHE, percent("10%")))
    config = EvictionConfig(thresholds, rows=ROWS)
    own = {
        function: {each for each in config.goal(function, seen())[0] if each in thresholds}
        for function in config.functions
    }
    assert own == {
        "prune": set(thresholds),
        "DeleteUnusedImages": {thresholds[0]},
        "DeleteAllUnusedContainers": set(),
    }


def test_its_pressure_is_not_the_nodes() -> None:
    """ReclaimPressure is about the kubelet's filesystems; the pass is made all the same."""
    config = EvictionConfig((Threshold(CACHE, percent("10%")),), rows=ROWS)
    state, decision = synchronize(ManagerState(config), seen(None, buildcache_available=5), 1.0)
    assert (decision.conditions, decision.row) == (frozenset(), ("prune",))
    assert decision.acted_on == config.thresholds[0]
    assert state.conditions == frozenset()
    assert not raise_pressure([Threshold(CACHE, percent("1%"))])


def test_the_kubelets_signals_wait_for_the_layout_and_others_do_not() -> None:
    """The runtime has not said yet where its images are."""
    thresholds = (Threshold(NODEFS, percent("10%")), Threshold(CACHE, percent("10%")))
    config = EvictionConfig(thresholds, rows=ROWS)
    _, decision = synchronize(
        ManagerState(config), seen(None, nodefs_available=1, buildcache_available=9), 1.0
    )
    assert (decision.acted_on, decision.others) == (thresholds[1], ())


def test_a_function_that_waits_has_its_own_mark_as_its_goal() -> None:
    """Without minimum reclaim: it stops as soon as it would not be called any more."""
    rows = {NODEFS: (RowEntry("DeleteUnusedImages"), RowEntry("ReleaseBallast", AT_3))}
    config = EvictionConfig(
        (Threshold(NODEFS, percent("10%"), min_reclaim=percent("2%")),), rows=rows
    )
    observations = seen(nodefs_available=5, containerfs_available=5)
    (goal, _), waits = config.goal("ReleaseBallast", observations)
    assert waits
    assert (goal.mark(100), goal.mark_with_min_reclaim(100), goal.signal) == (3, 3, NODEFS)
    goals, waits = config.goal("DeleteUnusedImages", observations)
    assert not waits
    assert [t.signal for t in goals] == [NODEFS, CONTAINERFS]


def test_containerfs_has_the_row_of_the_filesystem_that_its_thresholds_are_derived_from() -> None:
    """Else a function that a configuration leaves out would be called for it all the same."""
    rows = {NODEFS: (RowEntry("prune", AT_3),)}
    assert row(CONTAINERFS, FsLayout.SINGLE, rows=rows) == ("prune",)
    assert row(CONTAINERFS, FsLayout.DEDICATED_IMAGEFS, rows=rows) == row(
        CONTAINERFS, FsLayout.DEDICATED_IMAGEFS
    )
    own = {**rows, CONTAINERFS: (RowEntry("DeleteUnusedImages"),)}
    assert row(CONTAINERFS, FsLayout.SINGLE, rows=own) == ("DeleteUnusedImages",)
    config = EvictionConfig((Threshold(NODEFS, percent("10%")),), rows=rows)
    goal, _ = config.goal("prune", seen(nodefs_available=5, containerfs_available=5))
    assert [(one.signal, one.mark(100)) for one in goal] == [(NODEFS, 3), (CONTAINERFS, 3)]


def test_a_mark_that_is_not_below_the_thresholds_own_makes_nothing_wait() -> None:
    """The threshold is the stricter one then."""
    rows = {NODEFS: (RowEntry("ReleaseBallast", percent("10%")),)}
    config = EvictionConfig((Threshold(NODEFS, percent("10%")),), rows=rows)
    goal, waits = config.goal("ReleaseBallast", seen(nodefs_available=5))
    assert (goal[:1], waits) == (config.thresholds, False)


def test_one_row_may_wait_where_another_does_not() -> None:
    """Each threshold has its own goal; the function is called for whichever is met."""
    rows = {
        NODEFS: (RowEntry("ReleaseBallast", AT_3),),
        Signal.IMAGEFS_AVAILABLE: (RowEntry("ReleaseBallast"),),
    }
    thresholds = (
        Threshold(NODEFS, percent("10%")),
        Threshold(Signal.IMAGEFS_AVAILABLE, percent("15%")),
    )
    config = EvictionConfig(thresholds, rows=rows)
    goal, _ = config.goal("ReleaseBallast", seen(nodefs_available=5, imagefs_available=50))
    assert [(one.signal, one.mark(100)) for one in goal[:2]] == [
        (NODEFS, 3),
        (Signal.IMAGEFS_AVAILABLE, 15),
    ]
