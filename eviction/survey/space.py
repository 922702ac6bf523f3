"""What uses the bytes of a filesystem, including those that names, sizes and statvfs do not show.

The parts of a filesystem add up to the used bytes; what no other part explains is *everything
else*, and so is the part of a question that was not answered, or what could not be counted in time.
Some figures are measured on the disk. Others come from the runtime, which counts a layer once for
each image that has it.

A remark is not a part: its bytes are already counted in the parts, or are free.

It is found out after a pass that could not relieve the node, never before a removal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from eviction.records.attribution import About, Attribution, Remark, Share, Use
from eviction.records.passes import Pass, PassResult
from eviction.survey.filesystem_facts import (
    paths_that_answer,
    project_quota_sentence,
    roles_by_device,
)
from eviction.survey.open_files import HiddenSpace, OpenFile, look
from eviction.survey.trees import TimeLimit, Tree, TreeUsage, count_trees
from reclaim.cri.containers_storage import IMAGES
from reclaim.evidence.states import PodStates
from reclaim.services import UsageService
from reclaim.types import Action, Kind, Outcome, Reason, Result, RuntimeUnavailable, Verdict
from reclaim.workers import NoThread, Workers
from signals.clock import Clock
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
SETTLE_POLL_SECONDS = 0.1
SETTLE_QUIET_POLLS = 5  # polls in a row without more free space: nothing more is being freed
SETTLE_MOST_POLLS = 50
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
_LIVE = (Reason.RUNNING, Reason.CREATED, Reason.UNKNOWN_STATE)
_GONE = (Result.REMOVED, Result.ALREADY_GONE)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured besides the observations, in bytes. None: the question was not answered."""

    store_reported: int | None = None
    """The size of the image store as the runtime reports it."""
    store: TreeUsage = field(default_factory=TreeUsage)
    """The same, counted on the disk."""
    content: TreeUsage = field(default_factory=TreeUsage)
    """The compressed content next to it (containerd)."""
    writable_in_store: bool = True
    """Whether the store includes the writable layers."""
    writable_layers: Mapping[str, int] | None = None
    """By container id."""
    logs: TreeUsage = field(default_factory=TreeUsage)
    """By use."""
    volumes: TreeUsage = field(default_factory=TreeUsage)
    filesystems: Mapping[int, HiddenSpace] = field(default_factory=dict)
    """By `device_id`."""
    unseen: Remark | None = None
    """Which processes' open files were not looked at."""
    late_bytes: int = 0
    """What was freed after the last removal was measured."""


def attribute(
    observations: SignalObservations, outcomes: Sequence[Outcome], measured: Measured
) -> tuple[Attribution, ...]:
    """One attribution for each observed filesystem; only the first says which processes were not
    looked at.

    `outcomes`: every object of a pass or a plan. Removed objects only count towards what is being
    freed.
    """
    present = [outcome.verdict for outcome in outcomes if outcome.result not in _GONE]
    images = [verdict for verdict in present if verdict.kind is Kind.IMAGE]
    unseen = measured.unseen
    attributions: list[Attribution] = []
    for device_id, roles in roles_by_device(observations).items():
        identity, stats = observations.filesystems[roles[0]]
        used = stats.capacity_bytes - stats.free_bytes
        shares: list[Share] = []
        remarks: list[Remark] = []
        if FilesystemRole.IMAGEFS in roles:
            shares += _images(images, _not_freed_yet(outcomes, measured), measured)
        if FilesystemRole.CONTAINERFS in roles:
            shares += _containers(present, measured)
        shares += _logs_and_volumes(measured, device_id)
        rest = max(used - sum(share.bytes for share in shares), 0)
        space = measured.filesystems.get(device_id)
        if space is not None:
            # such a file is in no directory, so it is in no other part
            deleted = min(sum(file.bytes for file in space.open_files if file.deleted), rest)
            shares.append(Share(Use.DELETED_OPEN, deleted, at_least=unseen is not None))
            rest -= deleted
            quota = project_quota_sentence(space.mount, observations, roles)
            remarks += remarks_of(stats, space, quota)
            if unseen is not None and device_id == next(iter(measured.filesystems)):
                remarks.append(unseen)
        shares = [share for share in shares if share.bytes or share.objects]
        shares.sort(key=lambda share: -share.bytes)
        attributions.append(
            Attribution(
                path=identity.path,
                filesystems=roles,
                capacity=stats.capacity_bytes,
                used=used,
                shares=(*shares, Share(Use.ELSE, rest)),
                remarks=tuple(remarks),
            )
        )
    return tuple(attributions)


