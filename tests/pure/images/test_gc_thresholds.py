"""How much a periodic image garbage collection has to free, and what its end means.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go` (GarbageCollect, freeSpace).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.events import EventReason
from reclaim.images.gc_thresholds import (
    InvalidDiskCapacity,
    SpaceDecision,
    bytes_to_free,
    decide_space,
    free_space_outcome,
    human_size,
    invalid_capacity_event,
    usage_percent,
)
from reclaim.images.plan import ImageGCPolicy
from tests.pure.values import GIB, KIB, MIB


def marks(high: int, low: int) -> ImageGCPolicy:
    """A policy with these marks."""
    return ImageGCPolicy(high_threshold_percent=high, low_threshold_percent=low)


@pytest.mark.parametrize(
    ("capacity", "available", "high", "low", "usage", "target"),
    [
        (1000, 150, 85, 80, 85, 50),
        (1000, 151, 85, 80, 85, 49),
        (1000, 159, 85, 80, 85, 41),
        (1000, 160, 85, 80, 84, None),
        (999, 159, 85, 80, 85, 40),
        (1000, 9, 100, 80, 100, 191),
        (1000, 10, 100, 80, 99, None),
        (1000, 205, 80, 80, 80, -5),
        (1000, 1200, 85, 80, 0, None),
        (1000, None, 85, 80, 100, 200),
        (1000, 0, 85, 80, 100, 200),
        (1000, -1, 85, 80, 100, 200),
        (1000, 1000, 0, 0, 0, 0),
        (1, 0, 85, 80, 100, 0),
        (2**63 - 1, 2**62, 50, 50, 50, -1),
    ],
)
def test_usage_is_rounded_up_and_the_target_is_the_low_mark(
    capacity: int, available: int | None, high: int, low: int, usage: int, target: int | None
) -> None:
    """As the kubelet: available beyond capacity is usage 0; exactly at the high mark acts; a high mark
    of 100 acts below 1 % available."""
    policy = marks(high, low)
    assert usage_percent(available, capacity) == usage
    assert bytes_to_free(available, capacity, policy) == target
    decision = decide_space(available, capacity, policy)
    assert (decision.usage_percent, decision.target_bytes, decision.capacity_bytes) == (usage, target, capacity)
    assert 0 <= decision.available_bytes <= capacity


@pytest.mark.parametrize("capacity", [0, None, -1])
def test_an_unknown_capacity_fails_as_capacity_0(capacity: int | None) -> None:
    """As the kubelet, with its event."""
    for ask in (lambda: usage_percent(5, capacity), lambda: decide_space(5, capacity, marks(85, 80))):
        with pytest.raises(InvalidDiskCapacity, match="no valid capacity") as refusal:
            ask()
        event = invalid_capacity_event(refusal.value)
        assert event.reason is EventReason.INVALID_DISK_CAPACITY
        assert str(event.reason) == "InvalidDiskCapacity"
        assert event.message == str(refusal.value)


@given(st.integers(100, 2**63), st.integers(0, 2**63), st.integers(0, 100), st.integers(0, 100))
def test_freeing_the_target_reaches_the_low_mark(capacity: int, available: int, one: int, other: int) -> None:
    """Any filesystem of 100 bytes and more: with the target freed, usage is at the low mark, or a rounding above."""
    low, high = sorted((one, other))
    target = bytes_to_free(available, capacity, marks(high, low))
    usage = usage_percent(available, capacity)
    assert (target is not None) == (usage >= high)
    if target is not None:
        assert usage_percent(min(available, capacity) + target, capacity) <= low + 1


FULL = SpaceDecision(usage_percent=91, capacity_bytes=40 * GIB, available_bytes=3 * GIB, target_bytes=5 * GIB)


def test_reaching_the_target_is_success() -> None:
    """Exactly the target is enough."""
    outcome = free_space_outcome(FULL, 5 * GIB, [])
    assert (outcome.error, outcome.event) == ("", None)


@pytest.mark.regression
def test_less_than_the_target_is_an_event_and_an_error_with_the_same_text() -> None:
    """The kubelet's text since 1.35: usage in percent, capacity for people, bytes freed, what else to look at."""
    outcome = free_space_outcome(FULL, 123, [])
    assert outcome.event is not None
    assert outcome.error == outcome.event.message
    assert str(outcome.event.reason) == "FreeDiskSpaceFailed"
    assert outcome.error == (
        "Insufficient free disk space on the node's image filesystem (91% of 40.0 GiB used). "
        "Failed to free sufficient space by deleting unused images (freed 123 bytes). "
        "Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
    )
    assert outcome.event.values == {
        "usage_percent": 91,
        "capacity_bytes": 40 * GIB,
        "target_bytes": 5 * GIB,
        "freed_bytes": 123,
    }


@pytest.mark.parametrize("freed_bytes", [0, 5 * GIB, 9 * GIB])
def test_a_failed_removal_is_an_error_without_an_event_even_if_the_target_was_reached(freed_bytes: int) -> None:
    """As the kubelet: the error names target, bytes freed and the failures."""
    outcome = free_space_outcome(FULL, freed_bytes, ["app:1: device busy"])
    assert outcome.event is None
    for part in (str(5 * GIB), str(freed_bytes), "1 failed removal: app:1: device busy"):
        assert part in outcome.error


def test_many_failures_are_counted_and_the_first_three_named() -> None:
    """The sentence stays a sentence."""
    outcome = free_space_outcome(FULL, 0, [f"image-{number}: no" for number in range(40)])
    assert outcome.error.endswith("40 failed removals: image-0: no; image-1: no; image-2: no; and 37 more")


def test_a_target_of_0_or_below_is_reached_without_any_candidate() -> None:
    """Nothing could go, and nothing had to."""
    assert free_space_outcome(SpaceDecision(80, 1000, 205, -5), 0, []).error == ""


def test_below_the_high_mark_there_is_nothing_to_say() -> None:
    """No target, no error."""
    assert free_space_outcome(SpaceDecision(10, 1000, 900, None), 0, []).error == ""


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (MIB - 1, "1024.0 KiB"),
        (MIB, "1.0 MiB"),
        (int(2.25 * GIB), "2.2 GiB"),
        (1024 * GIB, "1.0 TiB"),
        (5000 * 1024 * GIB, "5000.0 TiB"),
        (10 * KIB, "10.0 KiB"),
    ],
)
def test_sizes_for_people_have_one_decimal_from_1_kib_on(size_bytes: int, text: str) -> None:
    """Below 1024 bytes are whole."""
    assert human_size(size_bytes) == text
