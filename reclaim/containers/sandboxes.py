"""Which pod sandboxes are removed: the plan.

The kubelet's rules (`evictSandboxes` in `pkg/kubelet/kuberuntime/kuberuntime_gc.go`):

* A sandbox that is READY, or that any listed container names, in whatever state, is active and is kept.
* Of a pod whose content should be removed, or, with `evict_non_deleted_pods`, whose runtime should be removed, every
  inactive sandbox is removed. Of another pod the newest is kept in any case, and every inactive older one is removed.
* There is no minimum age and no number to keep.

Where the kubelet's own state is not known, or the policy is cautious, the guards of `plan` hold here too: a
pod is gone only when nothing of it lives and it has settled, of a static pod the newest stays, and a sandbox without
the UID of a pod is kept.

The lists must be read after the containers were removed, so that a sandbox emptied a moment ago counts as empty.
"""

from __future__ import annotations

from collections import defaultdict

from reclaim.containers.policy import NANOSECOND, ContainerGCPolicy, missing_age, pods_with_living_parts, why_removable
from reclaim.pods.states import PodStates
from reclaim.types import Action, Kind, Listing, Plan, PodSandbox, PodSandboxState, Reason, Rule, Verdict


def plan_sandbox_gc(
    listing: Listing,
    pods: PodStates,
    policy: ContainerGCPolicy,
    now_ns: int,
    *,
    evict_non_deleted_pods: bool = True,
) -> Plan:
    """The plan for every listed sandbox. `now_ns`: wall time in nanoseconds since the epoch, as the runtime's.

    Oldest first, equal times by id.
    """
    guarded = policy.guarded(pods)
    occupied = {container.sandbox_id for container in listing.containers}
    alive = pods_with_living_parts(listing)
    by_pod: dict[str, list[PodSandbox]] = defaultdict(list)
    for sandbox in listing.sandboxes:
        by_pod[sandbox.pod_uid].append(sandbox)
    removed: list[tuple[PodSandbox, Verdict]] = []
    kept: list[Verdict] = []
    for uid, sandboxes in by_pod.items():
        removable = pods.content_should_be_removed(uid) or (
            evict_non_deleted_pods and pods.runtime_should_be_removed(uid)
        )
        pod_removable = why_removable(pods, uid) if removable else None
        comes_back = pods.only_runtime_remembers(uid) if pod_removable is not Reason.POD_GONE else uid in alive
        held_by_guard = guarded and pod_removable is not None and comes_back
        if held_by_guard:
            pod_removable = None
        newest_first = sorted(sandboxes, key=lambda s: (s.created_at_ns, s.attempt, s.id), reverse=True)
        for sandbox in newest_first:
            settle = policy.settle_seconds if guarded and pod_removable is Reason.POD_GONE else float("-inf")
            verdict = _judge(sandbox, pod_removable, newest_first[0], occupied, guarded=guarded, now_ns=now_ns)
            if verdict.reason is Reason.NEWEST_SANDBOX and (held_by_guard or not pods.known):
                verdict = verdict._replace(rule=Rule.GUARD)
            wait = missing_age(sandbox.created_at_ns, settle, now_ns, guarded=guarded)
            if verdict.action is Action.REMOVE and pod_removable is Reason.POD_GONE and wait > 0:
                verdict = verdict._replace(
                    action=Action.KEEP,
                    reason=Reason.TOO_YOUNG,
                    eligible_in_seconds=wait,
                    rule=Rule.GUARD,
                )
            if verdict.action is Action.REMOVE:
                removed.append((sandbox, verdict))
            else:
                kept.append(verdict)
    removed.sort(key=lambda item: (item[0].created_at_ns, item[0].id))
    kept.sort(key=lambda verdict: (verdict.name, verdict.id))
    return Plan(tuple(verdict for _, verdict in removed), tuple(kept))


def _judge(
    sandbox: PodSandbox,
    pod_removable: Reason | None,
    newest: PodSandbox,
    occupied: set[str],
    *,
    guarded: bool,
    now_ns: int,
) -> Verdict:
    def verdict(action: Action, reason: Reason, rule: Rule = Rule.KUBELET) -> Verdict:
        return Verdict(
            Kind.SANDBOX,
            sandbox.id,
            sandbox.title,
            action,
            reason,
            age_seconds=(now_ns - sandbox.created_at_ns) * NANOSECOND,
            pod_uid=sandbox.pod_uid,
            rule=rule,
            identity=sandbox.identity,
        )

    if sandbox.state is PodSandboxState.READY:
        return verdict(Action.KEEP, Reason.READY)
    if sandbox.id in occupied:
        return verdict(Action.KEEP, Reason.HAS_CONTAINERS)
    if guarded and (not sandbox.labelled or not sandbox.pod_uid):
        return verdict(Action.KEEP, Reason.NOT_KUBELETS, Rule.GUARD)
    if pod_removable is not None:
        return verdict(Action.REMOVE, pod_removable)
    if sandbox is newest:
        return verdict(Action.KEEP, Reason.NEWEST_SANDBOX)
    return verdict(Action.REMOVE, Reason.OLDER_SANDBOX)
