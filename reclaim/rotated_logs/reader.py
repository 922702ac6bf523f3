"""Reads the log directories of containers: three levels, from the pod log root down.

Each directory is opened beneath the one above it (`reclaim.pod_logs.directories`): no symlink is followed and no mount
is entered. What cannot be entered is an entry of its own in the answer, so that the plan says why its logs stay.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from reclaim.pod_logs.directories import LogsUnreadable, identity_of, opened, opened_beneath
from reclaim.pod_logs.names import uid_of_kubelets_log_directory
from reclaim.rotated_logs.plan import LogFile
from reclaim.types import Reason

BLOCK = 512  # the unit of st_blocks, whatever the blocks of the filesystem are


def read_log_files(pod_logs_dir: str) -> tuple[LogFile, ...]:
    """Every entry of the log directory of every container. Raises LogsUnreadable if the root cannot be read."""
    try:
        with opened(pod_logs_dir) as root:
            return tuple(_below_root(root))
    except OSError as error:
        raise LogsUnreadable(pod_logs_dir, error) from error


def _below_root(root: int) -> Iterator[LogFile]:
    for pod in sorted(os.fsencode(name) for name in os.listdir(root)):
        if uid_of_kubelets_log_directory(pod) is None:
            yield LogFile(pod, problem=Reason.NOT_KUBELETS)
            continue
        try:
            with opened_beneath(root, pod) as directory:
                yield from _below_pod(directory, pod)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield LogFile(pod, problem=_why_not_entered(error))


def _why_not_entered(error: OSError) -> Reason:
    """The kubelet makes directories, on one filesystem, and no symlinks."""
    return Reason.NOT_KUBELETS if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EXDEV) else Reason.UNREADABLE


def _below_pod(directory: int, pod: bytes) -> Iterator[LogFile]:
    for container in sorted(os.fsencode(name) for name in os.listdir(directory)):
        try:
            with opened_beneath(directory, container) as logs:
                found = [read_log_file(logs, pod, container, os.fsencode(name)) for name in os.listdir(logs)]
        except FileNotFoundError:
            continue
        except OSError as error:
            yield LogFile(pod, container, problem=_why_not_entered(error))
            continue
        yield from (file for file in found if file is not None)


def read_log_file(logs: int, pod: bytes, container: bytes, name: bytes) -> LogFile | None:
    """One entry of the opened log directory of a container, as it is now; None if it does not exist. Raises OSError."""
    try:
        status = os.lstat(name, dir_fd=logs)
    except FileNotFoundError:
        return None
    return LogFile(
        pod,
        container,
        name,
        identity_of(status),
        status.st_blocks * BLOCK,
        status.st_mtime_ns,
        plain=stat.S_ISREG(status.st_mode) and status.st_nlink == 1,
    )


@contextmanager
def opened_logs(pod_logs_dir: str, file: LogFile) -> Iterator[int]:
    """The descriptor of the log directory of the container that a file is of. Raises OSError."""
    with (
        opened(pod_logs_dir) as root,
        opened_beneath(root, file.pod) as directory,
        opened_beneath(directory, file.container) as logs,
    ):
        yield logs
