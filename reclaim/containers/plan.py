"""Which dead containers, pod sandboxes, pod log directories and log symlinks may be removed:
the policy and the plans.

The kubelet's rules (`pkg/kubelet/kuberuntime/kuberuntime_gc.go`):

* Containers that are not running and old enough form evict units by (pod UID, container name).
  Younger ones are not counted anywhere. Step A, once all sources of pods are ready, removes the
  units of pods that are over. B removes the oldest of every other unit beyond
  `max_per_pod_container`. If more than `max_containers` remain on the node, C removes the oldest of
  each beyond an equal share of that number, at least 1, and then D the oldest of all.
* A sandbox that is READY, or that any listed container names, is active and kept. Of a pod as in
  step A all others go, even while sources are not ready; of any other pod, all but the newest.
* An entry of the pod log root, once all sources are ready, goes if the content of the pod whose UID
  it names should be removed. Containers are not examined (evictPodLogsDirectories).
* A log symlink whose target does not exist goes if its container has exited, or nothing is known of
  it (`judge_link`).

A tool beside a kubelet knows less. So our guards, which are stricter, apply if the kubelet's own
state is not known, its directories are not trusted, or the policy is `cautious`.

Covers: verdicts and their order. Does not cover: reading, and the checks right before a
removal (`unused_containers`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from reclaim.evidence.states import SETTLE_SECONDS, PodStates
from reclaim.pod_logs.names import (
    container_id_of_symlink,
    is_cut,
    printable,
    uid_of_kubelets_log_directory,
)
from reclaim.types import (
    Action,
    Container,
    ContainerState,
    FileIdentity,
    Kind,
    Listing,
    Plan,
    PodSandbox,
    PodSandboxState,
    Reason,
    Rule,
    Verdict,
)

NOT_DEAD = {
    ContainerState.RUNNING: Reason.RUNNING,
    ContainerState.CREATED: Reason.CREATED,
    ContainerState.UNKNOWN: Reason.UNKNOWN_STATE,
}
"""Why a container in this state is kept."""


class ContainerGCPolicy(NamedTuple):
    """Which dead containers may be removed: the kubelet's policy, and two fields more.

    `min_age_seconds`: since creation, at least 0. `max_per_pod_container`: dead copies kept of each
    (pod UID, name). `max_containers`: dead containers kept on the node. For both, a negative number
    means no limit, and 0 keeps none. `cautious`: the guards apply even if the kubelet's own state
    is known. `evict_non_deleted_pods`: whether containers and sandboxes of terminated pods that
    still exist are removed too: under pressure, not periodically.
    """

    min_age_seconds: float = 0.0
    max_per_pod_container: int = 1
    max_containers: int = -1
    cautious: bool = False
    evict_non_deleted_pods: bool = True

    def guarded(self, pods: PodStates) -> bool:
        """Whether the guards apply.

        They do if the kubelet's state is not known, its directories are not trusted, or the policy
        is cautious.
        """
        return self.cautious or not pods.known or pods.doubt is not None


def why_removable(pods: PodStates, uid: str) -> Reason:
    """The reason for removing what is left of a pod: the pod's state."""
    state = pods.listed(uid)
    if state is None:
        return Reason.POD_GONE
    return Reason.POD_EVICTED if state.evicted else Reason.POD_TERMINATED


def plan_container_gc(
    listing: Listing, pods: PodStates, policy: ContainerGCPolicy, *, now_ns: int
) -> Plan:
    """The plan for every listed container. `now_ns`: wall time in nanoseconds since the epoch, by
    the same clock as the runtime's times.

    The order of removal: step A, then B, C and D; within a step the oldest first, equal
    times by id, so that the order of the list does not matter (the kubelet leaves the
    order of units to chance).
    """
    judge = _judge(listing, pods, policy, now_ns=now_ns)
    plan = _plan_containers(listing, judge)
    if not pods.known or not judge.guarded:
        return plan
    # what the kubelet would remove is kept by a guard
    kubelets = _plan_containers(listing, judge._replace(guarded=False))
    removed = {verdict.id for verdict in kubelets.remove}
    keep = tuple(
        verdict._replace(rule=Rule.GUARD if verdict.id in removed else Rule.KUBELET)
        for verdict in plan.keep
    )
    return replace(plan, keep=keep)


