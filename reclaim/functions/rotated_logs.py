"""`DeleteRotatedLogs`: removes rotated logs, oldest first across all containers, without
asking the runtime anything.

A container that logs faster than the kubelet rotates and deletes can fill the disk with rotated
logs (https://github.com/kubernetes/kubernetes/issues/110630,
https://github.com/kubernetes/kubernetes/issues/129447). What the kubelet makes in a container's log
directory (`pkg/kubelet/logs/container_log_manager.go`):

| Name | What it is | Verdict |
|---|---|---|
| `N.log` | the log being written now | kept |
| `N.log.YYYYMMDD-hhmmss` | what `N.log` was until then | the newest are kept, whatever N is |
| the same with `.gz` | the same, compressed before a later rotation | the same |
| the same with `.tmp` | what a compression writes, then renames | removed if left behind |

The order is that of the times in the names, as in the kubelet.

Every directory is opened beneath the one above it (`pod_logs.directories`): no symlink is followed
and no mount is entered. Every file is looked at again right before it is unlinked. Between the last
look and the `unlink`, another file can get the name for some microseconds; the kubelet gives it to
none, as names carry the time of the rotation.
"""

import errno
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from reclaim.evidence.states import SETTLE_SECONDS
from reclaim.function import GONE, Ready, ReclaimFunction, Refused, Stage
from reclaim.pod_logs.directories import (
    allocated_bytes,
    examine_directory,
    names_in,
    open_beneath,
    opened,
)
from reclaim.pod_logs.names import printable, uid_of_kubelets_log_directory
from reclaim.trust import identity_of
from reclaim.types import (
    Action,
    FileIdentity,
    Plan,
    Reason,
    ReclaimError,
    RemovalFailed,
    Rule,
    RuntimeUnavailable,
    Verdict,
)
from signals.clock import Clock
from signals.types import FilesystemRole

ROTATED_LOG = "rotated_log"
CURRENT = "current"
BEING_ROTATED = "being_rotated"
REASONS = ("rotated", "left_behind", CURRENT, "newest_rotated", BEING_ROTATED, "replaced")
"""Why one is removed or kept, in addition to `NOT_KUBELETS` and `UNREADABLE` of `Reason`."""

COMPRESSED_SECONDS = 300.0  # a compression that has written within this time may go on
COMPRESSED = b".gz"
TEMPORARY = b".tmp"

_CURRENT = re.compile(rb"[0-9]{1,10}\.log")
_ROTATED = re.compile(rb"[0-9]{1,10}\.log\.([0-9]{8}-[0-9]{6})(\.gz|\.tmp)?")
# a symlink or a file instead of a directory
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
# it makes directories on one filesystem, no symlinks
_NOT_KUBELETS = (errno.ENOTDIR, errno.ELOOP, errno.EXDEV)


class LogFile(NamedTuple):
    """An entry of a container's log directory, or a directory above it that cannot be entered.

    `pod`, `container`, `name`: the names on the path below the pod log root; empty below a
    directory that was not entered. `size_bytes`: allocated. `modified_at_ns`: nanoseconds since
    the epoch. `plain`: a regular file with a single name. `problem`: why the directory was not
    entered, a word of `Reason`.
    """

    pod: bytes
    container: bytes = b""
    name: bytes = b""
    identity: FileIdentity = (0, 0)
    size_bytes: int = 0
    modified_at_ns: int = 0
    plain: bool = True
    problem: str = ""

    @property
    def id(self) -> str:
        """Its path below the pod log root as text, unique for each path."""
        return "/".join(printable(name) for name in (self.pod, self.container, self.name) if name)

    @property
    def stamp(self) -> bytes:
        """The time of the rotation in its name, as text; empty if it has no such name."""
        match = _ROTATED.fullmatch(self.name)
        return match[1] if match else b""


