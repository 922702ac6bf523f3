"""The status of the node at one moment: the last observations, the thresholds, and the time until each could be met.

Values for metrics, health pages and the control socket. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eviction.decision.headroom import FillRates
from eviction.reporting.observations_json import threshold_json
from eviction.types import NodeCondition, Threshold
from reclaim.execution.removals import Removal
from reclaim.pods.states import Doubt
from reclaim.xfs.client import ReleaseResult
from signals.interval import FillRate
from signals.types import SignalObservations

# Observing three filesystems that all hang takes 6 s; a loop that is 2 s later than that hangs itself.
LARGEST_DELAY_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class ThresholdStatus:
    """One threshold at the current capacity. `mark`: bytes or inodes, None while the capacity is not known.

    `headroom_seconds`: time until the threshold could be met at the present fill rate, 0 if it is met; None if nothing
    fills the filesystem. A fill that has stopped counts less with each second, and is none after 30.
    """

    threshold: Threshold
    mark: int | None
    headroom_seconds: float | None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The daemon at one moment.

    `observations`: the last ones, None before the first. `heartbeat_age_seconds`: since then. `late_seconds`: since the
    next observation was due, negative before. `now`: monotonic seconds. `stalled_seconds`: since the pass that runs has
    gone forward. `removal_in_flight_seconds`: since the oldest removal was sent that is not answered. `parked`:
    removals that no pass waits for any longer. `threads_not_started`: starts of a thread that have failed. `doubt`: why
    the kubelet's directories of pods are not believed. `xfs_releases`: how calls of the XFS helper have ended so far.
    `dry_run`: whether nothing is removed. `kubelets_marks_known`: whether it can be told if the kubelet would report
    DiskPressure.
    """

    observations: SignalObservations | None
    conditions: frozenset[NodeCondition]
    thresholds: tuple[ThresholdStatus, ...]
    heartbeat_age_seconds: float
    late_seconds: float
    now: float
    stalled_seconds: float = 0.0
    removal_in_flight_seconds: float = 0.0
    parked: int = 0
    threads_not_started: int = 0
    doubt: Doubt | None = None
    xfs_releases: Mapping[ReleaseResult, int] = field(default_factory=dict)
    dry_run: bool = False
    kubelets_marks_known: bool = False


def why_not_alive(late_seconds: float, stalled_seconds: float, stalled_limit_seconds: float) -> str | None:
    """Why the daemon should be started anew, as a sentence; None if it works.

    A pass that waits for the runtime goes forward: each call is answered or has a deadline, and a removal is parked. So
    one that does not is stuck in something else. `late_seconds`, `stalled_seconds`: see `NodeStatus`; the limit is for
    the latter.
    """
    if late_seconds > LARGEST_DELAY_SECONDS:
        return f"the next observation is {late_seconds:.1f} s late"
    if stalled_seconds > stalled_limit_seconds:
        return f"the pass has not gone forward for {stalled_seconds:.0f} s"
    return None


def parked_json(removal: Removal, now: float) -> dict[str, Any]:
    """A parked removal; `seconds`: since it was sent, or since its check began."""
    verdict, since = removal.verdict, removal.started if removal.sent is None else removal.sent
    return {"kind": verdict.kind, "id": verdict.id, "name": verdict.name, "seconds": round(now - since, 3)}


def threshold_statuses(
    thresholds: Iterable[Threshold], observations: SignalObservations, fill_rates: FillRates
) -> tuple[ThresholdStatus, ...]:
    """Each threshold with the seconds until it could be met at the present fill rate."""
    statuses = []
    for threshold in thresholds:
        observation, fill = observations.signals.get(threshold.signal), None
        if observation is not None and observation.filesystem is not None:
            fill = fill_rates.get((observation.filesystem.device_id, threshold.signal.counts_inodes))
        statuses.append(threshold_status(threshold, observations, fill))
    return tuple(statuses)


def threshold_statuses_json(
    statuses: Iterable[ThresholdStatus], observations: SignalObservations
) -> list[dict[str, Any]]:
    """Each threshold as in the record of a pass, with its headroom in seconds."""
    return [
        {
            **threshold_json(status.threshold, observations),
            "headroom_seconds": None if status.headroom_seconds is None else round(status.headroom_seconds, 3),
        }
        for status in statuses
    ]


def pod_directories_json(doubt: Doubt | None) -> dict[str, Any]:
    """Whether the kubelet's directories of pods are believed, and if not, why: one word and one sentence."""
    return {
        "believed": doubt is None,
        "why": None if doubt is None else str(doubt.why),
        "sentence": None if doubt is None else doubt.sentence,
    }


def threshold_status(threshold: Threshold, observations: SignalObservations, fill: FillRate | None) -> ThresholdStatus:
    """One threshold with the seconds until it could be met at the present fill rate, as far as the last readings allow
    it: a jump is no rate, and a fill that has stopped is one no longer. 0 where it is met, whatever fills."""
    observation = observations.signals.get(threshold.signal)
    if observation is None:
        return ThresholdStatus(threshold, None, None)
    mark = threshold.mark(observation.capacity)
    if observation.available < mark:
        return ThresholdStatus(threshold, mark, 0.0)
    rate = 0.0 if fill is None else fill.present_rate
    return ThresholdStatus(threshold, mark, (observation.available - mark) / rate if rate > 0 else None)
