"""Where a node knows its pods from.

The kubelet's directories, the kubelet itself where it is configured, and what is seen of them where that is to count.
"""

from __future__ import annotations

import os
from functools import partial

from eviction.configuration.effective import Configuration
from eviction.configuration.kubelet_ways import kubelet_ways
from reclaim.pods.believed_pods import BelievedPods
from reclaim.pods.kubelet_directories import KubeletDirectories
from reclaim.pods.states import PodSource
from reclaim.pods.terminated_pods import HealthySince, TerminatedPods
from signals.clock import Clock


def believed_pods(
    configuration: Configuration, directories: KubeletDirectories, clock: Clock, healthy_since: HealthySince
) -> BelievedPods:
    """The kubelet's directories, the kubelet itself where it is configured, and what is seen where that is to count."""
    source: PodSource = directories
    if configuration.asks_kubelet:
        from reclaim.pods.kubelet_client import get_pods  # only where it is configured, because it imports ssl
        from reclaim.pods.kubelet_pods import KubeletPods
        from reclaim.pods.kubelet_search import KubeletSearch

        if configuration.kubelet_endpoint is not None:
            source = KubeletPods(source, partial(get_pods, configuration.kubelet_endpoint), clock)
        elif configuration.kubelet_place is not None:
            search = KubeletSearch(partial(kubelet_ways, configuration.kubelet_place), clock)
            source = KubeletPods(source, search.get_pods, clock)
    age_seconds = configuration.terminated_pod_age_seconds
    seen = (
        TerminatedPods(directories, healthy_since, age_seconds, clock) if configuration.terminated_by_evidence else None
    )
    return BelievedPods(source, os.path.join(configuration.root_directory, "pods"), clock, seen)
