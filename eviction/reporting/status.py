"""Where the node stands at one moment: the last look, its marks, and how long until each could be reached.

Covers: values for whoever watches the daemon (metrics, health pages, the control socket). Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eviction.decision.headroom import Fills
from eviction.reporting.observations_json import threshold_json
from eviction.types import NodeCondition, Threshold
from signals.interval import Fill
from signals.types import SignalObservations


@dataclass(frozen=True, slots=True)
class ThresholdStatus:
    """One threshold at the present capacity. `mark`: bytes or inodes, None where the capacity is not known.

    `headroom_seconds`: until the mark could be reached at the fill seen lately, 0 below it; None without any fill.
    """

    threshold: Threshold
    mark: int | None
    headroom_seconds: float | None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The daemon at one moment. Ages and lateness in seconds.

    `heartbeat_age_seconds`: since the last finished look. `late_seconds`: since the next one was due; negative until
    then. `look`: None before the first.
    """

    observations: SignalObservations | None
    conditions: frozenset[NodeCondition]
    thresholds: tuple[ThresholdStatus, ...]
    heartbeat_age_seconds: float
    late_seconds: float
    now: float


def threshold_statuses(
    thresholds: Iterable[Threshold], observations: SignalObservations, fills: Fills
) -> tuple[ThresholdStatus, ...]:
    """Each threshold, with the seconds until its mark could be reached at the fill seen lately."""
    marks = []
    for threshold in thresholds:
        observation, fill = observations.signals.get(threshold.signal), None
        if observation is not None and observation.filesystem is not None:
            fill = fills.get((observation.filesystem.device_id, threshold.signal.counts_inodes))
        marks.append(threshold_status(threshold, observations, fill))
    return tuple(marks)


def threshold_statuses_json(marks: Iterable[ThresholdStatus], observations: SignalObservations) -> list[dict[str, Any]]:
    """The marks in the form of the record, with the seconds until each."""
    return [
        {
            **threshold_json(mark.threshold, observations),
            "headroom_seconds": None if mark.headroom_seconds is None else round(mark.headroom_seconds, 3),
        }
        for mark in marks
    ]


def threshold_status(threshold: Threshold, observations: SignalObservations, fill: Fill | None) -> ThresholdStatus:
    """The mark of a threshold in a look, with the seconds until it at the fastest fill seen lately."""
    observation = observations.signals.get(threshold.signal)
    if observation is None:
        return ThresholdStatus(threshold, None, None)
    mark = threshold.mark(observation.capacity)
    if fill is None or fill.fastest <= 0:
        return ThresholdStatus(threshold, mark, None)
    return ThresholdStatus(threshold, mark, max(observation.available - mark, 0) / fill.fastest)
