"""The kubelet's restart rule: which containers it would start now.

A garbage collector can do harm that no list shows: if it removes the last record of a container that has done its work,
the kubelet runs that container again. So the drill applies the kubelet's own rule before and after a run.

Source: kubelet, `pkg/kubelet/container/helpers.go`, ShouldContainerBeRestarted; for init containers, which run again
only if they failed or if nothing says that they ran, `pkg/kubelet/kuberuntime/kuberuntime_container.go`.

Covers: pods that are not being deleted. Does not cover: back-off, probes, sidecars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eviction.drill.scenario import CONTAINER, INIT_CONTAINER, PodSpec, PodState, RestartPolicy
from reclaim.types import Container, ContainerState


@dataclass(frozen=True, slots=True)
class LastStatus:
    """The runtime's status of the newest copy of a container. `exit_code` is valid if it has EXITED."""

    state: ContainerState
    exit_code: int = 0


def should_container_be_restarted(policy: RestartPolicy, newest: LastStatus | None) -> bool:
    """True if the kubelet would start the container. `newest` is None if the runtime has no record of it."""
    if newest is None:
        return True
    match newest.state:
        case ContainerState.RUNNING:
            return False
        case ContainerState.CREATED | ContainerState.UNKNOWN:
            return True
        case ContainerState.EXITED:
            failed = newest.exit_code != 0
            return policy is RestartPolicy.ALWAYS or (policy is RestartPolicy.ON_FAILURE and failed)


def would_start(
    pods: Iterable[PodSpec], containers: Iterable[Container], exit_codes: Mapping[str, int]
) -> frozenset[str]:
    """The containers (`pod/container`) that the kubelet would start now, of the pods that it knows.

    `exit_codes`: by id of the containers that have exited.
    """
    newest: dict[tuple[str, str], Container] = {}
    for container in sorted(containers, key=lambda each: each.created_at_ns):
        newest[container.pod_name, container.name] = container
    starts: set[str] = set()
    for pod in pods:
        if not pod.state.known_to_kubelet:
            continue
        rules = {CONTAINER: pod.restart_policy}
        if pod.state is PodState.INITIALIZED:
            rules[INIT_CONTAINER] = RestartPolicy.ON_FAILURE  # an init container that ended well is never run again
        for pod_name in pod.names:
            for name, policy in rules.items():
                found = newest.get((pod_name, name))
                status = None if found is None else LastStatus(found.state, exit_codes.get(found.id, 0))
                if should_container_be_restarted(policy, status):
                    starts.add(f"{pod_name}/{name}")
    return frozenset(starts)
