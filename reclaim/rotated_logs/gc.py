"""`DeleteRotatedLogs`: removes rotated logs, oldest first over all containers, without asking the runtime anything.

A container that logs faster than the kubelet rotates and deletes can fill the disk with rotated logs
(https://github.com/kubernetes/kubernetes/issues/110630, https://github.com/kubernetes/kubernetes/issues/129447).
"""

from __future__ import annotations

import os

from reclaim.execution.readings import in_time
from reclaim.execution.stages import Stage, StagePlan, Stopwatch
from reclaim.functions import ReclaimContext, ReclaimFunction
from reclaim.pod_logs.directories import LogsUnreadable, opened
from reclaim.rotated_logs.plan import ROTATED_LOG, RotatedLogSettings, plan_rotated_logs
from reclaim.rotated_logs.reader import read_log_files
from reclaim.rotated_logs.remover import RotatedLogRemover
from reclaim.types import MeasureDisk


def delete_rotated_logs_function(name: str, settings: RotatedLogSettings, frees: str) -> ReclaimFunction:
    """The entry of the table. `frees`: the filesystem that `podLogsDir` is on."""

    def stages(context: ReclaimContext) -> tuple[Stage, ...]:
        def rotated(_: MeasureDisk) -> StagePlan | None:
            return _plan(context, settings)

        return (rotated,)

    return ReclaimFunction(name, frees, (ROTATED_LOG,), stages)


def _plan(context: ReclaimContext, settings: RotatedLogSettings) -> StagePlan | None:
    """None where there is no pod log root. Raises LogsUnreadable."""
    root, clock = context.log_paths.pod_logs_dir, context.clock
    watch = Stopwatch(clock)
    try:
        files = watch.time(lambda: read_log_files(root))
    except LogsUnreadable as error:
        if error.missing:
            return None
        raise
    plan = plan_rotated_logs(files, settings, int(clock.wall() * 1e9))
    return StagePlan(plan, RotatedLogRemover(root, files, clock), list_seconds=watch.seconds)


def problem_of(pod_logs_dir: str) -> str | None:
    """What is wrong with the pod log root on this machine, as one sentence; None: rotated logs can be removed there.
    For the start and for `doctor`."""

    def is_read_only() -> int:
        with opened(pod_logs_dir) as root:
            return os.fstatvfs(root).f_flag & os.ST_RDONLY

    try:
        read_only = in_time(is_read_only)
    except OSError as error:
        return f"the rotated logs below {pod_logs_dir} cannot be removed: {error.strerror}"
    if read_only:
        return (
            f"the rotated logs below {pod_logs_dir} cannot be removed: it is read-only here (systemd: ReadWritePaths=)"
        )
    return None
