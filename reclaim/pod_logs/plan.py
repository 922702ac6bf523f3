"""Which pod log directories and log symlinks may be removed: the plans, and the values they are made from.

The kubelet's rules (`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, evictPodLogsDirectories):

* Directories, only once all sources of pods are ready: each entry of the pod log root, files too, in the order of
  names. The name contains the pod's UID. If the content of that pod should be removed, the entry is removed. Containers
  are not examined.
* Symlinks, always: those named `*.log` whose target does not exist

  | the name contains no container id | removed |
  | ContainerStatus fails             | removed |
  | ContainerStatus has no status     | kept |
  | any state but EXITED              | kept: the log may just be rotating |
  | EXITED                            | removed |

Our own guards are stricter. In every mode they keep what is not named exactly as the kubelet names it, so `lost+found`
is kept, and another directory in the place of the root is not emptied. They keep a directory of a pod that is not in
the kubelet's list unless

* the runtime has no container and no sandbox of the pod (if that is unknown, nothing is removed), and
* the entry has not changed for `settle_seconds`: the kubelet makes the directory before anything runs.

They keep a symlink, where `cautious`, if

* its target, as written, is not below the pod log root: then it is not the kubelet's, and is not even followed. This
  also keeps links of an earlier `podLogsDir`; each costs an inode.
* ContainerStatus fails with an error other than "no such container": the kubelet removes it even when the runtime is
  only down.
* its name has the greatest length: the container id may be cut, so "no such container" proves nothing.

Covers: verdicts and their order. Does not cover: reading, and the checks right before a removal (`removers`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reclaim.pod_logs.names import (
    Identity,
    is_cut,
    is_kubelets_symlink,
    printable,
    printable_text,
    uid_of_kubelets_log_directory,
    uid_of_log_directory,
)
from reclaim.pods.states import PodStates
from reclaim.types import Action, ContainerState, Kind, Plan, Reason, Rule, Verdict

_NANOSECOND = 1e-9


@dataclass(frozen=True, slots=True)
class LogPolicy:
    """`cautious`: our guards apply also to a pod that is missing in the kubelet's known list; False: only the kubelet's
    rules apply to it. `settle_seconds`: how long an entry must not have changed, where a guard decides."""

    cautious: bool = True
    settle_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of the pod log root. `changed_at_ns`: its change time, nanoseconds since the epoch."""

    name: bytes
    identity: Identity
    changed_at_ns: int

    @property
    def id(self) -> str:
        """Its name as text, different for each name."""
        return printable(self.name)


class TargetState(StrEnum):
    """Whether the target of a log symlink exists. FOREIGN: the target is not below the pod log root."""

    EXISTS = "exists"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class LogSymlink:
    """A log symlink, its target as written, and whether that exists.

    `container_id`: from its name, maybe only a prefix; None when the name contains none. `pod_uid`: of the pod whose
    log the target is, by the name of its directory; empty if unknown.
    """

    name: bytes
    identity: Identity
    target: bytes
    target_state: TargetState
    container_id: str | None = None
    pod_uid: str = ""

    @property
    def id(self) -> str:
        """Its name as text, different for each name."""
        return printable(self.name)


class NoState(StrEnum):
    """The answer of ContainerStatus where it contains no state."""

    NO_CONTAINER = "no_container"
    NO_STATUS = "no_status"
    ERROR = "error"


StatusAnswer = ContainerState | NoState


def plan_pod_logs(
    entries: Sequence[LogEntry],
    pods: PodStates,
    policy: LogPolicy,
    in_runtime: Collection[str] | None,
    now_ns: int,
) -> Plan:
    """The plan for every entry of the pod log root, in the order of names.

    `in_runtime`: the UIDs that have a container or a sandbox, in any state; None when the runtime gave no complete
    lists. `now_ns`: wall time in nanoseconds since the epoch.
    """
    verdicts = [
        _judge_entry(entry, pods, policy, in_runtime, now_ns) for entry in sorted(entries, key=lambda e: e.name)
    ]
    return _plan(verdicts)


def _judge_entry(
    entry: LogEntry, pods: PodStates, policy: LogPolicy, in_runtime: Collection[str] | None, now_ns: int
) -> Verdict:
    uid = uid_of_log_directory(entry.name)
    age = (now_ns - entry.changed_at_ns) * _NANOSECOND
    verdict = Verdict(
        Kind.POD_LOG,
        entry.id,
        entry.id,
        Action.KEEP,
        Reason.POD_ALIVE,
        age_seconds=age,
        pod_uid=printable_text(uid),
    )
    if not pods.sources_ready:
        return verdict._replace(reason=Reason.HELD_OFF)
    if uid_of_kubelets_log_directory(entry.name) is None:
        return verdict._replace(reason=Reason.NOT_KUBELETS, rule=Rule.GUARD)
    if pods.listed(uid) is not None or (pods.known and not policy.cautious):
        return _by_kubelet_rules(verdict, uid, pods)
    return _by_guards(verdict._replace(rule=Rule.GUARD), uid, pods, policy, in_runtime)


