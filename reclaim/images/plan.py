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

from collections.abc import Mapping
from dataclasses import dataclass

from reclaim.images.in_use import ImagesInUse, images_in_use
from reclaim.images.keep_list import KEEP_NOTHING, KeepList
from reclaim.images.newest import NewestOfRepositories, entries_by_id, one_image, one_record
from reclaim.types import Action, Image, ImageRecord, Kind, Listing, Plan, PolicyError, Reason, Rule, Verdict


@dataclass(frozen=True, slots=True)
class ImageGCPolicy:
    """When images are removed. Raises PolicyError; the checks and their order are those of the kubelet's image manager
    (`NewImageGCManager`), which takes a low mark equal to the high one; ages that are no age come last.

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

    def __post_init__(self) -> None:
        high, low = self.high_threshold_percent, self.low_threshold_percent
        for field, percent in (("imageGCHighThresholdPercent", high), ("imageGCLowThresholdPercent", low)):
            if not 0 <= percent <= 100:
                raise PolicyError(f"{field}: must be between 0 and 100, but it was {percent}")
        if low > high:
            raise PolicyError(
                f"imageGCLowThresholdPercent: must not be above imageGCHighThresholdPercent ({high}), but it was {low}"
            )
        ages = (("imageMinimumGCAge", self.min_age_seconds), ("imageMaximumGCAge", self.max_age_seconds))
        for field, seconds in ages:
            if not seconds >= 0:  # a NaN too
                raise PolicyError(f"{field}: must not be negative, but it was {seconds:g}s")
        if self.keep_newest_per_repository < 0:
            raise PolicyError(
                f"keepNewestPerRepository: must not be negative, but it was {self.keep_newest_per_repository}"
            )

    @property
    def has_periodic_work(self) -> bool:
        """Whether a periodic pass can have anything to do: the kubelet starts no loop at a high mark of 100 without a
        maximum age (`pkg/kubelet/kubelet.go`, StartGarbageCollection). Pressure does not ask."""
        return self.high_threshold_percent != 100 or self.max_age_seconds > 0


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An image that only its age can keep. `known_since`: when the first of its entries was detected."""

    image: Image
    record: ImageRecord
    known_since: float

    @property
    def order(self) -> tuple[float, float, str]:
        """Least recently used first, never used before all, then by first detection; equals by id."""
        last_used = self.record.last_used
        return float("-inf") if last_used is None else last_used, self.record.first_detected, self.image.id

    def verdict(self, action: Action, reason: Reason, age: float, *, wait: float | None = None, guard: bool) -> Verdict:
        """The verdict, and whose rule it is."""
        return _verdict(self.image, action, reason, age, wait, Rule.GUARD if guard else Rule.KUBELET)


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
    candidates, keep = _candidates(listing, records, policy, now, usage or images_in_use(listing))
    remove: list[Verdict] = []
    for candidate in candidates:
        age = now - candidate.record.first_detected
        wait = policy.min_age_seconds - age
        if wait > 0:  # equal is old enough
            guard = now - candidate.known_since >= policy.min_age_seconds
            keep.append(candidate.verdict(Action.KEEP, Reason.TOO_YOUNG, age, wait=wait, guard=guard))
        else:
            witnessed = now - candidate.record.listed_since < policy.min_age_seconds
            remove.append(candidate.verdict(Action.REMOVE, Reason.UNUSED, age, guard=witnessed))
    return _plan(remove, keep)


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
    candidates, keep = _candidates(listing, records, policy, now, images_in_use(listing))
    remove: list[Verdict] = []
    for candidate in candidates:
        first_detected, last_used = candidate.record.first_detected, candidate.record.last_used
        known = now - first_detected
        unused = known if last_used is None else now - last_used
        kubelet_removes = last_used is None or unused > maximum
        too_young = policy.min_age_seconds - known
        if kubelet_removes and (exact or (unused > maximum and too_young <= 0)):
            remove.append(candidate.verdict(Action.REMOVE, Reason.MAXIMUM_AGE, unused, guard=False))
        elif too_young > 0 and not exact:
            keep.append(candidate.verdict(Action.KEEP, Reason.TOO_YOUNG, known, wait=too_young, guard=kubelet_removes))
        else:
            keep.append(
                candidate.verdict(
                    Action.KEEP, Reason.WITHIN_LIMIT, unused, wait=maximum - unused, guard=kubelet_removes
                )
            )
    return _plan(remove, keep)


def _candidates(
    listing: Listing,
    records: Mapping[str, ImageRecord],
    policy: ImageGCPolicy,
    now: float,
    usage: ImagesInUse,
) -> tuple[list[_Candidate], list[Verdict]]:
    """The images that only their age can keep, in their order, and the verdicts on all others."""
    kept_ids = policy.keep.kept_ids(listing.images)
    newest = NewestOfRepositories(listing.images, records, policy.keep_newest_per_repository, now)
    candidates: list[_Candidate] = []
    kept: list[Verdict] = []
    for entries in entries_by_id(listing.images):
        image, record = one_image(entries), one_record(entries, records, now)
        reason, rule = _why_kept(image, record, usage, kept_ids, newest.ids, now)
        if reason is None:
            known_since = min(records.get(each.record_key, record).first_detected for each in entries)
            candidates.append(_Candidate(image, record, known_since))
            continue
        if reason is Reason.PINNED and not entries[-1].pinned:
            rule = Rule.GUARD  # for the kubelet the last entry of an id says whether it is pinned
        kept.append(_verdict(image, Action.KEEP, reason, now - record.first_detected, None, rule))
    candidates.sort(key=lambda candidate: candidate.order)
    return candidates, kept


def _why_kept(
    image: Image,
    record: ImageRecord,
    usage: ImagesInUse,
    kept_ids: frozenset[str],
    newest_ids: frozenset[str],
    now: float,
) -> tuple[Reason | None, Rule]:
    """Why an image is kept whatever its age, and whose rule that is; None: its age decides."""
    if image.id in usage.by_containers:
        return Reason.IN_USE, Rule.KUBELET if image.id in usage.by_image_id else Rule.GUARD
    if image.id in usage.by_sandboxes:
        return Reason.SANDBOX_IMAGE, Rule.GUARD
    if image.pinned:
        return Reason.PINNED, Rule.KUBELET
    if image.id in kept_ids:
        return Reason.KEEP_LIST, Rule.GUARD
    if image.id in newest_ids:
        return Reason.NEWEST_OF_REPOSITORY, Rule.GUARD
    if record.last_used is not None and record.last_used >= now:  # by another thread, since this pass began
        return Reason.IN_USE, Rule.KUBELET
    if usage.unresolved:
        return Reason.UNRESOLVED_IMAGE, Rule.GUARD
    if not usage.sandbox_image_known:
        return Reason.SANDBOX_IMAGE_UNKNOWN, Rule.GUARD
    return None, Rule.KUBELET


def _verdict(image: Image, action: Action, reason: Reason, age: float, wait: float | None, rule: Rule) -> Verdict:
    return Verdict(
        kind=Kind.IMAGE,
        id=image.id,
        name=image.title,
        action=action,
        reason=reason,
        size_bytes=image.size_bytes,
        age_seconds=age,
        eligible_in_seconds=wait,
        rule=rule,
    )


def _plan(remove: list[Verdict], keep: list[Verdict]) -> Plan:
    return Plan(tuple(remove), tuple(sorted(keep, key=lambda verdict: (verdict.name, verdict.id))))
