"""The kubelet's restart rule, as a model: which containers of a pod it would start next.

The drill has a model of its own, of the few pods that it makes (`judgement.judge`). The kubelet remembers what has run only by the runtime's containers: one without a
copy there has, to the kubelet, never run. (The kubelet has further exceptions for init containers;
here one whose copy is missing always counts as one that would run again, which is stricter.)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from reclaim.types import ContainerState


class RestartPolicy(StrEnum):
    """A pod's restart policy, spelled as in Kubernetes."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True)
class PodSpec:
    """What the kubelet is to run.

    `over`: deleted, evicted, Succeeded or Failed, so that nothing of it is started.
    """

    uid: str
    containers: tuple[str, ...]
    init_containers: tuple[str, ...] = ()
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS
    over: bool = False


@dataclass(frozen=True)
class Copy:
    """One container in the runtime."""

    uid: str
    name: str
    state: ContainerState
    exit_code: int
    created_at_ns: int


def would_start(pod: PodSpec, copies: Iterable[Copy]) -> frozenset[str]:
    """The names of the containers that the kubelet would start next."""
    if pod.over:
        return frozenset()
    oldest_first = sorted(copies, key=attrgetter("created_at_ns"))
    newest = {copy.name: copy for copy in oldest_first if copy.uid == pod.uid}
    always = pod.restart_policy is RestartPolicy.ALWAYS
    init = RestartPolicy.ON_FAILURE if always else pod.restart_policy
    policies = {
        **dict.fromkeys(pod.init_containers, init),
        **dict.fromkeys(pod.containers, pod.restart_policy),
    }
    memories = {name: (copy.state, copy.exit_code) for name, copy in newest.items()}
    return frozenset(
        name
        for name, policy in policies.items()
        if should_container_be_restarted(policy, *memories.get(name, (None,)))
    )


def should_container_be_restarted(
    policy: RestartPolicy, state: ContainerState | None, exit_code: int = 0
) -> bool:
    """Whether the kubelet would start the container.

    `state`, `exit_code`: those of its newest copy; None if the runtime has no record of it.
    """
    if state is not ContainerState.EXITED:
        return state is not ContainerState.RUNNING
    return policy is RestartPolicy.ALWAYS or (policy is RestartPolicy.ON_FAILURE and exit_code != 0)
