"""`reclaimd plan --pods`: whom the kubelet would evict for disk, in its order, with what each uses. Read-only."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import closing

from eviction.cli.options import answer_json, answer_lines, columns, configuration_of, exit_with
from eviction.cli.progress import Progress
from eviction.configuration.effective import Configuration
from eviction.configuration.kubelet import KUBELETS_DEFAULTS
from eviction.configuration.kubelet_client import STATS_SUMMARY, KubeletEndpoint, ask_kubelet
from eviction.configuration.kubelet_ways import PodsOfKubelet, answered_in_time
from eviction.decision.thresholds import update_container_fs_thresholds
from eviction.exit_codes import EXIT_OK, EXIT_READING, EXIT_RUNTIME, EXIT_USAGE
from eviction.node.view import NodeView
from eviction.pod_eviction.answers import EvictablePod, PodUsage, parse_active_pods, parse_stats_summary
from eviction.pod_eviction.ranking import choose_signal
from eviction.pod_eviction.report import pod_evictions, pod_evictions_lines
from eviction.reporting.json_shapes import to_json
from eviction.types import Threshold
from reclaim.pods.pod_list import KubeletAnswerError, KubeletUnavailable
from signals.clock import SystemClock
from signals.types import KUBELET_SIGNALS, FsLayout, Signal, SignalObservations

ANSWER_SECONDS = 10.0  # nobody waits for relief, and a summary takes seconds where the runtime is slow
READ_DEADLINE_SECONDS = 2.0
NOT_CONFIGURED = (
    "whom the kubelet would evict only the kubelet knows: set kubeletEndpoint to auto, or to https://127.0.0.1:10250 "
    "with kubeletTokenFile and kubeletCAFile, for an identity that may get nodes/pods and nodes/stats"
)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 2 without kubeletEndpoint; 3 runtime unreachable; 4 a filesystem could not be read, or the kubelet did
    not say."""
    if arguments.until is not None:
        exit_with(EXIT_USAGE, "--until has no effect with --pods")
    if arguments.signal not in (None, *KUBELET_SIGNALS):
        exit_with(EXIT_USAGE, f"--signal: {arguments.signal!r} is none of {', '.join(KUBELET_SIGNALS)}")
    configuration = configuration_of(arguments)
    if not configuration.asks_kubelet:
        exit_with(EXIT_USAGE, NOT_CONFIGURED)
    asked = None if arguments.signal is None else Signal(arguments.signal)
    layout, observations = _observed(configuration)
    thresholds = update_container_fs_thresholds(_kubelets_thresholds(configuration), layout)
    chosen = choose_signal(thresholds, observations, asked)
    if chosen is None:
        exit_with(EXIT_READING, "no disk threshold of the kubelet can be judged now: name a signal with --signal")
    evictions = pod_evictions(chosen, observations, layout, *_asked(configuration))
    if arguments.output == "json":
        answer_json(to_json(evictions))
    else:
        answer_lines(pod_evictions_lines(evictions, columns()))
    return EXIT_OK


def _observed(configuration: Configuration) -> tuple[FsLayout, SignalObservations]:
    doing = "asking the runtime where the images are, and looking at the filesystems"
    with closing(NodeView(configuration, read_deadline_seconds=READ_DEADLINE_SECONDS)) as node, Progress(doing):
        problem = node.locate()
        observations = node.summary.observe()
    if problem is not None:
        exit_with(EXIT_RUNTIME, f"the container runtime cannot be reached: {problem}")
    if observations.layout is None:
        unread = "; ".join(dict.fromkeys(each.reason for each in observations.unavailable))
        exit_with(EXIT_READING, unread or "which filesystems the node has is not known")
    return observations.layout, observations


def _kubelets_thresholds(configuration: Configuration) -> tuple[Threshold, ...]:
    """The kubelet's own thresholds, without our margin; its defaults where its configuration was not read."""
    if configuration.kubelet is not None:
        return configuration.kubelet.thresholds.thresholds
    return KUBELETS_DEFAULTS.thresholds.thresholds


def _asked(configuration: Configuration) -> tuple[tuple[EvictablePod, ...], Mapping[str, PodUsage]]:
    """The kubelet's pods and what they use; else the command ends with one sentence."""
    answer = "list of pods"
    try:
        with Progress("asking the kubelet for its pods and their statistics"):
            endpoint, list_of_pods = answered_in_time(lambda: _list_of_pods(configuration), ANSWER_SECONDS)()
            pods = parse_active_pods(list_of_pods)
            answer = "summary"
            summary = answered_in_time(lambda: ask_kubelet(endpoint, ANSWER_SECONDS, STATS_SUMMARY), ANSWER_SECONDS)()
            return pods, parse_stats_summary(summary)
    except KubeletAnswerError as error:
        exit_with(EXIT_READING, f"the kubelet's {answer} is not used: {error}")
    except KubeletUnavailable as error:
        exit_with(EXIT_READING, str(error))


def _list_of_pods(configuration: Configuration) -> tuple[KubeletEndpoint, bytes]:
    """The kubelet's list, and where and as whom it was asked. Raises KubeletUnavailable."""
    access = configuration.kubelet_access
    assert access is not None
    pods = PodsOfKubelet(access, SystemClock(), ANSWER_SECONDS)
    body = pods.get()
    assert pods.endpoint is not None
    return pods.endpoint, body
