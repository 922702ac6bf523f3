"""What one has to know beside the parts of a filesystem: a sentence each, with bytes where it has them; and the look
that finds it, joined with what was counted.

A remark is no part: its bytes lie in parts that are counted already, or outside of what is used. Small ones are not
worth a line: below 1 MiB, and below a thousandth of the capacity.

Covers: one look for a survey, which remarks there are, and their sentences. Does not cover: what is looked at
(`hidden_space`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from eviction.reporting.attribution import About, Counted, Remark
from eviction.reporting.disk_survey import SNAPSHOTTER
from eviction.reporting.disk_usage import SparseFile, TreeUsage
from eviction.reporting.filesystem_facts import paths_that_answer, project_quota_sentence
from eviction.reporting.hidden_space import HiddenSpace, HiddenSpaceMeter, Survey, WritableOverlay
from eviction.reporting.open_files import Holder
from signals.clock import Clock
from signals.quantity import format_bytes
from signals.types import FsStats, SignalObservations

SMALLEST_BYTES = 1024 * 1024
SMALLEST_SHARE = 1000  # one part in so many of the capacity
TASKS = "io.containerd.runtime.v2.task"
NAMESPACE_OF_CRI = "k8s.io"
LOOK_SECONDS = 1.0  # for all processes, as far as they can be seen
MOST_OVERLAYS = 8  # whose bytes are counted
IMAGES_OF_STORAGE = "-images"  # CRI-O: overlay-images, and the layers in overlay beside it


@dataclass(frozen=True, slots=True)
class OtherOverlays:
    """Writable layers that are not of the runtime's containers; their bytes as far as they were counted."""

    points: tuple[str, ...]
    bytes: int
    complete: bool

    @classmethod
    def counted(cls, overlays: Sequence[WritableOverlay], of_upper: Mapping[str, TreeUsage]) -> Self:
        """From overlays, and what was counted of their upper directories."""
        usages = [of_upper.get(overlay.upper, TreeUsage()) for overlay in overlays]
        points = tuple(overlay.point for overlay in overlays)
        return cls(points, sum(usage.total_bytes for usage in usages), all(usage.complete for usage in usages))