def delete_rotated_logs_function(name: str, keep: int, frees: FilesystemRole) -> ReclaimFunction:
    """The entry of the table. `keep`: how many rotated logs of each container are kept, at least 0.
    `frees`: the filesystem that holds `podLogsDir`."""
    return ReclaimFunction(
        name,
        frees,
        (ROTATED_LOG,),
        stages=lambda context: (RotatedLogs(context.log_paths.pod_logs_dir, keep, context.clock),),
        examine=lambda _, paths: examine_directory(paths.pod_logs_dir, "the rotated logs"),
    )


# ---- the plan, from names and ages alone


def plan_rotated_logs(files: Iterable[LogFile], keep: int, now_ns: int) -> Plan:
    """The plan for every file. `keep`: per container.

    `now_ns`: wall time in nanoseconds since the epoch.
    """
    containers = defaultdict[tuple[bytes, bytes], list[LogFile]](list)
    for file in files:
        containers[file.pod, file.container].append(file)
    verdicts: list[tuple[bytes, str, Verdict]] = []
    for of_one in containers.values():
        newest = sorted(
            {
                file.stamp
                for file in of_one
                if file.stamp and file.plain and not file.name.endswith(TEMPORARY)
            },
            reverse=True,
        )[:keep]
        ages = {file.name: (now_ns - file.modified_at_ns) / 1e9 for file in of_one}
        for file in of_one:
            verdict = _verdict(file, ages, _reason_to_keep(file, newest, ages))
            verdicts.append((file.stamp, file.id, verdict))
    return Plan.of(verdict for _, _, verdict in sorted(verdicts))


def _reason_to_keep(file: LogFile, newest: Collection[bytes], ages: Mapping[bytes, float]) -> str:
    """Why a file is kept; empty if it may go.

    `ages`: seconds since each file of its directory was written, by name.
    """
    name = file.name
    if file.problem:
        return file.problem
    if _CURRENT.fullmatch(name) and file.plain:
        return CURRENT
    if not file.stamp or not file.plain:
        return Reason.NOT_KUBELETS
    if name.endswith(TEMPORARY):
        return BEING_ROTATED if ages[name] < COMPRESSED_SECONDS else ""
    if file.stamp in newest:
        return "newest_rotated"
    # the kubelet has it open, so that unlinking it would free nothing
    compressing = ages.get(temporary_of(name), COMPRESSED_SECONDS) < COMPRESSED_SECONDS
    # until the runtime has opened a new `N.log`
    may_be_written = not name.endswith(COMPRESSED) and (
        ages[name] < SETTLE_SECONDS or name.removesuffix(b"." + file.stamp) not in ages
    )
    return BEING_ROTATED if compressing or may_be_written else ""


def temporary_of(name: bytes) -> bytes:
    """The name of the file that a compression of this rotated log writes."""
    return name.removesuffix(COMPRESSED) + TEMPORARY


def _verdict(file: LogFile, ages: Mapping[bytes, float], reason_to_keep: str) -> Verdict:
    namespace, _, rest = file.pod.partition(b"_")
    parts = (namespace, rest.rpartition(b"_")[0], file.container, file.name)
    uid = uid_of_kubelets_log_directory(file.pod)
    return Verdict(
        ROTATED_LOG,
        file.id,
        file.id if uid is None else "/".join(printable(part) for part in parts if part),
        Action.KEEP if reason_to_keep else Action.REMOVE,
        reason_to_keep or ("left_behind" if file.name.endswith(TEMPORARY) else "rotated"),
        file.size_bytes,
        ages[file.name] if file.name else None,
        uid or "",
        rule=Rule.GUARD if reason_to_keep not in ("", CURRENT) else Rule.KUBELET,
    )


# ---- reading, and unlinking as planned


