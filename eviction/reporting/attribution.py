"""Says what the bytes of a filesystem are used for, what can be done about each part, and what the parts do not show.

The parts add up to the used bytes; what no other part explains is *everything else*. Some figures are measured on the
disk. Others come from the runtime, which counts a layer once for each image that has it. So:

* The bytes of all images together are measured where possible: what the runtime reports for its image store, minus
  the writable layers, plus the compressed content beside it (containerd). The classes of images divide that amount in
  proportion to their reported sizes.
* Content that CRI does not show is what the store holds beyond that: images of other namespaces, build caches, remains
  of interrupted removals. On containerd it is a lower bound, because the sizes count shared blobs several times.
* The runtime's figure may be some seconds old (containerd counts its snapshots every 10 s). If the store was counted
  completely and takes less, the count is used.
* Removed images may free their space late. What the store takes beyond what the remaining images can explain is *being
  freed*, up to what the removed images had promised and have not freed yet.
* A part that could not be counted completely in time is a lower bound; the rest of it is in *everything else*.
* A deleted file that is still open is in no directory, so it is in no other part.

A remark is not a part: its bytes are in parts that are already counted, or are free. Amounts below 1 MiB, and below a
thousandth of the capacity, get no remark.

Does not cover: looking and counting (`space`), asking the runtime (`disk_survey`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from eviction.reporting.filesystem_facts import project_quota_sentence, roles_by_device
from eviction.reporting.json_shapes import Count, RoleName
from reclaim.types import Action, Kind, Outcome, Reason, Result
from signals.quantity import counted, format_bytes
from signals.types import FilesystemRole, FsStats, SignalObservations

if TYPE_CHECKING:
    from eviction.reporting.space import (
        BtrfsAllocation,
        HiddenSpace,
        OpenFile,
        SparseFile,
        Survey,
        TreeUsage,
        WritableOverlay,
    )


class Use(StrEnum):
    """What bytes are used for; a closed list."""

    IMAGES_IN_USE = "images_in_use"
    IMAGES_MAY_GO = "images_may_go"
    IMAGES_TOO_YOUNG = "images_too_young"
    IMAGES_KEPT = "images_kept"
    IMAGES_UNJUDGED = "images_unjudged"
    CONTAINERS_LIVE = "containers_live"
    CONTAINERS_DEAD = "containers_dead"
    LOGS_LIVE = "logs_live"
    LOGS_ROTATED = "logs_rotated"
    LOGS_OF_GONE_PODS = "logs_of_gone_pods"
    VOLUMES = "volumes"
    BEING_FREED = "being_freed"
    HIDDEN = "hidden"
    DELETED_OPEN = "deleted_open"
    ELSE = "else"


WORDS: Mapping[Use, tuple[str, str]] = {
    Use.IMAGES_IN_USE: ("images in use", "move pods away, or use smaller images"),
    Use.IMAGES_MAY_GO: (
        "images that may go",
        "reclaimd removes them under pressure; now: reclaim --signal imagefs.available --all",
    ),
    Use.IMAGES_TOO_YOUNG: ("images that are too young", "wait, or lower imageMinimumGCAge"),
    Use.IMAGES_KEPT: ("images that are pinned or kept", "look at keepImages and at what the runtime pins"),
    Use.IMAGES_UNJUDGED: ("images (not judged in this pass)", "reclaimd plan tells them apart"),
    Use.CONTAINERS_LIVE: ("writable layers of containers", "limit ephemeral-storage, or write to a volume"),
    Use.CONTAINERS_DEAD: ("writable layers of dead containers", "one copy each stays while its pod does: delete pods"),
    Use.LOGS_LIVE: ("logs of live pods", "lower the kubelet's containerLogMaxSize, or log less"),
    Use.LOGS_ROTATED: ("rotated logs", "lower the kubelet's containerLogMaxFiles"),
    Use.LOGS_OF_GONE_PODS: ("logs of pods that are gone", "they go with garbage collection of containers"),
    Use.VOLUMES: ("volumes of pods (emptyDir)", "set sizeLimit on emptyDir, or delete pods"),
    Use.BEING_FREED: (
        "removed, and being freed",
        "nothing: the runtime frees it within seconds, or with its next collection",
    ),
    Use.HIDDEN: ("content that CRI does not show", "ctr namespaces ls; prune build caches and other namespaces"),
    Use.DELETED_OPEN: ("deleted files that are still open", "end the processes that hold them: named below"),
    Use.ELSE: ("everything else", "not the runtime's or the kubelet's: du -xh on the filesystem shows it"),
}
"""What each use is called, and what can be done about it."""

_OF_IMAGES: Mapping[str, Use] = {
    Reason.IN_USE: Use.IMAGES_IN_USE,
    Reason.TOO_YOUNG: Use.IMAGES_TOO_YOUNG,
    Reason.PINNED: Use.IMAGES_KEPT,
    Reason.KEEP_LIST: Use.IMAGES_KEPT,
    Reason.NEWEST_OF_REPOSITORY: Use.IMAGES_KEPT,
    Reason.SANDBOX_IMAGE: Use.IMAGES_KEPT,
    Reason.SANDBOX_IMAGE_UNKNOWN: Use.IMAGES_KEPT,
    Reason.UNRESOLVED_IMAGE: Use.IMAGES_KEPT,
}
COMPRESSED_TO_DISK = 4
"""How many bytes an image takes at most for each byte of its size where that is of the compressed content (containerd):
twice to three times as many unpacked, and the content itself."""

_LIVE = (Reason.RUNNING, Reason.CREATED, Reason.UNKNOWN_STATE)
_GONE = (Result.REMOVED, Result.ALREADY_GONE)


class About(StrEnum):
    """What a remark is about; a closed list."""

    DELETED_OPEN = "deleted_open"
    PROCESSES_NOT_SEEN = "processes_not_seen"
    PREALLOCATED = "preallocated"
    SPARSE = "sparse"
    RESERVE = "reserve"
    DELAYED_ALLOCATION = "delayed_allocation"
    BTRFS_CHUNKS = "btrfs_chunks"
    PROJECT_QUOTA = "project_quota"
    THIN_POOL = "thin_pool"
    OTHER_OVERLAYS = "other_overlays"


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a filesystem."""

    use: Use
    """What the bytes are used for."""
    bytes: int
    """How many there are."""
    objects: Count | None = None
    """How many images or containers they are; null where none are counted."""
    at_least: bool = False
    """Whether `bytes` is a lower bound."""
    remedy: str = field(init=False)
    """What can be done about them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "remedy", WORDS[self.use][1])


@dataclass(frozen=True, slots=True)
class Remark:
    """What the parts do not show."""

    about: About
    """A word of a closed list."""
    bytes: int | None
    """Null where it is not about an amount."""
    at_least: bool = field(kw_only=True, default=False)
    """Whether `bytes` is a lower bound."""
    sentence: str
    """For people."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where the bytes of one filesystem are; the parts add up to what is used."""

    path: str
    """Where it is mounted, or read."""
    filesystems: tuple[RoleName, ...]
    """Its roles."""
    capacity: Count
    """Bytes."""
    used: Count
    """Bytes."""
    shares: tuple[Share, ...]
    """The parts, the largest first and everything else last."""
    remarks: tuple[Remark, ...] = ()
    """What they do not show; those bytes are in parts that are counted already, or are free."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured besides the observations, in bytes. None: the question was not answered.

    `store_reported`: the size of the image store as the runtime reports it, with the writable layers if
    `writable_in_store`; `store`: the same, counted on the disk. `content`: the compressed content beside it
    (containerd), None where there is none. `writable_layers`: by container id. `logs`: by use. `others`: by device,
    overlays that are not of the runtime's containers; `of_upper`: what was counted of their upper directories.
    `late_bytes`: freed after the last removal was measured.
    """

    store_reported: int | None = None
    store: TreeUsage | None = None
    content: TreeUsage | None = None
    writable_in_store: bool = True
    writable_layers: Mapping[str, int] | None = None
    logs: TreeUsage | None = None
    volumes: TreeUsage | None = None
    survey: Survey | None = None
    others: Mapping[int, Sequence[WritableOverlay]] = field(default_factory=dict)
    of_upper: Mapping[str, TreeUsage] = field(default_factory=dict)
    late_bytes: int = 0


