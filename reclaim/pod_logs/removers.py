"""Removes logs: pod log directories and log symlinks as planned, and a container's own log before the container.

Each is checked again right before: the entry is still the planned one and unchanged, the pod still does not exist, the
target of the link still does not exist and its container has exited.

Between the last check and the `unlink` of a name another file can get that name for some microseconds. For that the
kubelet would have to make a pod, a log directory or a link with the very same name, UID and container id, which it
never does twice.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack

from reclaim.clock import Clock
from reclaim.execution.remover import GONE, STATUS_FRESH_SECONDS, Ready, Refused
from reclaim.pod_logs.names import (
    ContainerLogLocation,
    LogPaths,
    container_log_location,
    is_entry_name,
    printable,
    symlink_name,
    uid_of_log_directory,
)
from reclaim.pod_logs.openat2 import open_beneath
from reclaim.pod_logs.plan import LogEntry, LogPolicy, LogSymlink, NoState, StatusAnswer, TargetState, judge_link
from reclaim.pod_logs.reader import ContainerStatusSource, ask_state, opened, read_entry, read_link
from reclaim.pod_logs.remove_tree import remove_tree, unlink_files
from reclaim.pods.states import PodStateProvider, is_pod_uid
from reclaim.services import ContainerStatus
from reclaim.types import Action, ContainerState, Reason, RemovalFailed, RuntimeUnavailable, Verdict


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
        runtime: ContainerStatusSource,
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
        planned = self._links[verdict.id]
        read_at = self._clock.monotonic()
        answers: dict[str, StatusAnswer] = {}
        if planned.container_id is not None:
            answers[planned.container_id] = self._ask(planned.container_id)
            read_at = self._clock.monotonic()
        judged = judge_link(planned, answers, self._policy)
        if judged.action is Action.KEEP:
            return Refused(judged.reason)
        return self._refusal(planned) or Ready(read_at)

    def _ask(self, container_id: str) -> StatusAnswer:
        try:
            return ask_state(self._runtime, container_id)
        except RuntimeUnavailable:
            if self._policy.cautious:
                raise
            return NoState.ERROR

    def _refusal(self, planned: LogSymlink) -> Refused | None:
        """None while the link is unchanged and its target still does not exist."""
        try:
            with opened(self._paths.container_logs_dir) as directory:
                return self._changed(directory, planned)
        except FileNotFoundError:
            return GONE
        except OSError:
            return Refused(Reason.UNREADABLE)

    def _changed(self, directory: int, planned: LogSymlink) -> Refused | None:
        link = read_link(directory, planned.name, self._paths, self._policy)
        if link == planned:
            return None
        if link is None:
            return GONE
        return Refused(Reason.TARGET_EXISTS if link.target_state is TargetState.EXISTS else Reason.TOO_YOUNG)

    def remove(self, verdict: Verdict) -> bool:
        """Unlinks it; within the same call it checks once more that the link is unchanged and has no target."""
        planned = self._links[verdict.id]
        try:
            with opened(self._paths.container_logs_dir) as directory:
                refused = self._changed(directory, planned)
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
            with opened(self._paths.container_logs_dir) as directory:
                link = read_link(directory, planned.name, self._paths, self._policy)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RuntimeUnavailable(f"{self._paths.container_logs_dir}: {error.strerror}") from error
        return link is not None and (link.identity, link.target) == (planned.identity, planned.target)


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
        with ExitStack() as stack:
            try:
                directory = stack.enter_context(opened(self._paths.pod_logs_dir))
                for name in (location.pod_directory, location.container_directory):
                    directory = open_beneath(directory, name)
                    stack.callback(os.close, directory)
            except FileNotFoundError:
                return 0
            removal = unlink_files(directory, location.file)
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
