"""The kubelet's garbage collection of containers and sandboxes, written once more,
straight from its description.

Source: kubelet, `pkg/kubelet/kuberuntime/kuberuntime_gc.go`. For inputs without equal creation
times, whose order the kubelet leaves open. A second implementation to compare with: it knows no
guards, no reasons and no order.
"""

from __future__ import annotations

from collections import defaultdict

from reclaim.containers.plan import ContainerGCPolicy
from reclaim.evidence.states import PodStates
from reclaim.types import Container, ContainerState, Listing, PodSandbox, PodSandboxState
from tests.pure.values import NOW_NS, SECOND_NS


def removable(pods: PodStates, uid: str, evict_non_deleted_pods: bool) -> bool:
    """Whether all of a pod may go:

    `ShouldPodContentBeRemoved`, or `ShouldPodRuntimeBeRemoved` with the flag.
    """
    assert pods.kubelet is not None
    state = pods.kubelet.get(uid)
    if state is None:
        return uid not in (pods.present or ())
    if state.evicted or (state.deleted and state.terminated):
        return True
    return evict_non_deleted_pods and state.terminated


def kubelet_removes_containers(
    listing: Listing, pods: PodStates, policy: ContainerGCPolicy, evict_non_deleted_pods: bool
) -> set[str]:
    """`evictableContainers` and `evictContainers`."""
    units: dict[tuple[str, str], list[Container]] = defaultdict(list)
    for one in listing.containers:
        old_enough = one.created_at_ns <= NOW_NS - policy.min_age_seconds * SECOND_NS
        if one.state is not ContainerState.RUNNING and old_enough:
            units[one.pod_uid, one.name].append(one)
    going: set[str] = set()
    if pods.sources_ready:
        for key in list(units):
            if removable(pods, key[0], evict_non_deleted_pods):
                going |= {one.id for one in units.pop(key)}

    def remove_oldest(containers: list[Container], number: int) -> list[Container]:
        newest_first = sorted(containers, key=lambda one: -one.created_at_ns)
        left = max(len(containers) - number, 0)
        going.update(one.id for one in newest_first[left:])
        return newest_first[:left]

    if policy.max_per_pod_container >= 0:
        for key, unit in units.items():
            units[key] = remove_oldest(unit, max(len(unit) - policy.max_per_pod_container, 0))
    total = sum(len(unit) for unit in units.values())
    if policy.max_containers >= 0 and total > policy.max_containers:
        share = max(policy.max_containers // len(units), 1)
        for key, unit in units.items():
            units[key] = remove_oldest(unit, max(len(unit) - share, 0))
        together = [one for unit in units.values() for one in unit]
        if len(together) > policy.max_containers:
            remove_oldest(together, len(together) - policy.max_containers)
    return going


def kubelet_removes_sandboxes(
    listing: Listing, pods: PodStates, evict_non_deleted_pods: bool
) -> set[str]:
    """`evictSandboxes`: inactive ones; of pods that may go all, of others all but the newest."""
    occupied = {one.sandbox_id for one in listing.containers}
    by_pod: dict[str, list[PodSandbox]] = defaultdict(list)
    for one in listing.sandboxes:
        by_pod[one.pod_uid].append(one)
    going: set[str] = set()
    for uid, of_pod in by_pod.items():
        newest_first = sorted(of_pod, key=lambda one: -one.created_at_ns)
        candidates = (
            newest_first if removable(pods, uid, evict_non_deleted_pods) else newest_first[1:]
        )
        going |= {
            s.id for s in candidates if s.state is PodSandboxState.NOTREADY and s.id not in occupied
        }
    return going
