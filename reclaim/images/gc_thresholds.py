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

Covers: the decision, the meaning of the end, events and their texts. Does not cover: the removals
(`periodic_image_gc`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reclaim.events import EventReason, GCEvent
from reclaim.images.plan import ImageGCPolicy
from reclaim.types import ReclaimError


class InvalidDiskCapacity(ReclaimError):
    """The image filesystem has no capacity, or it is not known, so its usage is not known either."""


@dataclass(frozen=True, slots=True)
class SpaceDecision:
    """What has to be freed by a reading of the image filesystem. `target_bytes` is None where usage is below the high
    mark; it may be 0 or negative otherwise."""

    usage_percent: int
    capacity_bytes: int
    available_bytes: int
    target_bytes: int | None


@dataclass(frozen=True, slots=True)
class FreeSpaceOutcome:
    """What the end of a pass means: the error of the pass (empty = success), and the event that goes with it."""

    error: str = ""
    event: GCEvent | None = None


def usage_percent(available: int | None, capacity: int | None) -> int:
    """Usage in percent, 0 to 100, rounded up; both in bytes, None counts as 0.

    More available than there is counts as all of it. Raises InvalidDiskCapacity.
    """
    total = _valid(capacity)
    return 100 - _clamped(available, total) * 100 // total


def bytes_to_free(available: int | None, capacity: int | None, policy: ImageGCPolicy) -> int | None:
    """Bytes to free to reach the low mark, 0 or below if it is reached already; None while usage is below the high
    mark. Raises InvalidDiskCapacity."""
    if usage_percent(available, capacity) < policy.high_threshold_percent:
        return None
    total = _valid(capacity)
    return total * (100 - policy.low_threshold_percent) // 100 - _clamped(available, total)


def decide_space(available: int | None, capacity: int | None, policy: ImageGCPolicy) -> SpaceDecision:
    """Usage and target of one reading; arguments and errors as of `bytes_to_free`."""
    usage, target = usage_percent(available, capacity), bytes_to_free(available, capacity, policy)
    total = _valid(capacity)
    return SpaceDecision(usage, total, _clamped(available, total), target)


def free_space_outcome(decision: SpaceDecision, freed_bytes: int, failures: Sequence[str]) -> FreeSpaceOutcome:
    """What it means to have freed so many nominal bytes with these failed removals (`object: error`)."""
    target = decision.target_bytes
    if target is None:
        return FreeSpaceOutcome()
    if failures:
        return FreeSpaceOutcome(
            f"wanted to free {target} bytes of images and freed {freed_bytes}, with {removals_failed(failures)}"
        )
    if freed_bytes >= target:
        return FreeSpaceOutcome()
    message = (
        "Insufficient free disk space on the node's image filesystem "
        f"({decision.usage_percent}% of {human_size(decision.capacity_bytes)} used). "
        f"Failed to free sufficient space by deleting unused images (freed {freed_bytes} bytes). "
        "Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
    )
    values = {
        "usage_percent": decision.usage_percent,
        "capacity_bytes": decision.capacity_bytes,
        "target_bytes": target,
        "freed_bytes": freed_bytes,
    }
    return FreeSpaceOutcome(message, GCEvent(EventReason.FREE_DISK_SPACE_FAILED, message, values))


def invalid_capacity_event(error: InvalidDiskCapacity) -> GCEvent:
    """The event of an image filesystem without capacity."""
    return GCEvent(EventReason.INVALID_DISK_CAPACITY, str(error), {"capacity_bytes": 0})


def removals_failed(failures: Sequence[str]) -> str:
    """Failed removals in words: how many, and the first few of them."""
    count = len(failures)
    more = f"; and {count - 3} more" if count > 3 else ""
    return f"{count} failed {'removal' if count == 1 else 'removals'}: {'; '.join(failures[:3])}{more}"


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


def _valid(capacity: int | None) -> int:
    if capacity is None or capacity <= 0:
        raise InvalidDiskCapacity(f"the image filesystem has no valid capacity ({capacity or 0} bytes)")
    return capacity


def _clamped(available: int | None, capacity: int) -> int:
    return min(max(available or 0, 0), capacity)
