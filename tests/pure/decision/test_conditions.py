"""Two conditions:

ReclaimPressure by our marks, DiskPressure by the kubelet's own, which lie lower.
"""

from __future__ import annotations

import pytest

from eviction.decision.synchronize import EvictionConfig
from eviction.types import NodeCondition, Threshold
from signals.types import Signal
from tests.pure.story import Story
from tests.pure.values import GIB, observation, threshold

OURS, KUBELETS = NodeCondition.RECLAIM_PRESSURE, NodeCondition.DISK_PRESSURE
NODEFS, IMAGEFS = Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE
TEN = threshold(NODEFS, "10Gi")
RAISED = Threshold(NODEFS, TEN.value, margin=threshold(NODEFS, "5Gi").value)


def beside_a_kubelet(*kubelets: Threshold, period_seconds: float = 300.0) -> Story:
    """A story with our mark at 15 GiB, and the kubelet's thresholds known."""
    return Story(RAISED, transition_period_seconds=period_seconds, kubelets=kubelets or (TEN,))


@pytest.mark.regression
@pytest.mark.parametrize(
    ("available", "reported"),
    [
        (15 * GIB, set()),
        (15 * GIB - 1, {OURS}),
        (10 * GIB, {OURS}),
        (10 * GIB - 1, {OURS, KUBELETS}),
    ],
)
def test_each_condition_has_its_own_mark(available: int, reported: set[NodeCondition]) -> None:
    """Below 15 GiB ours; the kubelet's only below its 10 GiB. Equal is clear for both."""
    assert beside_a_kubelet().nodefs(0.0, available).conditions == reported


def test_the_transition_period_is_that_of_our_condition() -> None:
    """DiskPressure is over with the first observation above the kubelet's mark,
    ours 300 s later.
    """
    story = beside_a_kubelet()
    assert story.nodefs(0.0, 5 * GIB).conditions == {OURS, KUBELETS}
    assert story.nodefs(10.0, 50 * GIB).conditions == {OURS}
    assert story.nodefs(299.0, 50 * GIB).conditions == {OURS}
    assert story.nodefs(300.0, 50 * GIB).conditions == set()


def test_a_soft_threshold_of_the_kubelet_raises_its_condition_at_once() -> None:
    """As in the kubelet: the grace period delays what it does, not what it says."""
    soft = threshold(NODEFS, "12Gi", grace_seconds=90.0)
    assert beside_a_kubelet(TEN, soft).nodefs(0.0, 11 * GIB).conditions == {OURS, KUBELETS}


def test_nothing_is_said_of_the_kubelet_where_its_marks_are_not_known() -> None:
    """Even at 0 bytes."""
    assert Story(RAISED).nodefs(0.0, 0).conditions == {OURS}


def test_a_reading_that_fails_neither_raises_nor_ends_disk_pressure() -> None:
    """A stale reading of little raises nothing; one of a signal that was below its
    mark keeps the condition.
    """
    imagefs = threshold(IMAGEFS, "15%")
    low, high = observation(NODEFS, 5 * GIB, stale=True), observation(IMAGEFS, 50 * GIB, time=1.0)
    assert beside_a_kubelet(TEN, imagefs).at(0.0, low, high).conditions == set()
    story = beside_a_kubelet(TEN, imagefs)
    assert KUBELETS in story.nodefs(0.0, 5 * GIB).conditions
    assert KUBELETS in story.at(10.0, low, high).conditions, "imagefs is fine, nodefs is not known"
    assert KUBELETS not in story.nodefs(20.0, 50 * GIB).conditions


def test_the_kubelets_thresholds_of_containerfs_are_derived_too() -> None:
    """While the layout is not known there are none of it, and the others count."""
    config = EvictionConfig(
        (RAISED,), kubelets=(TEN, threshold(Signal.CONTAINERFS_AVAILABLE, "99%"))
    )
    assert config.kubelets_in_layout(None) == (TEN,)
    assert config.marks_to_watch(None) == (RAISED, TEN), "neither may be passed unseen"
