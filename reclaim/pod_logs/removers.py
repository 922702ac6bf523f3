"""Removes logs: pod log directories and log symlinks as planned, and a container's own log before the container goes.

Looking again right before, as `removers` does: the entry is the one that was planned and nobody has touched it, the pod
is still gone, the link still leads nowhere and its container has exited.

Between the last look and the `unlink` of a name some microseconds remain in which another file can get that name. For
that the kubelet would have to make a pod, a log directory or a link of the very same name, UID and container id, which
it never does twice.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack

from reclaim.clock import Clock
from reclaim.containers.removers import STATUS_FRESH_SECONDS, Ready, Refused
from reclaim.pod_logs.names import (
    ContainerLogLocation,
    LogPaths,
    container_log_location,
    symlink_name,
    uid_of_log_directory,
)
from reclaim.pod_logs.openat2 import is_entry_name, open_beneath
from reclaim.pod_logs.plan import LogEntry, LogLink, LogPolicy, NoState, StatusAnswer, Target, judge_link
from reclaim.pod_logs.reader import AnswersStatus, ask_state, opened, read_entry, read_link
from reclaim.pod_logs.remove_tree import printable, remove_tree, unlink_files
from reclaim.pods.states import PodStateProvider, is_pod_uid
from reclaim.services import ContainerStatus
from reclaim.types import Action, ContainerState, Reason, RemovalFailed, Result, RuntimeUnavailable, Verdict

_GONE = Refused(result=Result.ALREADY_GONE)


class PodLogRemover:
    """Removes an entry of the pod log root with everything below it. A `Remover`.

    `entries`: those that the plan was made of.
    """

    fresh_seconds = STATUS_FRESH_SECONDS

    def __init__(self, paths: LogPaths, entries: Sequence[LogEntry], pods: PodStateProvider, clock: Clock):
        self._paths = paths
        self._entries = {entry.id: entry for entry in entries}
        self._pods = pods
        self._clock = clock

    def check(self, verdict: Verdict) -> Ready | Refused:
        """The same entry; of a pod that is gone also unchanged since the plan, and the pod gone now.

        That the kubelet has terminated or evicted a pod is final and not asked again.
        """
        planned = self._entries[verdict.id]
        read_at = self._clock.monotonic()
        try:
            entry = self._read(planned)
        except OSError:
            return Refused(Reason.UNREADABLE)
        if entry is None:
            return _GONE
        if entry.identity != planned.identity:
            return Refused(Reason.TOO_YOUNG)
        if verdict.reason is Reason.POD_GONE:
            if entry.changed_at_ns != planned.changed_at_ns:
                return Refused(Reason.TOO_YOUNG)
            uid = uid_of_log_directory(planned.name)
            if is_pod_uid(uid) and not self._pods.gone(uid):  # what cannot be a UID is no pod's
                return Refused(Reason.POD_ALIVE)
        return Ready(read_at)

    def remove(self, verdict: Verdict) -> bool:
        """The whole tree, by `tree`. What could not go is named, and what could is gone."""
        planned = self._entries[verdict.id]
        try:
            with opened(self._paths.pod_logs_dir) as root:
                removal = remove_tree(root, planned.name, planned.identity)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RemovalFailed(f"{self._paths.pod_logs_dir}: {error.strerror}") from error
        if removal.failed:
            raise RemovalFailed(f"{removal.sentence}; {removal.removed} entries went")
        return removal.removed > 0

    def present(self, verdict: Verdict) -> bool:
        """The same entry is there, not another one of its name. Raises RuntimeUnavailable when it cannot be told."""
        planned = self._entries[verdict.id]
        try:
            entry = self._read(planned)
        except OSError as error:
            raise RuntimeUnavailable(f"{self._paths.pod_logs_dir}: {error.strerror}") from error
        return entry is not None and entry.identity == planned.identity

    def _read(self, planned: LogEntry) -> LogEntry | None:
        """The entry as it is now. Raises OSError, except that a missing root has no entries."""
        try:
            with opened(self._paths.pod_logs_dir) as root:
                return read_entry(root, planned.name)
        except FileNotFoundError:
            return None


class LogSymlinkRemover:
    """Removes a log symlink that leads nowhere. A `Remover`. `links`: those that the plan was made of.

    Rotation renames a log and only then has the runtime open it anew; between the two the link of a running container
    leads nowhere, and once removed it would never come back. So first the container must have exited (which is final)
    or be unknown, and after that the link must still be the same and lead nowhere.
    """

    fresh_seconds = STATUS_FRESH_SECONDS

    def __init__(
        self, paths: LogPaths, links: Sequence[LogLink], runtime: AnswersStatus, policy: LogPolicy, clock: Clock
    ):
        self._paths = paths
        self._links = {link.id: link for link in links}
        self._runtime = runtime
        self._policy = policy
        self._clock = clock

    def check(self, verdict: Verdict) -> Ready | Refused:
        """The container's state first; then, as it takes no time, the link. Raises RuntimeUnavailable."""
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

    def _refusal(self, planned: LogLink) -> Refused | None:
        """None while the link is the same as planned, and still leads nowhere."""
        try:
            with opened(self._paths.container_logs_dir) as directory:
                return self._changed(directory, planned)
        except FileNotFoundError:
            return _GONE
        except OSError:
            return Refused(Reason.UNREADABLE)

    def _changed(self, directory: int, planned: LogLink) -> Refused | None:
        link = read_link(directory, planned.name, self._paths, self._policy)
        if link == planned:
            return None
        if link is None:
            return _GONE
        return Refused(Reason.TARGET_EXISTS if link.leads is Target.EXISTS else Reason.TOO_YOUNG)

    def remove(self, verdict: Verdict) -> bool:
        """Unlinks it if it is still the same and leads nowhere: that is asked once more within the same call."""
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
        """The link is there: the same, wherever it leads. Raises RuntimeUnavailable when it cannot be told."""
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

    The kubelet does the same in the same order: the log first, so that when it cannot be deleted the container stays
    and the next pass finds both again (`pkg/kubelet/kuberuntime/kuberuntime_container.go`, removeContainer). It holds
    its log rotator's lock meanwhile, which nobody else can. What can happen without it: the rotator, which takes up
    running containers only, chose this one just before it exited, and renames or compresses its log while it goes
    here. Then the rotator finds a file missing and says so in its log, or leaves a compressed copy of a dead
    container's log, which goes with the log directory of its pod. Nothing of a container that runs is touched.
    """

    def __init__(self, paths: LogPaths):
        self._paths = paths

    def remove(self, status: ContainerStatus) -> int:
        """Deletes the log, its rotated, compressed and temporary copies, and the symlink to it; says how many went.

        Missing files are fine, and a `log_path` that is not that of a container below the pod log root means that there
        are none. Raises RemovalFailed on any other error, or when the container has not exited: then it must stay.
        """
        if status.state is not ContainerState.EXITED:
            raise RemovalFailed(f"the log of {status.id} stays: it is {status.state}")
        location = container_log_location(status.log_path, self._paths.pod_logs_dir)
        if location is None:
            return 0
        try:
            return self._remove_files(location) + self._remove_symlink(status)
        except OSError as error:
            raise RemovalFailed(f"the log of {status.id} stays: {error.strerror}") from error

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
        """Only a symlink to this very log: cut to 255 bytes, several containers can have one name of a link."""
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
