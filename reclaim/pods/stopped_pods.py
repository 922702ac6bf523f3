"""Which pods stand still by what the runtime holds, and what they hold: values, no verdicts.

That a pod stands still does not say that it has terminated: after a reboot every pod does.

Covers: reading a listing. Does not cover: whether such a pod may run again (`evidence`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from reclaim.pods.states import is_pod_uid
from reclaim.types import Container, ContainerState, Listing, PodSandbox, PodSandboxState


class StoppedPod(NamedTuple):
    """A kubelet's pod all of whose containers, if it has any, have EXITED and whose sandboxes (at least one) are
    NOTREADY. Ids are sorted. `newest`: its newest sandbox."""

    uid: str
    containers: tuple[str, ...]
    sandboxes: tuple[str, ...]
    newest: PodSandbox


def stopped_pods(listing: Listing) -> dict[str, StoppedPod]:
    """The pods that stand still, by UID. A pod of which anything is not the kubelet's, or has no sandbox, is none."""
    containers: dict[str, list[Container]] = defaultdict(list)
    sandboxes: dict[str, list[PodSandbox]] = defaultdict(list)
    for container in listing.containers:
        containers[container.pod_uid].append(container)
    for sandbox in listing.sandboxes:
        sandboxes[sandbox.pod_uid].append(sandbox)
    return {
        uid: StoppedPod(
            uid,
            tuple(sorted(container.id for container in containers[uid])),
            tuple(sorted(sandbox.id for sandbox in sandboxes[uid])),
            max(sandboxes[uid], key=lambda s: (s.created_at_ns, s.attempt, s.id)),
        )
        for uid in sandboxes
        if is_pod_uid(uid)
        and all(container.state is ContainerState.EXITED for container in containers[uid])
        and all(s.state is PodSandboxState.NOTREADY and s.labelled for s in sandboxes[uid])
    }
