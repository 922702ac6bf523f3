"""Unlinks a rotated log as planned, and no other file of its name.

Each is looked at again right before: it is the planned file, nobody has written it since, and no compression of it has
begun. Between the last look and the `unlink` another file can get the name for some microseconds; the kubelet gives it
to none: it makes it from the time of a rotation.
"""

from __future__ import annotations

import errno
import os

from reclaim.clock import Clock
from reclaim.execution.remover import GONE, STATUS_FRESH_SECONDS, Ready, Refused
from reclaim.rotated_logs.plan import TEMPORARY, LogFile, RotatedLogReason, temporary_of
from reclaim.rotated_logs.reader import opened_logs, read_log_file
from reclaim.types import Reason, RemovalFailed, RuntimeUnavailable, Verdict

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # a symlink or a file in the place of a directory


class RotatedLogRemover:
    """A `Remover`. `files`: those that the plan was made of."""

    fresh_seconds = STATUS_FRESH_SECONDS
    frees_late = False

    def __init__(self, pod_logs_dir: str, files: tuple[LogFile, ...], clock: Clock):
        self._root = pod_logs_dir
        self._files = {file.id: file for file in files}
        self._clock = clock

    def check(self, verdict: Verdict) -> Ready | Refused:
        """Ready if it is the planned file, as it was, and is not being compressed."""
        planned = self._files[verdict.id]
        read_at = self._clock.monotonic()
        try:
            with opened_logs(self._root, planned) as logs:
                return self._refusal(logs, planned) or Ready(read_at)
        except OSError as error:
            return GONE if error.errno in _NOT_THERE else Refused(Reason.UNREADABLE)

    def _refusal(self, logs: int, planned: LogFile) -> Refused | None:
        """None while the file may go. Raises OSError."""
        found = read_log_file(logs, planned.pod, planned.container, planned.name)
        if found is None:
            return GONE
        if found.identity != planned.identity or not found.plain:
            return Refused(RotatedLogReason.REPLACED)
        if found.modified_at_ns != planned.modified_at_ns:
            return Refused(RotatedLogReason.BEING_ROTATED)
        return Refused(RotatedLogReason.BEING_ROTATED) if self._being_compressed(logs, planned) else None

    def _being_compressed(self, logs: int, planned: LogFile) -> bool:
        """Whether a compression writes beside it that the plan did not know, or that has gone on since. OSError."""
        if planned.name.endswith(TEMPORARY):
            return False
        written = read_log_file(logs, planned.pod, planned.container, temporary_of(planned.name))
        if written is None:
            return False
        known = self._files.get(written.id)
        return known is None or (known.identity, known.modified_at_ns) != (written.identity, written.modified_at_ns)

    def remove(self, verdict: Verdict) -> bool:
        """Unlinks it; within the same call it looks once more whether it may go."""
        planned = self._files[verdict.id]
        try:
            with opened_logs(self._root, planned) as logs:
                refused = self._refusal(logs, planned)
                if refused is None:
                    os.unlink(planned.name, dir_fd=logs)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return False
            raise RemovalFailed(f"{planned.id}: {error.strerror}") from error
        if refused is not None and refused.reason is not None:
            raise RemovalFailed(f"{planned.id} changed at the last moment: {refused.reason}")
        return refused is None

    def present(self, verdict: Verdict) -> bool:
        """Whether the planned file still has its name. Raises RuntimeUnavailable when that cannot be told."""
        planned = self._files[verdict.id]
        try:
            with opened_logs(self._root, planned) as logs:
                found = read_log_file(logs, planned.pod, planned.container, planned.name)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return False
            raise RuntimeUnavailable(f"{planned.id}: {error.strerror}") from error
        return found is not None and found.identity == planned.identity
