"""For which signal the kubelet would evict pods: the one it acts on now, or the one that is nearest to a threshold.

Of several thresholds that are met the kubelet leaves open which one it takes (`pkg/kubelet/eviction/helpers.go`,
byEvictionPriority). Here a hard one goes before a soft one, whose grace period may not be over, and then the order is
the one in which reclaimd itself chooses (`decision.thresholds`, by_priority).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eviction.decision.thresholds import by_priority, thresholds_met, usable
from eviction.types import Threshold
from signals.types import Signal, SignalObservations


class ChosenSignal(NamedTuple):
    """The signal, the kubelet's threshold for it (None: it has none), and whether it is met (None: not known)."""

    signal: Signal
    threshold: Threshold | None
    met: bool | None


def choose_signal(
    thresholds: Sequence[Threshold], observations: SignalObservations, asked: Signal | None = None
) -> ChosenSignal | None:
    """The signal that is asked for, else the one that is met, else the nearest. None: no threshold can be judged.

    `thresholds`: the kubelet's, those of containerfs derived.
    """
    mine = [threshold for threshold in thresholds if asked in (None, threshold.signal)]
    readable = usable(observations.signals)
    judged = [
        threshold
        for threshold in mine
        if threshold.signal in readable and threshold.mark(readable[threshold.signal].capacity) > 0
    ]
    met = thresholds_met(judged, readable, enforce_min_reclaim=False)
    for candidates in ([each for each in met if each.hard], met, judged):
        if candidates:
            first = by_priority(candidates, readable)[0]
            return ChosenSignal(first.signal, first, bool(met))
    return None if asked is None else ChosenSignal(asked, mine[0] if mine else None, None)
