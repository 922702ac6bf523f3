"""What uses the bytes of a filesystem, including those that names, sizes and statvfs do not show.

The parts of a filesystem add up to the used bytes; what no other part explains is *everything
else*, and so is the part of a question that was not answered, or what could not be counted in time.
Some figures are measured on the disk. Others come from the runtime, which counts a layer once for
each image that has it.

A remark is not a part: its bytes are already counted in the parts, or are free.

It is found out after a pass that could not relieve the node, never before a removal.

Of open files:

* A removed file keeps its bytes until the last process that has it open lets go: `df` counts them,
  `du` does not.
* XFS allocates space beyond the end of a growing file (speculative preallocation), which is
  nobody's data.
* A container opens its files through an overlay, under the overlay's device number; they count for
  the filesystem of the upper directory.
* Files in btrfs subvolumes without a given path are not found.

Source: proc(5), for `/proc/pid/cgroup` and `comm`.

Directory trees are counted like `du -x`: allocated bytes, hard-linked files once, one device only.
Mount points below a tree are skipped by path and never touched. Everything has a time limit, as a
filesystem may never answer; what was not reached is unknown.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from os.path import join
from typing import NamedTuple

from eviction.records.attribution import About, Attribution, Remark, Share, Use
from eviction.records.passes import Pass, PassResult
from eviction.survey.filesystem_facts import (
    paths_that_answer,
    project_quota_sentence,
    roles_by_device,
)
from reclaim.cri.client import CriClient
from reclaim.cri.containers_storage import IMAGES
from reclaim.evidence.files_in_use import hides_processes
from reclaim.evidence.states import PodStates
from reclaim.functions.caches import layers_of_containers, tagged_below
from reclaim.functions.checkpoints import CHECKPOINT
from reclaim.functions.checkpoints import DIRECTORIES as CHECKPOINT_DIRECTORIES
from reclaim.functions.containerd_garbage import CONTENT as GARBAGE
from reclaim.functions.rotated_logs import ROTATED_LOG
from reclaim.pod_logs.directories import allocated_bytes, opened
from reclaim.types import Action, Kind, Outcome, Reason, ReclaimResult, Result, RuntimeUnavailable
from reclaim.workers import NoThread, ReadingHangs, ReadingsInTime, Workers
from signals.clock import Clock
from signals.mounts import MOUNTS, Mount, filesystem_id, mount_holding, overlays_on, read_mounts
from signals.open_files import PROC, open_files, processes, text_of
from signals.quantity import counted, format_bytes
from signals.types import FilesystemRole, FsStats, SignalObservations

# less gets no remark
SMALLEST_BYTES = 1024 * 1024
SMALLEST_SHARE = 1000  # the capacity is divided by it
MOST_HOLDERS = 5
SNAPSHOTTER = "io.containerd.snapshotter.v1."
CONTENT = "io.containerd.content.v1.content"
COUNT_SECONDS = 2.0  # for all trees together
LOOK_SECONDS = 1.0  # for all processes together
ASK_SECONDS = 2.0  # deadline of each of the two calls to the runtime
SHORTEST_INTERVAL_SECONDS = 60.0
SETTLE_POLL_SECONDS = 0.5  # so long without more free space: nothing more is being freed
SETTLE_MOST_POLLS = 10
SETTLE_BYTES = 64 * 1024  # a smaller rise is not the space of an image
COMPRESSED_TO_DISK = 4
"""How many bytes an image takes at most for each byte of its size, if that is the size of the
compressed content (containerd): two or three unpacked, and the content itself."""

# of the images that stay; those that are kept for any other reason may go under pressure
_OF_IMAGES: Mapping[str, Use] = {
    Reason.IN_USE: Use.IMAGES_IN_USE,
    Reason.TOO_YOUNG: Use.IMAGES_TOO_YOUNG,
    **dict.fromkeys(
        (
            Reason.PINNED,
            Reason.KEEP_LIST,
            Reason.NEWEST_OF_REPOSITORY,
            Reason.NOT_PULLED,
            Reason.SANDBOX_IMAGE,
            Reason.SANDBOX_IMAGE_UNKNOWN,
            Reason.UNRESOLVED_IMAGE,
        ),
        Use.IMAGES_KEPT,
    ),
}
_COLLECTED: Mapping[str, Use] = {
    Kind.IMAGE: Use.IMAGES_MAY_GO,
    Kind.CONTAINER: Use.CONTAINERS_DEAD,
    Kind.POD_LOG: Use.LOGS_OF_GONE_PODS,
    ROTATED_LOG: Use.LOGS_ROTATED,
    CHECKPOINT: Use.CHECKPOINTS,
    GARBAGE: Use.HIDDEN,
}
"""The part with the objects of a kind; those of other kinds are in everything else."""
_LIVE = (Reason.RUNNING, Reason.CREATED, Reason.UNKNOWN_STATE)


class Measured(NamedTuple):
    """What was measured besides the observations, in bytes."""

    store_reported: int | None
    """The size of the image store as the runtime reports it; None if it did not answer."""
    store: TreeUsage
    """The same, counted on the disk."""
    content: TreeUsage
    """The compressed content next to it (containerd)."""
    writable_in_store: bool
    """Whether the store includes the writable layers."""
    writable_layers: Mapping[str, int]
    """By container id; none if the runtime did not answer."""
    kubelets: Sequence[TreeUsage]
    """The kubelet's directories, by use."""
    filesystems: Mapping[int, HiddenSpace]
    """By `device_id`."""
    unseen: Remark | None
    """Which processes' open files were not looked at."""
    caches: Sequence[Cache]
    """Of pods, from which no function removes."""
    frees: Mapping[str, FilesystemRole]
    """As in `Places`."""


