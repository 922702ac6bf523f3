"""For which signal pods would be evicted: asked for, met, or nearest."""

from __future__ import annotations

import pytest

from eviction.pod_eviction import ChosenSignal, choose_signal
from eviction.types import Threshold
from signals.types import Signal, SignalObservations
from tests.pure.values import observation, observations_of, threshold

NODEFS = threshold(Signal.NODEFS_AVAILABLE, "100")
SOFT_NODEFS = threshold(Signal.NODEFS_AVAILABLE, "300", grace_seconds=60)
INODES = threshold(Signal.NODEFS_INODES_FREE, "50")
IMAGEFS = threshold(Signal.IMAGEFS_AVAILABLE, "150")
ALL = (NODEFS, INODES, IMAGEFS)


def seen(nodefs: int, inodes: int, imagefs: int, *, stale: bool = False) -> SignalObservations:
    """Three signals of a capacity of 1000 each; `stale`: that of nodefs.available."""
    return observations_of(
        observation(Signal.NODEFS_AVAILABLE, nodefs, 1000, stale=stale),
        observation(Signal.NODEFS_INODES_FREE, inodes, 1000),
        observation(Signal.IMAGEFS_AVAILABLE, imagefs, 1000),
    )


@pytest.mark.parametrize(
    ("thresholds", "observations", "chosen", "met"),
    [
        (ALL, seen(500, 49, 500), INODES, True),
        (ALL, seen(101, 500, 500), NODEFS, False),
        (ALL, seen(100, 500, 500), NODEFS, False),  # equal is not met
        (ALL, seen(500, 500, 160), IMAGEFS, False),
        (ALL, seen(10, 40, 500), NODEFS, True),  # further below its mark
        ((*ALL, SOFT_NODEFS), seen(150, 49, 500), INODES, True),  # a hard one goes first
        ((*ALL, SOFT_NODEFS), seen(150, 500, 500), SOFT_NODEFS, True),
        (ALL, seen(10, 500, 160, stale=True), IMAGEFS, False),  # what is stale is neither met nor near
    ],
)
def test_the_one_that_is_met_else_the_nearest(
    thresholds: tuple[Threshold, ...], observations: SignalObservations, chosen: Threshold, met: bool
) -> None:
    """Relative to its mark, as reclaimd itself chooses."""
    assert choose_signal(thresholds, observations) == ChosenSignal(chosen.signal, chosen, met)


def test_a_signal_that_is_asked_for_is_taken() -> None:
    """Met or not, with its hard threshold first where both are met."""
    assert choose_signal(ALL, seen(10, 500, 500), Signal.IMAGEFS_AVAILABLE) == ChosenSignal(
        Signal.IMAGEFS_AVAILABLE, IMAGEFS, False
    )
    both = (SOFT_NODEFS, NODEFS)
    assert choose_signal(both, seen(10, 500, 500), Signal.NODEFS_AVAILABLE) == ChosenSignal(
        Signal.NODEFS_AVAILABLE, NODEFS, True
    )


def test_a_signal_that_cannot_be_judged() -> None:
    """Without a threshold, or without a reading: it is not known whether it is met."""
    unread = seen(10, 500, 500, stale=True)
    assert choose_signal(ALL, unread, Signal.CONTAINERFS_AVAILABLE) == ChosenSignal(
        Signal.CONTAINERFS_AVAILABLE, None, None
    )
    assert choose_signal(ALL, unread, Signal.NODEFS_AVAILABLE) == ChosenSignal(Signal.NODEFS_AVAILABLE, NODEFS, None)
    assert choose_signal((NODEFS,), unread) is None
    assert choose_signal((), seen(10, 500, 500)) is None


def test_a_mark_of_0_is_not_near() -> None:
    """`0.0%` is kept by the kubelet and never met."""
    never = threshold(Signal.NODEFS_AVAILABLE, "0.0%")
    assert choose_signal((never, INODES), seen(0, 500, 500)) == ChosenSignal(INODES.signal, INODES, False)
