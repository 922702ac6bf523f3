"""Which pod log directories and log symlinks may go: the plans (pure), and the values that they are made on.

The kubelet's rules (`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, evictPodLogsDirectories):

* Directories, only once all sources of pods are ready: each entry of the pod log root, files too, in the order of
  names; the pod is told by the name. If its content should be removed, the entry goes. Containers are not looked at.
* Symlinks, always: of those named `*.log` whose target does not exist

  | the container's id cannot be told from the name | goes |
  | ContainerStatus is an error                     | goes |
  | ContainerStatus has no status                   | stays |
  | any state but EXITED                            | stays: the log may just be rotating |
  | EXITED                                          | goes |

Where a guard of ours is stricter. Of directories, for pods that the kubelet itself has not told about:

* The name has exactly the kubelet's form with a UID that can be one. `lost+found` stays.
* The runtime has no container and no sandbox of the pod. When that is not known, nothing goes.
* The entry has not changed for `settle_seconds`: the kubelet makes the directory before anything runs.

Of symlinks, where `cautious`:

* Only what leads, as it is written, below the pod log root is the kubelet's. A link that leads elsewhere is somebody
  else's, and is not even followed. Links of an earlier `podLogsDir` stay too; each costs an inode.
* An error other than "no such container" keeps the link: the kubelet takes it even when the runtime is only away.
* A name of the full length may end in the middle of anything; that no container has such an id then says nothing.

Covers: verdicts and their order. Does not cover: reading (`log_listing`), looking again (`log_removers`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from reclaim.pod_logs.directory_walk import Identity
from reclaim.pod_logs.names import is_cut, uid_of_kubelets_log_directory, uid_of_log_directory
from reclaim.pod_logs.remove_tree import printable
from reclaim.pods.states import PodStates
from reclaim.types import Action, ContainerState, Kind, Plan, Reason, Rule, Verdict

_NANOSECOND = 1e-9


@dataclass(frozen=True, slots=True)
class LogPolicy:
    """`cautious`: guards of ours also where the kubelet's own state is known, but does not name the pod; False is the
    kubelet's way. `settle_seconds`: how long an entry must not have changed, where a guard decides."""

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


class Target(StrEnum):
    """Where a log symlink leads."""

    EXISTS = "exists"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class LogLink:
    """A symlink among the log symlinks, what it says and where that leads.

    `container_id`: as its name tells it, maybe only the beginning; None when it cannot be told. `pod_uid`: of the pod
    whose log its target would be, as far as that can be told.
    """

    name: bytes
    identity: Identity
    target: bytes
    leads: Target
    container_id: str | None = None
    pod_uid: str = ""

    @property
    def id(self) -> str:
        """Its name as text, different for each name."""
        return printable(self.name)


class NoState(StrEnum):
    """What ContainerStatus says in place of a state."""

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

    `in_runtime`: the UIDs that have a container or a sandbox, in whatever state; None when the runtime gave no complete
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
        pod_uid=printable(os.fsencode(uid)),
    )
    if not pods.sources_ready:
        return replace(verdict, reason=Reason.HELD_OFF)
    told = pods.known and uid in (pods.kubelet or {})
    if told or (pods.known and not policy.cautious):
        return _as_the_kubelet(verdict, uid, pods)
    return _guarded(replace(verdict, rule=Rule.GUARD), entry.name, pods, policy, in_runtime)


def _as_the_kubelet(verdict: Verdict, uid: str, pods: PodStates) -> Verdict:
    """The kubelet's rule. A pod directory of a pod that it does not know stays ours to respect."""
    state = (pods.kubelet or {}).get(uid)
    if pods.content_should_be_removed(uid):
        reason = Reason.POD_GONE
        if state is not None:
            reason = Reason.POD_EVICTED if state.evicted else Reason.POD_TERMINATED
        return replace(verdict, action=Action.REMOVE, reason=reason)
    if state is None and not pods.synced:
        return replace(verdict, reason=Reason.HELD_OFF)
    return replace(verdict, rule=Rule.KUBELET if state is not None else Rule.GUARD)