def plan_sandbox_gc(
    listing: Listing, pods: PodStates, policy: ContainerGCPolicy, *, now_ns: int
) -> Plan:
    """The plan for every listed sandbox; parameters as above. Oldest first, equal times by id.

    There is no minimum age and no number to keep. The lists must be read after containers were
    removed: a sandbox that was emptied a moment ago then counts as empty.
    """
    judge = _judge(listing, pods, policy, now_ns=now_ns)
    occupied = {container.sandbox_id for container in listing.containers}
    newest: dict[str, PodSandbox] = {}
    for sandbox in sorted(listing.sandboxes, key=_newness):
        newest[sandbox.pod_uid] = sandbox
    fates = {uid: judge.fate(uid) for uid in newest}

    def verdict_on(sandbox: PodSandbox) -> Verdict:
        uid = sandbox.pod_uid
        fate = fates[uid]
        if sandbox.state is PodSandboxState.READY:
            return judge.keeps(sandbox, Reason.READY)
        if sandbox.id in occupied:
            return judge.keeps(sandbox, Reason.HAS_CONTAINERS)
        if judge.guarded and not (sandbox.labelled and uid):
            return judge.keeps(sandbox, Reason.NOT_KUBELETS, Rule.GUARD)
        if fate.removable is None and sandbox is newest[uid]:
            rule = Rule.GUARD if fate.held_by_guard or not pods.known else Rule.KUBELET
            return judge.keeps(sandbox, Reason.NEWEST_SANDBOX, rule)
        wait = judge.missing_age(sandbox, fate.settle_seconds)
        if fate.settle_seconds and wait > 0:
            return judge.keeps(sandbox, Reason.TOO_YOUNG, Rule.GUARD, wait=wait)
        return judge.removes(sandbox, fate.removable or Reason.OLDER_SANDBOX)

    return Plan.of(map(verdict_on, sorted(listing.sandboxes, key=_age_order)))


# ---- what the plans for containers and sandboxes share


class _Fate(NamedTuple):
    """What is decided for everything that is left of a pod.

    `removable`: why it goes; None: it may be needed. `held_by_guard`: only one of our guards keeps
    it, or may be what keeps it. `settle_seconds`: how old it must be, as a guard requires.
    """

    removable: Reason | None
    held_by_guard: bool
    settle_seconds: float = 0.0


class _Judge(NamedTuple):
    """What a plan is based on. `alive`: UIDs of pods of which something runs or may start."""

    pods: PodStates
    policy: ContainerGCPolicy
    now_ns: int
    alive: frozenset[str]
    guarded: bool

    def fate(self, uid: str) -> _Fate:
        """Step A for a pod, whether or not all sources are ready."""
        removable = self.pods.content_should_be_removed(uid) or (
            self.policy.evict_non_deleted_pods and self.pods.runtime_should_be_removed(uid)
        )
        if not removable:
            return _Fate(None, self.pods.unknown(uid))
        reason = why_removable(self.pods, uid)
        if not self.guarded:
            return _Fate(reason, held_by_guard=False)
        gone = reason is Reason.POD_GONE
        # A directory that is gone was made before anything else of the pod. A kubelet that restarts
        # would run a static pod again.
        held = uid in self.alive if gone else self.pods.only_runtime_remembers(uid)
        if held:
            return _Fate(None, held_by_guard=True)
        return _Fate(reason, held_by_guard=False, settle_seconds=SETTLE_SECONDS if gone else 0.0)

    def missing_age(self, part: Container | PodSandbox, min_age_seconds: float) -> float:
        """Seconds until the age is reached; 0 or less if it is (an equal age is old enough).

        Infinite without a creation time if guarded; the kubelet takes that for
        the beginning of the epoch.
        """
        if self.guarded and part.created_at_ns <= 0:
            return float("inf")
        return min_age_seconds - self._age(part)

    def _age(self, part: Container | PodSandbox) -> float:
        return (self.now_ns - part.created_at_ns) * 1e-9

    def keeps(
        self,
        part: Container | PodSandbox,
        reason: Reason,
        rule: Rule = Rule.KUBELET,
        *,
        wait: float | None = None,
    ) -> Verdict:
        """It stays; `wait`: for how many seconds, if its age alone keeps it."""
        return self.removes(part, reason)._replace(
            action=Action.KEEP, rule=rule, eligible_in_seconds=wait
        )

    def removes(
        self, part: Container | PodSandbox, reason: Reason, superseded_by: str = ""
    ) -> Verdict:
        """It goes."""
        state = part.state if isinstance(part, Container) else None
        return Verdict(
            Kind.SANDBOX if state is None else Kind.CONTAINER,
            part.id,
            part.title,
            Action.REMOVE,
            reason,
            age_seconds=self._age(part),
            pod_uid=part.pod_uid,
            superseded_by=superseded_by,
            state=state,
            identity=part.identity,
        )


