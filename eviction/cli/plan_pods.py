"""`reclaimd plan --pods`: which pods the kubelet would evict for disk, in its order, with their usage. Read-only."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from eviction.cli.options import answer, columns, configuration_of, exit_unread, exit_with
from eviction.cli.plan import located
from eviction.cli.progress import Progress
from eviction.configuration.kubelet import KUBELETS_DEFAULTS
from eviction.configuration.kubelet_client import PODS, STATS_SUMMARY, ask_kubelet
from eviction.configuration.kubelet_ways import KubeletAccess, answered_in_time, asked_once
from eviction.decision.thresholds import update_container_fs_thresholds
from eviction.exit_codes import EXIT_OK, EXIT_READING, EXIT_USAGE
from eviction.pod_eviction import (
    COUNTED,
    EvictablePod,
    Measured,
    PodUsage,
    RankedPod,
    choose_signal,
    counted_kinds,
    exceeded_limit,
    parse_active_pods,
    parse_stats_summary,
    rank_pods,
)
from eviction.reporting.json_shapes import SignalName, Versioned
from eviction.reporting.observations_json import ObservationJson, ThresholdJson, observation_json, threshold_json
from eviction.reporting.tables import amount, table
from reclaim.pods.pod_list import KubeletAnswerError, KubeletUnavailable
from signals.quantity import format_bytes, format_duration
from signals.types import KUBELET_SIGNALS, FsLayout, Signal

ANSWER_SECONDS = 10.0  # relief does not wait for it, and a summary takes seconds if the runtime is slow
NOT_CONFIGURED = (
    "only the kubelet knows which pods it would evict: set kubeletEndpoint to auto, or to https://127.0.0.1:10250 "
    "with kubeletTokenFile and kubeletCAFile, for an identity that may get nodes/pods and nodes/stats"
)


@dataclass(frozen=True, slots=True)
class OverLimit:
    """A pod that exceeds a limit, for which it is evicted whatever the signal."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its UID."""
    reason: str
    """The limit, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvictions(Versioned):
    """The pods that the kubelet would evict for disk: the answer of `reclaimd plan --pods`."""

    kind: Literal["PodEvictions"] = "PodEvictions"
    signal: SignalName
    """The signal for which they would be evicted."""
    met: bool | None
    """Whether the kubelet's threshold is met now; null: not known."""
    threshold: ThresholdJson | None
    """The kubelet's threshold; null if it has none for the signal."""
    observation: ObservationJson | None
    """Null if the signal was not observed."""
    layout: FsLayout
    """How the roles are distributed over filesystems."""
    counted: tuple[Measured, ...]
    """The kinds of usage that count for the signal."""
    pods: tuple[RankedPod, ...]
    """The pods in the kubelet's order."""
    over_limits: tuple[OverLimit, ...]
    """The pods that are evicted whatever the signal."""


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 2 without kubeletEndpoint; 3 runtime unreachable; 4 a filesystem could not be read, or the kubelet did
    not answer."""
    if arguments.until is not None:
        exit_with(EXIT_USAGE, "--until has no effect with --pods")
    if arguments.signal not in (None, *KUBELET_SIGNALS):
        exit_with(EXIT_USAGE, f"--signal: {arguments.signal!r} is none of {', '.join(KUBELET_SIGNALS)}")
    configuration = configuration_of(arguments)
    if configuration.kubelet_access is None:
        exit_with(EXIT_USAGE, NOT_CONFIGURED)
    asked = None if arguments.signal is None else Signal(arguments.signal)
    with located(arguments, configuration) as (_, observations, _):
        layout = observations.layout
    if layout is None:
        exit_unread(observations)
    kubelet = configuration.kubelet or KUBELETS_DEFAULTS  # its own thresholds, without our margin
    thresholds = update_container_fs_thresholds(kubelet.thresholds.thresholds, layout)
    chosen = choose_signal(thresholds, observations, asked)
    if chosen is None:
        exit_with(EXIT_READING, "no disk threshold of the kubelet can be evaluated now: name a signal with --signal")
    signal, threshold, met = chosen
    observation = observations.signals.get(signal)
    pods, usages = _asked(configuration.kubelet_access)
    over = [(pod, exceeded_limit(pod, usages.get(pod.uid), layout)) for pod in pods]
    evictions = PodEvictions(
        signal=signal,
        met=met,
        threshold=None if threshold is None else threshold_json(threshold, observations),
        observation=None if observation is None else observation_json(observation, observations),
        layout=layout,
        counted=counted_kinds(layout, signal.filesystem),
        pods=rank_pods(pods, usages, signal, layout),
        over_limits=tuple(OverLimit(pod.namespace, pod.name, pod.uid, limit) for pod, limit in over if limit),
    )
    answer(arguments, evictions, lambda: pod_evictions_lines(evictions, columns()))
    return EXIT_OK


def _asked(access: KubeletAccess) -> tuple[tuple[EvictablePod, ...], Mapping[str, PodUsage]]:
    """The kubelet's pods and their usage. Exits with 4 if the kubelet does not give them."""
    asked = "list of pods"
    try:
        with Progress("asking the kubelet for its pods and their statistics"):
            endpoint, list_of_pods = asked_once(access, PODS, ANSWER_SECONDS)  # not at its socket, which has no summary
            pods = parse_active_pods(list_of_pods)
            asked = "summary"
            summary = answered_in_time(lambda: ask_kubelet(endpoint, ANSWER_SECONDS, STATS_SUMMARY), ANSWER_SECONDS)()
            return pods, parse_stats_summary(summary)
    except KubeletAnswerError as error:
        exit_with(EXIT_READING, f"the kubelet's {asked} is not used: {error}")
    except KubeletUnavailable as error:
        exit_with(EXIT_READING, str(error))