def attribute(
    observations: SignalObservations, outcomes: Iterable[Outcome], measured: Measured
) -> tuple[Attribution, ...]:
    """One attribution for each observed filesystem; only the first one says which processes were not seen.

    `outcomes`: every object of a pass or a plan. Removed objects count only towards what is being freed.
    """
    all_outcomes = tuple(outcomes)
    present = [outcome for outcome in all_outcomes if outcome.result not in _GONE]
    removed = [outcome for outcome in all_outcomes if outcome.result is Result.REMOVED]
    spaces = {} if measured.survey is None else measured.survey.filesystems
    unseen = None if measured.survey is None else not_seen(measured.survey)
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
            limits = {observations.filesystems[role][0].path: observations.limits.get(role) for role in roles}
            others = measured.others.get(device_id, ())
            remarks += remarks_of(stats, space, _sparsest(measured, device_id), others, measured.of_upper, limits)
            if unseen is not None and device_id == next(iter(spaces)):
                remarks.append(unseen)
        shares = sorted((share for share in found if share.bytes or share.objects), key=lambda share: -share.bytes)
        shares.append(Share(Use.ELSE, rest))
        answers.append(Attribution(identity.path, roles, stats.capacity_bytes, used, tuple(shares), tuple(remarks)))
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
        beside = 0 if content is None else content.total_bytes
        hidden = max(beside - nominal, 0) if nominal else 0
        on_disk = beside - hidden
        at_least = content is not None and (hidden > 0 or not content.complete)
        if store is not None:
            hidden += max(store.total_bytes - reported, 0)
            at_least = at_least or not store.complete
            reported = min(reported, store.total_bytes) if store.complete else reported
        written = sum((measured.writable_layers or {}).values()) if measured.writable_in_store else 0
        on_disk += max(reported - written, 0)
        if on_disk > nominal * (1 if content is None else COMPRESSED_TO_DISK):
            freeing = min(_not_freed_yet(removed, measured), on_disk - nominal)
    left = on_disk - freeing
    if nominal:
        shares = [Share(use, sum(each) * left // nominal, len(each)) for use, each in sizes.items()]
    else:
        shares = [Share(Use.IMAGES_UNJUDGED, left)]
    return [*shares, Share(Use.BEING_FREED, freeing), Share(Use.HIDDEN, hidden, None, at_least)]


def _not_freed_yet(removed: list[Outcome], measured: Measured) -> int:
    """What removed images had promised and have freed neither at once nor late."""
    promised = [(o.verdict.size_bytes or 0, o.freed_bytes) for o in removed if o.verdict.kind is Kind.IMAGE]
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
    if logs is not None and logs.device_id == device_id:
        for use, amount in logs.bytes_by_class.items():
            yield Share(Use(use), amount, at_least=not logs.complete)
    if volumes is not None and volumes.device_id == device_id:
        yield Share(Use.VOLUMES, volumes.total_bytes, at_least=not volumes.complete)


def class_of_log(names: Sequence[str], gone: Callable[[str], bool]) -> Use:
    """The use of a file below the kubelet's log directory, from the components of its path there:
    `<namespace>_<name>_<uid>`, `<container>`, `<n>.log`.

    `gone`: true if the pod of a UID does not exist any more. The kubelet names a rotated log `<n>.log.<time>` or
    `….gz` (`pkg/kubelet/logs/container_log_manager.go`).
    """
    if gone(names[0].rpartition("_")[2]):
        return Use.LOGS_OF_GONE_PODS
    return Use.LOGS_ROTATED if len(names) > 1 and ".log." in names[-1] else Use.LOGS_LIVE


def sentence(attribution: Attribution, parts: int = 4) -> str:
    """The largest parts in one sentence."""
    largest = sorted(attribution.shares, key=lambda share: -share.bytes)[:parts]
    text = ", ".join(f"{WORDS[s.use][0]} {'at least ' * s.at_least}{format_bytes(s.bytes)}" for s in largest if s.bytes)
    return f"of {format_bytes(attribution.used)} used on {attribution.path}: {text or 'nothing is accounted for'}"


# ---- Remarks

SMALLEST_BYTES = 1024 * 1024
SMALLEST_SHARE = 1000  # one part in so many of the capacity
MOST_HOLDERS = 5
SNAPSHOTTER = "io.containerd.snapshotter.v1."
TASKS_OF_CRI = "/io.containerd.runtime.v2.task/k8s.io/"
IMAGES_OF_STORAGE = "-images"  # CRI-O: overlay-images, and the layers in overlay beside it


def _sparsest(measured: Measured, device_id: int) -> SparseFile | None:
    """Of all files that were counted on a filesystem, the one that takes least of its size."""
    trees = (measured.logs, measured.volumes, measured.store, measured.content, *measured.of_upper.values())
    found = [tree.sparsest for tree in trees if tree is not None and tree.device_id == device_id]
    return max(filter(None, found), key=lambda file: file.missing, default=None)


def remarks_of(
    stats: FsStats,
    space: HiddenSpace,
    sparsest: SparseFile | None = None,
    others: Sequence[WritableOverlay] = (),
    of_upper: Mapping[str, TreeUsage] = MappingProxyType({}),
    limits: Mapping[str, FsStats | None] = MappingProxyType({}),
) -> Iterator[Remark]:
    """All remarks about one filesystem, in the order of `About`, but for `not_seen`. `limits`: as in
    `project_quota_sentence`."""
    worth = max(SMALLEST_BYTES, stats.capacity_bytes // SMALLEST_SHARE)
    yield from _deleted([file for file in space.open_files if file.deleted], worth)
    growing = sorted((file for file in space.open_files if not file.deleted), key=lambda file: -file.bytes)
    beyond = sum(file.bytes for file in growing)
    if beyond >= worth:
        yield Remark(
            About.PREALLOCATED,
            beyond,
            f"at least {format_bytes(beyond)} are allocated behind the end of {counted(len(growing), 'file')} open for "
            f"writing (speculative preallocation), most by {growing[0].process} (pid {growing[0].pid}) for "
            f"{growing[0].path}: nobody's data, and given back later",
            at_least=True,  # that of files which were closed meanwhile is not seen
        )
    if sparsest is not None and sparsest.missing >= worth:
        size, allocated = format_bytes(sparsest.size), format_bytes(sparsest.allocated)
        text = f"{sparsest.path} is sparse: its size is {size}, and it takes {allocated}"
        yield Remark(About.SPARSE, sparsest.allocated, text)
    reserve = stats.free_bytes - stats.available_bytes
    if space.mount is not None and space.mount.type.startswith("ext") and reserve >= worth:
        yield Remark(
            About.RESERVE, reserve, f"{format_bytes(reserve)} are free and reserved for root: no pod can use them"
        )
    of_btrfs = None if space.btrfs is None else space.btrfs.delayed
    for delayed, count_as in ((space.delayed, "used already"), (of_btrfs, "free still")):
        if delayed is not None and delayed >= worth:
            text = f"{format_bytes(delayed)} are written and have no place on the disk yet (delayed allocation)"
            yield Remark(About.DELAYED_ALLOCATION, delayed, f"{text}; they count as {count_as}")
    if space.btrfs is not None:
        yield _chunks(space.btrfs)
    if quota := project_quota_sentence(space.mount, limits):
        yield Remark(About.PROJECT_QUOTA, None, quota)
    if space.thin_pool is not None:
        text = (
            f"this filesystem is on {space.thin_pool}: statvfs does not show how full that is, and when it is full, "
            "writes fail although there is room here (lvs, dmsetup status)"
        )
        yield Remark(About.THIN_POOL, None, text)
    if others:
        yield _others(others, of_upper)


def _deleted(files: Sequence[OpenFile], worth: int) -> Iterator[Remark]:
    """One remark for each process that holds many of these bytes, at least one, and one for all the others."""
    if sum(file.bytes for file in files) < worth:
        return
    of_pid: dict[int, list[OpenFile]] = {}
    for file in files:
        of_pid.setdefault(file.pid, []).append(file)
    holders = sorted(((sum(file.bytes for file in held), held) for held in of_pid.values()), key=lambda one: -one[0])
    shown = [one for one in holders[:MOST_HOLDERS] if one[0] >= worth] or holders[:1]
    for size, held in shown:
        most = max(held, key=lambda file: file.bytes)
        pod = f", pod {most.pod_uid}" if most.pod_uid else ""
        text = (
            f"{most.process} (pid {most.pid}{pod}) holds {format_bytes(size)} in {counted(len(held), 'deleted file')} "
            f"open, {'the largest ' * (len(held) > 1)}{most.path}: they are free once closed"
        )
        yield Remark(About.DELETED_OPEN, size, text)
    if others := holders[len(shown) :]:
        rest = sum(size for size, _ in others)
        hold = "1 more process holds" if len(others) == 1 else f"{len(others)} more processes hold"
        yield Remark(About.DELETED_OPEN, rest, f"{hold} {format_bytes(rest)} of deleted files open")


def _chunks(btrfs: BtrfsAllocation) -> Remark:
    metadata, texts = 0, []
    for kind, use in sorted(btrfs.chunks.items()):
        copies = f" ({format_bytes(use.on_disk)} with its copies)" if use.on_disk != use.total else ""
        texts.append(f"{kind} {format_bytes(use.used)} of {format_bytes(use.total)}{copies}")
        if use.total and kind != "data":
            metadata += use.used * use.on_disk // use.total
    if btrfs.unallocated is not None:
        texts.append(f"not in chunks yet {format_bytes(btrfs.unallocated)}")
    return Remark(
        About.BTRFS_CHUNKS,
        metadata,
        f"in chunks of btrfs: {', '.join(texts)}; without room for metadata, writes fail although bytes are available",
    )


def _others(overlays: Sequence[WritableOverlay], of_upper: Mapping[str, TreeUsage]) -> Remark:
    known = [of_upper[overlay.upper] for overlay in overlays if overlay.upper in of_upper]
    written = sum(usage.total_bytes for usage in known)
    at_least = len(known) < len(overlays) or not all(usage.complete for usage in known)
    return Remark(
        About.OTHER_OVERLAYS,
        written,
        f"{counted(len(overlays), 'writable layer')} of containers that the runtime does not list (docker, podman, "
        f"another namespace of containerd), {'at least ' * at_least}{format_bytes(written)} written, the first mounted "
        f"at {overlays[0].point}",
        at_least=at_least,
    )


def not_seen(survey: Survey) -> Remark | None:
    """Whose open files were not looked at; None if all were."""
    seen, texts = survey.processes, []
    if seen.unreadable:
        texts.append(f"{seen.unreadable} of {seen.processes} processes could not be looked at (CAP_SYS_PTRACE)")
    if seen.others_hidden:
        texts.append("those outside of its PID namespace or hidden by hidepid were not seen")
    if not seen.complete:
        texts.append("not all were looked at in time")
    text = f"files that processes hold open: {'; '.join(texts)}"
    return Remark(About.PROCESSES_NOT_SEEN, None, text) if texts else None


def not_of_the_runtime(overlays: Sequence[WritableOverlay], imagefs: str | None) -> tuple[WritableOverlay, ...]:
    """The overlays that are not of the CRI runtime's containers, as far as paths tell; none before it has answered.

    containerd mounts a container's root at `…/io.containerd.runtime.v2.task/<namespace>/<id>/rootfs`, and what CRI
    lists is in the namespace `k8s.io`. With another runtime, what lies in its store may be its own, and is left out; so
    podman's beside CRI-O, which share a store, cannot be told apart.
    """
    if imagefs is None:
        return ()
    imagefs = imagefs.rstrip("/")
    parent, _, name = imagefs.rpartition("/")
    if name.startswith(SNAPSHOTTER):
        return tuple(overlay for overlay in overlays if TASKS_OF_CRI not in overlay.point)
    store = parent if name.endswith(IMAGES_OF_STORAGE) else imagefs
    return tuple(overlay for overlay in overlays if not overlay.upper.startswith(store + "/"))