def _judge(listing: Listing, pods: PodStates, policy: ContainerGCPolicy, *, now_ns: int) -> _Judge:
    dead = (ContainerState.EXITED, PodSandboxState.NOTREADY)
    alive = frozenset(part.pod_uid for part in listing.parts if part.state not in dead)
    return _Judge(pods, policy, now_ns, alive=alive, guarded=policy.guarded(pods))


def _newness(part: Container | PodSandbox) -> tuple[int, int, str]:
    return part.created_at_ns, part.attempt, part.id


def _age_order(part: Container | PodSandbox) -> tuple[int, str]:
    return part.created_at_ns, part.id


# ---- containers


class _EvictUnit(NamedTuple):
    """The dead containers of one (pod UID, container name), newest first.

    `waits`: each with the seconds it is still too young by.
    """

    fate: _Fate
    waits: list[tuple[Container, float]]

    @property
    def newest(self) -> Container:
        return self.waits[0][0]

    @property
    def old_enough(self) -> list[Container]:
        return [container for container, wait in self.waits if wait <= 0]


def _plan_containers(listing: Listing, judge: _Judge) -> Plan:
    """One walk through the steps, with or without the guards."""
    kept: list[Verdict] = []
    by_unit = defaultdict[tuple[str, str], list[Container]](list)
    for container in listing.containers:
        not_dead = _why_not_dead(container, guarded=judge.guarded)
        if not_dead is None:
            by_unit[container.pod_uid, container.name].append(container)
        else:
            rule = Rule.KUBELET if not_dead is Reason.RUNNING else Rule.GUARD
            kept.append(judge.keeps(container, not_dead, rule))
    units = [_evict_unit(unit, judge) for unit in by_unit.values()]
    of_live_pods = [unit for unit in units if unit.fate.removable is None]
    # the kubelet's only memory that a container has run: without it, it runs a completed one again
    kept_newest = {unit.newest.id for unit in of_live_pods} if judge.guarded else set[str]()
    steps = _beyond_limits(of_live_pods, judge.policy, kept_newest)
    remove: list[tuple[int, Container, Verdict]] = []
    for unit in units:
        for container, wait in unit.waits:
            step = 0 if unit.fate.removable and wait <= 0 else steps.get(container.id)
            if step is not None:
                newer = "" if step == 0 or unit.newest.id in steps else unit.newest.id
                reason = Reason.OLDER_COPY if step == 1 and newer else Reason.OVER_LIMIT
                verdict = judge.removes(container, unit.fate.removable or reason, newer)
                remove.append((step, container, verdict))
            elif wait > 0 and container.id not in kept_newest:
                by_policy = judge.missing_age(container, judge.policy.min_age_seconds) > 0
                rule = Rule.KUBELET if by_policy else Rule.GUARD
                kept.append(judge.keeps(container, Reason.TOO_YOUNG, rule, wait=wait))
            else:
                rule = Rule.GUARD if judge.guarded else Rule.KUBELET
                reason = Reason.WITHIN_LIMIT
                if container is unit.newest:
                    unknown = judge.pods.unknown(container.pod_uid)
                    reason = Reason.POD_UNKNOWN if unknown else Reason.NEWEST_OF_LIVE_POD
                kept.append(judge.keeps(container, reason, rule))
    remove.sort(key=lambda removal: (removal[0], _age_order(removal[1])))
    return Plan.of([*kept, *(verdict for _, _, verdict in remove)])


