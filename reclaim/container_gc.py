"""Which dead containers and pod sandboxes may go: the plan (pure).

The kubelet's rules (`pkg/kubelet/kuberuntime/kuberuntime_gc.go`), and where they are narrowed:

* Containers are looked at by evict unit: (pod UID, container name). Of each unit the newest
  `max_per_pod_container` dead ones stay, older ones go, oldest first. Of a pod that is gone all go.
* A container younger than `min_age_seconds`, counted from its creation, stays and does not count: of the others the
  newest stay. One whose creation time is not known is young.
* A sandbox that is READY, or that any listed container names, stays. Of a pod that exists the newest sandbox stays.

Narrower than the kubelet, because a tool beside it knows less:

* Only EXITED is dead. The kubelet would also take CREATED and UNKNOWN ones; beside it those belong to it.
* The newest dead copy is the kubelet's only memory that a container has run: without it the kubelet runs a
  completed container, even an init container, again. One copy therefore always stays while the pod may exist,
  whatever the limit says.
* A pod is gone only when its directory below the kubelet's root is gone, nothing of it is READY or not EXITED, and
  it is at least `settle_seconds` old: the kubelet makes the directory before anything else of a pod.
* What carries no pod UID was not made by a kubelet and is left alone.

Covers: verdicts and their order. Does not cover: looking again before a removal (`removers`), logs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reclaim.pods import PodStates
from reclaim.types import (
    Action,
    Container,
    ContainerState,
    Kind,
    Listing,
    Plan,
    PodSandbox,
    PodSandboxState,
    Reason,
    Verdict,
)

NANOSECOND = 1e-9


@dataclass(frozen=True, slots=True)
class ContainerGCPolicy:
    """`min_age_seconds`: from creation, at least 0. `max_per_pod_container`: dead copies kept of each (pod UID,
    name); negative keeps all. `settle_seconds`: how old the parts of a vanished pod must be to count as gone."""

    min_age_seconds: float = 0.0
    max_per_pod_container: int = 1
    settle_seconds: float = 10.0


def plan_container_gc(listing: Listing, pods: PodStates, policy: ContainerGCPolicy, now_ns: int) -> Plan:
    """The plan for every listed container. `now_ns`: wall time in nanoseconds since the epoch, as the runtime's.

    To go first: containers of pods that are gone, then older copies; in each group the oldest first, equal times by
    id, so that the order of the listing changes nothing.
    """
    alive = _pods_with_living_parts(listing)
    units: dict[tuple[str, str], list[Container]] = defaultdict(list)
    removed: list[tuple[int, Container, Verdict]] = []
    kept: list[Verdict] = []
    for container in listing.containers:
        reason = _not_dead(container)
        if reason is not None:
            kept.append(_verdict(container, Action.KEEP, reason, now_ns))
        else:
            units[container.pod_uid, container.name].append(container)
    for (uid, _), dead in units.items():
        newest_first = sorted(dead, key=lambda c: (c.created_at_ns, c.attempt, c.id), reverse=True)
        gone = pods.gone(uid) and uid not in alive
        min_age = max(policy.min_age_seconds, policy.settle_seconds) if gone else policy.min_age_seconds
        rank = 0
        for container in newest_first:
            wait = _missing_age(container.created_at_ns, min_age, now_ns)
            newest = container is newest_first[0]
            if wait > 0 and (gone or not newest):
                young = _verdict(container, Action.KEEP, Reason.TOO_YOUNG, now_ns)
                kept.append(replace(young, eligible_in_seconds=wait))
                continue
            if gone:
                removed.append((0, container, _verdict(container, Action.REMOVE, Reason.POD_GONE, now_ns)))
            elif newest:
                kept.append(_verdict(container, Action.KEEP, Reason.NEWEST_OF_LIVE_POD, now_ns))
            elif policy.max_per_pod_container < 0 or rank < policy.max_per_pod_container:
                kept.append(_verdict(container, Action.KEEP, Reason.WITHIN_LIMIT, now_ns))
            else:
                older = _verdict(container, Action.REMOVE, Reason.OLDER_COPY, now_ns)
                removed.append((1, container, replace(older, superseded_by=newest_first[0].id)))
            rank += wait <= 0
    removed.sort(key=lambda item: (item[0], item[1].created_at_ns, item[1].id))
    kept.sort(key=lambda verdict: (verdict.name, verdict.id))
    return Plan(tuple(verdict for _, _, verdict in removed), tuple(kept))


def _not_dead(container: Container) -> Reason | None:
    match container.state:
        case ContainerState.RUNNING:
            return Reason.RUNNING
        case ContainerState.CREATED:
            return Reason.CREATED
        case ContainerState.UNKNOWN:
            return Reason.UNKNOWN_STATE
        case ContainerState.EXITED:
            return None if container.pod_uid else Reason.NOT_KUBELETS


def _verdict(container: Container, action: Action, reason: Reason, now_ns: int) -> Verdict:
    return Verdict(
        kind=Kind.CONTAINER,
        id=container.id,
        name=container.title,
        action=action,
        reason=reason,
        age_seconds=(now_ns - container.created_at_ns) * NANOSECOND,
        pod_uid=container.pod_uid,
    )


def _missing_age(created_at_ns: int, min_age_seconds: float, now_ns: int) -> float:
    """Seconds until the age is reached, 0 and below when it is (equal is old enough); infinite without a time."""
    if created_at_ns <= 0:
        return float("inf")
    return min_age_seconds - (now_ns - created_at_ns) * NANOSECOND


def _pods_with_living_parts(listing: Listing) -> frozenset[str]:
    of_containers = {c.pod_uid for c in listing.containers if c.state is not ContainerState.EXITED}
    of_sandboxes = {s.pod_uid for s in listing.sandboxes if s.state is PodSandboxState.READY}
    return frozenset(of_containers | of_sandboxes)


def plan_sandbox_gc(listing: Listing, pods: PodStates, policy: ContainerGCPolicy, now_ns: int) -> Plan:
    """The plan for every listed sandbox, made from lists that are read after the containers went.

    Oldest first, equal times by id.
    """
    occupied = {container.sandbox_id for container in listing.containers}
    alive = _pods_with_living_parts(listing)
    by_pod: dict[str, list[PodSandbox]] = defaultdict(list)
    for sandbox in listing.sandboxes:
        by_pod[sandbox.pod_uid].append(sandbox)
    removed: list[tuple[PodSandbox, Verdict]] = []
    kept: list[Verdict] = []
    for uid, sandboxes in by_pod.items():
        gone = pods.gone(uid) and uid not in alive
        newest_first = sorted(sandboxes, key=lambda s: (s.created_at_ns, s.attempt, s.id), reverse=True)
        for rank, sandbox in enumerate(newest_first):
            verdict = _judge_sandbox(sandbox, rank, gone, sandbox.id in occupied, policy, now_ns)
            if verdict.action is Action.REMOVE:
                removed.append((sandbox, verdict))
            else:
                kept.append(verdict)
    removed.sort(key=lambda item: (item[0].created_at_ns, item[0].id))
    kept.sort(key=lambda verdict: (verdict.name, verdict.id))
    return Plan(tuple(verdict for _, verdict in removed), tuple(kept))


def _judge_sandbox(
    sandbox: PodSandbox, rank: int, gone: bool, occupied: bool, policy: ContainerGCPolicy, now_ns: int
) -> Verdict:
    def verdict(action: Action, reason: Reason) -> Verdict:
        age = (now_ns - sandbox.created_at_ns) * NANOSECOND
        return Verdict(
            Kind.SANDBOX, sandbox.id, sandbox.title, action, reason, age_seconds=age, pod_uid=sandbox.pod_uid
        )

    if sandbox.state is PodSandboxState.READY:
        return verdict(Action.KEEP, Reason.READY)
    if occupied:
        return verdict(Action.KEEP, Reason.HAS_CONTAINERS)
    if not sandbox.labelled or not sandbox.pod_uid:
        return verdict(Action.KEEP, Reason.NOT_KUBELETS)
    if gone:
        wait = _missing_age(sandbox.created_at_ns, policy.settle_seconds, now_ns)
        if wait > 0:
            return replace(verdict(Action.KEEP, Reason.TOO_YOUNG), eligible_in_seconds=wait)
        return verdict(Action.REMOVE, Reason.POD_GONE)
    if rank == 0:
        return verdict(Action.KEEP, Reason.NEWEST_SANDBOX)
    return verdict(Action.REMOVE, Reason.OLDER_SANDBOX)


def without(listing: Listing, removed: Sequence[Verdict]) -> Listing:
    """The listing as it would be without these objects: what a dry run goes on with."""
    gone = {(verdict.kind, verdict.id) for verdict in removed}
    return replace(
        listing,
        images=tuple(i for i in listing.images if (Kind.IMAGE, i.id) not in gone),
        containers=tuple(c for c in listing.containers if (Kind.CONTAINER, c.id) not in gone),
        sandboxes=tuple(s for s in listing.sandboxes if (Kind.SANDBOX, s.id) not in gone),
    )
