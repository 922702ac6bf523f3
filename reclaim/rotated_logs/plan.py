"""Which rotated logs may be removed, by their names and ages: the plan.

What the kubelet makes in the log directory of a container (`pkg/kubelet/logs/container_log_manager.go`):

| Name | What it is | Verdict |
|---|---|---|
| `N.log` | the log that is written now | stays |
| `N.log.YYYYMMDD-hhmmss` | what `N.log` was until then | the newest of the container stay, whatever N is |
| the same and `.gz` | the same, compressed before a later rotation | the same |
| the same and `.tmp` | what a compression writes, and then renames | stays while it is written; goes if left behind |

* A rotated log is written on until the runtime has opened a new `N.log`. So while there is none the uncompressed ones
  stay, and one that was written in the last seconds stays in any case.
* One that is being compressed stays until that has ended: the kubelet has it open, so unlinking it would free nothing.
* The order is that of the times in the names, as in the kubelet, the oldest first over all containers.
* `kubectl logs` shows the current log only. A log collector that is behind loses what it has not read.

Covers: verdicts and their order. Does not cover: reading (`reader`), the checks right before a removal (`remover`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from reclaim.pod_logs.names import Identity, printable, uid_of_kubelets_log_directory
from reclaim.types import Action, Plan, Reason, Rule, Verdict

ROTATED_LOG = "rotated_log"
REOPENED_SECONDS = 10.0  # a rotated log that was written within this time may be the one that is written now
COMPRESSED_SECONDS = 300.0  # a compression that has written within this time may go on
COMPRESSED, TEMPORARY = b".gz", b".tmp"

_CURRENT = re.compile(rb"[0-9]{1,10}\.log")
_ROTATED = re.compile(rb"[0-9]{1,10}\.log\.([0-9]{8}-[0-9]{6})(\.gz|\.tmp)?")
_NANOSECOND = 1e-9


class RotatedLogReason(StrEnum):
    """Why one is removed or kept; beside these, `NOT_KUBELETS` and `UNREADABLE` of `Reason`."""

    ROTATED = "rotated"
    LEFT_BEHIND = "left_behind"
    CURRENT = "current"
    NEWEST_ROTATED = "newest_rotated"
    BEING_ROTATED = "being_rotated"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class RotatedLogSettings:
    """`keep`: how many rotated logs of each container stay, at least 0."""

    keep: int = 1


class LogFile(NamedTuple):
    """An entry of the log directory of a container, or a directory above it that cannot be looked into.

    `pod`, `container`, `name`: of the entries from the pod log root down; empty below a directory that was not entered.
    `size_bytes`: allocated. `modified_at_ns`: nanoseconds since the epoch. `plain`: a regular file with one name.
    `problem`: why the directory was not entered, a word of `Reason`.
    """

    pod: bytes
    container: bytes = b""
    name: bytes = b""
    identity: Identity = (0, 0)
    size_bytes: int = 0
    modified_at_ns: int = 0
    plain: bool = True
    problem: str = ""

    @property
    def id(self) -> str:
        """Its path below the pod log root as text, different for each path."""
        return "/".join(printable(name) for name in (self.pod, self.container, self.name) if name)

    @property
    def stamp(self) -> bytes:
        """The time of the rotation by its name, as text; empty if it has not the name of a rotated log."""
        match = _ROTATED.fullmatch(self.name)
        return match[1] if match else b""


def temporary_of(name: bytes) -> bytes:
    """The name of what a compression of this rotated log writes."""
    return name.removesuffix(COMPRESSED) + TEMPORARY


def plan_rotated_logs(files: Iterable[LogFile], settings: RotatedLogSettings, now_ns: int) -> Plan:
    """The plan for every file. `now_ns`: wall time in nanoseconds since the epoch."""
    containers: dict[tuple[bytes, bytes], list[LogFile]] = {}
    for file in files:
        containers.setdefault((file.pod, file.container), []).append(file)
    remove, keep = [], []
    for of_one in containers.values():
        for file, verdict in _judge_container(of_one, settings, now_ns):
            if verdict.action is Action.REMOVE:
                remove.append((file.stamp, verdict))
            else:
                keep.append(verdict)
    remove.sort(key=lambda each: (each[0], each[1].id))
    keep.sort(key=lambda verdict: verdict.id)
    return Plan(tuple(verdict for _, verdict in remove), tuple(keep))


def _judge_container(
    files: Sequence[LogFile], settings: RotatedLogSettings, now_ns: int
) -> Iterable[tuple[LogFile, Verdict]]:
    rotated = {file.stamp for file in files if file.stamp and file.plain and not file.name.endswith(TEMPORARY)}
    newest = frozenset(sorted(rotated, reverse=True)[: settings.keep])
    ages = {file.name: _age_seconds(file, now_ns) for file in files}
    for file in files:
        reason = _reason_to_keep(file, newest, ages)
        verdict = _verdict(file, ages[file.name])
        if reason:
            rule = Rule.KUBELET if reason == RotatedLogReason.CURRENT else Rule.GUARD
            yield file, verdict._replace(action=Action.KEEP, reason=reason, rule=rule)
        else:
            yield (
                file,
                verdict._replace(
                    reason=RotatedLogReason.LEFT_BEHIND if file.name.endswith(TEMPORARY) else RotatedLogReason.ROTATED
                ),
            )


def _reason_to_keep(file: LogFile, newest: frozenset[bytes], ages: Mapping[bytes, float]) -> str:
    """Why a file stays; empty: it may go. `ages`: seconds since each file of its directory was written, by name."""
    if file.problem:
        return file.problem
    if _CURRENT.fullmatch(file.name) and file.plain:
        return RotatedLogReason.CURRENT
    if not file.stamp or not file.plain:
        return Reason.NOT_KUBELETS
    if file.name.endswith(TEMPORARY):
        return RotatedLogReason.BEING_ROTATED if ages[file.name] < COMPRESSED_SECONDS else ""
    if file.stamp in newest:
        return RotatedLogReason.NEWEST_ROTATED
    if not file.name.endswith(COMPRESSED) and (
        ages[file.name] < REOPENED_SECONDS or file.name.removesuffix(b"." + file.stamp) not in ages
    ):
        return RotatedLogReason.BEING_ROTATED
    return (
        RotatedLogReason.BEING_ROTATED
        if ages.get(temporary_of(file.name), COMPRESSED_SECONDS) < COMPRESSED_SECONDS
        else ""
    )


def _age_seconds(file: LogFile, now_ns: int) -> float:
    return (now_ns - file.modified_at_ns) * _NANOSECOND


def _verdict(file: LogFile, age_seconds: float) -> Verdict:
    namespace, _, rest = file.pod.partition(b"_")
    pod_name = rest.rpartition(b"_")[0]
    parts = (namespace, pod_name, file.container, file.name)
    uid = uid_of_kubelets_log_directory(file.pod)
    return Verdict(
        ROTATED_LOG,
        file.id,
        file.id if uid is None else "/".join(printable(part) for part in parts if part),
        Action.REMOVE,
        RotatedLogReason.ROTATED,
        size_bytes=file.size_bytes,
        age_seconds=age_seconds if file.name else None,
        pod_uid=uid or "",
    )
