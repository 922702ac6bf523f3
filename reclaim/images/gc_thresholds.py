"""How much space a periodic image garbage collection has to free, and what its end means.

The kubelet's arithmetic (`pkg/kubelet/images/image_gc_manager.go`, GarbageCollect and freeSpace), in whole numbers:

    usage  = 100 - available * 100 // capacity             rounded up: what root may still write counts as used
    target = capacity * (100 - low) // 100 - available     if usage >= high

A target of 0 or below, possible where both marks are close, still removes one image: the sum is compared after a
removal. Any failed removal makes the pass a failure, even one that reached its target, and then there is no event
about it; without a failed removal, less than the target is an event and a failure with the same text.

That text is, word for word, the one of the kubelet since 1.35, as alerts and log searches match it: the usage, the
capacity for people, the bytes freed. Before, it had two numbers of bytes: those wanted and those freed (to 1.25), those
attempted and those found eligible (1.26 to 1.34). The bytes wanted are a field of our event.

Covers: the decision, events and their texts. Does not cover: the removals (`periodic_image_gc`).
"""

from __future__ import annotations

from dataclasses import dataclass

from reclaim.events import EventReason, GCEvent
from reclaim.images.plan import ImageGCPolicy


@dataclass(frozen=True, slots=True)
class SpaceDecision:
    """What has to be freed by a reading of the image filesystem. `target_bytes` is None where usage is below the high
    mark; it may be 0 or negative otherwise."""

    usage_percent: int
    capacity_bytes: int
    target_bytes: int | None


def decide_space(available: int | None, capacity: int, policy: ImageGCPolicy) -> SpaceDecision:
    """Usage in percent, 0 to 100, rounded up, and bytes to free to reach the low mark; of a reading in bytes.

    Available bytes that are not known count as 0, and more of them than there is room as all of it. `capacity`: above
    0.
    """
    free = min(max(available or 0, 0), capacity)
    usage = 100 - free * 100 // capacity
    target = capacity * (100 - policy.low_threshold_percent) // 100 - free
    return SpaceDecision(usage, capacity, target if usage >= policy.high_threshold_percent else None)


def not_enough_freed(space: SpaceDecision, freed_bytes: int) -> GCEvent | None:
    """The event of a pass that has freed so many nominal bytes; None if they are enough, or none were wanted."""
    target = space.target_bytes
    if target is None or freed_bytes >= target:
        return None
    message = (
        "Insufficient free disk space on the node's image filesystem "
        f"({space.usage_percent}% of {human_size(space.capacity_bytes)} used). "
        f"Failed to free sufficient space by deleting unused images (freed {freed_bytes} bytes). "
        "Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
    )
    values = {
        "usage_percent": space.usage_percent,
        "capacity_bytes": space.capacity_bytes,
        "target_bytes": target,
        "freed_bytes": freed_bytes,
    }
    return GCEvent(EventReason.FREE_DISK_SPACE_FAILED, message, values)


def invalid_capacity(capacity: int | None) -> GCEvent:
    """The event of an image filesystem without capacity, or of which it is not known: nor is its usage then."""
    message = f"the image filesystem has no valid capacity ({capacity or 0} bytes)"
    return GCEvent(EventReason.INVALID_DISK_CAPACITY, message, {"capacity_bytes": 0})


def human_size(size_bytes: int) -> str:
    """Bytes for people, as the kubelet writes them: whole below 1 KiB, else one decimal of KiB, MiB, GiB or TiB."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    amount, unit = size_bytes / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}"
