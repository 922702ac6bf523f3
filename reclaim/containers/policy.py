"""Which dead containers and sandboxes may be removed: the policy, and the rules that both plans share."""

from __future__ import annotations

from dataclasses import dataclass

from reclaim.pods.states import PodStates
from reclaim.types import ContainerState, Listing, PodSandboxState, PolicyError, Reason

NANOSECOND = 1e-9


@dataclass(frozen=True, slots=True)
class ContainerGCPolicy:
    """Which dead containers may be removed; the fields of the kubelet's policy of the same name, and two of ours.

    `min_age_seconds`: from creation, at least 0. `max_per_pod_container`: dead copies kept of each (pod UID, name).
    `max_containers`: dead containers kept on the node. Both: negative is no limit, 0 keeps none.
    `settle_seconds`: how old the parts of a vanished pod must be to count as gone.
    `cautious`: the guards hold even where the kubelet's own state is known.

    Raises PolicyError for a negative minimum age, as `NewContainerGC` does (`pkg/kubelet/container/container_gc.go`).
    """

    min_age_seconds: float = 0.0
    max_per_pod_container: int = 1
    max_containers: int = -1
    settle_seconds: float = 10.0
    cautious: bool = False

    def __post_init__(self) -> None:
        if self.min_age_seconds < 0:
            raise PolicyError(
                f"the minimum age of a container is at least 0 seconds, but it was {self.min_age_seconds:g}"
            )

    def guarded(self, pods: PodStates) -> bool:
        """Whether the guards hold: the kubelet's state is not known, its directories are not believed, or caution is
        asked for."""
        return self.cautious or not pods.known or pods.doubt is not None


def why_removable(pods: PodStates, uid: str) -> Reason:
    """The state of a pod whose containers may be removed, as a reason."""
    state = (pods.kubelet or {}).get(uid)
    if state is None:
        return Reason.TERMINATED_BY_EVIDENCE if pods.shown_terminated(uid) else Reason.POD_GONE
    return Reason.POD_EVICTED if state.evicted else Reason.POD_TERMINATED


def why_newest(pods: PodStates, uid: str) -> Reason:
    """Why the newest dead copy of a container stays: its pod is alive, or may be."""
    return Reason.POD_UNKNOWN if pods.unknown(uid) else Reason.NEWEST_OF_LIVE_POD


def missing_age(created_at_ns: int, min_age_seconds: float, now_ns: int, *, guarded: bool) -> float:
    """Seconds until the age is reached, 0 and below when it is (equal is old enough).

    Infinite without a creation time where guarded; to the kubelet that is the beginning of the epoch.
    """
    if guarded and created_at_ns <= 0:
        return float("inf")
    return min_age_seconds - (now_ns - created_at_ns) * NANOSECOND


def pods_with_living_parts(listing: Listing) -> frozenset[str]:
    """The UIDs of pods of which a container runs or may start, or a sandbox is ready."""
    of_containers = {c.pod_uid for c in listing.containers if c.state is not ContainerState.EXITED}
    of_sandboxes = {s.pod_uid for s in listing.sandboxes if s.state is PodSandboxState.READY}
    return frozenset(of_containers | of_sandboxes)
