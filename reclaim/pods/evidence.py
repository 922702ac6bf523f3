"""Which pods have terminated, by what was seen over time: `terminatedPods: evidence`. Pure.

The kubelet alone knows which pods have terminated. Where it is not asked, this is what shows it, all of it together:

* All containers of the pod have EXITED and all its sandboxes are NOTREADY, and stay the same: a kubelet makes a new
  sandbox for any pod that is to run again, and a crash loop, an image pull back-off, or the pause between two init
  containers keep the sandbox READY (`pkg/kubelet/kuberuntime/kuberuntime_manager.go`, computePodActions).
* The kubelet has torn down its volumes: of the volumes that the pod had, only the empty directories of their plugins
  are left. It does so only for a pod whose containers are to stop for good
  (`pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go`), which for a UID of the API server is
  final (`pkg/kubelet/pod_workers.go`). That NOTREADY alone proves little is why this is needed: after a reboot, while
  the network is not ready, or when the runtime can make no sandbox, pods that must run again look the same for as long
  as that lasts, and a failed RunPodSandbox leaves no record. But their volumes stay, or are mounted again before any
  sandbox is made. A pod without any volume, not even a token, shows nothing and is never terminated by evidence.
* It is a pod of the API server. A static pod keeps its UID when it is started again.
* The kubelet knows the pods of the API server. One that has been started while the API server is away tears down
  nothing, but does not mount again either what an earlier one tore down before the pod's last status was sent. So
  this kubelet must have made a sandbox for some pod of the API server, or this very pod must have been seen running.
* All this has been seen for `age_seconds`, at least every LONGEST_GAP_SECONDS, while the kubelet answered healthy over
  one and the same connection. A restart of the kubelet or of this program, a gap, or a step of the clock (also a
  suspended machine) starts the count anew: the count is of what was seen, never of what a time stamp says.

What is left is what holds for the kubelet's own collection too: a last status that never reaches the API server.

Covers: the decision. Does not cover: observing (`terminated_pods`), and the check right before a removal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from reclaim.pods.stopped_pods import StoppedPod

LONGEST_GAP_SECONDS = 180.0  # it is observed once a minute, and at each pass
LARGEST_STEP_SECONDS = 5.0
API_SOURCE = "api"  # of the annotation kubernetes.io/config.source


class Observation(NamedTuple):
    """What is seen at one moment.

    `at`, `wall`: monotonic and wall seconds. `kubelet_since`: since when (monotonic) one and the same kubelet has
    answered healthy; None if it does not. `stopped`: the pods that stand still; `torn_down`: those of them whose
    volumes are gone. `running`: the pods that have a READY sandbox. `sandboxes`: all those of pods of the API server.
    """

    at: float
    wall: float
    kubelet_since: float | None
    stopped: Mapping[str, StoppedPod]
    torn_down: frozenset[str]
    running: frozenset[str]
    sandboxes: frozenset[str]


class Still(NamedTuple):
    """A pod that stands still with its volumes torn down, and since when that has been seen."""

    pod: StoppedPod
    since: float


@dataclass(frozen=True, slots=True)
class Watched:
    """What has been seen without interruption. `first`: the sandboxes at the beginning. `ran`: UIDs seen with
    a READY sandbox. `made`: whether the kubelet has made a sandbox for a pod of the API server meanwhile."""

    at: float
    wall: float
    kubelet_since: float
    first: frozenset[str]
    ran: frozenset[str] = frozenset()
    made: bool = False
    still: Mapping[str, Still] = field(default_factory=dict)

    def terminated(self, age_seconds: float) -> frozenset[str]:
        """The UIDs of the pods that have terminated, as of the last observation."""
        return frozenset(uid for uid in self.still if self.why_not(uid, age_seconds) is None)

    def why_not(self, uid: str, age_seconds: float) -> str | None:
        """Why a pod does not count as terminated, in a few words; None if it does."""
        still = self.still.get(uid)
        if still is None:
            return "it does not stand still with its volumes torn down, or is no pod of the API server"
        if not self.made and uid not in self.ran:
            return "the kubelet has not been seen to know the pods of the API server"
        left = age_seconds - (self.at - still.since)
        return None if left <= 0 else f"it has to be seen for another {left:.0f} s"


def watched(before: Watched | None, seen: Observation) -> Watched | None:
    """What has been seen with one more observation; None while the kubelet does not answer healthy."""
    if seen.kubelet_since is None:
        return None
    if before is None or _interrupted(before, seen):
        before = Watched(seen.at, seen.wall, seen.kubelet_since, seen.sandboxes)
    still = {
        uid: Still(pod, _since(before.still.get(uid), pod, seen.at))
        for uid, pod in seen.stopped.items()
        if uid in seen.torn_down and pod.newest.config_source == API_SOURCE
    }
    return replace(
        before,
        at=seen.at,
        wall=seen.wall,
        ran=seen.running | (before.ran & seen.stopped.keys()),
        made=before.made or not seen.sandboxes <= before.first,
        still=still,
    )


def _interrupted(before: Watched, seen: Observation) -> bool:
    """Whether nothing may be concluded from the one observation to the other."""
    passed, on_the_wall = seen.at - before.at, seen.wall - before.wall
    return (
        before.kubelet_since != seen.kubelet_since
        or not 0 <= passed <= LONGEST_GAP_SECONDS
        or abs(on_the_wall - passed) > LARGEST_STEP_SECONDS
    )


def _since(earlier: Still | None, pod: StoppedPod, at: float) -> float:
    """Since when the pod has stood still: anew if it has a container or sandbox that it did not have before."""
    if earlier is None:
        return at
    known = {*earlier.pod.containers, *earlier.pod.sandboxes}
    return earlier.since if known.issuperset((*pod.containers, *pod.sandboxes)) else at
