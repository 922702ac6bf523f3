"""Where a node knows its pods from.

The kubelet's directories, the kubelet itself where it is configured, and what is seen of them where that is to count.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from eviction.configuration.effective import Configuration
from eviction.configuration.kubelet_client import ANSWER_SECONDS, ask_kubelet
from eviction.configuration.kubelet_ways import KubeletSearch
from reclaim.execution.readings import LOOK_SECONDS, ReadingHangs, ReadingsInTime
from reclaim.execution.workers import NoThread, Workers
from reclaim.pods.believed_pods import BelievedPods, HealthySince
from reclaim.pods.kubelet_directories import KubeletDirectories
from reclaim.pods.pod_list import KubeletUnavailable
from signals.clock import Clock

MOST_ASKING = 8  # at a time

Answer = TypeVar("Answer")


def believed_pods(
    configuration: Configuration, directories: KubeletDirectories, clock: Clock, healthy_since: HealthySince
) -> BelievedPods:
    """The kubelet's directories, the kubelet itself where it is configured, and what is seen where that is to count."""
    ask = None
    if configuration.kubelet_endpoint is not None:
        ask = answered_in_time(partial(ask_kubelet, configuration.kubelet_endpoint), ANSWER_SECONDS)
    elif configuration.kubelet_place is not None:
        ask = answered_in_time(KubeletSearch(configuration.kubelet_place, clock).get_pods, ANSWER_SECONDS)
    seen = healthy_since if configuration.terminated_by_evidence else None
    return BelievedPods(directories, clock, ask, seen, configuration.terminated_pod_age_seconds)


def answered_in_time(ask: Callable[[], Answer], seconds: float) -> Callable[[], Answer]:
    """The same question, also where a file of its identity hangs; while it does, others fail at once. `seconds`: what
    the answer itself may take. Any thread may call; KubeletUnavailable is raised in 2 s more."""
    asked = ReadingsInTime(Workers("the kubelet", MOST_ASKING), seconds + LOOK_SECONDS)

    def ask_in_time() -> Answer:
        try:
            return asked(ask)
        except ReadingHangs as error:
            raise KubeletUnavailable(f"the kubelet is not asked: {error}; is a file hanging?", late=True) from None
        except NoThread:  # none can be started
            return ask()

    return ask_in_time
