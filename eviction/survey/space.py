"""What uses the bytes of a filesystem, including those that names, sizes and statvfs do
not show, and what to do.

**What is read.** Everything is read-only and has a time limit, because a filesystem may never
answer. What was not reached is unknown.

* Trees: what directories occupy, counted like `du -x`: allocated bytes, hard-linked files once, one
  device only. Mount points below a tree are skipped by path and never touched.
* Open files, from `/proc`. A removed file keeps its bytes until the last process that has it open
  lets go: `df` counts them, `du` does not. XFS also allocates space beyond the end of a growing
  file (speculative preallocation), which is nobody's data. A container opens its files through an
  overlay, under the overlay's device number; they count for the filesystem of the upper directory.
  Files in btrfs subvolumes without a given path are not found. Sources: proc(5), for `/proc/pid/fd`
  and `cgroup`; ptrace(2) on what may be read of another process (`PTRACE_MODE_READ_FSCREDS`); the
  kernel's `Documentation/filesystems/overlayfs.rst`.

**How it adds up.** The parts of a filesystem add up to the used bytes; what no other part explains
is *everything else*. Some figures are measured on the disk. Others come from the runtime, which
counts a layer once for each image that has it. So:

* The bytes of all images together are measured if possible: what the runtime reports for its image
  store, minus the writable layers, plus the compressed content next to it (containerd). The classes
  of images divide that amount in proportion to their reported sizes.
* Content that CRI does not show is what the store holds beyond that: images of other namespaces,
  build caches, remains of interrupted removals. On containerd it is a lower bound, because the
  sizes count shared blobs several times.
* The runtime's figure may be some seconds old (containerd counts its snapshots every 10 s). If the
  store was counted completely and takes less, the count is used.
* Removed images may free their space late. What the store takes beyond what the remaining images
  can explain is *being freed*, up to the reported size of the removed images that is not free yet.
* A part that could not be counted completely in time is a lower bound; the rest of
  it is in *everything else*.
* A deleted file that is still open is in no directory, so it is in no other part.

A remark is not a part: its bytes are already counted in the parts, or are free. Amounts below 1
MiB, or below a thousandth of the capacity, get no remark.

**When.** After a pass that could not relieve the node, never before a removal. The daemon does it
on a separate thread, at most once a minute, so the next pass does not wait. After removals it waits
until no more space is freed, at most 5 s, and uses the observations of that moment; with earlier
ones the parts would not add up. If a question is not answered, its part is in *everything else*.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from eviction.records.attribution import About, Attribution, Remark, Share, Use
from eviction.records.json_shapes import to_json
from eviction.records.passes import Pass, PassResult
from eviction.survey.filesystem_facts import (
    paths_that_answer,
    project_quota_sentence,
    roles_by_device,
)
from reclaim.cri.containers_storage import IMAGES
from reclaim.evidence.states import PodStates
from reclaim.pod_logs.directories import allocated_bytes
from reclaim.services import UsageService
from reclaim.types import Action, Kind, Outcome, Reason, Result, RuntimeUnavailable
from reclaim.workers import NoThread, ReadingHangs, ReadingsInTime, Workers
from signals.clock import Clock
from signals.mounts import MOUNTS, Mount, filesystem_id, filesystem_of, mount_holding, read_mounts
from signals.quantity import counted, format_bytes
from signals.types import FilesystemRole, FsStats, SignalObservations

PROC = "/proc"
MOST_FILES = 10_000  # that are remembered, so memory stays bounded
# PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h
FIRST_PID_NAMESPACE = "pid:[4026531836]"
SHOWN_TO_ALL = (None, "", "0", "off")  # values of the option hidepid
_DELETED = " (deleted)"
# systemd, cgroupfs
_POD = re.compile(r"/kubepods(?:[^/\n]*-pod([^/\n]+)\.slice|(?:/[^/\n]+)?/pod([^/\n]+))")
SMALLEST_BYTES = 1024 * 1024
SMALLEST_SHARE = 1000  # the capacity is divided by it
MOST_HOLDERS = 5
SNAPSHOTTER = "io.containerd.snapshotter.v1."
COUNT_SECONDS = 2.0  # for all trees together
LOOK_SECONDS = 1.0  # for all processes together
ASK_SECONDS = 2.0  # deadline of each of the two calls to the runtime
SHORTEST_INTERVAL_SECONDS = 60.0
SETTLE_POLL_SECONDS = 0.1
SETTLE_QUIET_POLLS = 5  # polls in a row without more free space: nothing more is being freed
SETTLE_MOST_POLLS = 50
SETTLE_BYTES = 64 * 1024  # a smaller rise is not the space of an image
CONTENT = "io.containerd.content.v1.content"


# ---- Shapes and words


_OF_IMAGES: Mapping[str, Use] = {
    Reason.IN_USE: Use.IMAGES_IN_USE,
    Reason.TOO_YOUNG: Use.IMAGES_TOO_YOUNG,
    Reason.PINNED: Use.IMAGES_KEPT,
    Reason.KEEP_LIST: Use.IMAGES_KEPT,
    Reason.NEWEST_OF_REPOSITORY: Use.IMAGES_KEPT,
    Reason.NOT_PULLED: Use.IMAGES_KEPT,
    Reason.SANDBOX_IMAGE: Use.IMAGES_KEPT,
    Reason.SANDBOX_IMAGE_UNKNOWN: Use.IMAGES_KEPT,
    Reason.UNRESOLVED_IMAGE: Use.IMAGES_KEPT,
}
COMPRESSED_TO_DISK = 4
"""How many bytes an image takes at most for each byte of its size, if that is the size of the
compressed content (containerd): two or three unpacked, and the content itself."""

_LIVE = (Reason.RUNNING, Reason.CREATED, Reason.UNKNOWN_STATE)
_GONE = (Result.REMOVED, Result.ALREADY_GONE)


InTime = Callable[[], bool]


class TimeLimit:
    """Runs a task on a thread, and waits `seconds` for it, plus half a
    second for the task to notice.

    A task that is stuck in the kernel keeps its thread; no other task starts until it ends.
    """

    def __init__(self, name: str, clock: Clock, seconds: float):
        self.workers = Workers(name, 1)
        self._clock = clock
        self._seconds = seconds
        self._read = ReadingsInTime(self.workers, seconds + 0.5)

    def run(self, task: Callable[[InTime], None]) -> None:
        """Calls `task` with a function that says whether there is time left.

        Does nothing if no thread can start.
        """
        until = self._clock.monotonic() + self._seconds
        with suppress(ReadingHangs, NoThread):
            self._read(lambda: task(lambda: self._clock.monotonic() < until))


# ---- Trees


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree to count.

    `classify` maps the components of a file's path below the root to the class of the file.
    """

    root: str
    classify: Callable[[Sequence[str]], str] = lambda _: "all"


