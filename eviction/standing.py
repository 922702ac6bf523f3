"""Where the node stands at one moment: the last look, its marks, and how long until each could be reached.

Covers: values for whoever watches the daemon (metrics, health pages, the control socket). Decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from eviction.types import NodeCondition, Threshold
from signals.interval import Fill
from signals.types import SignalObservations


@dataclass(frozen=True, slots=True)
class Mark:
    """One threshold at the present capacity. `mark`: bytes or inodes, None where the capacity is not known.

    `headroom_seconds`: until the mark could be reached at the fill seen lately, 0 below it; None without any fill.
    """

    threshold: Threshold
    mark: int | None
    headroom_seconds: float | None


@dataclass(frozen=True, slots=True)
class Standing:
    """The daemon at one moment. Ages and lateness in seconds.

    `heartbeat_age_seconds`: since the last finished look. `late_seconds`: since the next one was due; negative until
    then. `look`: None before the first.
    """

    look: SignalObservations | None
    conditions: frozenset[NodeCondition]
    marks: tuple[Mark, ...]
    heartbeat_age_seconds: float
    late_seconds: float
    now: float


def mark_of(threshold: Threshold, look: SignalObservations, fill: Fill | None) -> Mark:
    """The mark of a threshold in a look, with the seconds until it at the fastest fill seen lately."""
    observation = look.signals.get(threshold.signal)
    if observation is None:
        return Mark(threshold, None, None)
    mark = int(threshold.effective(observation.capacity))
    if fill is None or fill.fastest <= 0:
        return Mark(threshold, mark, None)
    return Mark(threshold, mark, max(observation.available - mark, 0) / fill.fastest)
