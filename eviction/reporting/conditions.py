"""The conditions in words: ReclaimPressure, which is ours, and DiskPressure, which is the kubelet's. Decides nothing.

Our mark is crossed before the kubelet's: ReclaimPressure is the normal start of a pass; DiskPressure means that the
kubelet is about to taint the node and evict pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eviction.reporting.log import escaped
from eviction.reporting.tables import below_sentence
from eviction.types import NodeCondition, Threshold
from signals.types import SignalObservations

NOTHING_IS_REMOVED = "dry run (dryRun): nothing is removed, only reported"
CROSSED = "below the kubelet's own mark"
OURS_IS_OVER = "ReclaimPressure is over: no signal is below our mark any more"
KUBELETS_IS_OVER = "no signal is below the kubelet's own mark any more"


def disk_pressure(conditions: Iterable[str], kubelets: tuple[Threshold, ...] | None) -> bool | None:
    """Whether the kubelet would report DiskPressure now; None where its thresholds are not known."""
    return None if kubelets is None else NodeCondition.DISK_PRESSURE in conditions


def conditions_in_words(conditions: Iterable[str], kubelets_known: bool, *, below: bool) -> str:
    """Both conditions, such as `ReclaimPressure (below our mark), no DiskPressure`; without the kubelet's where its
    marks are not known. `below`: whether a signal is below a mark of ours at present."""
    reported = set(conditions)
    ours = "no ReclaimPressure"
    if NodeCondition.RECLAIM_PRESSURE in reported:
        ours = f"ReclaimPressure ({'below our mark' if below else 'was below our mark'})"
    if NodeCondition.DISK_PRESSURE in reported:
        return f"{ours}, DiskPressure ({CROSSED})"
    return f"{ours}, no DiskPressure" if kubelets_known else ours


def status_in_words(status: Mapping[str, Any]) -> str:
    """The conditions in the daemon's answer. An older daemon has only one, which it calls DiskPressure although it is
    about its own mark."""
    conditions = status["conditions"]
    if "disk_pressure" not in status and conditions:
        conditions = [NodeCondition.RECLAIM_PRESSURE]
    available = {one["signal"]: one["available"] for one in status["observations"] if not one["stale"]}
    below = any(
        one["effective"] is not None and available.get(one["signal"], one["effective"]) < one["effective"]
        for one in status["thresholds"]
    )
    return conditions_in_words(conditions, status.get("disk_pressure") is not None, below=below)


def remarks_of(status: Mapping[str, Any]) -> list[str]:
    """Why the daemon removes nothing, if it does not; an older daemon does not say."""
    held_off = [f"held off: {escaped(status['held_off'])}"] if status.get("held_off") else []
    return [*held_off, *([NOTHING_IS_REMOVED] if status.get("dry_run") else [])]


def ours_crossed(met: Iterable[Threshold], observations: SignalObservations) -> str:
    """The log's sentence when ReclaimPressure begins, with each signal and its mark."""
    return f"ReclaimPressure: {', '.join(below_sentence(one, observations) for one in met)}"


def kubelets_crossed(kubelets: Iterable[Threshold], observations: SignalObservations) -> str:
    """The log's sentence when the kubelet's own mark is crossed, with each signal and its mark."""
    met = ", ".join(below_sentence(one, observations) for one in kubelets)
    return f"{CROSSED}, so the kubelet would report DiskPressure: {met}"