@dataclass(slots=True)
class TreeUsage:
    """What a tree occupies: allocated bytes by class of file, without the root itself.

    `device_id`: as in `FilesystemIdentity`, None if the root does not exist or was not reached.
    `complete`: everything was counted; otherwise the numbers are lower bounds.
    """

    device_id: int | None = None
    bytes_by_class: dict[str, int] = field(default_factory=dict)
    complete: bool = False

    @property
    def there(self) -> bool:
        return self.device_id is not None

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes_by_class.values())


def count_trees(trees: Sequence[Tree], limit: TimeLimit, mounts: str = MOUNTS) -> list[TreeUsage]:
    """The usage of each tree, in the same order.

    Files that cannot be read are left out; never raises OSError.
    """
    usages = [TreeUsage() for _ in trees]

    def count(in_time: InTime) -> None:
        for tree, usage in zip(trees, usages, strict=True):
            _count_tree(tree, usage, in_time, mounts=mounts)

    limit.run(count)
    return [replace(usage, bytes_by_class=usage.bytes_by_class.copy()) for usage in usages]


def _count_tree(tree: Tree, usage: TreeUsage, in_time: InTime, *, mounts: str) -> None:
    try:
        st_dev = os.stat(tree.root).st_dev
        usage.device_id = filesystem_id(tree.root, mounts)
    except OSError:
        return
    root = os.path.realpath(tree.root)
    mounted = mounts_below(root, mounts)
    linked: set[int] = set()
    pending: list[tuple[str, tuple[str, ...]]] = [(root, ())]
    complete = True
    while pending:
        directory, above = pending.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    path, names = os.path.join(directory, entry.name), (*above, entry.name)
                    found = None if path in mounted else entry.stat(follow_symlinks=False)
                    if found is not None and found.st_dev == st_dev:
                        if stat.S_ISDIR(found.st_mode):
                            pending.append((path, names))
                        _count_file(usage, tree.classify(names), found, linked=linked)
                    if not in_time():
                        return
        except FileNotFoundError:  # removed while it was counted
            continue
        except OSError:
            complete = False
    usage.complete = complete