class RotatedLogs(Stage):
    """The stage: the rotated logs below one pod log root."""

    def __init__(self, pod_logs_dir: str, keep: int, clock: Clock):
        self._root = pod_logs_dir
        self._keep = keep
        self._clock = clock
        self._files: dict[str, LogFile] = {}

    def plan(self) -> Plan | None:
        """None if there is no pod log root. Raises ReclaimError."""
        try:
            with opened(self._root) as root:
                self._files = {file.id: file for file in _files(root)}
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ReclaimError(f"{self._root} cannot be read: {error.strerror}") from error
        return plan_rotated_logs(self._files.values(), self._keep, int(self._clock.wall() * 1e9))

    def check(self, verdict: Verdict) -> Ready | Refused:
        """Ready if the file is the planned one, unchanged, and not being compressed."""
        read_at = self._clock.monotonic()
        try:
            return self._looked_at(verdict, lambda *_, **__: None) or Ready(read_at)
        except OSError:
            return Refused(Reason.UNREADABLE)

    def remove(self, verdict: Verdict) -> bool:
        """Unlinks it, after one more look, within the same call, whether it may go."""
        try:
            refused = self._looked_at(verdict, os.unlink)
        except OSError as error:
            raise RemovalFailed(f"{verdict.id}: {error.strerror}") from error
        if refused is not None and refused.reason is not None:
            raise RemovalFailed(f"{verdict.id} changed at the last moment: {refused.reason}")
        return refused is None

    def _looked_at(self, verdict: Verdict, then: Callable[..., None]) -> Refused | None:
        """Why it may not go; None if it may, after `then` with its name and opened directory.

        Raises OSError.
        """
        planned = self._files[verdict.id]
        try:
            with opened(self._root, planned.pod, planned.container) as logs:
                refused = self._refusal(logs, planned)
                if refused is None:
                    then(planned.name, dir_fd=logs)
                return refused
        except OSError as error:
            if error.errno in _NOT_THERE:
                return GONE
            raise

    def present(self, verdict: Verdict) -> bool:
        """Whether the planned file still has its name.

        Raises RuntimeUnavailable if that is unknown.
        """
        planned = self._files[verdict.id]
        try:
            with opened(self._root, planned.pod, planned.container) as logs:
                found = _as_it_is(logs, planned)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return False
            raise RuntimeUnavailable(f"{planned.id}: {error.strerror}") from error
        return found is not None and found.identity == planned.identity

    def _refusal(self, logs: int, planned: LogFile) -> Refused | None:
        """None while the file may go. Raises OSError."""
        found = _as_it_is(logs, planned)
        if found is None:
            return GONE
        if found.identity != planned.identity or not found.plain:
            return Refused("replaced")
        # a compression that the plan did not know about, or that has continued since
        written = _as_it_is(logs, planned._replace(name=temporary_of(planned.name)))
        compressed = written is not None and written != self._files.get(written.id)
        return (
            Refused(BEING_ROTATED)
            if compressed or found.modified_at_ns != planned.modified_at_ns
            else None
        )


def _files(directory: int, above: LogFile | None = None) -> Iterator[LogFile]:
    """Every entry of every container's log directory. `directory`: the opened root, or that of
    `above`, a pod or a container. Raises OSError."""
    for name in names_in(directory):
        if above is None:
            entry = LogFile(name)
            if uid_of_kubelets_log_directory(name) is None:
                yield entry._replace(problem=Reason.NOT_KUBELETS)
                continue
        elif not above.container:
            entry = above._replace(container=name)
        else:
            file = _as_it_is(directory, above._replace(name=name))
            if file is not None:
                yield file
            continue
        try:
            entered = open_beneath(directory, name)
            try:
                files = list(_files(entered, entry))
            finally:
                os.close(entered)
        except FileNotFoundError:
            continue
        except OSError as error:
            why = Reason.NOT_KUBELETS if error.errno in _NOT_KUBELETS else Reason.UNREADABLE
            files = [entry._replace(problem=why)]
        yield from files


def _as_it_is(logs: int, file: LogFile) -> LogFile | None:
    """What has this file's name in a container's opened log directory; None if nothing has.

    Raises OSError.
    """
    try:
        status = os.lstat(file.name, dir_fd=logs)
    except FileNotFoundError:
        return None
    return file._replace(
        identity=identity_of(status),
        size_bytes=allocated_bytes(status),
        modified_at_ns=status.st_mtime_ns,
        plain=stat.S_ISREG(status.st_mode) and status.st_nlink == 1,
    )