def _guarded(
    verdict: Verdict, name: bytes, pods: PodStates, policy: LogPolicy, in_runtime: Collection[str] | None
) -> Verdict:
    uid = uid_of_kubelets_log_directory(name)
    age = verdict.age_seconds or 0.0
    if uid is None:
        return replace(verdict, reason=Reason.NOT_KUBELETS)
    if not pods.gone(uid):
        return verdict if pods.synced else replace(verdict, reason=Reason.HELD_OFF)
    if in_runtime is None:
        return replace(verdict, reason=Reason.INCOMPLETE_LISTING)
    if uid in in_runtime:
        return replace(verdict, reason=Reason.HAS_CONTAINERS)
    if age < policy.settle_seconds:
        return replace(verdict, reason=Reason.TOO_YOUNG, eligible_in_seconds=policy.settle_seconds - age)
    return replace(verdict, action=Action.REMOVE, reason=Reason.POD_GONE)


def plan_log_symlinks(links: Sequence[LogLink], answers: Mapping[str, StatusAnswer], policy: LogPolicy) -> Plan:
    """The plan for every log symlink, in the order of names.

    `answers`: what ContainerStatus said, by the id that was asked. Without an answer a link stays.
    """
    return _plan([judge_link(link, answers, policy) for link in sorted(links, key=lambda link: link.name)])


def ids_to_ask(links: Sequence[LogLink]) -> tuple[str, ...]:
    """The ids that the plan needs an answer for: those of dangling links, each once."""
    asked = (link.container_id for link in links if link.leads is Target.MISSING)
    return tuple(dict.fromkeys(container_id for container_id in asked if container_id is not None))


def judge_link(link: LogLink, answers: Mapping[str, StatusAnswer], policy: LogPolicy) -> Verdict:
    """The verdict on one link."""
    verdict = Verdict(Kind.LOG_SYMLINK, link.id, link.id, Action.KEEP, Reason.TARGET_EXISTS, pod_uid=link.pod_uid)
    match link.leads:
        case Target.EXISTS:
            return verdict
        case Target.UNREADABLE:
            return replace(verdict, reason=Reason.UNREADABLE)
        case Target.FOREIGN:
            return replace(verdict, reason=Reason.NOT_KUBELETS, rule=Rule.GUARD)
        case Target.MISSING:
            return _judge_dangling(verdict, link, answers, policy)


def _judge_dangling(verdict: Verdict, link: LogLink, answers: Mapping[str, StatusAnswer], policy: LogPolicy) -> Verdict:
    gone = replace(verdict, action=Action.REMOVE, reason=Reason.DANGLING)
    untold = replace(verdict, reason=Reason.UNKNOWN_STATE, rule=Rule.GUARD)
    if link.container_id is None:
        return untold if policy.cautious and is_cut(link.name) else gone
    unanswered = replace(untold, reason=Reason.INCOMPLETE_LISTING)
    match answers.get(link.container_id):
        case None:
            return unanswered
        case NoState.ERROR:
            return unanswered if policy.cautious else gone
        case NoState.NO_CONTAINER:
            return untold if policy.cautious and is_cut(link.name) else gone
        case NoState.NO_STATUS:
            return replace(verdict, reason=Reason.UNKNOWN_STATE)
        case ContainerState.EXITED:
            return gone
        case ContainerState.CREATED | ContainerState.RUNNING | ContainerState.UNKNOWN:
            return replace(verdict, reason=Reason.ROTATING)


def _plan(verdicts: Sequence[Verdict]) -> Plan:
    return Plan(
        tuple(verdict for verdict in verdicts if verdict.action is Action.REMOVE),
        tuple(verdict for verdict in verdicts if verdict.action is Action.KEEP),
    )