def _count_file(usage: TreeUsage, group: str, found: os.stat_result, *, linked: set[int]) -> None:
    if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
        if found.st_ino in linked:
            return
        linked.add(found.st_ino)
    usage.bytes_by_class[group] = usage.bytes_by_class.get(group, 0) + allocated_bytes(found)


def mounts_below(root: str, mounts: str = MOUNTS) -> frozenset[str]:
    """The mount points below a directory, from the kernel's table; none if it cannot be read. A
    directory that is mounted on itself, as CRI-O does with its layers, holds nothing else than
    the tree and is left out."""
    prefix, table = root.rstrip("/") + "/", read_mounts(mounts)
    below = {
        mount.point: (mount.device, mount.root) for mount in table if mount.point.startswith(prefix)
    }
    outer = mount_holding(root, table)
    if outer is None:
        return frozenset(below)
    same = {
        point: (outer.device, os.path.join(outer.root, os.path.relpath(point, outer.point)))
        for point in below
    }
    return frozenset(point for point in below if below[point] != same[point])


# ---- Open files


@dataclass(frozen=True, slots=True)
class OpenFile:
    """Either a `deleted` file, with the bytes that it takes while it is open, or one with bytes
    allocated beyond its end.

    `path`: the last path of a deleted file. `pid`, `process`: the first process that has it open.
    `pod_uid`: empty if that process is in no pod.
    """

    path: str
    pid: int
    process: str
    pod_uid: str
    bytes: int
    deleted: bool


