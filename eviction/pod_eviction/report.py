"""Whom the kubelet would evict for disk: the answer of `reclaimd plan --pods`, as a document and for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from eviction.pod_eviction.answers import EvictablePod, PodUsage
from eviction.pod_eviction.ranking import (
    MEASURED,
    ChosenSignal,
    Measured,
    RankedPod,
    Reason,
    exceeded_limit,
    rank_pods,
)
from eviction.reporting.json_shapes import SignalName
from eviction.reporting.observations_json import ObservationJson, ThresholdJson, observation_json, threshold_json
from eviction.reporting.pass_record import LayoutName
from eviction.reporting.tables import amount, table
from eviction.types import API_VERSION
from signals.quantity import format_bytes, format_duration
from signals.types import FsLayout, Signal, SignalObservations

REASONS: dict[Reason, str] = {
    Reason.NO_STATISTICS: "the kubelet has no statistics of it",
    Reason.OVER_REQUEST: "uses more than it requests",
    Reason.WITHIN_REQUEST: "uses no more than it requests",
    Reason.STATIC: "never evicted: a static pod",
    Reason.MIRROR: "never evicted: stands for a static pod",
    Reason.CRITICAL_PRIORITY: "never evicted: its priority is critical",
}
_COLUMNS = (Measured.WRITABLE_LAYERS, Measured.LOGS, Measured.LOCAL_VOLUMES)  # images count for no pod


@dataclass(frozen=True, slots=True)
class OverLimit:
    """A pod that exceeds a limit of its own, which evicts it whatever the signal."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its UID."""
    reason: str
    """Which limit, for people."""


@dataclass(frozen=True, slots=True)
class PodEvictions:
    """Whom the kubelet would evict for disk: the answer of `reclaimd plan --pods`."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]  # noqa: N815 # the name that Kubernetes gives it
    """The version of this format. Fields may be added to it."""
    kind: Literal["PodEvictions"]
    """What the document is."""
    signal: SignalName
    """For which signal."""
    met: bool | None
    """Whether the kubelet's threshold is met now; null: not known."""
    threshold: ThresholdJson | None
    """The kubelet's; null where it has none for the signal."""
    observation: ObservationJson | None
    """Null where the signal was not observed."""
    layout: LayoutName
    """How the roles are spread over filesystems."""
    counted: tuple[Measured, ...]
    """What of a pod is counted for the signal."""
    pods: tuple[RankedPod, ...]
    """In the kubelet's order."""
    over_limits: tuple[OverLimit, ...]
    """Those that go whatever the signal."""


def pod_evictions(
    chosen: ChosenSignal,
    observations: SignalObservations,
    layout: FsLayout,
    pods: Iterable[EvictablePod],
    usages: Mapping[str, PodUsage],
) -> PodEvictions:
    """Whom the kubelet would evict for the chosen signal. `usages`: by UID of the pod."""
    signal, threshold, met = chosen
    observation = observations.signals.get(signal)
    over = [(pod, exceeded_limit(pod, usages.get(pod.uid), layout)) for pod in pods]
    return PodEvictions(
        apiVersion=API_VERSION,
        kind="PodEvictions",
        signal=signal,
        met=met,
        threshold=None if threshold is None else threshold_json(threshold, observations),
        observation=None if observation is None else observation_json(observation, observations),
        layout=layout,
        counted=tuple(kind for kind in MEASURED[layout][signal.filesystem] if kind in _COLUMNS),
        pods=rank_pods((pod for pod, _ in over), usages, signal, layout),
        over_limits=tuple(OverLimit(pod.namespace, pod.name, pod.uid, limit) for pod, limit in over if limit),
    )


def pod_evictions_lines(found: PodEvictions, width: int | None = None) -> list[str]:
    """The signal and how it stands, the pods in their order, and what goes before."""
    counted = ", ".join(map(_words, found.counted)) or "nothing of a pod, so priority and request decide"
    ranks = [each.rank for each in found.pods if each.rank is not None]
    lines = [_signal_line(found), f"counted for it: {counted} (layout: {found.layout})", ""]
    if found.pods:
        lines += [*_pods_table(found, width), ""]
    if ranks:
        lines.append(
            "at most one pod a pass, from the top, and only where what the kubelet removes first is not enough"
        )
    else:
        lines.append("the kubelet has no pod that it could evict")
    if len(set(ranks)) < len(ranks):
        lines.append("pods of one rank are shown by name; which of them is the first the kubelet leaves open")
    lines += [f"evicted whatever the signal: {one.namespace}/{one.name}: {one.reason}" for one in found.over_limits]
    return lines


def _signal_line(found: PodEvictions) -> str:
    signal, threshold = Signal(found.signal), found.threshold
    if threshold is None:
        return f"{signal}: the kubelet has no threshold for it, so it evicts nobody"
    if found.observation is None or found.met is None:
        return f"{signal}: whether the kubelet's threshold {threshold['value']} is met is not known"
    available, mark = amount(signal, found.observation["available"]), amount(signal, threshold["effective"] or 0)
    kind = "hard" if threshold["hard"] else "soft"
    shown = f"the kubelet's {kind} threshold {threshold['value']} = {mark}"
    if not found.met:
        return f"{signal}: not met: {available} available, {shown}; it evicts nobody now"
    grace = "" if threshold["hard"] else f"; it evicts after {format_duration(threshold['grace_seconds'])} of that"
    return f"{signal}: UNDER PRESSURE: {available} available, {shown}{grace}"


def _pods_table(found: PodEvictions, width: int | None) -> list[str]:
    signal = Signal(found.signal)
    rows = [["RANK", "POD", "USED", "REQUEST", "PRIORITY", *(_words(kind).upper() for kind in _COLUMNS), "WHY"]]
    for each in found.pods:
        usage = each.usage or {}
        rows.append(
            [
                "-" if each.rank is None else str(each.rank),
                f"{each.namespace}/{each.name}",
                _amount(signal, each.used),
                format_bytes(each.request),
                str(each.priority),
                *(_amount(signal, usage.get(kind)) for kind in _COLUMNS),
                REASONS[each.reason] + (", being deleted" if each.deleted else ""),
            ]
        )
    return table(rows, width, "pods")


def _amount(signal: Signal, value: int | None) -> str:
    return "-" if value is None else amount(signal, value)


def _words(kind: Measured) -> str:
    return kind.replace("_", " ")
