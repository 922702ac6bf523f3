"""Reads the pod log root and the log symlinks. Creates nothing, and opens no target of a symlink.

As in the kubelet, a pod log root that cannot be read fails the whole stage, and a directory of symlinks that cannot be
read counts as empty (`pkg/kubelet/kuberuntime/kuberuntime_gc.go`, evictPodLogsDirectories).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from reclaim.pod_logs.directory_walk import identity_of
from reclaim.pod_logs.names import LOG_SUFFIX, LogPaths, container_id_of_symlink, printable, uid_of_log_directory
from reclaim.pod_logs.plan import LogEntry, LogPolicy, LogSymlink, NoState, StatusAnswer, TargetState, ids_to_ask
from reclaim.services import ContainerStatus
from reclaim.types import ReclaimError, RuntimeUnavailable

ERRORS_IN_A_ROW = 2
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)


class LogsUnreadable(ReclaimError):
    """The pod log root cannot be read. The message names it and says why. `missing`: it does not exist, or is a
    symlink, which is not followed."""

    def __init__(self, message: str, *, missing: bool = False):
        super().__init__(message)
        self.missing = missing


class ContainerStatusSource(Protocol):
    """The part of a runtime that is needed here; every `RuntimeService` has it."""

    def container_status(self, container_id: str) -> ContainerStatus | None:
        """The container as it is now; None when there is no such container. Raises RuntimeUnavailable."""


@contextmanager
def opened(directory: str) -> Iterator[int]:
    """The descriptor of one of the two configured directories.

    Raises OSError when it cannot be opened. A symlink in its place is not followed, whoever may have put it there: the
    directory counts as missing (FileNotFoundError).
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except NotADirectoryError:
        if os.path.islink(directory):
            raise FileNotFoundError(errno.ENOENT, "it is a symlink, which is not followed", directory) from None
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_pod_logs(paths: LogPaths) -> tuple[LogEntry, ...]:
    """The entries of the pod log root, sorted by name. Raises LogsUnreadable, also when the root does not exist."""
    try:
        with opened(paths.pod_logs_dir) as root:
            names = sorted(os.fsencode(name) for name in os.listdir(root))
            entries = (read_entry(root, name) for name in names)
            return tuple(entry for entry in entries if entry is not None)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise LogsUnreadable(f"{paths.pod_logs_dir} cannot be read: {error.strerror}", missing=missing) from error


def read_entry(root: int, name: bytes) -> LogEntry | None:
    """One entry of the opened root as it is now; None when it does not exist. Raises OSError."""
    try:
        status = os.lstat(name, dir_fd=root)
    except FileNotFoundError:
        return None
    return LogEntry(name, identity_of(status), status.st_ctime_ns)


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


def ask_states(runtime: ContainerStatusSource, links: Sequence[LogSymlink]) -> dict[str, StatusAnswer]:
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


def ask_state(runtime: ContainerStatusSource, container_id: str) -> StatusAnswer:
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