def _images(images: Sequence[Verdict], not_freed_bytes: int, measured: Measured) -> Iterator[Share]:
    """The classes of images divide what all of them take, which is measured if possible, in
    proportion to their reported sizes."""
    sizes: dict[Use, list[int]] = {}
    for image in images:
        use = Use.IMAGES_MAY_GO
        if image.action is Action.KEEP:
            use = _OF_IMAGES.get(image.reason, use)
        sizes.setdefault(use, []).append(image.size_bytes or 0)
    nominal = sum(map(sum, sizes.values()))
    on_disk = nominal
    freeing = 0
    hidden = 0
    at_least = False
    reported = measured.store_reported
    store = measured.store
    content = measured.content
    if reported is not None:
        compressed = content.device_id is not None
        # of other namespaces, build caches, interrupted removals; a lower bound on containerd, as
        # the sizes count shared blobs several times
        hidden = max(content.total_bytes - nominal, 0) if nominal else 0
        on_disk = content.total_bytes - hidden
        at_least = compressed and (hidden > 0 or not content.complete)
        if store.device_id is not None:
            hidden += max(store.total_bytes - reported, 0)
            if store.complete:
                # the runtime's figure may be some seconds old (containerd counts every 10 s)
                reported = min(reported, store.total_bytes)
            else:
                at_least = True
        if measured.writable_in_store:
            reported -= sum((measured.writable_layers or {}).values())
        on_disk += max(reported, 0)
        # what the remaining images cannot explain may be of removed ones, which is freed late
        if on_disk > nominal * (COMPRESSED_TO_DISK if compressed else 1):
            freeing = min(not_freed_bytes, on_disk - nominal)
    left = on_disk - freeing
    if nominal:
        for use, of_use in sizes.items():
            yield Share(use, sum(of_use) * left // nominal, len(of_use))
    else:
        yield Share(Use.IMAGES_UNJUDGED, left)
    yield Share(Use.BEING_FREED, freeing)
    yield Share(Use.HIDDEN, hidden, at_least=at_least)


def _not_freed_yet(outcomes: Sequence[Outcome], measured: Measured) -> int:
    """The part of the removed images' reported sizes that was freed neither at once nor late."""
    waiting = -measured.late_bytes
    for outcome in outcomes:
        if outcome.result is Result.REMOVED and outcome.verdict.kind is Kind.IMAGE:
            waiting += max((outcome.verdict.size_bytes or 0) - outcome.freed.bytes, 0)
    return max(waiting, 0)


def _containers(present: Sequence[Verdict], measured: Measured) -> Iterator[Share]:
    dead = {v.id for v in present if v.kind is Kind.CONTAINER and v.reason not in _LIVE}
    layers = measured.writable_layers or {}
    of_dead = [size for container_id, size in layers.items() if container_id in dead]
    of_live = sum(layers.values()) - sum(of_dead)
    yield Share(Use.CONTAINERS_LIVE, of_live, len(layers) - len(of_dead))
    yield Share(Use.CONTAINERS_DEAD, sum(of_dead), len(of_dead))


def _logs_and_volumes(measured: Measured, device_id: int) -> Iterator[Share]:
    logs = measured.logs
    volumes = measured.volumes
    if logs.device_id == device_id:
        for use, size in logs.bytes_by_class.items():
            yield Share(Use(use), size, at_least=not logs.complete)
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
    beyond = sum(file.bytes for file in growing)
    if beyond >= worth:
        largest = max(growing, key=_size)
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


def _size(file: OpenFile) -> int:
    return file.bytes


def _deleted(files: Sequence[OpenFile], worth: int) -> Iterator[Remark]:
    """One remark for each process that holds many of these bytes, at least one, and
    one for all other processes.
    """
    left = sum(map(_size, files))
    if left < worth:
        return
    held_by: dict[int, list[OpenFile]] = {}
    for file in files:
        held_by.setdefault(file.pid, []).append(file)
    holders = sorted(held_by.values(), key=lambda held: -sum(map(_size, held)))
    for rank, held in enumerate(holders):
        size = sum(map(_size, held))
        if rank > 0 and (rank >= MOST_HOLDERS or size < worth):
            more = len(holders) - rank
            who = "1 more process holds" if more == 1 else f"{more} more processes hold"
            text = f"{who} {format_bytes(left)} of deleted files open"
            yield Remark(About.DELETED_OPEN, left, text)
            return
        largest = max(held, key=_size)
        pod = f", pod {largest.pod_uid}" if largest.pod_uid else ""
        text = (
            f"{largest.process} (pid {largest.pid}{pod}) holds {format_bytes(size)} in"
            f" {counted(len(held), 'deleted file')} open,"
            f" {'the largest ' if len(held) > 1 else ''}{largest.path}: they are free once closed"
        )
        yield Remark(About.DELETED_OPEN, size, text)
        left -= size


@dataclass(frozen=True, slots=True)
class Places:
    """The directories to count."""

    root_directory: str
    pod_logs_dir: str
    stores: tuple[str, ...] = ()
    """Those with all content of the runtime, that of images first; none before it answers."""


@dataclass(eq=False)
class DiskSurvey:
    """Measures one node. `observe`, `places` and `pods` are called each time."""

    observe: Callable[[], SignalObservations]
    places: Callable[[], Places]
    pods: Callable[[], PodStates]
    service: Callable[[], UsageService | None]
    """Opens a client with a short deadline, which is closed afterwards; None without a runtime."""
    clock: Clock
    count_seconds: float = COUNT_SECONDS

    def __post_init__(self) -> None:
        self._counting = TimeLimit("tree usage", self.clock, self.count_seconds)
        self._looking = TimeLimit("hidden space", self.clock, LOOK_SECONDS)
        self._workers = Workers("disk survey", 1)
        self._begun_at = float("-inf")

    def survey(
        self, observations: SignalObservations, outcomes: Sequence[Outcome], late_bytes: int = 0
    ) -> tuple[Attribution, ...]:
        """What the bytes are used for now.

        Takes some seconds; does not raise if runtime or disk do not answer.
        """
        measured = replace(self._measure(observations), late_bytes=late_bytes)
        return attribute(observations, outcomes, measured)

    def with_attribution(self, record: Pass) -> Pass:
        """The record, with its attributions if the pass was not enough.

        Blocks while it measures.
        """
        if record.result is not PassResult.NOT_ENOUGH:
            return record
        outcomes = record.removals + record.kept
        before = settled = record.after or record.observations
        if any(outcome.result is Result.REMOVED for outcome in outcomes):
            settled = self._settled()  # with earlier numbers the parts would not add up
        late_bytes = max(_free_bytes(settled) - _free_bytes(before), 0)
        return replace(record, attributions=self.survey(settled, outcomes, late_bytes))

    def _settled(self) -> SignalObservations:
        """The observations when no more space is being freed, or after 5 s."""
        latest = self.observe()
        quiet = 0
        for _ in range(SETTLE_MOST_POLLS):
            if quiet == SETTLE_QUIET_POLLS:
                break
            time.sleep(SETTLE_POLL_SECONDS)
            before = latest
            latest = self.observe()
            quiet = 0 if _free_bytes(latest) > _free_bytes(before) + SETTLE_BYTES else quiet + 1
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
                self._workers.run(lambda: on_explained(self.with_attribution(record)))
                self._begun_at = now

    @property
    def threads_not_started(self) -> int:
        pools = (self._workers, self._counting.workers, self._looking.workers)
        return sum(pool.not_started for pool in pools)

    def _measure(self, observations: SignalObservations) -> Measured:
        places = self.places()
        pods = self.pods()
        store = "".join(places.stores[:1])
        spaces, unseen = look(paths_that_answer(observations), self._looking)
        logs, volumes, content, stored = count_trees(
            [
                Tree(places.pod_logs_dir, lambda names: class_of_log(names, pods.gone)),
                Tree(os.path.join(places.root_directory, "pods")),
                Tree(_content_beside(store)),
                Tree(store),
            ],
            self._counting,
        )
        measured = Measured(
            store=stored,
            content=content,
            writable_in_store=len(set(places.stores)) < 2,
            logs=logs,
            volumes=volumes,
            filesystems=spaces,
            unseen=unseen,
        )
        service = self.service()
        if service is not None:
            with closing(service), suppress(RuntimeUnavailable):
                info = service.image_fs_info()
                reported: int | None = info.image_used_bytes
                # of the directory that CRI-O reports, it counts only that
                if info.image_filesystems and info.image_filesystems[0].endswith(IMAGES):
                    reported = stored.total_bytes if stored.complete else None
                measured = replace(measured, store_reported=reported)
                layers = dict(service.writable_layers())
                measured = replace(measured, writable_layers=layers)
        return measured


def _content_beside(store: str) -> str:
    """Where containerd has compressed content, next to its snapshotter; empty for others."""
    directory, name = os.path.split(store)
    return os.path.join(directory, CONTENT) if name.startswith(SNAPSHOTTER) else ""


def _free_bytes(observations: SignalObservations) -> int:
    filesystems = observations.filesystems.values()
    free = {identity.device_id: stats.free_bytes for identity, stats in filesystems}
    return sum(free.values())