def _why_not_dead(container: Container, *, guarded: bool) -> Reason | None:
    """Why a container does not count as dead; None if it does. A container without a name does not:
    there is no telling which container of its pod it is. Beside a kubelet, CREATED and UNKNOWN
    containers are its business."""
    if container.state is ContainerState.RUNNING or (
        guarded and container.state is not ContainerState.EXITED
    ):
        return NOT_DEAD[container.state]
    if container.pod_uid:
        return None if container.name else Reason.NOT_KUBELETS
    return Reason.NOT_KUBELETS if guarded else None


def _evict_unit(unit: list[Container], judge: _Judge) -> _EvictUnit:
    newest_first = sorted(unit, key=_newness, reverse=True)
    uid = newest_first[0].pod_uid
    fate = judge.fate(uid) if judge.pods.sources_ready else _Fate(None, judge.pods.unknown(uid))
    min_age = max(judge.policy.min_age_seconds, fate.settle_seconds)
    waits = [(container, judge.missing_age(container, min_age)) for container in newest_first]
    return _EvictUnit(fate, waits)


def _beyond_limits(
    units: list[_EvictUnit], policy: ContainerGCPolicy, kept_newest: set[str]
) -> dict[str, int]:
    """Steps B, C and D: which containers are removed, and in which step (1, 2 or 3).

    A newest copy that is kept still counts, so that no other is removed in its place. Units that
    only a guard keeps do not count on the node, as the kubelet would have removed them.
    """
    steps: dict[str, int] = {}
    counted = [unit.old_enough for unit in units if unit.old_enough and not unit.fate.held_by_guard]

    def take(step: int, containers: Iterable[Container]) -> None:
        steps.update(
            (container.id, step) for container in containers if container.id not in kept_newest
        )

    def remaining() -> list[list[Container]]:
        return [[container for container in unit if container.id not in steps] for unit in counted]

    if policy.max_per_pod_container >= 0:
        for unit in units:
            take(1, unit.old_enough[policy.max_per_pod_container :])
    limit = policy.max_containers
    if 0 <= limit < sum(map(len, remaining())):
        share = max(1, limit // len(counted))
        for containers in remaining():
            take(2, containers[share:])
        loose = sorted(chain(*remaining()), key=_age_order)
        take(3, loose[: max(len(loose) - limit, 0)])
    return steps


# ---- log directories and log symlinks


class LogEntry(NamedTuple):
    """An entry of the pod log root, or of the directory of log symlinks. `changed_at_ns`: its
    change time, in nanoseconds since the epoch.

    `target`: of a symlink, as written. For log symlinks, `kept`: why it is kept whatever
    its container's state, None if it leads nowhere; `pod_uid`: the pod whose log the
    target is, empty if unknown.
    """

    name: bytes
    identity: FileIdentity
    changed_at_ns: int
    target: bytes = b""
    kept: Reason | None = None
    pod_uid: str = ""

    @property
    def id(self) -> str:
        """Its name as text, unique for each name."""
        return printable(self.name)

    def verdict(self, kind: Kind, reason: Reason, rule: Rule) -> Verdict:
        """It goes for one of the reasons in `LOGS_GO`, and stays for any other."""
        action = Action.REMOVE if reason in LOGS_GO else Action.KEEP
        return Verdict(kind, self.id, self.id, action, reason, rule=rule)


class NoState(StrEnum):
    """The result of ContainerStatus if it contains no state."""

    NO_CONTAINER = "no_container"
    NO_STATUS = "no_status"
    ERROR = "error"


StatusAnswer = ContainerState | NoState

LOGS_GO = (Reason.POD_GONE, Reason.POD_TERMINATED, Reason.POD_EVICTED, Reason.DANGLING)
"""Why an entry is removed; for any other reason it is kept."""


def plan_pod_logs(
    entries: Iterable[LogEntry],
    pods: PodStates,
    policy: ContainerGCPolicy,
    *,
    in_runtime: Collection[str] | None,
    now_ns: int,
) -> Plan:
    """The plan for every entry of the pod log root, in the order of names.

    `in_runtime`: the UIDs that have a container or a sandbox, in any state; None if the runtime
    gave no complete lists. `now_ns`: wall time in nanoseconds since the epoch.
    """

    def judge(uid: str | None, age: float) -> tuple[Reason, Rule]:
        if not pods.sources_ready:
            return Reason.HELD_OFF, Rule.KUBELET
        # in every mode, so that `lost+found` survives
        if uid is None:
            return Reason.NOT_KUBELETS, Rule.GUARD
        listed = pods.listed(uid) is not None
        if (listed or not policy.guarded(pods)) and pods.content_should_be_removed(uid):
            return why_removable(pods, uid), Rule.KUBELET
        if listed:
            return Reason.POD_ALIVE, Rule.KUBELET
        if pods.unknown(uid):
            return Reason.POD_UNKNOWN, Rule.GUARD
        if not pods.gone(uid):
            return Reason.POD_ALIVE, Rule.GUARD
        if in_runtime is None:
            return Reason.INCOMPLETE_LISTING, Rule.GUARD
        if uid in in_runtime:
            return Reason.HAS_CONTAINERS, Rule.GUARD
        # the kubelet makes the directory before anything runs
        return (Reason.TOO_YOUNG if age < SETTLE_SECONDS else Reason.POD_GONE), Rule.GUARD

    verdicts = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        uid = uid_of_kubelets_log_directory(entry.name)
        age = (now_ns - entry.changed_at_ns) * 1e-9
        reason, rule = judge(uid, age)
        verdict = entry.verdict(Kind.POD_LOG, reason, rule)
        wait = SETTLE_SECONDS - age if reason is Reason.TOO_YOUNG else None
        verdicts.append(
            verdict._replace(age_seconds=age, pod_uid=uid or "", eligible_in_seconds=wait)
        )
    return Plan.of(verdicts)


def plan_log_symlinks(
    links: Iterable[LogEntry], answers: Mapping[str, StatusAnswer], *, guarded: bool
) -> Plan:
    """The plan for every log symlink, in the order of names.

    `answers`: what ContainerStatus answered, by the requested id. A link without an answer is kept.
    """

    def verdict_on(link: LogEntry) -> Verdict:
        verdict = link.verdict(
            Kind.LOG_SYMLINK,
            *judge_link(link, answers.get(container_id_of_symlink(link.name)), guarded=guarded),
        )
        return verdict._replace(pod_uid=link.pod_uid)

    return Plan.of(map(verdict_on, sorted(links, key=lambda link: link.name)))


def judge_link(
    link: LogEntry, answer: StatusAnswer | None, *, guarded: bool
) -> tuple[Reason, Rule]:
    """DANGLING if the link may be removed, otherwise why it is kept; and whose rule that is.
    `answer`: what ContainerStatus said about its container id; None if it was not asked."""
    if link.kept is not None:
        return link.kept, Rule.GUARD if link.kept is Reason.NOT_KUBELETS else Rule.KUBELET
    match answer:
        # the container id may be cut off, so that no such container proves nothing
        case NoState.NO_CONTAINER if guarded and is_cut(link.name):
            return Reason.UNKNOWN_STATE, Rule.GUARD
        case ContainerState.EXITED | NoState.NO_CONTAINER:
            return Reason.DANGLING, Rule.KUBELET
        # the kubelet removes it even if the runtime is merely down
        case NoState.ERROR if not guarded:
            return Reason.DANGLING, Rule.KUBELET
        case NoState.ERROR | None:
            return Reason.INCOMPLETE_LISTING, Rule.GUARD
        case NoState.NO_STATUS:
            return Reason.UNKNOWN_STATE, Rule.KUBELET
        case ContainerState():
            return Reason.ROTATING, Rule.KUBELET
