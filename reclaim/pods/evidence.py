"""Which pods have terminated, according to observations over time: `terminatedPods: evidence`. Pure.

Only the kubelet knows which pods have terminated. If it is not asked, the following shows it, all of it together:

* All containers of the pod have EXITED, all its sandboxes are NOTREADY, and both stay the same: a kubelet makes a new
  sandbox for any pod that is to run again, and a crash loop, an image pull back-off, or the pause between two init
  containers keep the sandbox READY (`pkg/kubelet/kuberuntime/kuberuntime_manager.go`, computePodActions).
* The kubelet has torn down its volumes: of the volumes the pod had, only the empty directories of their plugins are
  left. The kubelet does this only for a pod whose containers are to stop for good
  (`pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go`), which is final for a UID from the API
  server (`pkg/kubelet/pod_workers.go`). This is needed because NOTREADY alone proves little: after a reboot, while the
  network is not ready, or when the runtime cannot make sandboxes, pods that must run again look the same for as long as
  that lasts, and a failed RunPodSandbox leaves no record. But their volumes stay, or are mounted again before any
  sandbox is made. A pod without any volume, not even a token, shows nothing and is never terminated by evidence.
* The pod comes from the API server. A static pod keeps its UID when it is started again.
* The kubelet knows the API server's pods. A kubelet that was started while the API server is away tears down nothing,
  but neither does it remount what an earlier kubelet tore down before sending the pod's last status. So this kubelet
  must have made a sandbox for some pod of the API server, or this very pod must have been seen running.
* All this has been observed for `age_seconds`, at least every LONGEST_GAP_SECONDS, while the kubelet answered healthy
  over the same connection. A restart of the kubelet or of this program, a gap, or a clock step (which includes
  suspending the machine) restarts the count: it counts what was observed, never what a time stamp says.

One risk remains, as in the kubelet's own collection: a last status that never reaches the API server.

Covers: the decision. Does not cover: observing, and the check right before a removal (`kubelet_pods`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from reclaim.pods.states import is_pod_uid
from reclaim.types import Container, ContainerState, Listing, PodSandbox, PodSandboxState

LONGEST_GAP_SECONDS = 180.0  # it is observed once a minute, and at each pass
LARGEST_STEP_SECONDS = 5.0
API_SOURCE = "api"  # of the annotation kubernetes.io/config.source


class StoppedPod(NamedTuple):
    """A kubelet's pod whose containers, if any, have all EXITED and whose sandboxes (at least one) are all NOTREADY, by
    their ids. `newest`: its newest sandbox.

    A stopped pod has not necessarily terminated: after a reboot, every pod is stopped.
    """

    containers: frozenset[str]
    sandboxes: frozenset[str]
    newest: PodSandbox


def stopped_pods(listing: Listing) -> dict[str, StoppedPod]:
    """The stopped pods, by UID. A pod without a sandbox, or with a part that the kubelet did not make, is left out."""
    containers: dict[str, list[Container]] = defaultdict(list)
    sandboxes: dict[str, list[PodSandbox]] = defaultdict(list)
    for container in listing.containers:
        containers[container.pod_uid].append(container)
    for sandbox in listing.sandboxes:
        sandboxes[sandbox.pod_uid].append(sandbox)
    return {
        uid: StoppedPod(
            frozenset(container.id for container in containers[uid]),
            frozenset(sandbox.id for sandbox in sandboxes[uid]),
            max(sandboxes[uid], key=lambda s: (s.created_at_ns, s.attempt, s.id)),
        )
        for uid in sandboxes
        if is_pod_uid(uid)
        and all(container.state is ContainerState.EXITED for container in containers[uid])
        and all(s.state is PodSandboxState.NOTREADY and s.labelled for s in sandboxes[uid])
    }


class Observation(NamedTuple):
    """What is observed at one moment.

    `at`, `wall`: monotonic and wall seconds. `kubelet_since`: since when (monotonic) the same kubelet has answered
    healthy; None if it does not. `listing`: complete lists from the runtime. `stopped`: the stopped pods in them;
    `torn_down`: those of them whose volumes are gone.
    """

    at: float
    wall: float
    kubelet_since: float | None
    listing: Listing
    stopped: Mapping[str, StoppedPod]
    torn_down: frozenset[str]


class Still(NamedTuple):
    """A stopped pod with its volumes torn down, and since when that has been observed."""

    pod: StoppedPod
    since: float


@dataclass(frozen=True, slots=True)
class Watched:
    """What has been observed without interruption. `first`: the sandboxes at the beginning. `ran`: UIDs seen with a
    READY sandbox. `made`: whether the kubelet has made a sandbox for a pod of the API server since."""

    at: float
    wall: float
    kubelet_since: float
    first: frozenset[str]
    ran: frozenset[str] = frozenset()
    made: bool = False
    still: Mapping[str, Still] = field(default_factory=dict)

    def terminated(self, age_seconds: float) -> frozenset[str]:
        """The UIDs of the pods that have terminated, as of the last observation."""
        return frozenset(
            uid
            for uid, still in self.still.items()
            if (self.made or uid in self.ran) and self.at - still.since >= age_seconds
        )


def watched(before: Watched | None, seen: Observation) -> Watched | None:
    """The observations with one more added; None while the kubelet does not answer healthy."""
    if seen.kubelet_since is None:
        return None
    running = frozenset(each.pod_uid for each in seen.listing.sandboxes if each.state is PodSandboxState.READY)
    made = frozenset(each.id for each in seen.listing.sandboxes if each.config_source == API_SOURCE)
    if before is None or _interrupted(before, seen):
        before = Watched(seen.at, seen.wall, seen.kubelet_since, made)
    still = {
        uid: Still(pod, _since(before.still.get(uid), pod, seen.at))
        for uid, pod in seen.stopped.items()
        if uid in seen.torn_down and pod.newest.config_source == API_SOURCE
    }
    return replace(
        before,
        at=seen.at,
        wall=seen.wall,
        ran=running | (before.ran & seen.stopped.keys()),
        made=before.made or not made <= before.first,
        still=still,
    )


def _interrupted(before: Watched, seen: Observation) -> bool:
    """Whether nothing may be concluded from one observation to the other."""
    passed, on_the_wall = seen.at - before.at, seen.wall - before.wall
    return (
        before.kubelet_since != seen.kubelet_since
        or not 0 <= passed <= LONGEST_GAP_SECONDS
        or abs(on_the_wall - passed) > LARGEST_STEP_SECONDS
    )


def _since(earlier: Still | None, pod: StoppedPod, at: float) -> float:
    """Since when the pod has been stopped; restarts if it has a container or sandbox that it did not have before."""
    if earlier is None:
        return at
    had = pod.containers <= earlier.pod.containers and pod.sandboxes <= earlier.pod.sandboxes
    return earlier.since if had else at
