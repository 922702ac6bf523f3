"""Which images may go, and in which order: the plan (pure).

The kubelet's rules (`pkg/kubelet/images/image_gc_manager.go`): an image goes only if no container of any state was
made from it, it is not pinned, and it has been known for `min_age_seconds`; the one whose last use is longest ago
goes first, never used before ever used, then by first detection.

Narrower than the kubelet:

* In use is the union of everything that a container says about its image, and of the images that it mounts.
* A container whose image cannot be told stops all image removal: nothing is assumed unused by guess. That the runtime
  has no such image settles it for an id or a digest only: a tag may have moved since the container was made.
* The image of pod sandboxes stays, pinned or not: without it no pod can start. When no source says which image that
  is (the runtime's configuration, a sandbox that is ready, a pinned image named `pause`), no image goes.

Covers: verdicts and their order. Does not cover: looking again before a removal (`removers`), stopping (`executor`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reclaim.references import ImageIndex, bare_hex
from reclaim.types import Action, Image, ImageRecord, Kind, Listing, Plan, Reason, Verdict


@dataclass(frozen=True, slots=True)
class ImageGCPolicy:
    """`min_age_seconds`: how long an image must have been known before it may go; at least 0."""

    min_age_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class ImagesInUse:
    """Ids that containers use, ids that sandboxes need, and references that nobody could resolve.

    `sandbox_image_known` is false when no source (pin, configuration, running sandboxes) names the sandbox image.
    """

    by_containers: frozenset[str]
    by_sandboxes: frozenset[str]
    unresolved: tuple[str, ...]
    sandbox_image_known: bool


def images_in_use(listing: Listing, index: ImageIndex | None = None) -> ImagesInUse:
    """Who needs which listed image. All container states count: an image stays until its last container is gone.

    `index`: that of `listing.images`, where it is at hand.
    """
    index = index or ImageIndex(listing.images)
    used: set[str] = set()
    unresolved: list[str] = []
    for container in listing.containers:
        references = container.image_references + listing.image_volumes.get(container.id, ())
        found, missing = _resolve(references, index, listing.resolved)
        used |= found
        unresolved += missing or ([] if references else [f"container {container.id}"])
    needed = listing.sandbox_image_references
    by_sandboxes, _ = _resolve(tuple(needed or ()), index, listing.resolved)
    known = needed is not None or any(image.pinned and _is_named_pause(image) for image in listing.images)
    return ImagesInUse(frozenset(used), frozenset(by_sandboxes), tuple(sorted(set(unresolved))), known)


def _is_named_pause(image: Image) -> bool:
    """Whether a name of the image says `pause`, as those of all sandbox images do."""
    names = (*image.repo_tags, *image.repo_digests)
    return any("pause" in name.partition("@")[0].rpartition("/")[2] for name in names)


def _resolve(
    references: tuple[str, ...], index: ImageIndex, answered: Mapping[str, str | None]
) -> tuple[set[str], list[str]]:
    """Ids meant by one container's references, and the references whose meaning is not known.

    An id or digest must be known by itself, as an image or as none: a tag beside it may have moved. Where there are
    only names one of them must mean an image.
    """
    found: set[str] = set()
    unknown: list[str] = []
    for reference in references:
        ids = set(index.find(reference))
        answer = answered.get(reference)
        if answer is not None:
            ids.add(answer)
        found |= ids
        if not ids:
            unknown.append(reference)
    lasting = [reference for reference in references if names_one_image(reference)]
    if lasting:
        return found, [reference for reference in unknown if reference in lasting and reference not in answered]
    return found, [] if found else unknown


def names_one_image(reference: str) -> bool:
    """Whether the reference is an id or carries a digest, which mean one image for ever; a tag may move."""
    hexadecimal = bare_hex(reference.rpartition("@")[2])
    return len(hexadecimal) == 64 and all(character in "0123456789abcdef" for character in hexadecimal)


def plan_image_gc(listing: Listing, records: Mapping[str, ImageRecord], policy: ImageGCPolicy, now: float) -> Plan:
    """The plan for every listed image. `now` and the records: monotonic seconds.

    An image without a record counts as first seen now. Equal times go by id, so that the order of the listing
    changes nothing. One id that is listed twice is one image, and pinned if either entry is.
    """
    usage = images_in_use(listing)
    removed: list[tuple[ImageRecord, Verdict]] = []
    kept: list[Verdict] = []
    for image in _one_per_id(listing.images):
        record = records.get(image.id, ImageRecord(now))
        age = now - record.first_detected
        reason = _keep_reason(image, usage)
        wait = policy.min_age_seconds - age
        if reason is None and wait > 0:  # equal is old enough
            reason = Reason.TOO_YOUNG
        verdict = Verdict(
            kind=Kind.IMAGE,
            id=image.id,
            name=image.title,
            action=Action.REMOVE if reason is None else Action.KEEP,
            reason=reason or Reason.UNUSED,
            size_bytes=image.size_bytes,
            age_seconds=age,
            eligible_in_seconds=wait if reason is Reason.TOO_YOUNG else None,
        )
        if reason is None:
            removed.append((record, verdict))
        else:
            kept.append(verdict)
    never = float("-inf")
    removed.sort(
        key=lambda item: (
            never if item[0].last_used is None else item[0].last_used,
            item[0].first_detected,
            item[1].id,
        )
    )
    kept.sort(key=lambda verdict: (verdict.name, verdict.id))
    return Plan(tuple(verdict for _, verdict in removed), tuple(kept))


def _keep_reason(image: Image, usage: ImagesInUse) -> Reason | None:
    if image.id in usage.by_containers:
        return Reason.IN_USE
    if image.id in usage.by_sandboxes:
        return Reason.SANDBOX_IMAGE
    if image.pinned:
        return Reason.PINNED
    if usage.unresolved:
        return Reason.UNRESOLVED_IMAGE
    if not usage.sandbox_image_known:
        return Reason.SANDBOX_IMAGE_UNKNOWN
    return None


def _one_per_id(images: tuple[Image, ...]) -> list[Image]:
    found: dict[str, Image] = {}
    for image in images:
        earlier = found.get(image.id, image)
        found[image.id] = Image(
            image.id,
            tuple(sorted({*earlier.repo_tags, *image.repo_tags})),
            tuple(sorted({*earlier.repo_digests, *image.repo_digests})),
            max(earlier.size_bytes, image.size_bytes),
            earlier.pinned or image.pinned,
        )
    return list(found.values())
