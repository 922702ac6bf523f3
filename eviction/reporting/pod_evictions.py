"""Whom the kubelet would evict, for people and in JSON, whose fields are a stable interface. Decides nothing."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypedDict

from eviction.pod_eviction.ranking import MEASURED, Measured, RankedPod, Reason
from eviction.pod_eviction.signal_choice import ChosenSignal
from eviction.pod_eviction.types import EvictablePod
from eviction.reporting.json_shapes import Count, SignalName, one_of
from eviction.reporting.observations_json import ObservationJson, ThresholdJson, observation_json, threshold_json
from eviction.reporting.pass_shapes import LayoutName
from eviction.reporting.tables import amount, table
from eviction.types import API_VERSION
from signals.quantity import format_bytes, format_duration, whole
from signals.types import FsLayout, Signal, SignalObservations

REASONS: dict[Reason, str] = {
    Reason.NO_STATISTICS: "the kubelet has no statistics of it",
    Reason.OVER_REQUEST: "uses more than it requests",
    Reason.WITHIN_REQUEST: "uses no more than it requests",
    Reason.STATIC: "never evicted: a static pod",
    Reason.MIRROR: "never evicted: stands for a static pod",
    Reason.CRITICAL_PRIORITY: "never evicted: its priority is critical",
}
_COLUMNS = (Measured.WRITABLE_LAYERS, Measured.LOGS, Measured.LOCAL_VOLUMES)


class RankedPodJson(TypedDict):
    """A pod in the order in which the kubelet would evict."""

    rank: Count | None
    """From 1 on; null for a pod that is never evicted."""
    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its UID."""
    verdict: Literal["keep", "evict"]
    """Whether the kubelet may evict it."""
    reason: Annotated[str, one_of(Reason)]
    """Why it stands there."""
    priority: int
    """Of its priority class; a higher one goes later."""
    used: int | None
    """What is counted of it, in bytes or inodes as the signal is, negative beyond 2**63 as in the kubelet; null without
    statistics."""
    request: int
    """Bytes of ephemeral storage that it requests."""
    over_request: int | None
    """How much more it uses, negative below; null without statistics."""
    usage: dict[Annotated[str, one_of(Measured)], int] | None
    """What it uses of each kind, counted or not; null without statistics."""
    deleted: bool
    """Whether it is being deleted."""


class OverLimitJson(TypedDict):
    """A pod that exceeds a limit of its own, which evicts it whatever the signal."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its UID."""
    reason: str
    """Which limit, for people."""


class PodEvictionsJson(TypedDict):
    """Whom the kubelet would evict for disk: the answer of `reclaimd plan --pods`."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]
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
    counted: list[Annotated[str, one_of(Measured)]]
    """What of a pod is counted for the signal."""
    pods: list[RankedPodJson]
    """In the kubelet's order."""
    over_limits: list[OverLimitJson]
    """Those that go whatever the signal."""


class PodEvictions(NamedTuple):
    """Whom the kubelet would evict. `chosen`: for which signal. `over_limits`: those that exceed a limit of their own,
    which evicts them whatever the signal, each with a clause which."""

    chosen: ChosenSignal
    observations: SignalObservations
    layout: FsLayout
    ranked: tuple[RankedPod, ...]
    over_limits: tuple[tuple[EvictablePod, str], ...] = ()

    @property
    def counted(self) -> tuple[Measured, ...]:
        """What the kubelet counts of a pod for the signal. Images are in its table, but of a pod it counts none."""
        return tuple(kind for kind in MEASURED[self.layout][self.chosen.signal.filesystem] if kind in _COLUMNS)


