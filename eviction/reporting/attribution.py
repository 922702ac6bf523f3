"""What the bytes of a filesystem are used for, and what can be done about each part.

The parts of a filesystem add up to its used bytes; what no other part explains is *everything else*. Some figures are
measured on the disk. Others come from the runtime, which counts layers that images share once for each image. So:

* The bytes of all images together are measured where possible: what the runtime reports for its image store, less the
  writable layers, plus the compressed content beside it (containerd). The classes of images divide that amount in
  proportion to their reported sizes.
* Content that CRI does not show is what the store holds beyond that: images of other namespaces, build caches, remains
  of interrupted removals. On containerd it is a lower bound, because shared blobs count several times in the sizes.
* What the runtime reports may be some seconds old (containerd counts its snapshots every 10 s). Where the store was
  counted to its end and takes less, the count holds.
* Space of removed objects may come late. Where the store takes more than the images that are left can explain, what the
  removed ones had promised and have not freed yet is a part of its own, *being freed*.
* A part that could not be counted to its end in time is a lower bound; the rest of it is in *everything else*.
* A deleted file that is still open is in no directory, so in no other part.

Covers: classes, sums, sentences. Does not cover: measuring (`disk_survey`, `disk_usage`), and what is no part
(`remarks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, TypedDict

from eviction.reporting.json_shapes import Count, RoleName, one_of
from reclaim.types import Action, Kind, Outcome, Reason, Result
from signals.quantity import format_bytes
from signals.types import FilesystemRole, SignalObservations


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
class Remark:
    """One remark. `bytes`: None where it is not about an amount. `at_least`: `bytes` is a lower bound."""

    about: About
    bytes: int | None
    sentence: str
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    """Bytes counted on the disk. `complete` false: a lower bound."""

    bytes: int = 0
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured in addition to the observations; bytes. None: the question was not answered.

    `store_reported`: the size of the image store as the runtime reports it, with the writable layers if
    `writable_in_store`. `store_counted`: the same store counted on the disk. `content`: the compressed content beside
    it (containerd), None where there is none. `writable_layers`: by container id. `logs` and `volumes`: counted on the
    disk, with the device that they are on. `deleted_open`: deleted files that are open, by device; `remarks` too.
    `late_bytes`: freed after the last removal was measured; `still_coming`: and
    more was coming when it was not waited for any longer.
    """

    store_reported: int | None = None
    store_counted: Counted | None = None
    content: Counted | None = None
    writable_in_store: bool = True
    writable_layers: Mapping[str, int] | None = None
    logs: Mapping[Use, Counted] = field(default_factory=dict)
    logs_device: int | None = None
    volumes: Counted | None = None
    volumes_device: int | None = None
    deleted_open: Mapping[int, Counted] = field(default_factory=dict)
    remarks: Mapping[int, tuple[Remark, ...]] = field(default_factory=dict)
    late_bytes: int = 0
    still_coming: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a filesystem. `objects`: the number of images or containers in it, None where none are counted.
    `at_least`: `bytes` is a lower bound."""

    use: Use
    bytes: int
    objects: int | None = None
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Attribution:
    """The parts of one filesystem, the largest first and *everything else* last."""

    device_id: int
    path: str
    roles: tuple[FilesystemRole, ...]
    capacity_bytes: int
    used_bytes: int
    shares: tuple[Share, ...]
    remarks: tuple[Remark, ...] = ()


class ShareJson(TypedDict):
    """One part of a filesystem."""

    use: Annotated[str, one_of(Use)]
    """What the bytes are used for."""
    bytes: int
    """How many there are."""
    objects: Count | None
    """How many images or containers they are; null where none are counted."""
    at_least: bool
    """Whether `bytes` is a lower bound."""
    remedy: str
    """What can be done about them."""


class RemarkJson(TypedDict):
    """What the parts do not show."""

    about: Annotated[str, one_of(About)]
    """A word of a closed list."""
    bytes: int | None
    """Null where it is not about an amount."""
    at_least: bool
    """Whether `bytes` is a lower bound."""
    sentence: str
    """For people."""


class AttributionJson(TypedDict):
    """Where the bytes of one filesystem are; the parts add up to what is used."""

    path: str
    """Where it is mounted, or read."""
    filesystems: list[RoleName]
    """Its roles."""
    capacity: Count
    """Bytes."""
    used: Count
    """Bytes."""
    shares: list[ShareJson]
    """The parts, the largest first and everything else last."""
    remarks: list[RemarkJson]
    """What they do not show; those bytes are in parts that are counted already, or are free."""


def attribute(
    observations: SignalObservations, outcomes: Iterable[Outcome], measured: Measured
) -> tuple[Attribution, ...]:
    """One attribution for each observed filesystem.

    `outcomes`: each object of a pass or a plan; of objects that were removed only what is being freed is counted.
    """
    all_outcomes = tuple(outcomes)
    present = [outcome for outcome in all_outcomes if outcome.result not in _GONE]
    removed = [outcome for outcome in all_outcomes if outcome.result is Result.REMOVED]
    devices: dict[int, list[FilesystemRole]] = {}
    for role, (identity, _) in observations.filesystems.items():
        devices.setdefault(identity.device_id, []).append(role)
    answers = []
    for device_id, roles in devices.items():
        identity, stats = observations.filesystems[roles[0]]
        shares: list[Share] = []
        if FilesystemRole.IMAGEFS in roles:
            shares += _images(present, removed, measured)
        if FilesystemRole.CONTAINERFS in roles:
            shares += _containers(present, measured)
        if device_id == measured.logs_device:
            shares += [Share(use, logs.bytes, None, not logs.complete) for use, logs in measured.logs.items()]
        if device_id == measured.volumes_device and measured.volumes is not None:
            shares.append(Share(Use.VOLUMES, measured.volumes.bytes, None, not measured.volumes.complete))
        used = stats.capacity_bytes - stats.free_bytes
        rest = max(used - sum(share.bytes for share in shares), 0)
        if (deleted := measured.deleted_open.get(device_id)) is not None:
            shares.append(Share(Use.DELETED_OPEN, min(deleted.bytes, rest), None, not deleted.complete))
            rest -= shares[-1].bytes
        shares = sorted((s for s in shares if s.bytes or s.objects), key=lambda s: -s.bytes)
        shares.append(Share(Use.ELSE, rest))
        remarks = measured.remarks.get(device_id, ())
        capacity = stats.capacity_bytes
        answers.append(Attribution(device_id, identity.path, tuple(roles), capacity, used, tuple(shares), remarks))
    return tuple(answers)


def _images(outcomes: list[Outcome], removed: list[Outcome], measured: Measured) -> list[Share]:
    reported: dict[Use, int] = {}
    objects: dict[Use, int] = {}
    for outcome in outcomes:
        verdict = outcome.verdict
        if verdict.kind is Kind.IMAGE:
            use = Use.IMAGES_MAY_GO if verdict.action is Action.REMOVE else _OF_IMAGES.get(verdict.reason)
            use = use or Use.IMAGES_MAY_GO
            reported[use] = reported.get(use, 0) + (verdict.size_bytes or 0)
            objects[use] = objects.get(use, 0) + 1
    nominal = sum(reported.values())
    written = sum((measured.writable_layers or {}).values()) if measured.writable_in_store else 0
    store = _store(measured)
    unpacked = None if store is None else max(store - written, 0)
    on_disk, hidden, bound = nominal, 0, False
    if unpacked is not None:
        content = measured.content.bytes if measured.content is not None else 0
        on_disk = unpacked + (min(content, nominal) if nominal else content)
        hidden = max(content - nominal, 0) if nominal else 0
        bound = measured.content is not None and (hidden > 0 or not measured.content.complete)
    if measured.store_counted is not None and measured.store_reported is not None:
        beyond = max(measured.store_counted.bytes - measured.store_reported, 0)
        hidden, bound = hidden + beyond, bound or not measured.store_counted.complete
    freeing = _being_freed(removed, on_disk, nominal, measured)
    on_disk -= freeing
    if not nominal:
        shares = [Share(Use.IMAGES_UNJUDGED, on_disk)]
    else:
        shares = [Share(use, size * on_disk // nominal, objects[use]) for use, size in reported.items()]
    return [*shares, Share(Use.BEING_FREED, freeing), Share(Use.HIDDEN, hidden, None, bound)]


def _store(measured: Measured) -> int | None:
    """Bytes of the image store: as reported, or as counted where that is less and complete."""
    reported, counted = measured.store_reported, measured.store_counted
    if reported is None or counted is None or not counted.complete:
        return reported
    return min(reported, counted.bytes)


def _being_freed(removed: list[Outcome], on_disk: int, nominal: int, measured: Measured) -> int:
    """Bytes in the store that removed objects still take, `nominal` being the sizes of the images that are left."""
    excess = on_disk - nominal * (1 if measured.content is None else COMPRESSED_TO_DISK)
    if measured.store_reported is None or excess <= 0:
        return 0
    promised = [(o.verdict.size_bytes or 0, o.freed_bytes) for o in removed if o.verdict.kind is Kind.IMAGE]
    pending = max(sum(max(size - freed, 0) for size, freed in promised) - measured.late_bytes, 0)
    if pending:
        return on_disk * pending // (nominal + pending)
    containers_went = any(outcome.verdict.kind is Kind.CONTAINER for outcome in removed)
    return excess if containers_went and measured.still_coming and nominal else 0


def _containers(outcomes: list[Outcome], measured: Measured) -> list[Share]:
    if measured.writable_layers is None:
        return []
    dead = {
        outcome.verdict.id
        for outcome in outcomes
        if outcome.verdict.kind is Kind.CONTAINER and outcome.verdict.reason not in _LIVE
    }
    written: dict[Use, list[int]] = {Use.CONTAINERS_LIVE: [], Use.CONTAINERS_DEAD: []}
    for container_id, size in measured.writable_layers.items():
        written[Use.CONTAINERS_DEAD if container_id in dead else Use.CONTAINERS_LIVE].append(size)
    return [Share(use, sum(sizes), len(sizes)) for use, sizes in written.items() if sizes]


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
    return f"of {format_bytes(attribution.used_bytes)} used on {attribution.path}: {text or 'nothing is accounted for'}"


def attribution_json(attribution: Attribution) -> AttributionJson:
    """One filesystem, for programs."""
    return {
        "path": attribution.path,
        "filesystems": [str(role) for role in attribution.roles],
        "capacity": attribution.capacity_bytes,
        "used": attribution.used_bytes,
        "shares": [
            {
                "use": str(share.use),
                "bytes": share.bytes,
                "objects": share.objects,
                "at_least": share.at_least,
                "remedy": WORDS[share.use][1],
            }
            for share in attribution.shares
        ],
        "remarks": [
            {
                "about": str(remark.about),
                "bytes": remark.bytes,
                "at_least": remark.at_least,
                "sentence": remark.sentence,
            }
            for remark in attribution.remarks
        ],
    }
