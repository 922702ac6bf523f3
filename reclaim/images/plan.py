"""Which images are removed, and in which order: the plans.

The kubelet's rules (`pkg/kubelet/images/image_gc_manager.go`): an image is removed only if no container of any state
was made from it and it is not pinned. Least recently used first; images never used before all others; then by first
detection.

* For space (`plan_image_gc`: pressure, and the second part of a periodic pass) it must have been known for
  `min_age_seconds`. The maximum age is not used.
* For age (`plan_maximum_age`: the first part of a periodic pass) its last use must be longer ago than
  `max_age_seconds`.

Other than the kubelet, and but for the first narrower; such a verdict carries `Rule.GUARD`:

* The kubelet counts the minimum age from when it listed the image first. Where the runtime says that it is older than
  what was listed to us, the kubelet might keep it still.
* More counts as in use, and the image of pod sandboxes is kept (`in_use`).
* Images on the keep-list are kept in any case (`keep_list`), and so are the newest of each repository (`newest`).
* For age, the minimum age holds too, and the age of an image that was never used counts from its first detection. The
  kubelet takes such an image for infinitely old and removes one that was pulled seconds ago
  (https://github.com/kubernetes/kubernetes/issues/132403).
* One id that is listed twice is one image, as a removal is by id and takes all that has it; as in the kubelet the later
  entry says the size, but a pin on either holds.
* Where the runtime lists an id once for each runtime handler, each entry has a record and a size, as in the kubelet
  with the gate RuntimeClassInImageCriApi. That kubelet judges each alone, and removes the id (the handler is not sent)
  when one may go. Here it goes when all may: none is in use, none is pinned, the youngest is old enough; the latest use
  counts, and the size is that of all.

Covers: verdicts and their order. Does not cover: how much must be freed (`gc_thresholds`), the check right before a
removal (`unused_images`), stopping (`execution.executor`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reclaim.images.in_use import ImagesInUse, images_in_use
from reclaim.images.keep_list import KEEP_NOTHING, KeepList
from reclaim.images.newest import NewestOfRepositories, entries_by_id, one_image, one_record
from reclaim.types import Action, Image, ImageRecord, Kind, Listing, Plan, Reason, Rule, Verdict


@dataclass(frozen=True, slots=True)
class ImageGCPolicy:
    """When images are removed. What a configuration may say is checked where it is read
    (`eviction.configuration.effective`).

    `min_age_seconds`: how long an image must have been known before it may be removed. `max_age_seconds`: an image
    that was unused for longer is removed even if there is space; 0 = never. `high_threshold_percent`: the usage of the
    image filesystem at which a periodic pass starts to free space, down to `low_threshold_percent`. `keep`: what is
    never removed. `pod_start_seconds`: how long no image is removed after a part of a pod was made (`pods.starts`).
    `keep_newest_per_repository`: how many images of each repository are never removed, the newest ones.
    """

    min_age_seconds: float = 120.0
    max_age_seconds: float = 0.0
    high_threshold_percent: int = 85
    low_threshold_percent: int = 80
    keep: KeepList = KEEP_NOTHING
    pod_start_seconds: float = 1.0
    keep_newest_per_repository: int = 0

    @property
    def has_periodic_work(self) -> bool:
        """Whether a periodic pass can have anything to do: the kubelet starts no loop at a high mark of 100 without a
        maximum age (`pkg/kubelet/kubelet.go`, StartGarbageCollection). Pressure does not ask."""
        return self.high_threshold_percent != 100 or self.max_age_seconds > 0


def plan_image_gc(
    listing: Listing,
    records: Mapping[str, ImageRecord],
    policy: ImageGCPolicy,
    now: float,
    usage: ImagesInUse | None = None,
) -> Plan:
    """What is removed for space: the kubelet's DeleteUnusedImages. `now` and the records: monotonic seconds; `usage`:
    that of `listing`, if the caller has it.

    An image without a record counts as first seen now. Equal times are ordered by id, so that the order of the
    list changes nothing.
    """

    def by_age(image: Image, record: ImageRecord, known_since: float) -> Verdict:
        age = now - record.first_detected
        wait = policy.min_age_seconds - age
        if wait > 0:  # equal is old enough
            guard = now - known_since >= policy.min_age_seconds
            return _verdict(image, Action.KEEP, Reason.TOO_YOUNG, age, guard=guard, wait=wait)
        witnessed = now - record.listed_since < policy.min_age_seconds
        return _verdict(image, Action.REMOVE, Reason.UNUSED, age, guard=witnessed)

    return _plan(listing, records, policy, now, usage or images_in_use(listing), by_age)


def plan_maximum_age(
    listing: Listing,
    records: Mapping[str, ImageRecord],
    policy: ImageGCPolicy,
    now: float,
    started_at: float,
    *,
    exact: bool = False,
) -> Plan:
    """What is removed because its last use is longer ago than the maximum age (equal is not). All times monotonic.

    Empty when there is no maximum age, or when the loop, started at `started_at`, has not run for longer than that:
    after a start last uses may not be known. `exact`: as the kubelet, without the guards of age.
    """
    maximum = policy.max_age_seconds
    if maximum == 0 or now - started_at <= maximum:
        return Plan()

    def by_age(image: Image, record: ImageRecord, _: float) -> Verdict:
        known = now - record.first_detected
        unused = known if record.last_used is None else now - record.last_used
        kubelet_removes = record.last_used is None or unused > maximum
        too_young = policy.min_age_seconds - known
        if kubelet_removes and (exact or (unused > maximum and too_young <= 0)):
            return _verdict(image, Action.REMOVE, Reason.MAXIMUM_AGE, unused, guard=False)
        if too_young > 0 and not exact:
            return _verdict(image, Action.KEEP, Reason.TOO_YOUNG, known, guard=kubelet_removes, wait=too_young)
        left = maximum - unused
        return _verdict(image, Action.KEEP, Reason.WITHIN_LIMIT, unused, guard=kubelet_removes, wait=left)

    return _plan(listing, records, policy, now, images_in_use(listing), by_age)


def _plan(
    listing: Listing,
    records: Mapping[str, ImageRecord],
    policy: ImageGCPolicy,
    now: float,
    usage: ImagesInUse,
    by_age: Callable[[Image, ImageRecord, float], Verdict],
) -> Plan:
    """The plan. `by_age`: the verdict on an image that only its age can keep, by its record and the moment at which the
    first of its entries was detected. Least recently used first, never used before all, then by first detection."""
    kept_ids = policy.keep.kept_ids(listing.images)
    newest = NewestOfRepositories(listing.images, records, policy.keep_newest_per_repository, now)
    found: list[tuple[tuple[float, float, str], Verdict]] = []
    for entries in entries_by_id(listing.images):
        image, record = one_image(entries), one_record(entries, records, now)
        last_used = float("-inf") if record.last_used is None else record.last_used
        whatever_its_age = (  # why it is kept, and whether that is a guard of ours
            (image.id in usage.by_containers, Reason.IN_USE, image.id not in usage.by_image_id),
            (image.id in usage.by_sandboxes, Reason.SANDBOX_IMAGE, True),
            (image.pinned, Reason.PINNED, not entries[-1].pinned),  # for the kubelet the last entry of an id says it
            (image.id in kept_ids, Reason.KEEP_LIST, True),
            (image.id in newest.ids, Reason.NEWEST_OF_REPOSITORY, True),
            (last_used >= now, Reason.IN_USE, False),  # another thread has seen it since this pass began
            (bool(usage.unresolved), Reason.UNRESOLVED_IMAGE, True),
            (not usage.sandbox_image_known, Reason.SANDBOX_IMAGE_UNKNOWN, True),
        )
        why = next(((reason, guard) for holds, reason, guard in whatever_its_age if holds), None)
        if why is None:
            known_since = min(records.get(each.record_key, record).first_detected for each in entries)
            verdict = by_age(image, record, known_since)
        else:
            verdict = _verdict(image, Action.KEEP, why[0], now - record.first_detected, guard=why[1])
        found.append(((last_used, record.first_detected, image.id), verdict))
    verdicts = [verdict for _, verdict in sorted(found)]
    keep = [verdict for verdict in verdicts if verdict.action is Action.KEEP]
    return Plan(
        tuple(verdict for verdict in verdicts if verdict.action is Action.REMOVE),
        tuple(sorted(keep, key=lambda verdict: (verdict.name, verdict.id))),
    )


def _verdict(
    image: Image, action: Action, reason: Reason, age: float, *, guard: bool, wait: float | None = None
) -> Verdict:
    return Verdict(
        kind=Kind.IMAGE,
        id=image.id,
        name=image.title,
        action=action,
        reason=reason,
        size_bytes=image.size_bytes,
        age_seconds=age,
        eligible_in_seconds=wait,
        rule=Rule.GUARD if guard else Rule.KUBELET,
    )
