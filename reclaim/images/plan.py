"""Which images are removed, and in which order: the plans.

The kubelet's rules (`pkg/kubelet/images/image_gc_manager.go`): an image is removed only if no
container in any state was made from it and it is not pinned. Least recently used first; images
never used come before all others; ties are broken by first detection.

* For space (`plan_image_gc`: under pressure, and in the second part of a periodic pass), it must
  have been known for `min_age_seconds`. The maximum age is not used.
* For age (`plan_maximum_age`: in the first part of a periodic pass), its last use must be longer
  ago than `max_age_seconds`.

Where we differ from the kubelet, we remove less; such verdicts carry `Rule.GUARD`. More counts as
in use (`references`), and some images are kept (`plan_image_gc`). One exception: if the runtime
says that an image is older than our lists show, the kubelet, which counts from its own list, might
still keep it.

How much a periodic pass has to free is the kubelet's arithmetic (GarbageCollect and freeSpace
there), in integers (`decide_space`). Any failed removal makes the pass a failure, even if it
reached its target, and there is no event about the target then; without one, freeing less than the
target is an event and a failure with the same text.

Covers: verdicts and their order, what a periodic pass has to free, its events and their texts. Does
not cover: the check right before a removal (`unused_images`), stopping (`eviction.engine`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal, NamedTuple

from reclaim.evidence.references import (
    ImagesInUse,
    images_in_use,
    normalized,
    removal_references,
    repository_of,
)
from reclaim.images.keep_list import KEEP_NOTHING, KeepList
from reclaim.images.order import Candidate, by_cost, freed_along
from reclaim.types import (
    NO_LAYERS,
    Action,
    EventReason,
    GCEvent,
    Image,
    ImageOrder,
    ImageRecord,
    Kind,
    Layers,
    Listing,
    Plan,
    Reason,
    Records,
    Rule,
    Verdict,
)


class ImageGCPolicy(NamedTuple):
    """When images are removed. Allowed values are checked where the configuration is read
    (`eviction.configuration.effective`).

    `min_age_seconds`: how long an image must have been known before it may be removed.
    `max_age_seconds`: an image unused for longer is removed even if there is space; 0 = never.
    `high_threshold_percent`: the usage of the image filesystem at which a periodic pass starts to
    free space, down to `low_threshold_percent`. `keep`: images that are never removed.
    `keep_not_pulled`: the same for images that the kubelet has not pulled; "auto": they go last,
    and not for their age. `pod_start_seconds`: how long no image is removed after a part of a pod
    was made (`evidence.starts`). `keep_newest_per_repository`: how many of the newest images of
    each repository are never removed. `says_usage`: whether the text of `FreeDiskSpaceFailed` is
    that of a kubelet since 1.35. `order`: which image goes first.
    """

    min_age_seconds: float = 120.0
    max_age_seconds: float = 0.0
    high_threshold_percent: int = 85
    low_threshold_percent: int = 80
    keep: KeepList = KEEP_NOTHING
    keep_not_pulled: bool | Literal["auto"] = "auto"
    pod_start_seconds: float = 1.0
    keep_newest_per_repository: int = 0
    says_usage: bool = True
    order: ImageOrder = ImageOrder.LRU

    @property
    def has_periodic_work(self) -> bool:
        """Whether a periodic pass can have anything to do: the kubelet starts no loop if the high
        mark is 100 and there is no maximum age (`pkg/kubelet/kubelet.go`, StartGarbageCollection).
        Irrelevant under pressure."""
        return self.high_threshold_percent != 100 or self.max_age_seconds > 0


def plan_image_gc(
    listing: Listing,
    records: Records,
    policy: ImageGCPolicy,
    *,
    now: float,
    usage: ImagesInUse | None = None,
    layers: Layers = NO_LAYERS,
    need_bytes: int = 0,
    by_age: Callable[[KnownImage], Verdict] | None = None,
) -> Plan:
    """What is removed for space: the kubelet's DeleteUnusedImages. `now` and the records are in
    monotonic seconds; `usage`: that of `listing`, if the caller has it. `layers`: what images hold
    on the disk, as far as that is known. `need_bytes`: how much has to be freed; 0: not known.
    `by_age`: the verdict on an image that only its age can keep; None: the minimum age decides.

    Least recently used first, never used before all, then by first detection, unless the policy
    says otherwise. An image without a record counts as first seen now. Equal times are ordered by
    id, so that the order of the list does not matter.
    """

    def by_minimum_age(known: KnownImage) -> Verdict:
        age = now - known.record.first_detected
        wait = policy.min_age_seconds - age
        kubelet_removes = now - known.record.listed_since >= policy.min_age_seconds
        if wait > 0:  # equal is old enough
            return _verdict(known, Reason.TOO_YOUNG, age, guard=kubelet_removes, wait=wait)
        return _verdict(known, Reason.UNUSED, age, guard=not kubelet_removes)

    by_age = by_age or by_minimum_age
    usage = usage or images_in_use(listing)
    images = known_images(listing.images, records, now)
    kept_ids = policy.keep.kept_ids(listing.images)
    newest_ids = NewestOfRepositories(images.values(), policy.keep_newest_per_repository).ids
    verdicts: list[Verdict] = []
    for known in sorted(
        images.values(),
        key=lambda known: (known.record.last_use, known.record.first_detected, known.image.id),
    ):
        image, record, entries = known
        # what keeps an image whatever its age, and whether one of our guards says so
        rules = (
            (image.id in usage.by_containers, Reason.IN_USE, image.id not in usage.by_image_id),
            (image.id in usage.by_sandboxes, Reason.SANDBOX_IMAGE, True),
            # the kubelet goes by the last entry of an id
            (image.pinned, Reason.PINNED, not entries[-1].pinned),
            (not removal_references(entries), Reason.PINNED, True),
            (image.id in kept_ids, Reason.KEEP_LIST, True),
            (image.id in newest_ids, Reason.NEWEST_OF_REPOSITORY, True),
            (record.not_pulled and policy.keep_not_pulled is True, Reason.NOT_PULLED, True),
            # another thread has seen it since this pass began
            (record.last_use >= now, Reason.IN_USE, False),
            (bool(usage.unresolved), Reason.UNRESOLVED_IMAGE, True),
            (not usage.sandbox_image_known, Reason.SANDBOX_IMAGE_UNKNOWN, True),
        )
        for applies, reason, guard in rules:
            if applies:
                verdict = _verdict(known, reason, now - record.first_detected, guard=guard)
                break
        else:
            verdict = by_age(known)
            if verdict.removed and record.not_pulled and policy.keep_not_pulled:
                verdict = verdict._replace(reason=Reason.NOT_PULLED, last_resort=True)
        verdicts.append(verdict)
    verdicts.sort(key=lambda verdict: verdict.last_resort)
    if policy.order is ImageOrder.COST or layers.of_images:
        verdicts = _in_order(
            verdicts, images, policy.order, layers=layers, now=now, need_bytes=need_bytes
        )
    return Plan.of(verdicts)


def plan_maximum_age(
    listing: Listing,
    records: Records,
    policy: ImageGCPolicy,
    *,
    now: float,
    started_at: float,
    exact: bool,
) -> Plan:
    """What is removed because its last use is longer ago than the maximum age (equal is
    not). All times are monotonic.

    Empty if there is no maximum age, or if the loop, started at `started_at`, has not run for
    longer than that: last uses may not be known yet after a start. `exact`: as the kubelet,
    without our guards on age.
    """
    maximum = policy.max_age_seconds
    if maximum == 0 or now - started_at <= maximum:
        return Plan()

    def by_age(known: KnownImage) -> Verdict:
        age = now - known.record.first_detected
        last_used = known.record.last_used
        unused = age if last_used is None else now - last_used
        # the kubelet takes an image that was never used for infinitely old, and removes one
        # that was pulled seconds ago (https://github.com/kubernetes/kubernetes/issues/132403)
        kubelet_removes = last_used is None or unused > maximum
        too_young = policy.min_age_seconds - age
        if kubelet_removes and (exact or (unused > maximum and too_young <= 0)):
            return _verdict(known, Reason.MAXIMUM_AGE, unused)
        if too_young > 0 and not exact:
            return _verdict(known, Reason.TOO_YOUNG, age, guard=kubelet_removes, wait=too_young)
        return _verdict(
            known, Reason.WITHIN_LIMIT, unused, guard=kubelet_removes, wait=maximum - unused
        )

    plan = plan_image_gc(listing, records, policy, now=now, by_age=by_age)
    return plan if exact else part_of(plan)


def part_of(plan: Plan, *, last: bool = False) -> Plan:
    """The plan, which keeps what goes only if nothing else is enough; or, `last`, that alone."""
    if last:
        return replace(
            plan, remove=tuple(verdict for verdict in plan.remove if verdict.last_resort)
        )
    return Plan.of(
        verdict.kept(Reason.NOT_PULLED) if verdict.last_resort else verdict
        for verdict in (*plan.remove, *plan.keep)
    )


def _in_order(
    verdicts: Sequence[Verdict],
    known: Mapping[str, KnownImage],
    order: ImageOrder,
    *,
    layers: Layers,
    now: float,
    need_bytes: int,
) -> list[Verdict]:
    """The verdicts on images, given with the least recently used first, in this order, with
    what each removal frees. Those of the last resort stay behind the others. `known`: all
    images."""
    by_id = {verdict.id: verdict for verdict in verdicts}
    stays = [verdict for verdict in verdicts if not verdict.removed]
    held = layers.held.union(*(layers.of_images.get(verdict.id, ()) for verdict in stays))
    is_by_cost = order is ImageOrder.COST
    superseded = _superseded(known.values()) if is_by_cost else {}
    images = [
        Candidate(
            id=image.id,
            size_bytes=image.size_bytes,
            unused_seconds=now - record.used_at,
            uses=record.uses,
            returned=record.returned,
            layers=layers.of_images.get(image.id),
            superseded=superseded.get(image.id, 0),
            counted_seconds=now - record.uses_since,
        )
        for image, record, *_ in (known[verdict.id] for verdict in verdicts if verdict.removed)
    ]
    if is_by_cost:
        groups = groupby(images, lambda image: by_id[image.id].last_resort)
        images = [image for _, group in groups for image in by_cost(group, held, need_bytes)]
    removed = [
        by_id[image.id]._replace(
            frees_bytes=None if image.layers is None else freed,
            needed_in_seconds=image.needed_in_seconds if is_by_cost else None,
        )
        for image, freed in zip(images, freed_along(images, held), strict=True)
    ]
    return removed + stays


def _superseded(images: Collection[KnownImage]) -> dict[str, int]:
    """How many images of its repository were used later, by id. One that was never used
    counts as used when it came; one in several repositories as superseded as often as in the
    one where it is least."""
    used_at = defaultdict[str, list[float]](list)
    for known in images:
        for repository in repositories_of(known.image):
            insort(used_at[repository], known.record.used_at)

    def later(known: KnownImage) -> int:
        times = [used_at[repository] for repository in repositories_of(known.image)]
        counts = (len(used) - bisect_right(used, known.record.used_at) for used in times)
        return min(counts, default=0)

    return {known.image.id: later(known) for known in images}


def _verdict(
    known: KnownImage, reason: Reason, age: float, *, guard: bool = False, wait: float | None = None
) -> Verdict:
    goes = reason in (Reason.UNUSED, Reason.MAXIMUM_AGE)
    return Verdict(
        Kind.IMAGE,
        known.image.id,
        known.image.title,
        Action.REMOVE if goes else Action.KEEP,
        reason,
        known.image.size_bytes,
        age,
        eligible_in_seconds=wait,
        rule=Rule.GUARD if guard else Rule.KUBELET,
    )


class SpaceDecision(NamedTuple):
    """What has to be freed, according to a reading of the image filesystem. `target_bytes`: None if
    usage is below the high mark; otherwise it may be 0 or negative."""

    usage_percent: int
    capacity_bytes: int
    target_bytes: int | None


def decide_space(available: int | None, capacity: int, policy: ImageGCPolicy) -> SpaceDecision:
    """Usage in percent, 0 to 100, rounded up, and the bytes to free to reach the low
    mark, from a reading in bytes.

    What only root may still write counts as used. Unknown available bytes count as 0, and are
    capped at the capacity. `capacity`: above 0. A target of 0 or below, possible if both marks are
    close, still removes one image: the sum is compared after a removal.
    """
    free = min(max(available or 0, 0), capacity)
    usage = 100 - free * 100 // capacity
    target = capacity * (100 - policy.low_threshold_percent) // 100 - free
    return SpaceDecision(
        usage, capacity, target if usage >= policy.high_threshold_percent else None
    )


def not_enough_freed(space: SpaceDecision, freed_bytes: int, says_usage: bool) -> GCEvent | None:
    """The event of a pass that freed this many nominal bytes; None if they are enough, or none were
    wanted. `says_usage`: as in the policy.

    The text matches the kubelet's word for word, because alerts and log searches match it.
    """
    target = space.target_bytes
    if target is None or freed_bytes >= target:
        return None
    message = (
        f"Insufficient free disk space on the node's image filesystem ({space.usage_percent}% of"
        f" {human_size(space.capacity_bytes)} used). Failed to free sufficient space by deleting"
        f" unused images (freed {freed_bytes} bytes). Investigate disk usage, as it could be used"
        " by active images, logs, volumes, or other data."
        if says_usage
        else (
            f"Failed to garbage collect required amount of images. Attempted to free {target}"
            f" bytes, but only found {freed_bytes} bytes eligible to free."
        )
    )
    return GCEvent(
        EventReason.FREE_DISK_SPACE_FAILED, message, {**space._asdict(), "freed_bytes": freed_bytes}
    )


def invalid_capacity(capacity: int | None) -> GCEvent:
    """The event of an image filesystem whose capacity is zero or unknown, and its usage with it."""
    message = f"the image filesystem has no valid capacity ({capacity or 0} bytes)"
    return GCEvent(EventReason.INVALID_DISK_CAPACITY, message, {"capacity_bytes": 0})


def human_size(size_bytes: int) -> str:
    """Bytes in readable units, as the kubelet writes them: integers below 1 KiB, else one decimal
    of KiB, MiB, GiB or TiB."""
    power = min(max(size_bytes.bit_length() - 1, 0) // 10, 4)
    return f"{size_bytes / 1024**power:.1f} {'KMGT'[power - 1]}iB" if power else f"{size_bytes} B"


# ---- the newest images of each repository

NO_NAME = "<none>"  # what Docker lists instead of a name


def entries_by_id(images: Iterable[Image]) -> dict[str, list[Image]]:
    """The entries of each id, in the order of their first one. A runtime may list an id more than
    once, but a removal takes every entry, so they are decided on together."""
    entries: dict[str, list[Image]] = {}
    for image in images:
        entries.setdefault(image.id, []).append(image)
    return entries


def one_image(entries: list[Image]) -> Image:
    """The entries of one id as one image.

    It has all names, and a pin on any entry counts. The kubelet with RuntimeClassInImageCriApi
    judges the entry of each runtime handler alone, and removes the id, as the handler is not sent,
    once one may go. Here it goes once all may, and its size is the sum of theirs; of entries for
    one handler the later determines the size, as in the kubelet.
    """
    if len(entries) == 1 and len(entries[0].repo_tags) <= 1:  # as nearly every image is listed
        return entries[0]
    sizes = {entry.runtime_handler: entry.size_bytes for entry in entries}
    return entries[-1]._replace(
        repo_tags=tuple(sorted({tag for entry in entries for tag in entry.repo_tags})),
        repo_digests=tuple(sorted({digest for entry in entries for digest in entry.repo_digests})),
        size_bytes=sum(sizes.values()),
        pinned=any(entry.pinned for entry in entries),
        runtime_handler="",
    )


def repositories_of(image: Image) -> frozenset[str]:
    """The repositories, in full, that an image has a tag or digest in."""
    return frozenset(
        repository_of(normalized(name))
        for name in image.names
        if name and not name.startswith(NO_NAME)
    )


class KnownImage(NamedTuple):
    """An id that is listed: its entries as one image, its record, and the entries."""

    image: Image
    record: ImageRecord
    entries: list[Image]


def known_images(images: Iterable[Image], records: Records, now: float) -> dict[str, KnownImage]:
    """The images of a list, by id. One without a record counts as first seen now."""
    return {
        image_id: KnownImage(one_image(entries), records.get(image_id) or ImageRecord(now), entries)
        for image_id, entries in entries_by_id(images).items()
    }


class NewestOfRepositories:
    """The newest `count` of these images in each repository; none if the count is 0.

    A rollback finds its image among them (`keepNewestPerRepository`). The newest is the one that
    was detected last: CRI reports no time of a pull or build, and a record survives restarts and,
    on containerd, begins with the pull. Of those detected together, it is the one used last.
    Images that are kept for another reason count like any other. One in several repositories is
    kept if it is among the newest of one of them; one without a name is in none.
    """

    def __init__(self, images: Iterable[KnownImage], count: int):
        self.count = count
        self._newest_first: dict[str, int] = {}
        self._ids = defaultdict[str, list[str]](list)  # by repository, the newest first
        if count > 0:
            for known in sorted(
                images,
                key=lambda known: (
                    known.record.first_detected,
                    known.record.last_use,
                    known.image.id,
                ),
                reverse=True,
            ):
                self._newest_first[known.image.id] = len(self._newest_first)
                for repository in repositories_of(known.image):
                    self._ids[repository].append(known.image.id)
        self.ids = frozenset(image_id for ids in self._ids.values() for image_id in ids[:count])

    def newer_than(self, image: Image) -> Iterator[tuple[str, list[str]]]:
        """Each repository of this image by its current names, with the ids of newer images.

        The newest comes first. Empty if the count is 0.
        """
        place = self._newest_first.get(image.id)
        if place is not None:
            for repository in repositories_of(image):
                ids = self._ids.get(repository, [])
                yield repository, [newer for newer in ids if self._newest_first[newer] < place]