def pod_evictions_lines(found: PodEvictions, width: int | None = None) -> list[str]:
    """The signal and its state, the pods in order, and those that are evicted before any signal."""
    counted = ", ".join(map(_words, found.counted)) or "nothing of a pod, so priority and request decide"
    lines = [_signal_line(found), f"counted for it: {counted} (layout: {found.layout})", ""]
    rows = [["RANK", "POD", "USED", "REQUEST", "PRIORITY", *(_words(kind).upper() for kind in COUNTED), "WHY"]]
    for each in found.pods:
        amounts = [each.used, *((each.usage or {}).get(kind) for kind in COUNTED)]
        used, *of_each = ["-" if value is None else amount(Signal(found.signal), value) for value in amounts]
        place = ["-" if each.rank is None else str(each.rank), f"{each.namespace}/{each.name}"]
        why = each.reason.words + (", being deleted" if each.deleted else "")
        rows.append([*place, used, format_bytes(each.request), str(each.priority), *of_each, why])
    if found.pods:
        lines += [*table(rows, width), ""]
    ranks = [each.rank for each in found.pods if each.rank is not None]
    if ranks:
        lines.append("at most one pod per pass, from the top, and only if what the kubelet removes first is not enough")
    else:
        lines.append("the kubelet has no pod to evict")
    if len(set(ranks)) < len(ranks):
        lines.append("pods with the same rank are listed by name; the kubelet does not define their order")
    lines += [f"evicted whatever the signal: {one.namespace}/{one.name}: {one.reason}" for one in found.over_limits]
    return lines


def _signal_line(found: PodEvictions) -> str:
    signal, threshold = Signal(found.signal), found.threshold
    if threshold is None:
        return f"{signal}: the kubelet has no threshold for it, so it evicts no pod"
    if found.observation is None or found.met is None:
        return f"{signal}: it is not known whether the kubelet's threshold {threshold['value']} is met"
    available, mark = amount(signal, found.observation["available"]), amount(signal, threshold["effective"] or 0)
    state = "UNDER PRESSURE" if found.met else "not met, so it evicts no pod now"
    grace = "" if threshold["hard"] else f", after {format_duration(threshold['grace_seconds'])} of pressure"
    return f"{signal}: {state}: {available} available, the kubelet's threshold {threshold['value']} = {mark}{grace}"


def _words(kind: Measured) -> str:
    return kind.replace("_", " ")