def attribute(
    observations: SignalObservations, functions: Sequence[ReclaimResult], measured: Measured
) -> tuple[Attribution, ...]:
    """One attribution for each observed filesystem; only the first says which processes were not
    looked at.

    `functions`: those of a pass or a plan, with every object. Removed objects only count towards
    what is being freed.
    """
    outcomes = [each for function in functions for each in (*function.outcomes, *function.kept)]
    attributions: list[Attribution] = []
    for device_id, roles in roles_by_device(observations).items():
        identity, stats = observations.filesystems[roles[0]]
        space = measured.filesystems.get(device_id, HiddenSpace())
        shares: list[Share] = []
        if FilesystemRole.IMAGEFS in roles:
            shares += _images(outcomes, measured)
        if FilesystemRole.CONTAINERFS in roles:
            shares += _containers(outcomes, measured.writable_layers)
        for tree in measured.kubelets:
            if tree.device_id == device_id:
                for use, size in tree.bytes_by_class.items():
                    shares.append(Share(Use(use), size, at_least=tree.partial))
        used = stats.capacity_bytes - stats.free_bytes
        rest = max(used - sum(share.bytes for share in shares), 0)
        # such a file is in no directory, so it is in no other part
        deleted = min(_bytes_of(file for file in space.open_files if file.deleted), rest)
        shares.append(Share(Use.DELETED_OPEN, deleted, at_least=measured.unseen is not None))
        shares = [share for share in shares if share.bytes or share.objects]
        shares.sort(key=lambda share: -share.bytes)
        remarks = remarks_of(stats, space, project_quota_sentence(space.mount, observations, roles))
        remarks += [
            Remark(About.CACHE, cache.bytes, cache.sentence, at_least=cache.at_least)
            for cache in measured.caches
            if cache.device_id == device_id
        ]
        if measured.unseen is not None and not attributions:
            remarks.append(measured.unseen)
        attributions.append(
            Attribution(
                path=identity.path,
                filesystems=roles,
                capacity=stats.capacity_bytes,
                used=used,
                shares=tuple(
                    _reclaimable(share, functions, measured, roles=roles)
                    for share in (*shares, Share(Use.ELSE, rest - deleted))
                ),
                remarks=tuple(remarks),
            )
        )
    return tuple(attributions)


