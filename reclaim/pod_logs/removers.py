"""Reads and removes logs: pod log directories and log symlinks as planned, and a container's own log before it goes.

Reading creates nothing, and opens no target of a symlink. As in the kubelet, a pod log root that cannot be read fails
the whole stage, and a directory of symlinks that cannot be read counts as empty
(`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, evictPodLogsDirectories).

Each is checked again right before its removal: the entry is still the planned one and unchanged, the pod still does not
exist, the target of the link still does not exist and its container has exited.

Between the last check and the `unlink` of a name another file can get that name for some microseconds. For that the
kubelet would have to make a pod, a log directory or a link with the very same name, UID and container id, which it
never does twice.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence

from reclaim.execution.remover import GONE, STATUS_FRESH_SECONDS, Ready, Refused
from reclaim.pod_logs.directories import LogsUnreadable, identity_of, opened, opened_beneath
from reclaim.pod_logs.names import (
    LOG_SUFFIX,
    ContainerLogLocation,
    LogPaths,
    container_id_of_symlink,
    container_log_location,
    is_entry_name,
    printable,
    symlink_name,
    uid_of_log_directory,
)
from reclaim.pod_logs.plan import (
    LogEntry,
    LogPolicy,
    LogSymlink,
    NoState,
    StatusAnswer,
    TargetState,
    ids_to_ask,
    judge_link,
)
from reclaim.pod_logs.remove_tree import remove_tree, unlink_files
from reclaim.pods.states import PodStateProvider, is_pod_uid
from reclaim.services import Clock, ContainerStatus, RuntimeService
from reclaim.types import Action, ContainerState, Reason, RemovalFailed, RuntimeUnavailable, Verdict

ERRORS_IN_A_ROW = 2
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)


def read_pod_logs(paths: LogPaths) -> tuple[LogEntry, ...]:
    """The entries of the pod log root, sorted by name. Raises LogsUnreadable, also when the root does not exist."""
    try:
        with opened(paths.pod_logs_dir) as root:
            names = sorted(os.fsencode(name) for name in os.listdir(root))
            entries = (read_entry(root, name) for name in names)
            return tuple(entry for entry in entries if entry is not None)
    except OSError as error:
        raise LogsUnreadable(paths.pod_logs_dir, error) from error


def read_entry(root: int, name: bytes) -> LogEntry | None:
    """One entry of the opened root as it is now; None when it does not exist. Raises OSError."""
    try:
        status = os.lstat(name, dir_fd=root)
    except FileNotFoundError:
        return None
    return LogEntry(name, identity_of(status), status.st_ctime_ns)


class PodLogRemover:
    """Removes an entry of the pod log root with everything below it. A `Remover`.

    `entries`: those that the plan was made of.
    """

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = False

    def __init__(self, paths: LogPaths, entries: Sequence[LogEntry], pods: PodStateProvider, clock: Clock):
        self._paths = paths
        self._entries = {entry.id: entry for entry in entries}
        self._pods = pods
        self._clock = clock

    def check(self, verdict: Verdict) -> Ready | Refused:
        """Ready if the entry is the planned one and, for POD_GONE, unchanged while the pod still does not exist.

        That the kubelet has terminated or evicted a pod is final, so that is not checked again.
        """
        planned = self._entries[verdict.id]
        read_at = self._clock.monotonic()
        try:
            entry = self._read(planned)
        except OSError:
            return Refused(Reason.UNREADABLE)
        if entry is None:
            return GONE
        if entry.identity != planned.identity:
            return Refused(Reason.TOO_YOUNG)
        if verdict.reason is Reason.POD_GONE:
            if entry.changed_at_ns != planned.changed_at_ns:
                return Refused(Reason.TOO_YOUNG)
            uid = uid_of_log_directory(planned.name)
            if is_pod_uid(uid) and not self._pods.gone(uid):  # an invalid UID belongs to no pod
                return Refused(Reason.POD_ALIVE if self._pods.doubt is None else Reason.POD_UNKNOWN)
        return Ready(read_at)

    def remove(self, verdict: Verdict) -> bool:
        """Removes the tree, as far as possible. Raises RemovalFailed, which names the first entry that was kept."""
        planned = self._entries[verdict.id]
        try:
            with opened(self._paths.pod_logs_dir) as root:
                removal = remove_tree(root, planned.name, planned.identity)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RemovalFailed(f"{self._paths.pod_logs_dir}: {error.strerror}") from error
        if removal.failed:
            raise RemovalFailed(f"{removal.sentence}; entries removed: {removal.removed}")
        return removal.removed > 0

    def present(self, verdict: Verdict) -> bool:
        """Whether the planned entry, not another of its name, still exists. Raises RuntimeUnavailable when unknown."""
        planned = self._entries[verdict.id]
        try:
            entry = self._read(planned)
        except OSError as error:
            raise RuntimeUnavailable(f"{self._paths.pod_logs_dir}: {error.strerror}") from error
        return entry is not None and entry.identity == planned.identity

    def _read(self, planned: LogEntry) -> LogEntry | None:
        """The entry as it is now; None also when the root does not exist. Raises OSError."""
        try:
            with opened(self._paths.pod_logs_dir) as root:
                return read_entry(root, planned.name)
        except FileNotFoundError:
            return None


def read_log_links(paths: LogPaths, policy: LogPolicy) -> tuple[LogSymlink, ...]:
    """The symlinks named `*.log`, sorted by name; none when the directory is missing or cannot be read."""
    links: list[LogSymlink] = []
    try:
        with opened(paths.container_logs_dir) as directory:
            for name in sorted(os.fsencode(name) for name in os.listdir(directory) if name.endswith(LOG_SUFFIX)):
                link = read_link(directory, name, paths, policy)
                if link is not None:
                    links.append(link)
    except OSError:
        return ()
    return tuple(links)


def read_link(directory: int, name: bytes, paths: LogPaths, policy: LogPolicy) -> LogSymlink | None:
    """One entry of the opened directory of log symlinks as it is now; None when it is no symlink or does not exist.

    Raises OSError when it cannot be read.
    """
    try:
        status = os.lstat(name, dir_fd=directory)
        if not stat.S_ISLNK(status.st_mode):
            return None
        target = os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINVAL):  # EINVAL: it was just replaced by a file
            return None
        raise
    path = os.path.join(paths.container_logs_dir, os.fsdecode(name))
    below = _names_below(os.fsencode(paths.pod_logs_dir), target)
    return LogSymlink(
        name,
        identity_of(status),
        target,
        TargetState.FOREIGN if policy.cautious and not below else _target_state(directory, name),
        container_id_of_symlink(path),
        printable(os.fsencode(uid_of_log_directory(below[0]))) if len(below) == 3 else "",
    )


def _names_below(root: bytes, target: bytes) -> list[bytes]:
    """The components of a target, as written, below the root; empty when it is not below."""
    root = root.rstrip(b"/") + b"/"
    clean = target.startswith(root) and os.path.normpath(target) == target
    return target.removeprefix(root).split(b"/") if clean else []


def _target_state(directory: int, name: bytes) -> TargetState:
    try:
        os.stat(name, dir_fd=directory)
    except FileNotFoundError:
        return TargetState.MISSING
    except OSError:
        return TargetState.UNREADABLE
    return TargetState.EXISTS


def ask_states(runtime: RuntimeService, links: Sequence[LogSymlink]) -> dict[str, StatusAnswer]:
    """The answer of ContainerStatus for each dangling link. Never raises.

    After two errors in a row no more requests are sent: a runtime that is down may take the whole deadline of each.
    """
    answers: dict[str, StatusAnswer] = {}
    errors = 0
    for container_id in ids_to_ask(links):
        try:
            answers[container_id] = ask_state(runtime, container_id)
            errors = 0
        except RuntimeUnavailable:
            answers[container_id] = NoState.ERROR
            errors += 1
            if errors == ERRORS_IN_A_ROW:
                break
    return answers


def ask_state(runtime: RuntimeService, container_id: str) -> StatusAnswer:
    """The answer of ContainerStatus for an id or a prefix of one. Raises RuntimeUnavailable.

    A text that cannot begin an id is NO_CONTAINER without a request. An answer about a container whose id does not
    begin with `container_id` is NO_STATUS.
    """
    if not _ID.fullmatch(container_id):
        return NoState.NO_CONTAINER
    status = runtime.container_status(container_id)
    if status is None:
        return NoState.NO_CONTAINER
    return status.state if status.id.startswith(container_id) else NoState.NO_STATUS


class LogSymlinkRemover:
    """Removes a log symlink whose target does not exist. A `Remover`. `links`: those that the plan was made of.

    Rotation renames a log, and only then has the runtime open it anew. Between the two the target of a running
    container's link does not exist, and a link that was removed would never come back. So first the container must
    have exited (which is final) or be unknown, and after that the link must be unchanged and still have no target.
    """

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = False

    def __init__(
        self,
        paths: LogPaths,
        links: Sequence[LogSymlink],
        runtime: RuntimeService,
        policy: LogPolicy,
        clock: Clock,
    ):
        self._paths = paths
        self._links = {link.id: link for link in links}
        self._runtime = runtime
        self._policy = policy
        self._clock = clock

    def check(self, verdict: Verdict) -> Ready | Refused:
        """Checks the container's state, then the link, which takes no time. Raises RuntimeUnavailable."""
        planned, answer = self._links[verdict.id], None
        if planned.container_id is not None:
            try:
                answer = ask_state(self._runtime, planned.container_id)
            except RuntimeUnavailable:
                if self._policy.cautious:
                    raise
                answer = NoState.ERROR
        read_at = self._clock.monotonic()
        judged = judge_link(planned, answer, self._policy)
        if judged.action is Action.KEEP:
            return Refused(judged.reason)
        try:
            return _changed(planned, self._read(planned)) or Ready(read_at)
        except OSError:
            return Refused(Reason.UNREADABLE)

    def remove(self, verdict: Verdict) -> bool:
        """Unlinks it; within the same call it checks once more that the link is unchanged and has no target."""
        planned = self._links[verdict.id]
        try:
            with opened(self._paths.container_logs_dir) as directory:
                refused = _changed(planned, read_link(directory, planned.name, self._paths, self._policy))
                if refused is None:
                    os.unlink(planned.name, dir_fd=directory)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RemovalFailed(f"{planned.id}: {error.strerror}") from error
        if refused is not None and refused.reason is not None:
            raise RemovalFailed(f"{planned.id} changed at the last moment: {refused.reason}")
        return refused is None

    def present(self, verdict: Verdict) -> bool:
        """Whether the planned link still exists, whatever its target. Raises RuntimeUnavailable when unknown."""
        planned = self._links[verdict.id]
        try:
            link = self._read(planned)
        except OSError as error:
            raise RuntimeUnavailable(f"{self._paths.container_logs_dir}: {error.strerror}") from error
        return link is not None and (link.identity, link.target) == (planned.identity, planned.target)

    def _read(self, planned: LogSymlink) -> LogSymlink | None:
        """The link as it is now; None also when the directory does not exist. Raises OSError."""
        try:
            with opened(self._paths.container_logs_dir) as directory:
                return read_link(directory, planned.name, self._paths, self._policy)
        except FileNotFoundError:
            return None