def remarks_of(
    stats: FsStats,
    space: HiddenSpace,
    sparsest: SparseFile | None,
    others: OtherOverlays,
    limits: Mapping[str, FsStats | None] | None = None,
) -> tuple[Remark, ...]:
    """All remarks about one filesystem, in the order of `About`. Who was not seen is `not_seen`. `limits`: as in
    `project_quota_sentence`."""
    mount = space.mount
    kind = "" if mount is None else mount.type
    worth = max(SMALLEST_BYTES, stats.capacity_bytes // SMALLEST_SHARE)
    found = [*_deleted(space, worth), *_preallocated(space, worth)]
    if sparsest is not None and sparsest.missing >= worth:
        found.append(_sparse(sparsest))
    reserve = stats.free_bytes - stats.available_bytes
    if kind.startswith("ext") and reserve >= worth:
        text = f"{format_bytes(reserve)} are free and reserved for root: no pod can use them"
        found.append(Remark(About.RESERVE, reserve, text))
    if space.delayed is not None and space.delayed >= worth:
        text = (
            f"{format_bytes(space.delayed)} are written and have no place on the disk yet (delayed allocation); they "
            "count as used already"
        )
        found.append(Remark(About.DELAYED_ALLOCATION, space.delayed, text))
    if space.btrfs is not None and space.btrfs.delayed >= worth:
        text = (
            f"{format_bytes(space.btrfs.delayed)} are written and have no place on the disk yet (delayed allocation); "
            "they count as free still"
        )
        found.append(Remark(About.DELAYED_ALLOCATION, space.btrfs.delayed, text))
    found += _btrfs(space)
    if quota := project_quota_sentence(mount, limits or {}):
        found.append(Remark(About.PROJECT_QUOTA, None, quota))
    if space.thin_pool is not None:
        name = space.thin_pool.name
        pool = f"the thin pool {name}" if space.thin_pool.sure else f"{name}, by its name a thin pool"
        text = (
            f"this filesystem is on {pool}: statvfs does not show how full that is, and when it is full, writes fail "
            "although there is room here (lvs, dmsetup status)"
        )
        found.append(Remark(About.THIN_POOL, None, text))
    if others.points:
        found.append(_others(others))
    return tuple(found)


def not_seen(survey: Survey) -> Remark | None:
    """Whose open files were not looked at; None where it was everybody's."""
    seen, texts = survey.processes, []
    if seen.unreadable:
        texts.append(f"{seen.unreadable} of {seen.processes} processes could not be looked at (CAP_SYS_PTRACE)")
    if survey.others_hidden:
        texts.append("those outside of its PID namespace or hidden by hidepid were not seen")
    if not seen.complete:
        texts.append("not all were looked at in time")
    if not texts:
        return None
    return Remark(About.PROCESSES_NOT_SEEN, None, f"files that processes hold open: {'; '.join(texts)}")


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
    if not name.startswith(SNAPSHOTTER):
        store = parent if name.endswith(IMAGES_OF_STORAGE) else imagefs
        return tuple(overlay for overlay in overlays if not overlay.upper.startswith(store + "/"))
    return tuple(overlay for overlay in overlays if f"/{TASKS}/{NAMESPACE_OF_CRI}/" not in overlay.point)


def _deleted(space: HiddenSpace, worth: int) -> Iterator[Remark]:
    found = space.open_files
    if found.deleted_bytes < worth:
        return
    shown = [holder for holder in found.holders if holder.bytes >= worth] or list(found.holders[:1])
    for holder in shown:
        yield Remark(About.DELETED_OPEN, holder.bytes, _holder(holder))
    rest, more = found.deleted_bytes - sum(holder.bytes for holder in shown), found.all_holders - len(shown)
    if more > 0:
        hold = "1 more process holds" if more == 1 else f"{more} more processes hold"
        yield Remark(About.DELETED_OPEN, rest, f"{hold} {format_bytes(rest)} of deleted files open")


def _holder(holder: Holder) -> str:
    pod = f", pod {holder.pod_uid}" if holder.pod_uid else ""
    files = "1 deleted file" if holder.files == 1 else f"{holder.files} deleted files"
    largest = "" if holder.files == 1 else "the largest "
    return (
        f"{holder.name} (pid {holder.pid}{pod}) holds {format_bytes(holder.bytes)} in {files} open, "
        f"{largest}{holder.largest}: they are free once closed"
    )


def _preallocated(space: HiddenSpace, worth: int) -> Iterator[Remark]:
    found = space.open_files
    if found.growing is not None and found.beyond_end >= worth:
        most = found.growing
        files = "1 file" if found.growing_files == 1 else f"{found.growing_files} files"
        yield Remark(
            About.PREALLOCATED,
            found.beyond_end,
            f"at least {format_bytes(found.beyond_end)} are allocated behind the end of {files} open for writing "
            f"(speculative preallocation), most by {most.name} (pid {most.pid}) for {most.path}: nobody's data, and "
            "given back later",
            at_least=True,  # that of files which were closed meanwhile is not seen
        )


def _sparse(file: SparseFile) -> Remark:
    text = f"{file.path} is sparse: its size is {format_bytes(file.size)}, and it takes {format_bytes(file.allocated)}"
    return Remark(About.SPARSE, file.allocated, text)


def _btrfs(space: HiddenSpace) -> Iterator[Remark]:
    if space.btrfs is None:
        return
    kinds = [
        f"{kind} {format_bytes(use.used)} of {format_bytes(use.total)}"
        f"{f' ({format_bytes(use.on_disk)} with its copies)' if use.on_disk != use.total else ''}"
        for kind, use in sorted(space.btrfs.chunks.items())
    ]
    rest = space.btrfs.unallocated
    unallocated = "" if rest is None else f", not in chunks yet {format_bytes(rest)}"
    metadata = sum(
        use.used * use.on_disk // use.total for kind, use in space.btrfs.chunks.items() if use.total and kind != "data"
    )
    yield Remark(
        About.BTRFS_CHUNKS,
        metadata,
        f"in chunks of btrfs: {', '.join(kinds)}{unallocated}; without room for metadata, writes fail although bytes "
        "are available",
    )


def _others(others: OtherOverlays) -> Remark:
    count = len(others.points)
    layers = "1 writable layer" if count == 1 else f"{count} writable layers"
    written = f"{'at least ' * (not others.complete)}{format_bytes(others.bytes)}"
    return Remark(
        About.OTHER_OVERLAYS,
        others.bytes,
        f"{layers} of containers that the runtime does not list (docker, podman, another namespace of containerd), "
        f"{written} written, the first mounted at {others.points[0]}",
        at_least=not others.complete,
    )


class Look:
    """What one look has found, and which overlays beside the runtime's write to each filesystem."""

    def __init__(self, survey: Survey, overlays: Mapping[int, Sequence[WritableOverlay]]):
        self._survey = survey
        self._overlays = overlays

    @property
    def uppers(self) -> list[str]:
        """The upper directories that are to be counted."""
        return [overlay.upper for each in self._overlays.values() for overlay in each][:MOST_OVERLAYS]

    @property
    def deleted_open(self) -> dict[int, Counted]:
        """The bytes of deleted files that are open, by device; a lower bound where not every process was seen."""
        complete = not_seen(self._survey) is None
        found = self._survey.filesystems.items()
        return {device_id: Counted(space.open_files.deleted_bytes, complete) for device_id, space in found}

    def remarks(
        self, observations: SignalObservations, usages: Iterable[TreeUsage], of_upper: Mapping[str, TreeUsage]
    ) -> dict[int, tuple[Remark, ...]]:
        """The remarks by device; who was not seen is said of the first filesystem only. `usages`: what was counted."""
        sparsest: dict[int, SparseFile] = {}
        for usage in usages:
            if usage.device_id is not None and usage.sparsest is not None:
                known = sparsest.get(usage.device_id)
                if known is None or known.missing < usage.sparsest.missing:
                    sparsest[usage.device_id] = usage.sparsest
        unseen = not_seen(self._survey)
        found: dict[int, tuple[Remark, ...]] = {}
        for identity, stats in observations.filesystems.values():
            device_id = identity.device_id
            if device_id in found or (space := self._survey.filesystems.get(device_id)) is None:
                continue
            others = OtherOverlays.counted(self._overlays.get(device_id, ()), of_upper)
            here = {role: each for role, (each, _) in observations.filesystems.items() if each.device_id == device_id}
            limits = {each.path: observations.limits.get(role) for role, each in here.items()}
            remarks = remarks_of(stats, space, sparsest.get(device_id), others, limits)
            found[device_id] = (*remarks, *([] if unseen is None or found else [unseen]))
        return found


class HiddenSpaceLooker:
    """Looks for a survey; takes at most a second and a half."""

    def __init__(self, clock: Clock):
        self._meter = HiddenSpaceMeter(clock, LOOK_SECONDS)

    @property
    def threads_not_started(self) -> int:
        """How many starts of a thread have failed."""
        return self._meter.threads_not_started

    def look(self, observations: SignalObservations, imagefs: str | None) -> Look:
        """Looks at the observed filesystems that answer. `imagefs`: where the runtime's images are, None if unknown."""
        answering = paths_that_answer(observations)
        identities = [identity for identity, _ in observations.filesystems.values() if identity.path in answering]
        survey = self._meter.measure({identity.path: identity.device_id for identity in identities})
        overlays = {
            device_id: not_of_the_runtime(space.overlays, imagefs) for device_id, space in survey.filesystems.items()
        }
        return Look(survey, overlays)