def _reclaimable(
    share: Share,
    functions: Iterable[ReclaimResult],
    measured: Measured,
    *,
    roles: Sequence[FilesystemRole],
) -> Share:
    """The part with what a pass may free of it."""
    found = [
        (function.operation, outcome.verdict)
        for function in functions
        if share.use is not Use.ELSE or measured.frees.get(function.operation) in roles
        for outcome in function.outcomes
        if outcome.result is Result.PLANNED
        and _COLLECTED.get(outcome.verdict.kind, Use.ELSE) is share.use
    ]
    reclaimable = share.bytes
    if share.use is not Use.LOGS_OF_GONE_PODS or not found:  # their directories go as a whole
        sizes = (measured.writable_layers.get(each.id, each.promised_bytes) for _, each in found)
        reclaimable = min(sum(sizes), share.bytes)
    return replace(
        share, reclaimable=reclaimable, by=tuple(dict.fromkeys(name for name, _ in found))
    )


def _images(outcomes: Sequence[Outcome], measured: Measured) -> Iterator[Share]:
    """The classes of images divide what all of them take, which is measured if possible, in
    proportion to their reported sizes."""
    sizes: dict[Use, list[int]] = {}
    not_freed_at_once = 0
    for outcome in outcomes:
        image = outcome.verdict
        size = image.size_bytes or 0
        if image.kind is not Kind.IMAGE:
            continue
        if outcome.result is Result.REMOVED:
            not_freed_at_once += max(size - outcome.freed.bytes, 0)
        elif outcome.result is not Result.ALREADY_GONE:
            kept_for = image.reason if image.action is Action.KEEP else ""
            sizes.setdefault(_OF_IMAGES.get(kept_for, Use.IMAGES_MAY_GO), []).append(size)
    nominal = sum(map(sum, sizes.values()))
    on_disk = nominal
    hidden = 0
    freeing = 0
    if measured.store_reported is not None:
        content = measured.content.total_bytes
        store = measured.store
        unpacked = measured.store_reported
        # of other namespaces, build caches, interrupted removals; a lower bound on containerd, as
        # the sizes count shared blobs several times
        hidden = max(content - nominal, 0) if nominal else 0
        on_disk = content - hidden
        at_least = hidden > 0 or measured.content.partial or store.partial
        hidden += max(store.total_bytes - unpacked, 0)
        if store.complete:
            # the runtime's figure may be some seconds old (containerd counts every 10 s)
            unpacked = min(unpacked, store.total_bytes)
        if measured.writable_in_store:
            unpacked -= sum(measured.writable_layers.values())
        on_disk += max(unpacked, 0)
        # what the remaining images cannot explain may be of removed ones, which is freed late
        compressed = measured.content.device_id is not None
        if on_disk > nominal * (COMPRESSED_TO_DISK if compressed else 1):
            freeing = min(not_freed_at_once, on_disk - nominal)
        yield Share(Use.BEING_FREED, freeing)
        yield Share(Use.HIDDEN, hidden, at_least=at_least)
    left = on_disk - freeing
    if not nominal:
        yield Share(Use.IMAGES_UNJUDGED, left)
        return
    for use, of_use in sizes.items():
        yield Share(use, sum(of_use) * left // nominal, len(of_use))


def _containers(outcomes: Sequence[Outcome], layers: Mapping[str, int]) -> Iterator[Share]:
    verdicts = [outcome.verdict for outcome in outcomes]
    dead = {v.id for v in verdicts if v.kind is Kind.CONTAINER and v.reason not in _LIVE}
    of_dead = [size for container_id, size in layers.items() if container_id in dead]
    of_live = sum(layers.values()) - sum(of_dead)
    yield Share(Use.CONTAINERS_LIVE, of_live, len(layers) - len(of_dead))
    yield Share(Use.CONTAINERS_DEAD, sum(of_dead), len(of_dead))


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
    parts = [
        f"{share.use.words} {'at least ' if share.at_least else ''}{format_bytes(share.bytes)}"
        for share in largest
        if share.bytes
    ]
    return (
        f"of {format_bytes(attribution.used)} used on {attribution.path}:"
        f" {', '.join(parts) or 'nothing is accounted for'}"
    )


def remarks_of(stats: FsStats, space: HiddenSpace, quota: str) -> list[Remark]:
    """All remarks about one filesystem, in the order of `About`.

    `quota`: what `project_quota_sentence` says.
    """
    worth = max(SMALLEST_BYTES, stats.capacity_bytes // SMALLEST_SHARE)
    remarks = list(_deleted([file for file in space.open_files if file.deleted], worth))
    growing = [file for file in space.open_files if not file.deleted]
    beyond = _bytes_of(growing)
    if beyond >= worth:
        largest = max(growing, key=attrgetter("bytes"))
        text = (
            f"at least {format_bytes(beyond)} beyond the end of"
            f" {counted(len(growing), 'open file')} (speculative preallocation), most by"
            f" {largest.process} (pid {largest.pid}) for {largest.path}: freed later"
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


def _bytes_of(files: Iterable[OpenFile]) -> int:
    return sum(file.bytes for file in files)


def _deleted(files: Sequence[OpenFile], worth: int) -> Iterator[Remark]:
    """One remark for each process that holds many of these bytes, at least one, and
    one for all other processes.
    """
    if _bytes_of(files) < worth:
        return
    held_by: dict[int, list[OpenFile]] = {}
    for file in files:
        held_by.setdefault(file.pid, []).append(file)
    holders = sorted(held_by.values(), key=_bytes_of, reverse=True)
    named = [held for held in holders[:MOST_HOLDERS] if _bytes_of(held) >= worth] or holders[:1]
    for held in named:
        size = _bytes_of(held)
        largest = max(held, key=attrgetter("bytes"))
        pod = f", pod {largest.pod_uid}" if largest.pod_uid else ""
        text = (
            f"{largest.process} (pid {largest.pid}{pod}) holds {format_bytes(size)} in"
            f" {counted(len(held), 'deleted file')} open,"
            f" {'the largest ' if len(held) > 1 else ''}{largest.path}: they are free once closed"
        )
        yield Remark(About.DELETED_OPEN, size, text)
    others = holders[len(named) :]
    if others:
        left = sum(map(_bytes_of, others))
        text = f"others hold {format_bytes(left)} of deleted files open; processes: {len(others)}"
        yield Remark(About.DELETED_OPEN, left, text)


class Places(NamedTuple):
    """The directories to count."""

    root_directory: str
    pod_logs_dir: str
    stores: tuple[str, ...]
    """Those with all content of the runtime, that of images first; none before it answers."""
    caches: tuple[str, ...]
    """Below which a function removes from caches."""
    frees: Mapping[str, FilesystemRole]
    """Of each function of the configuration, by its name, where it frees space."""


@dataclass(eq=False)
class DiskSurvey:
    """Measures one node. `observe`, `places` and `pods` are called each time."""

    observe: Callable[[], SignalObservations]
    places: Callable[[], Places]
    pods: Callable[[], PodStates]
    service: Callable[[], CriClient | None]
    """Opens a client with a short deadline, which is closed afterwards; None without a runtime."""
    clock: Clock

    def __post_init__(self) -> None:
        self.workers = Workers("disk survey", 3)
        self._counting = TimeLimit(self.workers, self.clock, COUNT_SECONDS)
        self._looking = TimeLimit(self.workers, self.clock, LOOK_SECONDS)
        self._begun_at = float("-inf")

    def with_attribution(self, record: Pass) -> Pass:
        """The record, with its attributions if the pass was not enough.

        Blocks while it measures.
        """
        if record.result is not PassResult.NOT_ENOUGH:
            return record
        settled = record.after
        if record.count(Result.REMOVED):
            settled = self._settled()  # with earlier numbers the parts would not add up
        return replace(record, attributions=self.survey(settled, record.functions))

    def _settled(self) -> SignalObservations:
        """The observations when no more space is being freed, or after 5 s."""
        latest = self.observe()
        for _ in range(SETTLE_MOST_POLLS):
            before = _free_bytes(latest)
            time.sleep(SETTLE_POLL_SECONDS)
            latest = self.observe()
            if _free_bytes(latest) <= before + SETTLE_BYTES:
                break
        return latest

    def explain_later(self, record: Pass, on_explained: Callable[[Pass], None]) -> None:
        """The same on another thread, so that the next pass does not wait, at most once a minute;
        `on_explained` is called there with the record.

        A failure to start the thread is counted, and the next pass tries again."""
        now = self.clock.monotonic()
        if (
            record.result is PassResult.NOT_ENOUGH
            and now - self._begun_at >= SHORTEST_INTERVAL_SECONDS
        ):
            with suppress(NoThread):
                self.workers.run(lambda: on_explained(self.with_attribution(record)))
                self._begun_at = now

    def survey(
        self, observations: SignalObservations, functions: Sequence[ReclaimResult]
    ) -> tuple[Attribution, ...]:
        """What the bytes are used for now.

        Takes some seconds; does not raise if runtime or disk do not answer.
        """
        places = self.places()
        pods = self.pods()
        store_root = "".join(places.stores[:1])
        spaces, unseen = look(paths_that_answer(observations), self._looking)
        volumes = join(places.root_directory, "pods")
        *kubelets, content, store = count_trees(
            [
                Tree(places.pod_logs_dir, lambda names: class_of_log(names, pods.gone)),
                Tree(volumes, lambda _: Use.VOLUMES),
                *(
                    Tree(join(places.root_directory, name), lambda _: Use.CHECKPOINTS)
                    for name in CHECKPOINT_DIRECTORIES
                ),
                Tree(_content_beside(store_root)),
                Tree(store_root),
            ],
            self._counting,
        )
        reported: int | None = None
        layers: Mapping[str, int] = {}
        service = self.service()
        if service is not None:
            with closing(service), suppress(RuntimeUnavailable):
                info = service.image_fs_info()
                reported = info.image_used_bytes
                # of the directory that CRI-O reports, it counts only that
                if info.image_filesystems and info.image_filesystems[0].endswith(IMAGES):
                    reported = store.total_bytes if store.complete else None
                layers = service.writable_layers()
        measured = Measured(
            store_reported=reported,
            store=store,
            content=content,
            writable_in_store=len(set(places.stores)) < 2,
            writable_layers=layers,
            kubelets=kubelets,
            filesystems=spaces,
            unseen=unseen,
            caches=caches_below([volumes], places.caches, self._counting),
            frees=places.frees,
        )
        return attribute(observations, functions, measured)


def _content_beside(store: str) -> str:
    """Where containerd has compressed content, next to its snapshotter; empty for others."""
    directory, name = os.path.split(store)
    return join(directory, CONTENT) if name.startswith(SNAPSHOTTER) else ""


def _free_bytes(observations: SignalObservations) -> int:
    filesystems = observations.filesystems.values()
    free = {identity.device_id: stats.free_bytes for identity, stats in filesystems}
    return sum(free.values())


# ---- files that are open

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
                process=text_of(f"{self._proc}/{pid}/comm") or "?",
                pod_uid=pod_uid_of(text_of(f"{self._proc}/{pid}/cgroup")),
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


# ---- trees of directories

TO_NOTICE_SECONDS = 0.5  # that a task has once its time is up

InTime = Callable[[], bool]


class TimeLimit:
    """Runs a task on a thread, and waits for it for so many seconds.

    A task that is stuck in the kernel keeps its thread; no other task starts until it ends.
    """

    def __init__(self, workers: Workers, clock: Clock, seconds: float):
        self._clock = clock
        self._seconds = seconds
        self._read = ReadingsInTime(workers, seconds + TO_NOTICE_SECONDS)

    def run(self, task: Callable[[InTime], None]) -> None:
        """Calls `task` with a function that says whether there is time left.

        Does nothing if no thread can start.
        """
        until = self._clock.monotonic() + self._seconds
        with suppress(ReadingHangs, NoThread):
            self._read(lambda: task(lambda: self._clock.monotonic() < until))


class Tree(NamedTuple):
    """A tree to count."""

    root: str
    classify: Callable[[Sequence[str]], str] = lambda _: "all"
    """From the components of a file's path below the root to the class of the file."""


@dataclass(slots=True)
class TreeUsage:
    """What a tree occupies, without the root itself."""

    device_id: int | None = None
    """As in `FilesystemIdentity`; None if the root does not exist or was not reached."""
    bytes_by_class: Counter[str] = field(default_factory=Counter)
    """The allocated bytes by class of file."""
    complete: bool = False
    """Whether everything was counted; otherwise the numbers are lower bounds."""

    @property
    def partial(self) -> bool:
        """Whether only a part was counted."""
        return self.device_id is not None and not self.complete

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes_by_class.values())


def count_trees(trees: Iterable[Tree], limit: TimeLimit, mounts: str = MOUNTS) -> list[TreeUsage]:
    """The usage of each tree, in the same order.

    Files that cannot be read are left out; never raises OSError.
    """
    usages = [(tree, TreeUsage()) for tree in trees]

    def count(in_time: InTime) -> None:
        for tree, usage in usages:
            with suppress(OSError):  # there is no root
                _count_tree(tree, usage, in_time, mounts=mounts)

    limit.run(count)
    # copied, as a thread that was left behind may still be counting
    return [replace(usage, bytes_by_class=usage.bytes_by_class.copy()) for _, usage in usages]


def _count_tree(tree: Tree, usage: TreeUsage, in_time: InTime, *, mounts: str) -> None:
    """Raises OSError if there is no root."""
    st_dev = os.stat(tree.root).st_dev
    usage.device_id = filesystem_id(tree.root, mounts)
    root = os.path.realpath(tree.root)
    mounted = mounts_below(root, mounts)
    linked: set[int] = set()
    pending = [root]
    complete = True
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if not in_time():
                        return
                    if entry.path in mounted:
                        continue
                    status = entry.stat(follow_symlinks=False)
                    if status.st_dev != st_dev or status.st_ino in linked:
                        continue
                    if stat.S_ISDIR(status.st_mode):
                        pending.append(entry.path)
                    elif status.st_nlink > 1:
                        linked.add(status.st_ino)
                    group = tree.classify(entry.path.removeprefix(root).strip("/").split("/"))
                    usage.bytes_by_class[group] += allocated_bytes(status)
        except FileNotFoundError:  # removed while it was counted
            continue
        except OSError:
            complete = False
    usage.complete = complete


def mounts_below(root: str, mounts: str = MOUNTS) -> frozenset[str]:
    """The mount points below a directory, from the kernel's table; none if it cannot be read. A
    directory that is mounted on itself, as CRI-O does with its layers, holds nothing else than
    the tree and is left out."""
    table = read_mounts(mounts)
    outer = mount_holding(root, table)
    # of several at one point, the last one is seen
    below = {
        mount.point: mount for mount in table if mount.point.startswith(f"{root.rstrip('/')}/")
    }
    return frozenset(
        point
        for point, mount in below.items()
        if outer is None
        or (mount.device, mount.root)
        != (outer.device, join(outer.root, os.path.relpath(point, outer.point)))
    )


# ---- caches

SMALLEST_CACHE_BYTES = 64 << 20  # less is not worth a word
MOST_CACHES = 5
USUAL_PLACES = ("/root", "/home", "/srv", "/opt", "/data", "/mnt", "/var/cache")
_POD_VOLUME = re.compile(r"/pods/([^/]+)/volumes/")


class Cache(NamedTuple):
    """A tagged directory. `at_least`: whether `bytes` is a lower bound."""

    path: str
    bytes: int
    device_id: int | None
    at_least: bool = False

    @property
    def sentence(self) -> str:
        """What it takes, and whose it is, for people."""
        pod = _POD_VOLUME.search(self.path)
        whose = f" of pod {pod[1]}" if pod else ""
        least = "at least " if self.at_least else ""
        return (
            f"{least}{format_bytes(self.bytes)} are in a cache{whose} that no function removes from"
            f" (CACHEDIR.TAG in {self.path})"
        )


def caches_below(
    places: Iterable[str], named: Sequence[str], limit: TimeLimit
) -> tuple[Cache, ...]:
    """The largest caches below these directories that lie below none of `named`, the largest
    first. Never raises OSError."""
    found: list[str] = []

    def look(in_time: InTime) -> None:
        layers = layers_of_containers()
        for place in places:
            with suppress(OSError), opened(place) as directory:
                for names in tagged_below(directory, layers):
                    if not in_time():
                        return
                    found.append(join(place, *map(os.fsdecode, names)))

    limit.run(look)
    roots = [f"{root.rstrip('/')}/" for root in named]
    paths = [path for path in found if not f"{path}/".startswith(tuple(roots))]
    caches = [
        Cache(path, usage.total_bytes, usage.device_id, usage.partial)
        for path, usage in zip(paths, count_trees(map(Tree, paths), limit), strict=True)
        if usage.total_bytes >= SMALLEST_CACHE_BYTES
    ]
    return tuple(sorted(caches, key=lambda cache: -cache.bytes)[:MOST_CACHES])
