"""The kubelet's restart rule: which containers it would start now.

A collector can do harm that no list shows: it removes the last trace of a container that has done its work, and the
kubelet runs it again. So the drill asks the kubelet's own rule before and after.

Source: kubelet, `pkg/kubelet/container/helpers.go`, ShouldContainerBeRestarted; for init containers, which run again
only if they failed or if nothing says that they ran, `pkg/kubelet/kuberuntime/kuberuntime_container.go`.

Covers: pods that are not being deleted. Does not cover: back-off, probes, sidecars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eviction.drill.scenario.types import CONTAINER, INIT_CONTAINER, PodSpec, PodState, RestartPolicy
from reclaim.types import Container, ContainerState


@dataclass(frozen=True, slots=True)
class Memory:
    """What the runtime still says about the newest copy of a container; `exit_code` counts where it has exited."""

    state: ContainerState
    exit_code: int = 0


def should_be_restarted(policy: RestartPolicy, newest: Memory | None) -> bool:
    """Whether the kubelet would start the container. None: nothing says that it ever ran."""
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
    """The containers (`pod/container`) of the pods that live which the kubelet would start now.

    `exit_codes`: by container id, of those that have exited.
    """
    newest: dict[tuple[str, str], Container] = {}
    for container in sorted(containers, key=lambda each: each.created_at_ns):
        newest[container.pod_name, container.name] = container
    starts: set[str] = set()
    for pod in pods:
        if not pod.state.lives:
            continue
        rules = {CONTAINER: pod.restart_policy}
        if pod.state is PodState.INITIALIZED:
            rules[INIT_CONTAINER] = RestartPolicy.ON_FAILURE  # an init container that ended well is never run again
        for pod_name in pod.names:
            for name, policy in rules.items():
                found = newest.get((pod_name, name))
                memory = None if found is None else Memory(found.state, exit_codes.get(found.id, 0))
                if should_be_restarted(policy, memory):
                    starts.add(f"{pod_name}/{name}")
    return frozenset(starts)