def _by_kubelet_rules(verdict: Verdict, uid: str, pods: PodStates) -> Verdict:
    """The kubelet's rule; beyond it, the log of an unlisted pod is kept while that pod has a directory."""
    state = pods.listed(uid)
    if pods.content_should_be_removed(uid):
        reason = Reason.POD_GONE
        if state is not None:
            reason = Reason.POD_EVICTED if state.evicted else Reason.POD_TERMINATED
        return verdict._replace(action=Action.REMOVE, reason=reason)
    return verdict._replace(rule=Rule.KUBELET if state is not None else Rule.GUARD)


def _by_guards(
    verdict: Verdict, uid: str, pods: PodStates, policy: LogPolicy, in_runtime: Collection[str] | None
) -> Verdict:
    age = verdict.age_seconds or 0.0
    if pods.unknown(uid):
        return verdict._replace(reason=Reason.POD_UNKNOWN)
    if not pods.gone(uid):
        return verdict
    if in_runtime is None:
        return verdict._replace(reason=Reason.INCOMPLETE_LISTING)
    if uid in in_runtime:
        return verdict._replace(reason=Reason.HAS_CONTAINERS)
    if age < policy.settle_seconds:
        return verdict._replace(reason=Reason.TOO_YOUNG, eligible_in_seconds=policy.settle_seconds - age)
    return verdict._replace(action=Action.REMOVE, reason=Reason.POD_GONE)


def plan_log_symlinks(links: Sequence[LogSymlink], answers: Mapping[str, StatusAnswer], policy: LogPolicy) -> Plan:
    """The plan for every log symlink, in the order of names.

    `answers`: the answers of ContainerStatus by the requested id. A link without an answer is kept.
    """
    ordered = sorted(links, key=lambda link: link.name)
    return _plan([judge_link(link, answers.get(link.container_id or ""), policy) for link in ordered])


def ids_to_ask(links: Sequence[LogSymlink]) -> tuple[str, ...]:
    """The container ids that the plan needs an answer for: those of dangling links, each once."""
    asked = (link.container_id for link in links if link.target_state is TargetState.MISSING)
    return tuple(dict.fromkeys(container_id for container_id in asked if container_id is not None))


def judge_link(link: LogSymlink, answer: StatusAnswer | None, policy: LogPolicy) -> Verdict:
    """The verdict on one link. `answer`: of ContainerStatus for its container id; None if it was not asked."""
    verdict = Verdict(Kind.LOG_SYMLINK, link.id, link.id, Action.KEEP, Reason.TARGET_EXISTS, pod_uid=link.pod_uid)
    match link.target_state:
        case TargetState.EXISTS:
            return verdict
        case TargetState.UNREADABLE:
            return verdict._replace(reason=Reason.UNREADABLE)
        case TargetState.FOREIGN:
            return verdict._replace(reason=Reason.NOT_KUBELETS, rule=Rule.GUARD)
        case TargetState.MISSING:
            return _judge_dangling(verdict, link, answer, policy)


def _judge_dangling(verdict: Verdict, link: LogSymlink, answer: StatusAnswer | None, policy: LogPolicy) -> Verdict:
    gone = verdict._replace(action=Action.REMOVE, reason=Reason.DANGLING)
    uncertain = verdict._replace(reason=Reason.UNKNOWN_STATE, rule=Rule.GUARD)
    if not is_kubelets_symlink(link.name):
        return verdict._replace(reason=Reason.NOT_KUBELETS, rule=Rule.GUARD)
    if link.container_id is None:
        return uncertain if policy.cautious and is_cut(link.name) else gone
    unanswered = uncertain._replace(reason=Reason.INCOMPLETE_LISTING)
    match answer:
        case None:
            return unanswered
        case NoState.ERROR:
            return unanswered if policy.cautious else gone
        case NoState.NO_CONTAINER:
            return uncertain if policy.cautious and is_cut(link.name) else gone
        case NoState.NO_STATUS:
            return verdict._replace(reason=Reason.UNKNOWN_STATE)
        case ContainerState.EXITED:
            return gone
        case ContainerState.CREATED | ContainerState.RUNNING | ContainerState.UNKNOWN:
            return verdict._replace(reason=Reason.ROTATING)


def _plan(verdicts: Sequence[Verdict]) -> Plan:
    return Plan(
        tuple(verdict for verdict in verdicts if verdict.action is Action.REMOVE),
        tuple(verdict for verdict in verdicts if verdict.action is Action.KEEP),
    )
