"""What open files take that their names and sizes do not show.

* A removed file keeps its bytes until the last process that has it open lets go: `df` counts them,
  `du` does not.
* XFS allocates space beyond the end of a growing file (speculative preallocation), which is
  nobody's data.
* A container opens its files through an overlay, under the overlay's device number; they count for
  the filesystem of the upper directory.
* Files in btrfs subvolumes without a given path are not found.

Source: proc(5), for `/proc/pid/cgroup` and `comm`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from eviction.records.attribution import About, Remark
from eviction.survey.trees import InTime, TimeLimit
from reclaim.evidence.files_in_use import hides_processes
from reclaim.pod_logs.directories import allocated_bytes
from signals.mounts import Mount, mount_holding, overlays_on, read_mounts
from signals.open_files import PROC, open_files, processes

MOST_FILES = 10_000  # that are remembered, so memory stays bounded
# systemd, cgroupfs
_POD = re.compile(r"/kubepods(?:[^/\n]*-pod([^/\n]+)\.slice|(?:/[^/\n]+)?/pod([^/\n]+))")


class OpenFile(NamedTuple):
    """A file that takes bytes because it is open."""

    path: str
    """The last one of a deleted file."""
    pid: int
    """Of the first process that has it open."""
    process: str
    """The name of that process."""
    pod_uid: str
    """Empty if that process is in no pod."""
    bytes: int
    """All of a deleted file; of another one, those beyond its end."""
    deleted: bool


class HiddenSpace(NamedTuple):
    """What was found on one filesystem."""

    mount: Mount | None = None
    open_files: Sequence[OpenFile] = ()


class OpenFilesScan:
    """One scan of all processes. Another thread may read the result at any time."""

    def __init__(self, proc: str = PROC):
        self.filesystems: dict[int, int] = {}
        """From `st_dev` to `device_id`, including overlays that write to that filesystem."""
        self.mounts: dict[int, Mount | None] = {}
        """By `device_id`."""
        self.processes = 0
        self.unreadable = 0
        """How many processes' files could not be read."""
        self.complete = False
        """Whether time and memory sufficed for all other processes."""
        self.others_hidden = False
        """This `/proc` may hide processes (hidepid), or is not of the node's PID namespace."""
        self._proc = proc
        self._files: dict[tuple[int, int], OpenFile] = {}  # by filesystem and inode

    def run(self, in_time: InTime) -> None:
        """Scans every process, by ascending PID. Never raises OSError."""
        pids: list[int] = []
        with suppress(OSError):
            pids = processes(self._proc)
        self.processes = len(pids)
        for pid in pids:
            try:
                for link, status in open_files(pid, self._proc):
                    if not in_time() or len(self._files) == MOST_FILES:
                        return
                    with suppress(OSError):  # it was closed
                        self._look(pid, link, status)
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                self.processes -= 1
            except OSError:
                self.unreadable += 1
        self.complete = bool(pids)

    def found(self) -> dict[int, HiddenSpace]:
        """What was found so far on each filesystem, each inode once, by `device_id`."""
        files = list(self._files.items())
        return {
            device_id: HiddenSpace(mount, [file for key, file in files if key[0] == device_id])
            for device_id, mount in list(self.mounts.items())
        }

    def not_seen(self) -> Remark | None:
        """Which processes' open files were not looked at; None if all were."""
        texts = []
        if self.unreadable:
            texts.append(
                f"{self.unreadable} of {self.processes} processes could not be looked at"
                " (CAP_SYS_PTRACE)"
            )
        if self.others_hidden:
            texts.append("those outside its PID namespace or hidden by hidepid were not seen")
        if not self.complete:
            texts.append("not all were looked at in time")
        text = f"files that processes hold open: {'; '.join(texts)}"
        return Remark(About.PROCESSES_NOT_SEEN, None, text) if texts else None

    def _look(self, pid: int, link: str, status: os.stat_result) -> None:
        """Raises OSError."""
        device_id = self.filesystems.get(status.st_dev)
        if device_id is None or (device_id, status.st_ino) in self._files:
            return
        if not stat.S_ISREG(status.st_mode):
            return
        size = allocated_bytes(status)
        deleted = status.st_nlink == 0
        if not deleted:
            mount = self.mounts.get(device_id)
            if mount is None or mount.type != "xfs":
                return
            # XFS rounds st_blksize up, so this is a lower bound (xfs_stat_blksize)
            size -= -(-status.st_size // status.st_blksize) * status.st_blksize
        if deleted or size > 0:
            self._files[device_id, status.st_ino] = OpenFile(
                path=os.readlink(link).removesuffix(" (deleted)"),
                pid=pid,
                process=_text_of(f"{self._proc}/{pid}/comm") or "?",
                pod_uid=pod_uid_of(_text_of(f"{self._proc}/{pid}/cgroup")),
                bytes=size,
                deleted=deleted,
            )


def pod_uid_of(cgroups: str) -> str:
    """The UID of the pod that a process belongs to, from its `/proc/pid/cgroup`;
    empty for a process of no pod.

    Source: Kubernetes v1.36.0, `pkg/kubelet/cm/pod_container_manager_linux.go` (`pod<UID>`) and
    `cgroup_manager_linux.go` (with the systemd driver a `-` in a name becomes `_`).
    """
    found = _POD.search(cgroups)
    return "" if found is None else (found[1] or found[2]).replace("_", "-")


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:
        return ""


def look(
    paths: Mapping[str, int], limit: TimeLimit
) -> tuple[dict[int, HiddenSpace], Remark | None]:
    """What is found on the filesystems of these paths, by the `device_id` given for each, and which
    processes' open files were not looked at. On btrfs, only the subvolumes of these paths are
    searched. Never raises OSError."""
    scan = OpenFilesScan()

    def see(in_time: InTime) -> None:
        table = read_mounts()
        for path, device_id in paths.items():
            with suppress(OSError):
                scan.filesystems[os.stat(path).st_dev] = device_id
                scan.mounts.setdefault(device_id, mount_holding(os.path.realpath(path), table))
        for device_id in scan.mounts:
            for overlay in overlays_on(device_id, table):
                scan.filesystems[overlay] = device_id
        scan.others_hidden = hides_processes(table)
        scan.run(in_time)

    limit.run(see)
    return scan.found(), scan.not_seen()
