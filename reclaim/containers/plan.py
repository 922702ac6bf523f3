"""Which dead containers are removed: the plan.

The kubelet's rules (`pkg/kubelet/kuberuntime/kuberuntime_gc.go`):

* Containers that do not run and were created at least `min_age_seconds` ago are grouped in evict units by (pod UID,
  container name). Younger ones count nowhere.
* A. Of a pod whose content should be removed, or, with `evict_non_deleted_pods`, whose runtime should be removed, the
  whole unit is removed. Only when all sources of pods are ready.
* B. Of each other unit the oldest beyond `max_per_pod_container` are removed.
* C. If more than `max_containers` are left on the node, the oldest of each unit are removed beyond an equal share of
  that number, at least 1.
* D. If that is not enough, the oldest of all are removed.

Where the kubelet's own state is not known (`PodStates.known`), or where the policy is `cautious`, guards of ours are
stricter, because a tool beside a kubelet knows less:

* Only EXITED is dead. The kubelet would also remove CREATED and UNKNOWN ones; beside it those belong to it.
* The newest dead copy is the kubelet's only memory that a container has run: without it the kubelet runs a
  completed container, even an init container, again. So one copy is always kept while the pod may exist, whatever the
  limits are.
* A pod is gone only when its directory below the kubelet's root is gone, nothing of it is READY or not EXITED, and
  it is at least `settle_seconds` old: the kubelet makes the directory before anything else of a pod.
* Of a static pod that has terminated one copy is kept too: a kubelet that restarts would run it again, as the API
  server keeps the status of its own pods only.
* A container without a pod UID was not made by a kubelet and is kept.

They also apply while the kubelet's directories are not believed (`PodStates.doubt`): then no pod is gone.

Covers: verdicts and their order. Does not cover: sandboxes (`sandboxes`), the check right before a removal
(`removers`), logs (`pod_logs`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from reclaim.containers.policy import (
    NANOSECOND,
    ContainerGCPolicy,
    missing_age,
    pods_with_living_parts,
    why_newest,
    why_removable,
)
from reclaim.pods.states import PodStates
from reclaim.types import (
    Action,
    Container,
    ContainerState,
    Kind,
    Listing,
    Plan,
    Reason,
    Rule,
    Verdict,
)


def plan_container_gc(
    listing: Listing,
    pods: PodStates,
    policy: ContainerGCPolicy,
    now_ns: int,
    *,
    evict_non_deleted_pods: bool = True,
) -> Plan:
    """The plan for every listed container. `now_ns`: wall time in nanoseconds since the epoch, as the runtime's.

    `evict_non_deleted_pods`: whether containers of terminated pods that still exist are removed too: under pressure,
    not periodically.

    The order of removals: step A, then B, C and D; in each step the oldest first, equal times by id, so that the order
    of the list changes nothing (the kubelet leaves the order among units to chance).
    """
    guarded = policy.guarded(pods)
    plan = _decide(listing, pods, policy, now_ns, evict_non_deleted_pods, guarded=guarded)
    if not pods.known or not guarded:
        return plan
    exact = _decide(listing, pods, policy, now_ns, evict_non_deleted_pods, guarded=False)
    removed = {verdict.id for verdict in exact.remove}
    return replace(
        plan, keep=tuple(v._replace(rule=Rule.GUARD if v.id in removed else Rule.KUBELET) for v in plan.keep)
    )


def _decide(
    listing: Listing,
    pods: PodStates,
    policy: ContainerGCPolicy,
    now_ns: int,
    evict_non_deleted_pods: bool,
    *,
    guarded: bool,
) -> Plan:
    """One walk through the steps, with the guards or without them."""
    alive = pods_with_living_parts(listing)
    units: dict[tuple[str, str], list[Container]] = defaultdict(list)
    removed: list[tuple[int, Container, Verdict]] = []
    kept: list[Verdict] = []
    for container in listing.containers:
        not_dead = _why_not_dead(container, guarded=guarded)
        if not_dead is None:
            units[container.pod_uid, container.name].append(container)
        else:
            rule = Rule.KUBELET if not_dead is Reason.RUNNING else Rule.GUARD
            kept.append(_verdict(container, Action.KEEP, not_dead, now_ns, rule))

    evict_units = [
        _evict_unit(unit, uid, pods, policy, now_ns, evict_non_deleted_pods, alive, guarded=guarded)
        for (uid, _), unit in units.items()
    ]
    of_live_pods = [unit for unit in evict_units if unit.pod_removable is None]
    kept_newest = {unit.newest.id for unit in of_live_pods} if guarded else set[str]()
    steps = _beyond_limits(of_live_pods, policy, kept_newest)
    for unit in evict_units:
        superseded_by = "" if unit.pod_removable or unit.newest.id in steps else unit.newest.id
        for container in unit.old_enough:
            step = 0 if unit.pod_removable else steps.get(container.id)
            if step is not None:
                older = Reason.OLDER_COPY if step == 1 and superseded_by else Reason.OVER_LIMIT
                reason = unit.pod_removable or older
                verdict = _verdict(container, Action.REMOVE, reason, now_ns, superseded_by=superseded_by)
                removed.append((step, container, verdict))
            else:
                reason = why_newest(pods, container.pod_uid) if container is unit.newest else Reason.WITHIN_LIMIT
                kept.append(_verdict(container, Action.KEEP, reason, now_ns, Rule.GUARD if guarded else Rule.KUBELET))
        for container, wait in unit.young:
            if container.id in kept_newest:
                newest = why_newest(pods, container.pod_uid)
                kept.append(_verdict(container, Action.KEEP, newest, now_ns, Rule.GUARD))
                continue
            by_policy = missing_age(container.created_at_ns, policy.min_age_seconds, now_ns, guarded=guarded) > 0
            rule = Rule.KUBELET if by_policy else Rule.GUARD
            kept.append(_verdict(container, Action.KEEP, Reason.TOO_YOUNG, now_ns, rule, wait=wait))
    removed.sort(key=lambda item: (item[0], item[1].created_at_ns, item[1].id))
    kept.sort(key=lambda verdict: (verdict.name, verdict.id))
    return Plan(tuple(verdict for _, _, verdict in removed), tuple(kept))


@dataclass(frozen=True, slots=True)
class _EvictUnit:
    """The dead containers of one (pod UID, container name).

    `old_enough`: newest first. `young`: with the seconds that each lacks. `pod_removable`: why all of the unit is
    removed, None if it is not. `held_by_guard`: all of it would be removed but for a guard of ours, or might be.
    """

    newest: Container
    old_enough: list[Container]
    young: list[tuple[Container, float]]
    pod_removable: Reason | None
    held_by_guard: bool


def _evict_unit(
    unit: list[Container],
    uid: str,
    pods: PodStates,
    policy: ContainerGCPolicy,
    now_ns: int,
    evict_non_deleted_pods: bool,
    alive: frozenset[str],
    *,
    guarded: bool,
) -> _EvictUnit:
    pod_removable = _why_pod_removable(pods, uid, evict_non_deleted_pods)
    pod_gone = guarded and pod_removable is Reason.POD_GONE
    remembered = guarded and pod_removable is not None and pods.only_runtime_remembers(uid)
    held_by_guard = (pod_gone and uid in alive) or remembered or pods.unknown(uid)
    settle_seconds = policy.settle_seconds if pod_gone and not held_by_guard else 0.0
    newest_first = sorted(unit, key=lambda c: (c.created_at_ns, c.attempt, c.id), reverse=True)
    min_age = max(policy.min_age_seconds, settle_seconds)
    old_enough: list[Container] = []
    young: list[tuple[Container, float]] = []
    for container in newest_first:
        wait = missing_age(container.created_at_ns, min_age, now_ns, guarded=guarded)
        if wait > 0:
            young.append((container, wait))
        else:
            old_enough.append(container)
    return _EvictUnit(newest_first[0], old_enough, young, None if held_by_guard else pod_removable, held_by_guard)


def _beyond_limits(units: list[_EvictUnit], policy: ContainerGCPolicy, kept_newest: set[str]) -> dict[str, int]:
    """Steps B, C and D: which containers are removed, and in which step (1, 2, 3).

    A newest copy that is kept counts all the same, so that no other is removed in its place. Units that only a guard
    keeps do not count on the node, as the kubelet would have removed them.
    """
    steps: dict[str, int] = {}

    def take(step: int, containers: Iterable[Container]) -> None:
        steps.update((container.id, step) for container in containers if container.id not in kept_newest)

    def left() -> list[list[Container]]:
        return [
            [c for c in unit.old_enough if c.id not in steps]
            for unit in units
            if not unit.held_by_guard and unit.old_enough
        ]

    if policy.max_per_pod_container >= 0:
        for unit in units:
            take(1, unit.old_enough[policy.max_per_pod_container :])
    remaining, most = left(), policy.max_containers
    if 0 <= most < sum(map(len, remaining)):
        share = max(1, most // len(remaining))
        for containers in remaining:
            take(2, containers[share:])
        loose = sorted((c for containers in left() for c in containers), key=lambda c: (c.created_at_ns, c.id))
        take(3, loose[: max(len(loose) - most, 0)])
    return steps


def _why_pod_removable(pods: PodStates, uid: str, evict_non_deleted_pods: bool) -> Reason | None:
    """Step A: why the pod needs none of its dead containers; None if it may need them."""
    removable = pods.content_should_be_removed(uid) or (evict_non_deleted_pods and pods.runtime_should_be_removed(uid))
    return why_removable(pods, uid) if removable and pods.sources_ready else None


def _why_not_dead(container: Container, *, guarded: bool) -> Reason | None:
    """Why a container does not count as dead; None if it does."""
    match container.state:
        case ContainerState.RUNNING:
            return Reason.RUNNING
        case ContainerState.CREATED if guarded:
            return Reason.CREATED
        case ContainerState.UNKNOWN if guarded:
            return Reason.UNKNOWN_STATE
        case _ if container.pod_uid and not container.name:
            return Reason.NOT_KUBELETS  # it cannot be told which container of the pod it is
        case _:
            return Reason.NOT_KUBELETS if guarded and not container.pod_uid else None


def _verdict(
    container: Container,
    action: Action,
    reason: Reason,
    now_ns: int,
    rule: Rule = Rule.KUBELET,
    *,
    wait: float | None = None,
    superseded_by: str = "",
) -> Verdict:
    return Verdict(
        kind=Kind.CONTAINER,
        id=container.id,
        name=container.title,
        action=action,
        reason=reason,
        age_seconds=(now_ns - container.created_at_ns) * NANOSECOND,
        pod_uid=container.pod_uid,
        eligible_in_seconds=wait,
        superseded_by=superseded_by,
        state=container.state,
        rule=rule,
        identity=container.identity,
    )