def pod_evictions_json(evictions: PodEvictions) -> PodEvictionsJson:
    """One document. Usage is in bytes or inodes as the signal is; requests are bytes of ephemeral storage."""
    signal, threshold, met = evictions.chosen
    observation = evictions.observations.signals.get(signal)
    return {
        "apiVersion": API_VERSION,
        "kind": "PodEvictions",
        "signal": str(signal),
        "met": met,
        "threshold": None if threshold is None else threshold_json(threshold, evictions.observations),
        "observation": None if observation is None else observation_json(observation, evictions.observations),
        "layout": str(evictions.layout),
        "counted": [str(kind) for kind in evictions.counted],
        "pods": [_pod_json(each) for each in evictions.ranked],
        "over_limits": [
            {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "reason": clause}
            for pod, clause in evictions.over_limits
        ],
    }


def _pod_json(each: RankedPod) -> RankedPodJson:
    pod = each.pod
    return {
        "rank": each.rank,
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "verdict": "keep" if each.rank is None else "evict",
        "reason": str(each.reason),
        "priority": pod.priority,
        "used": each.used,
        "request": whole(pod.request),
        "over_request": None if each.over_request is None else whole(each.over_request),
        "usage": None if each.usage is None else {str(kind): each.usage[kind] for kind in _COLUMNS},
        "deleted": pod.deleted,
    }


def pod_evictions_lines(evictions: PodEvictions, width: int | None = None) -> list[str]:
    """The signal and how it stands, the pods in their order, and what goes before."""
    counted = (
        ", ".join(_words(kind) for kind in evictions.counted) or "nothing of a pod, so priority and request decide"
    )
    ranks = [each.rank for each in evictions.ranked if each.rank is not None]
    lines = [_signal_line(evictions), f"counted for it: {counted} (layout: {evictions.layout})", ""]
    if evictions.ranked:
        lines += [*_pods_table(evictions, width), ""]
    if ranks:
        lines.append(
            "at most one pod a pass, from the top, and only where what the kubelet removes first is not enough"
        )
    else:
        lines.append("the kubelet has no pod that it could evict")
    if len(set(ranks)) < len(ranks):
        lines.append("pods of one rank are shown by name; which of them is the first the kubelet leaves open")
    lines += [f"evicted whatever the signal: {_name(pod)}: {clause}" for pod, clause in evictions.over_limits]
    return lines


def _signal_line(evictions: PodEvictions) -> str:
    signal, threshold, met = evictions.chosen
    if threshold is None:
        return f"{signal}: the kubelet has no threshold for it, so it evicts nobody"
    observation = evictions.observations.signals.get(signal)
    if observation is None or met is None:
        return f"{signal}: whether the kubelet's threshold {threshold.text()} is met is not known"
    available, mark = amount(signal, observation.available), amount(signal, threshold.mark(observation.capacity))
    kind = "hard" if threshold.hard else "soft"
    shown = f"the kubelet's {kind} threshold {threshold.text()} = {mark}"
    if not met:
        return f"{signal}: not met: {available} available, {shown}; it evicts nobody now"
    grace = "" if threshold.hard else f"; it evicts after {format_duration(threshold.grace_seconds)} of that"
    return f"{signal}: UNDER PRESSURE: {available} available, {shown}{grace}"


def _pods_table(evictions: PodEvictions, width: int | None) -> list[str]:
    signal = evictions.chosen.signal
    rows = [["RANK", "POD", "USED", "REQUEST", "PRIORITY", *(_words(kind).upper() for kind in _COLUMNS), "WHY"]]
    for each in evictions.ranked:
        usage = each.usage or {}
        rows.append(
            [
                "-" if each.rank is None else str(each.rank),
                _name(each.pod),
                _amount(signal, each.used),
                format_bytes(whole(each.pod.request)),
                str(each.pod.priority),
                *(_amount(signal, usage.get(kind)) for kind in _COLUMNS),
                REASONS[each.reason] + (", being deleted" if each.pod.deleted else ""),
            ]
        )
    return table(rows, width, "pods")


def _amount(signal: Signal, value: int | None) -> str:
    return "-" if value is None else amount(signal, value)


def _name(pod: EvictablePod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _words(kind: Measured) -> str:
    return kind.replace("_", " ")
