"""Where the node stands at one moment: the last look, its marks, and how long until each could be reached.

Covers: values for whoever watches the daemon (metrics, health pages, the control socket). Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eviction.decision.headroom import FillRates
from eviction.reporting.observations_json import threshold_json
from eviction.types import NodeCondition, Threshold
from signals.interval import FillRate
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


def marks_in_force(
    thresholds: Iterable[Threshold], look: SignalObservations, fill_rates: FillRates
) -> tuple[Mark, ...]:
    """Each threshold, with the seconds until its mark could be reached at the fill seen lately."""
    marks = []
    for threshold in thresholds:
        observation, fill = look.signals.get(threshold.signal), None
        if observation is not None and observation.filesystem is not None:
            fill = fill_rates.get((observation.filesystem.device_id, threshold.signal.counts_inodes))
        marks.append(mark_of(threshold, look, fill))
    return tuple(marks)


def marks_json(marks: Iterable[Mark], look: SignalObservations) -> list[dict[str, Any]]:
    """The marks in the form of the record, with the seconds until each."""
    return [
        {
            **threshold_json(mark.threshold, look),
            "headroom_seconds": None if mark.headroom_seconds is None else round(mark.headroom_seconds, 3),
        }
        for mark in marks
    ]


def mark_of(threshold: Threshold, look: SignalObservations, fill: FillRate | None) -> Mark:
    """The mark of a threshold in a look, with the seconds until it at the fastest fill seen lately."""
    observation = look.signals.get(threshold.signal)
    if observation is None:
        return Mark(threshold, None, None)
    mark = int(threshold.effective(observation.capacity))
    if fill is None or fill.fastest <= 0:
        return Mark(threshold, mark, None)
    return Mark(threshold, mark, max(observation.available - mark, 0) / fill.fastest)
