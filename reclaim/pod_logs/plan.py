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

They keep a symlink, where the guards of `ContainerGCPolicy` hold, if

* its target, as written, is not that of a container's log below the pod log root: then it is not the kubelet's, and is
  not even followed. This also keeps links of an earlier `podLogsDir`; each costs an inode.
* ContainerStatus fails with an error other than "no such container": the kubelet removes it even when the runtime is
  only down.
* its name has the greatest length: the container id may be cut, so "no such container" proves nothing.

Covers: verdicts and their order. Does not cover: reading, and the checks right before a removal (`unused_containers`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reclaim.containers import ContainerGCPolicy, why_removable
from reclaim.pod_logs.names import (
    Identity,
    container_id_of_symlink,
    is_cut,
    printable,
    uid_of_kubelets_log_directory,
)
from reclaim.pods.states import PodStates
from reclaim.types import Action, ContainerState, Kind, Plan, Reason, Rule, Verdict


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry of the pod log root, or of the directory of log symlinks. `changed_at_ns`: its change time, nanoseconds
    since the epoch.

    Of a symlink, `target`: as written. Of a log symlink, `kept`: why it stays whatever its container does, None if it
    leads nowhere; `pod_uid`: of the pod whose log the target is, empty if unknown.
    """

    name: bytes
    identity: Identity
    changed_at_ns: int
    target: bytes = b""
    kept: Reason | None = None
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
    entries: Iterable[LogEntry],
    pods: PodStates,
    policy: ContainerGCPolicy,
    in_runtime: Collection[str] | None,
    now_ns: int,
) -> Plan:
    """The plan for every entry of the pod log root, in the order of names.

    `in_runtime`: the UIDs that have a container or a sandbox, in any state; None when the runtime gave no complete
    lists. `now_ns`: wall time in nanoseconds since the epoch.
    """
    verdicts = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        uid = uid_of_kubelets_log_directory(entry.name)
        age = (now_ns - entry.changed_at_ns) * 1e-9
        action, reason, rule = _judge_entry(uid, age, pods, policy, in_runtime)
        verdicts.append(
            Verdict(
                Kind.POD_LOG,
                entry.id,
                entry.id,
                action,
                reason,
                age_seconds=age,
                pod_uid=uid or "",
                eligible_in_seconds=policy.settle_seconds - age if reason is Reason.TOO_YOUNG else None,
                rule=rule,
            )
        )
    return _plan(verdicts)


def _judge_entry(
    uid: str | None, age: float, pods: PodStates, policy: ContainerGCPolicy, in_runtime: Collection[str] | None
) -> tuple[Action, Reason, Rule]:
    if not pods.sources_ready:
        return Action.KEEP, Reason.HELD_OFF, Rule.KUBELET
    if uid is None:
        return Action.KEEP, Reason.NOT_KUBELETS, Rule.GUARD
    listed = pods.listed(uid) is not None
    if (listed or not policy.guarded(pods)) and pods.content_should_be_removed(uid):
        return Action.REMOVE, why_removable(pods, uid), Rule.KUBELET
    if listed:
        return Action.KEEP, Reason.POD_ALIVE, Rule.KUBELET
    reason = _why_kept_by_guard(uid, age, pods, policy, in_runtime)
    return (Action.REMOVE, Reason.POD_GONE, Rule.GUARD) if reason is None else (Action.KEEP, reason, Rule.GUARD)


def _why_kept_by_guard(
    uid: str, age: float, pods: PodStates, policy: ContainerGCPolicy, in_runtime: Collection[str] | None
) -> Reason | None:
    if not pods.gone(uid):
        return Reason.POD_UNKNOWN if pods.unknown(uid) else Reason.POD_ALIVE
    if in_runtime is None:
        return Reason.INCOMPLETE_LISTING
    if uid in in_runtime:
        return Reason.HAS_CONTAINERS
    return Reason.TOO_YOUNG if age < policy.settle_seconds else None


def plan_log_symlinks(links: Iterable[LogEntry], answers: Mapping[str, StatusAnswer], *, guarded: bool) -> Plan:
    """The plan for every log symlink, in the order of names.

    `answers`: the answers of ContainerStatus by the requested id. A link without an answer is kept.
    """
    verdicts = []
    for link in sorted(links, key=lambda link: link.name):
        reason, rule = judge_link(link, answers.get(container_id_of_symlink(link.name)), guarded=guarded)
        action = Action.REMOVE if reason is Reason.DANGLING else Action.KEEP
        verdicts.append(Verdict(Kind.LOG_SYMLINK, link.id, link.id, action, reason, pod_uid=link.pod_uid, rule=rule))
    return _plan(verdicts)


def judge_link(link: LogEntry, answer: StatusAnswer | None, *, guarded: bool) -> tuple[Reason, Rule]:
    """DANGLING if a link may be removed, else why it is kept; and whose rule that is. `answer`: of ContainerStatus for
    its container id; None if it was not asked."""
    if link.kept is not None:
        return link.kept, Rule.GUARD if link.kept is Reason.NOT_KUBELETS else Rule.KUBELET
    match answer:
        case NoState.NO_CONTAINER if guarded and is_cut(link.name):
            return Reason.UNKNOWN_STATE, Rule.GUARD
        case ContainerState.EXITED | NoState.NO_CONTAINER:
            return Reason.DANGLING, Rule.KUBELET
        case NoState.ERROR if not guarded:
            return Reason.DANGLING, Rule.KUBELET
        case NoState.ERROR | None:
            return Reason.INCOMPLETE_LISTING, Rule.GUARD
        case NoState.NO_STATUS:
            return Reason.UNKNOWN_STATE, Rule.KUBELET
        case ContainerState():
            return Reason.ROTATING, Rule.KUBELET


def _plan(verdicts: Sequence[Verdict]) -> Plan:
    return Plan(
        tuple(verdict for verdict in verdicts if verdict.action is Action.REMOVE),
        tuple(verdict for verdict in verdicts if verdict.action is Action.KEEP),
    )
