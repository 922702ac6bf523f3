"""The signal of the image store: met above its limit, rows of imagefs, no condition of the node, last in order."""

from __future__ import annotations

import pytest

from eviction.decision.headroom import PollPolicy, levels_to_watch, observation_interval, urgency
from eviction.decision.reclaim_table import row
from eviction.decision.synchronize import EvictionConfig, ManagerState, synchronize
from signals.types import FsLayout, Signal
from tests.pure.values import GIB, MIB, observation, observations_of, threshold

STORE, IMAGEFS = Signal.IMAGESTORE_AVAILABLE, Signal.IMAGEFS_AVAILABLE
OVER, LOW = threshold(STORE, "0"), threshold(IMAGEFS, "10%")
LIMIT = 200 * GIB


@pytest.mark.parametrize("layout", FsLayout)
def test_its_rows_are_those_of_imagefs(layout: FsLayout) -> None:
    """In every layout; while that is not known there is none."""
    assert row(STORE, layout) == row(IMAGEFS, layout) != ()
    assert row(STORE, None) == ()


@pytest.mark.parametrize(("left", "met"), [(1, False), (0, False), (-1, True), (-50 * GIB, True)])
def test_it_is_met_above_its_limit_and_not_at_it(left: int, met: bool) -> None:
    """A store that is as large as it may be is clear."""
    seen = observations_of(observation(STORE, left, LIMIT))
    _, decision = synchronize(ManagerState(EvictionConfig((OVER,))), seen, 0.0)
    assert (decision.acted_on is not None) is met


def test_it_is_no_pressure_of_the_node_and_comes_after_disks() -> None:
    """The kubelet knows no such signal, so nothing is reported; a disk below its mark is more urgent."""
    config = EvictionConfig((LOW, OVER), kubelets=(LOW,))
    over = observation(STORE, -50 * GIB, LIMIT)
    _, alone = synchronize(ManagerState(config), observations_of(over, observation(IMAGEFS, 50 * GIB)), 0.0)
    assert (alone.conditions, alone.acted_on) == (frozenset(), OVER)
    _, both = synchronize(ManagerState(config), observations_of(over, observation(IMAGEFS, 10 * GIB - MIB)), 0.0)
    assert (both.acted_on, both.others) == (LOW, (OVER,))


def test_an_old_count_neither_meets_nor_clears_it() -> None:
    """Stale: frozen, and the disks are served."""
    state, _ = synchronize(ManagerState(EvictionConfig((OVER,))), observations_of(observation(STORE, -1, LIMIT)), 0.0)
    old = observation(STORE, -1, LIMIT, stale=True)
    _, decision = synchronize(state, observations_of(old, observation(IMAGEFS, 50 * GIB), time=1.0), 1.0)
    assert (decision.acted_on, decision.thresholds_met) == (None, (OVER,))


def test_nobody_polls_for_it_and_it_is_never_urgent() -> None:
    """It has no filesystem: the interval is the longest, nothing is watched, and no pass hurries."""
    seen, policy = observations_of(observation(STORE, 1, LIMIT)), PollPolicy(0.01, 10.0, 500.0 * MIB)
    assert observation_interval([OVER], seen, {}, policy) == 10.0
    assert levels_to_watch([OVER], seen, {}, policy) == {}
    assert urgency([OVER], seen, {}) == float("inf")