def _changed(planned: LogSymlink, link: LogSymlink | None) -> Refused | None:
    """None while the link is as planned, and its target still does not exist."""
    if link is None:
        return GONE
    if link == planned:
        return None
    return Refused(Reason.TARGET_EXISTS if link.target_state is TargetState.EXISTS else Reason.TOO_YOUNG)


class ContainerLogs:
    """Deletes the logs of a container that is about to be removed.

    The kubelet deletes in the same order (`pkg/kubelet/kuberuntime/kuberuntime_container.go`, removeContainer): the log
    first, so that a container whose log cannot be deleted is kept and the next pass finds both again. Meanwhile it
    holds its log rotator's lock, which no other process can. Without that lock the rotator, which rotates running
    containers only, may have chosen this container just before it exited, and rename or compress its log during the
    deletion. Then it logs that a file is missing, or leaves a compressed copy, which is removed with the log directory
    of the pod. The logs of running containers are never touched.
    """

    def __init__(self, paths: LogPaths):
        self._paths = paths

    def remove(self, status: ContainerStatus) -> int:
        """Deletes the log, its rotated, compressed and temporary copies, and the symlink to it. Returns how many files.

        Missing files are no failure; a `log_path` that is not that of a container below the pod log root means that
        there are none. Raises RemovalFailed on any other error, or when the container has not exited: then it must be
        kept.
        """
        if status.state is not ContainerState.EXITED:
            raise RemovalFailed(f"the log of {status.id} is kept: the container is {status.state}")
        location = container_log_location(status.log_path, self._paths.pod_logs_dir)
        if location is None:
            return 0
        try:
            return self._remove_files(location) + self._remove_symlink(status)
        except OSError as error:
            raise RemovalFailed(f"the log of {status.id} is kept: {error.strerror}") from error

    def _remove_files(self, location: ContainerLogLocation) -> int:
        try:
            with (
                opened(self._paths.pod_logs_dir) as root,
                opened_beneath(root, location.pod_directory) as pod,
                opened_beneath(pod, location.container_directory) as directory,
            ):
                removal = unlink_files(directory, location.file)
        except FileNotFoundError:
            return 0
        if removal.failed:
            raise RemovalFailed(f"{printable(location.pod_directory)}: {removal.sentence}")
        return removal.removed

    def _remove_symlink(self, status: ContainerStatus) -> int:
        """Removes the symlink if it leads to this log: cut to 255 bytes, its name can be that of several containers."""
        name = os.fsencode(symlink_name(status.pod_name, status.pod_namespace, status.name, status.id))
        if not is_entry_name(name):
            return 0
        try:
            with opened(self._paths.container_logs_dir) as directory:
                if not stat.S_ISLNK(os.lstat(name, dir_fd=directory).st_mode):
                    return 0
                if os.readlink(name, dir_fd=directory) != os.fsencode(status.log_path):
                    return 0
                os.unlink(name, dir_fd=directory)
                return 1
        except FileNotFoundError:
            return 0