class OpenFilesScan:
    """One scan of all processes. Another thread may read the result at any time.

    `filesystems`: from `st_dev` to filesystem, including overlays, which write to the filesystem of
    their upper directory. `block_sizes`: of the filesystems that allocate space beyond the end of
    growing files. `others_hidden`: this `/proc` may hide processes (hidepid), or is not of the
    node's PID namespace. `unreadable`: how many processes' files could not be read. `complete`:
    time and memory sufficed for all other processes.
    """

    def __init__(self, proc: str = PROC):
        self.filesystems: dict[int, int] = {}
        self.block_sizes: dict[int, int] = {}
        self.processes = self.unreadable = 0
        self.complete = self.others_hidden = False
        self._proc = proc
        self._found: dict[tuple[int, int], OpenFile] = {}  # by filesystem and inode

    def run(self, in_time: InTime) -> None:
        """Scans every process, by ascending PID. Never raises OSError."""
        pids = sorted(int(name) for name in names_in(self._proc) if name.isdigit())
        self.processes = len(pids)
        for pid in pids:
            try:
                for descriptor in os.listdir(f"{self._proc}/{pid}/fd"):
                    if not in_time() or len(self._found) == MOST_FILES:
                        return
                    self._look(f"{self._proc}/{pid}/fd/{descriptor}", pid)
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                self.processes -= 1
            except OSError:
                self.unreadable += 1
        self.complete = bool(pids)

    def found(self, device_id: int) -> tuple[OpenFile, ...]:
        """The files found on a filesystem; each inode once."""
        return tuple(
            file for (filesystem, _), file in list(self._found.items()) if filesystem == device_id
        )

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

    def _look(self, link: str, pid: int) -> None:
        """Looks at one open file; skips one that was closed.

        Raises PermissionError if it may not be read.
        """
        try:
            file = os.stat(link)
            device_id = self.filesystems.get(file.st_dev)
            if (
                device_id is None
                or not stat.S_ISREG(file.st_mode)
                or (device_id, file.st_ino) in self._found
            ):
                return
            size, deleted = allocated_bytes(file), file.st_nlink == 0
            if not deleted:
                block_size = self.block_sizes.get(device_id)
                size -= size if block_size is None else -(-file.st_size // block_size) * block_size
            if deleted or size > 0:
                path, process = (
                    os.readlink(link).removesuffix(_DELETED),
                    text_of(f"{self._proc}/{pid}/comm") or "?",
                )
                pod_uid = pod_uid_of(text_of(f"{self._proc}/{pid}/cgroup"))
                self._found[device_id, file.st_ino] = OpenFile(
                    path, pid, process, pod_uid, size, deleted
                )
        except PermissionError:
            raise
        except OSError:
            return


def pod_uid_of(cgroups: str) -> str:
    """The UID of the pod that a process belongs to, from its `/proc/pid/cgroup`;
    empty for a process of no pod.

    Source: Kubernetes v1.36.0, `pkg/kubelet/cm/pod_container_manager_linux.go` (`pod<UID>`) and
    `cgroup_manager_linux.go` (with the systemd driver a `-` in a name becomes `_`).
    """
    found = _POD.search(cgroups)
    return "" if found is None else (found[1] or found[2]).replace("_", "-")


# ---- One look


def overlays_by_filesystem(mounts: Sequence[Mount]) -> dict[int, list[int]]:
    """The `st_dev` of the overlays that write to each filesystem; each once,
    however often it is mounted.

    Overlays whose upper directory cannot be reached, or has a relative path, are left out.
    """
    uppers: set[str] = set()
    found: dict[int, list[int]] = {}
    for mount in mounts:
        upper = mount.option("upperdir") if mount.type == "overlay" else None
        if upper is None or not upper.startswith("/") or upper in uppers:
            continue
        uppers.add(upper)
        with suppress(OSError):
            filesystem = filesystem_of(os.stat(upper).st_dev, os.path.realpath(upper), mounts)
            major, _, minor = mount.device.partition(":")
            found.setdefault(filesystem, []).append(os.makedev(int(major), int(minor)))
    return found


@dataclass(frozen=True, slots=True)
class HiddenSpace:
    """What was found on one filesystem."""

    mount: Mount | None = None
    open_files: Sequence[OpenFile] = ()


def look(
    paths: Mapping[str, int], limit: TimeLimit
) -> tuple[dict[int, HiddenSpace], Remark | None]:
    """What is found on the filesystems of these paths, by the `device_id` given for each, and which
    processes' open files were not looked at. On btrfs, only the subvolumes of these paths are
    searched. Never raises OSError."""
    known: dict[int, Mount | None] = {}
    scan = OpenFilesScan()

    def see(in_time: InTime) -> None:
        table = read_mounts()
        overlays = overlays_by_filesystem(table)
        for path, device_id in paths.items():
            try:
                st_dev, block_size = os.stat(path).st_dev, os.statvfs(path).f_bsize
            except OSError:
                continue
            mount = mount_holding(os.path.realpath(path), table)
            known.setdefault(device_id, mount)
            if mount is not None and mount.type == "xfs":
                scan.block_sizes[device_id] = block_size
            scan.filesystems |= dict.fromkeys((st_dev, *overlays.get(device_id, ())), device_id)
        scan.others_hidden = _hides_processes(table)
        scan.run(in_time)

    limit.run(see)
    found = {
        device_id: HiddenSpace(mount, scan.found(device_id))
        for device_id, mount in list(known.items())
    }
    return found, scan.not_seen()


def _hides_processes(mounts: Sequence[Mount]) -> bool:
    mount, namespace = (
        mount_holding(PROC, mounts),
        os.path.basename(os.path.realpath(f"{PROC}/self/ns/pid")),
    )
    shown_to_all = mount is None or mount.option("hidepid") in SHOWN_TO_ALL
    return not shown_to_all or namespace != FIRST_PID_NAMESPACE


def names_in(directory: str) -> list[str]:
    """The names in a directory, sorted; none if it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def text_of(path: str) -> str:
    """The text of an attribute in /sys or /proc, without the newline; empty if
    it cannot be read.
    """
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:
        return ""


def number_of(path: str) -> int | None:
    """The number in an attribute; None if there is none."""
    try:
        return int(text_of(path))
    except ValueError:
        return None


# ---- Parts


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured besides the observations, in bytes. None: the question was not answered.

    `store_reported`: the size of the image store as the runtime reports it, including the writable
    layers if `writable_in_store`. `store`: the same, counted on the disk. `content`: the compressed
    content next to it (containerd). `writable_layers`: by container id. `logs`: by use.
    `filesystems`: by `device_id`. `unseen`: which processes' open files were not looked at.
    `late_bytes`: freed after the last removal was measured.
    """

    store_reported: int | None = None
    store: TreeUsage = field(default_factory=TreeUsage)
    content: TreeUsage = field(default_factory=TreeUsage)
    writable_in_store: bool = True
    writable_layers: Mapping[str, int] | None = None
    logs: TreeUsage = field(default_factory=TreeUsage)
    volumes: TreeUsage = field(default_factory=TreeUsage)
    filesystems: Mapping[int, HiddenSpace] = field(default_factory=dict)
    unseen: Remark | None = None
    late_bytes: int = 0


def attribute(
    observations: SignalObservations, outcomes: Sequence[Outcome], measured: Measured
) -> tuple[Attribution, ...]:
    """One attribution for each observed filesystem; only the first says which
    processes were not looked at.

    `outcomes`: every object of a pass or a plan. Removed objects only count
    towards what is being freed.
    """
    present = [outcome for outcome in outcomes if outcome.result not in _GONE]
    removed = [outcome for outcome in outcomes if outcome.result is Result.REMOVED]
    spaces, unseen = measured.filesystems, measured.unseen
    answers: list[Attribution] = []
    for device_id, roles in roles_by_device(observations).items():
        identity, stats = observations.filesystems[roles[0]]
        used = stats.capacity_bytes - stats.free_bytes
        found = [
            *(_images(present, removed, measured) if FilesystemRole.IMAGEFS in roles else ()),
            *(_containers(present, measured) if FilesystemRole.CONTAINERFS in roles else ()),
            *_logs_and_volumes(measured, device_id),
        ]
        rest = max(used - sum(share.bytes for share in found), 0)
        remarks: list[Remark] = []
        if (space := spaces.get(device_id)) is not None:
            deleted = sum(file.bytes for file in space.open_files if file.deleted)
            found.append(Share(Use.DELETED_OPEN, min(deleted, rest), at_least=unseen is not None))
            rest -= found[-1].bytes
            quota = project_quota_sentence(space.mount, observations, roles)
            remarks += remarks_of(stats, space, quota)
            if unseen is not None and device_id == next(iter(spaces)):
                remarks.append(unseen)
        shares = sorted(
            (share for share in found if share.bytes or share.objects),
            key=lambda share: -share.bytes,
        )
        shares.append(Share(Use.ELSE, rest))
        answers.append(
            Attribution(
                identity.path, roles, stats.capacity_bytes, used, tuple(shares), tuple(remarks)
            )
        )
    return tuple(answers)


def _images(outcomes: list[Outcome], removed: list[Outcome], measured: Measured) -> list[Share]:
    sizes: dict[Use, list[int]] = {}
    for verdict in (outcome.verdict for outcome in outcomes):
        if verdict.kind is Kind.IMAGE:
            kept_as = _OF_IMAGES.get(verdict.reason, Use.IMAGES_MAY_GO)
            use = Use.IMAGES_MAY_GO if verdict.action is Action.REMOVE else kept_as
            sizes.setdefault(use, []).append(verdict.size_bytes or 0)
    nominal = sum(map(sum, sizes.values()))
    on_disk, freeing, hidden, at_least = nominal, 0, 0, False
    reported, store, content = measured.store_reported, measured.store, measured.content
    if reported is not None:
        hidden = max(content.total_bytes - nominal, 0) if nominal else 0
        on_disk = content.total_bytes - hidden
        at_least = content.there and (hidden > 0 or not content.complete)
        if store.there:
            hidden += max(store.total_bytes - reported, 0)
            at_least = at_least or not store.complete
            reported = min(reported, store.total_bytes) if store.complete else reported
        written = (
            sum((measured.writable_layers or {}).values()) if measured.writable_in_store else 0
        )
        on_disk += max(reported - written, 0)
        if on_disk > nominal * (COMPRESSED_TO_DISK if content.there else 1):
            freeing = min(_not_freed_yet(removed, measured), on_disk - nominal)
    left = on_disk - freeing
    if nominal:
        shares = [Share(use, sum(each) * left // nominal, len(each)) for use, each in sizes.items()]
    else:
        shares = [Share(Use.IMAGES_UNJUDGED, left)]
    return [*shares, Share(Use.BEING_FREED, freeing), Share(Use.HIDDEN, hidden, None, at_least)]


def _not_freed_yet(removed: list[Outcome], measured: Measured) -> int:
    """The part of the removed images' reported sizes that was freed neither at once nor late."""
    promised = [
        (o.verdict.size_bytes or 0, o.freed_bytes) for o in removed if o.verdict.kind is Kind.IMAGE
    ]
    return max(sum(max(size - freed, 0) for size, freed in promised) - measured.late_bytes, 0)


def _containers(outcomes: list[Outcome], measured: Measured) -> list[Share]:
    containers = [outcome.verdict for outcome in outcomes if outcome.verdict.kind is Kind.CONTAINER]
    dead = {verdict.id for verdict in containers if verdict.reason not in _LIVE}
    written: dict[Use, list[int]] = {Use.CONTAINERS_LIVE: [], Use.CONTAINERS_DEAD: []}
    for container_id, size in (measured.writable_layers or {}).items():
        written[Use.CONTAINERS_DEAD if container_id in dead else Use.CONTAINERS_LIVE].append(size)
    return [Share(use, sum(sizes), len(sizes)) for use, sizes in written.items()]


def _logs_and_volumes(measured: Measured, device_id: int) -> Iterator[Share]:
    logs, volumes = measured.logs, measured.volumes
    if logs.device_id == device_id:
        for use, amount in logs.bytes_by_class.items():
            yield Share(Use(use), amount, at_least=not logs.complete)
    if volumes.device_id == device_id:
        yield Share(Use.VOLUMES, volumes.total_bytes, at_least=not volumes.complete)


def class_of_log(names: Sequence[str], gone: Callable[[str], bool]) -> Use:
    """The use of a file below the kubelet's log directory, from the components of its path there:
    `<namespace>_<name>_<uid>`, `<container>`, `<n>.log`.

    `gone`: true if the pod with this UID no longer exists. The kubelet names a rotated log
    `<n>.log.<time>` or `….gz` (`pkg/kubelet/logs/container_log_manager.go`).
    """
    if gone(names[0].rpartition("_")[2]):
        return Use.LOGS_OF_GONE_PODS
    return Use.LOGS_ROTATED if len(names) > 1 and ".log." in names[-1] else Use.LOGS_LIVE


def sentence(attribution: Attribution) -> str:
    """The four largest parts in one sentence."""
    largest = sorted(attribution.shares, key=lambda share: -share.bytes)[:4]
    text = ", ".join(
        f"{s.use.words} {'at least ' * s.at_least}{format_bytes(s.bytes)}"
        for s in largest
        if s.bytes
    )
    return (
        f"of {format_bytes(attribution.used)} used on {attribution.path}:"
        f" {text or 'nothing is accounted for'}"
    )


# ---- Remarks


def remarks_of(stats: FsStats, space: HiddenSpace, quota: str) -> list[Remark]:
    """All remarks about one filesystem, in the order of `About`.

    `quota`: what `project_quota_sentence` says.
    """
    worth = max(SMALLEST_BYTES, stats.capacity_bytes // SMALLEST_SHARE)
    remarks = list(_deleted([file for file in space.open_files if file.deleted], worth))
    growing = sorted(
        (file for file in space.open_files if not file.deleted), key=lambda file: -file.bytes
    )
    beyond = sum(file.bytes for file in growing)
    if beyond >= worth:
        text = (
            f"at least {format_bytes(beyond)} beyond the end of"
            f" {counted(len(growing), 'open file')} (speculative preallocation), most by"
            f" {growing[0].process} (pid {growing[0].pid}) for {growing[0].path}: freed later"
        )
        # closed files may have some too
        remarks.append(Remark(About.PREALLOCATED, beyond, text, at_least=True))
    reserve = stats.free_bytes - stats.available_bytes
    if space.mount is not None and space.mount.type.startswith("ext") and reserve >= worth:
        text = f"{format_bytes(reserve)} are free and reserved for root: no pod can use them"
        remarks.append(Remark(About.RESERVE, reserve, text))
    if quota:
        remarks.append(Remark(About.PROJECT_QUOTA, None, quota))
    return remarks


def _deleted(files: Sequence[OpenFile], worth: int) -> Iterator[Remark]:
    """One remark for each process that holds many of these bytes, at least one, and
    one for all other processes.
    """
    if sum(file.bytes for file in files) < worth:
        return
    of_pid: dict[int, list[OpenFile]] = {}
    for file in files:
        of_pid.setdefault(file.pid, []).append(file)
    holders = sorted(
        ((sum(file.bytes for file in held), held) for held in of_pid.values()),
        key=lambda one: -one[0],
    )
    shown = [one for one in holders[:MOST_HOLDERS] if one[0] >= worth] or holders[:1]
    for size, held in shown:
        most = max(held, key=lambda file: file.bytes)
        pod = f", pod {most.pod_uid}" if most.pod_uid else ""
        text = (
            f"{most.process} (pid {most.pid}{pod}) holds {format_bytes(size)} in"
            f" {counted(len(held), 'deleted file')} open,"
            f" {'the largest ' * (len(held) > 1)}{most.path}: they are free once closed"
        )
        yield Remark(About.DELETED_OPEN, size, text)
    if others := holders[len(shown) :]:
        rest = sum(size for size, _ in others)
        hold = "1 more process holds" if len(others) == 1 else f"{len(others)} more processes hold"
        yield Remark(About.DELETED_OPEN, rest, f"{hold} {format_bytes(rest)} of deleted files open")


# ---- The survey


@dataclass(frozen=True, slots=True)
class Places:
    """The directories to count. `stores`: those with all content of the runtime, that of images
    first; none before it answers."""

    root_directory: str
    pod_logs_dir: str
    stores: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """The directory of containerd's compressed content, next to its snapshotter;
        empty for other runtimes.
        """
        parent, _, name = "".join(self.stores[:1]).rpartition("/")
        return os.path.join(parent, CONTENT) if name.startswith(SNAPSHOTTER) else ""


@dataclass(eq=False)
class DiskSurvey:
    """Measures one node. `observe`, `places` and `pods` are called each time.
    `service` opens a client with a short deadline, which is closed afterwards; it
    returns None if there is no runtime."""

    observe: Callable[[], SignalObservations]
    places: Callable[[], Places]
    pods: Callable[[], PodStates]
    service: Callable[[], UsageService | None]
    clock: Clock
    count_seconds: float = COUNT_SECONDS

    def __post_init__(self) -> None:
        self._counting = TimeLimit("tree usage", self.clock, self.count_seconds)
        self._looking = TimeLimit("hidden space", self.clock, LOOK_SECONDS)
        self._workers = Workers("disk survey", 1)
        self._begun_at = float("-inf")

    def survey(
        self, observations: SignalObservations, outcomes: Sequence[Outcome]
    ) -> tuple[Attribution, ...]:
        """What the bytes are used for now.

        Takes some seconds; does not raise if runtime or disk do not answer.
        """
        return attribute(observations, outcomes, self._measure(observations))

    def with_attribution(self, record: Pass) -> Pass:
        """The record, with its attributions if the pass was not enough.

        Blocks while it measures.
        """
        if record.result is not PassResult.NOT_ENOUGH:
            return record
        observations, outcomes = record.after or record.observations, record.removals + record.kept
        settled = observations
        if any(outcome.result is Result.REMOVED for outcome in outcomes):
            settled = self._settled()
        late = max(_free_bytes(settled) - _free_bytes(observations), 0)
        measured = replace(self._measure(settled), late_bytes=late)
        return replace(record, attributions=attribute(settled, outcomes, measured))

    def _settled(self) -> SignalObservations:
        """The observations when no more space is being freed, or after 5 s."""
        latest, quiet = self.observe(), 0
        for _ in range(SETTLE_MOST_POLLS):
            if quiet == SETTLE_QUIET_POLLS:
                break
            time.sleep(SETTLE_POLL_SECONDS)
            before, latest = latest, self.observe()
            quiet = 0 if _free_bytes(latest) > _free_bytes(before) + SETTLE_BYTES else quiet + 1
        return latest

    def explain_later(self, record: Pass, on_explained: Callable[[Pass], None]) -> None:
        """The same on another thread, at most once a minute; `on_explained` is
        called there with the record.

        A failure to start the thread is counted, and the next pass tries again."""

        now = self.clock.monotonic()
        if (
            record.result is PassResult.NOT_ENOUGH
            and now - self._begun_at >= SHORTEST_INTERVAL_SECONDS
        ):
            with suppress(NoThread):
                self._workers.run(lambda: on_explained(self.with_attribution(record)))
                self._begun_at = now

    @property
    def threads_not_started(self) -> int:
        return sum(
            workers.not_started
            for workers in (self._workers, self._counting.workers, self._looking.workers)
        )

    def _measure(self, observations: SignalObservations) -> Measured:
        places, pods = self.places(), self.pods()
        answering = paths_that_answer(observations)
        identities = [
            identity
            for identity, _ in observations.filesystems.values()
            if identity.path in answering
        ]
        paths = {identity.path: identity.device_id for identity in identities}
        filesystems, unseen = look(paths, self._looking)
        trees = [
            Tree(places.pod_logs_dir, lambda names: class_of_log(names, pods.gone)),
            Tree(os.path.join(places.root_directory, "pods")),
            *(Tree(path) for path in (places.content, "".join(places.stores[:1]))),
        ]
        logs, volumes, content, store = count_trees(trees, self._counting)
        service = self.service()
        reported: int | None = None
        writable_layers: Mapping[str, int] | None = None
        if service is not None:
            with closing(service), suppress(RuntimeUnavailable):
                info = service.image_fs_info()
                reported = info.image_used_bytes
                # CRI-O counts only that
                if info.image_filesystems and info.image_filesystems[0].endswith(IMAGES):
                    reported = store.total_bytes if store.complete else None
                writable_layers = dict(service.writable_layers())
        return Measured(
            reported,
            store,
            content,
            len(set(places.stores)) < 2,
            writable_layers,
            logs,
            volumes,
            filesystems,
            unseen,
        )


def explained(record: Pass) -> Iterator[tuple[str, dict[str, Any]]]:
    """The sentence and fields of a log event for each filesystem that the pass
    could not relieve.
    """
    pressed = {threshold.signal.filesystem for threshold in record.still_met}
    for attribution in record.attributions:
        if pressed.intersection(attribution.filesystems):
            fields = {"pass": record.id, "attribution": to_json(attribution)}
            yield f"why it was not enough: {sentence(attribution)}", fields


def _free_bytes(observations: SignalObservations) -> int:
    free = {
        identity.device_id: stats.free_bytes
        for identity, stats in observations.filesystems.values()
    }
    return sum(free.values())
