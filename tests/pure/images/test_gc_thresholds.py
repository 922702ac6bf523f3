"""How much a periodic image garbage collection has to free, and what its end means.

Source: kubelet, `pkg/kubelet/images/image_gc_manager.go` (GarbageCollect, freeSpace).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.images.plan import (
    ImageGCPolicy,
    SpaceDecision,
    decide_space,
    human_size,
    invalid_capacity,
    not_enough_freed,
)
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
    """As the kubelet: available beyond capacity is usage 0; exactly at the high mark acts; a high
    mark of 100 acts below 1 % available."""
    assert decide_space(available, capacity, marks(high, low)) == SpaceDecision(
        usage, capacity, target
    )


@pytest.mark.parametrize("capacity", [0, None, -1])
def test_an_unknown_capacity_fails_as_capacity_0(capacity: int | None) -> None:
    """As the kubelet, with its event."""
    event = invalid_capacity(capacity)
    assert str(event.reason) == "InvalidDiskCapacity"
    assert event.message == f"the image filesystem has no valid capacity ({capacity or 0} bytes)"


@given(st.integers(100, 2**63), st.integers(0, 2**63), st.integers(0, 100), st.integers(0, 100))
def test_freeing_the_target_reaches_the_low_mark(
    capacity: int, available: int, one: int, other: int
) -> None:
    """Any filesystem of 100 bytes and more: with the target freed, usage is at the low
    mark, or a rounding above.
    """
    low, high = sorted((one, other))
    before = decide_space(available, capacity, marks(high, low))
    assert (before.target_bytes is not None) == (before.usage_percent >= high)
    if before.target_bytes is not None:
        after = decide_space(
            min(available, capacity) + before.target_bytes, capacity, marks(high, low)
        )
        assert after.usage_percent <= low + 1


FULL = SpaceDecision(usage_percent=91, capacity_bytes=40 * GIB, target_bytes=5 * GIB)


def test_reaching_the_target_is_success() -> None:
    """Exactly the target is enough."""
    assert not_enough_freed(FULL, 5 * GIB) is None


@pytest.mark.regression
def test_less_than_the_target_is_an_event() -> None:
    """The kubelet's text since 1.35: usage in percent, capacity for people, bytes
    freed, what else to look at.
    """
    event = not_enough_freed(FULL, 123)
    assert event is not None
    assert str(event.reason) == "FreeDiskSpaceFailed"
    assert (
        event.message
        == "Insufficient free disk space on the node's image filesystem (91% of 40.0 GiB used)."
        " Failed to free sufficient space by deleting unused images (freed 123 bytes)."
        " Investigate disk usage, as it could be used by active images, logs, volumes, or other"
        " data."
    )
    assert event.values == {
        "usage_percent": 91,
        "capacity_bytes": 40 * GIB,
        "target_bytes": 5 * GIB,
        "freed_bytes": 123,
    }


def test_a_target_of_0_or_below_is_reached_without_any_candidate() -> None:
    """Nothing could go, and nothing had to."""
    assert not_enough_freed(SpaceDecision(80, 1000, -5), 0) is None


def test_below_the_high_mark_there_is_nothing_to_say() -> None:
    """No target, no event."""
    assert not_enough_freed(SpaceDecision(10, 1000, None), 0) is None


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
