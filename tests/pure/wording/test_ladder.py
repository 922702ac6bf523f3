"""The ladder of marks, and thresholds of ours that act too late.

Source of the image garbage collection: kubelet,
`pkg/kubelet/images/image_gc_manager.go` (GarbageCollect).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.configuration.effective import load
from eviction.configuration.kubelet import KUBELETS_DEFAULTS
from eviction.types import Threshold
from eviction.wording.explain import (
    LadderMark,
    image_gc_mark,
    ladder,
    later_than_kubelet,
    unreachable_sentences,
)
from signals.types import KUBELET_SIGNALS, Signal
from tests.pure.values import GIB, observation, observations_of, threshold, value

NODEFS, IMAGEFS = Signal.NODEFS_AVAILABLE, Signal.IMAGEFS_AVAILABLE
SEEN = {signal: observation(signal, 50 * GIB) for signal in (NODEFS, IMAGEFS)}


def test_the_highest_mark_of_each_signal_comes_first() -> None:
    """In the order of the signals; a disk that fills meets the highest mark first."""
    ours = [threshold(IMAGEFS, "21Gi"), threshold(NODEFS, "15Gi")]
    kubelets = [
        threshold(NODEFS, "10Gi"),
        threshold(NODEFS, "20Gi", grace_seconds=90.0),
        threshold(IMAGEFS, "15Gi"),
    ]
    assert ladder(ours, kubelets, (85, 80), observations=SEEN) == (
        LadderMark(NODEFS, 20 * GIB, "soft (90 s grace) 20Gi", "kubelet"),
        LadderMark(NODEFS, 15 * GIB, "hard 15Gi", "reclaimd"),
        LadderMark(NODEFS, 10 * GIB, "hard 10Gi", "kubelet"),
        LadderMark(IMAGEFS, 21 * GIB, "hard 21Gi", "reclaimd"),
        LadderMark(IMAGEFS, 20 * GIB, "image GC frees to 80%", "kubelet"),
        LadderMark(IMAGEFS, 16 * GIB - 1, "image GC starts at 85%", "kubelet"),
        LadderMark(IMAGEFS, 15 * GIB, "hard 15Gi", "kubelet"),
    )


def test_a_signal_without_a_reading_has_no_mark() -> None:
    """A mark needs a capacity; those of image garbage collection need imagefs."""
    seen = {NODEFS: observation(NODEFS, GIB)}
    found = ladder(
        [threshold(NODEFS, "1Gi"), threshold(IMAGEFS, "1Gi")],
        [threshold(IMAGEFS, "1%")],
        (85, 80),
        observations=seen,
    )
    assert found == (LadderMark(NODEFS, GIB, "hard 1Gi", "reclaimd"),)
    assert ladder([threshold(NODEFS, "1Gi")], [], None, observations=SEEN) == (
        LadderMark(NODEFS, GIB, "hard 1Gi", "reclaimd"),
    )
    assert ladder([], [], None, observations={}) == ()


@pytest.mark.parametrize("capacity", [10**9, 100 * GIB, 7 * GIB + 1])
def test_by_default_we_act_before_the_kubelets_image_gc(capacity: int) -> None:
    """15% + 5% of imagefs: at 80% use, and image GC at 85%, where the
    kubelet's own threshold is, too.
    """
    seen = {IMAGEFS: observation(IMAGEFS, capacity, capacity)}
    configuration = load(None, {}, {"kubeletConfig": ""})
    kubelets = KUBELETS_DEFAULTS.thresholds.thresholds
    marks = ladder(configuration.thresholds, kubelets, (85, 80), observations=seen)
    starts = [mark for mark in marks if not mark.what.startswith("image GC frees")]
    assert [(mark.whose, mark.what) for mark in starts] == [
        ("reclaimd", "hard 15% + 5% (at most 20Gi)"),
        ("kubelet", "image GC starts at 85%"),
        ("kubelet", "hard 15%"),
    ]
    assert abs(starts[0].mark - capacity // 5) <= 2 * capacity // 10**6, (
        "a percentage is held in single precision"
    )


def test_marks_with_a_margin_stand_at_their_sum() -> None:
    """10% + 5% of 1000 are 150, each truncated by itself."""
    raised = Threshold(NODEFS, threshold(NODEFS, "10%").value, margin=threshold(NODEFS, "5%").value)
    (mark,) = ladder([raised], [], None, observations={NODEFS: observation(NODEFS, 0, 1000)})
    assert (mark.mark, mark.what) == (150, "hard 10% + 5%")


@given(st.integers(1, 2**63 - 1), st.integers(1, 100))
def test_the_mark_of_image_gc_is_where_the_kubelets_integers_turn(capacity: int, high: int) -> None:
    """At the mark `100 - available * 100 // capacity >= high` holds, one byte above it does not."""

    def starts(available: int) -> bool:
        return 100 - available * 100 // capacity >= high

    mark = image_gc_mark(high, capacity)
    assert mark >= 0
    assert starts(mark)
    assert not starts(mark + 1)


@given(st.integers(1, 10**6), st.integers(1, 100), st.data())
def test_image_gc_starts_exactly_up_to_its_mark(
    capacity: int, high: int, data: st.DataObject
) -> None:
    """For every amount available on the filesystem."""
    available = data.draw(st.integers(0, capacity))
    assert (100 - available * 100 // capacity >= high) == (
        available <= image_gc_mark(high, capacity)
    )


@pytest.mark.parametrize(
    ("ours", "kubelets", "late"),
    [
        ([threshold(NODEFS, "15%")], [threshold(NODEFS, "10%")], False),
        ([threshold(NODEFS, "10%")], [threshold(NODEFS, "10%")], False),
        ([threshold(NODEFS, "5%")], [threshold(NODEFS, "10%")], True),
        ([threshold(NODEFS, "9Gi")], [threshold(NODEFS, "10%")], True),
        ([threshold(NODEFS, "11Gi")], [threshold(NODEFS, "10%")], False),
        ([threshold(NODEFS, "15%", grace_seconds=60.0)], [threshold(NODEFS, "10%")], True),
        (
            [threshold(NODEFS, "15%", grace_seconds=60.0)],
            [threshold(NODEFS, "10%", grace_seconds=60.0)],
            False,
        ),
        (
            [threshold(NODEFS, "15%", grace_seconds=61.0)],
            [threshold(NODEFS, "10%", grace_seconds=60.0)],
            True,
        ),
        ([threshold(NODEFS, "5%"), threshold(NODEFS, "15%")], [threshold(NODEFS, "10%")], False),
        (
            [threshold(NODEFS, "5%"), threshold(NODEFS, "15%", grace_seconds=9.0)],
            [threshold(NODEFS, "10%")],
            True,
        ),
        ([threshold(IMAGEFS, "1%")], [threshold(NODEFS, "10%")], False),
        ([], [threshold(NODEFS, "10%")], False),
        ([threshold(NODEFS, "1%")], [], False),
        (
            [threshold(Signal.NODEFS_INODES_FREE, "1%")],
            [threshold(Signal.NODEFS_INODES_FREE, "9%")],
            False,
        ),
    ],
)
def test_thresholds_that_act_later_than_the_kubelet(
    ours: list[Threshold], kubelets: list[Threshold], late: bool
) -> None:
    """With a lower mark or a longer grace; signals without a threshold of ours or
    without a reading are left out.
    """
    assert bool(list(later_than_kubelet(ours, kubelets, SEEN))) is late


@pytest.mark.parametrize("signal", [Signal.CONTAINERFS_AVAILABLE, Signal.CONTAINERFS_INODES_FREE])
def test_the_kubelets_thresholds_of_containerfs_are_left_out(signal: Signal) -> None:
    """They never take effect in the kubelet either (UpdateContainerFsThresholds)."""
    ours, kubelets = threshold(signal, "15%"), threshold(signal, "50%")
    assert (
        list(later_than_kubelet([ours], [kubelets], {signal: observation(signal, 50 * GIB)})) == []
    )


@pytest.mark.regression
@pytest.mark.parametrize(
    ("text", "margin", "reclaim", "sentences"),
    [
        ("10Gi", "5Gi", "2Gi", []),
        (
            "10Gi",
            "90Gi",
            "",
            [
                (
                    "is 100.0GiB, not below the 100.0GiB that the filesystem has, so the margin is"
                    " left out"
                )
            ],
        ),
        (
            "10Gi",
            "5Gi",
            "85Gi",
            [
                (
                    "is 100.0GiB, not below the 100.0GiB that the filesystem has, so the minimum"
                    " reclaim "
                )
            ],
        ),
        (
            "10Gi",
            "90Gi",
            "91Gi",
            ["so the margin is left out", "is 101.0GiB, not below the 100.0GiB that the filesys"],
        ),
        (
            "100Gi",
            "5Gi",
            "2Gi",
            ["is 100.0GiB, not below the 100.0GiB that the filesystem has, so it is never cleared"],
        ),
    ],
)
def test_what_the_disk_is_too_small_for_is_told(
    text: str, margin: str, reclaim: str, sentences: list[str]
) -> None:
    """Of 100GiB: a value, or what is added to it and then left out."""
    one = replace(threshold(NODEFS, text, min_reclaim=reclaim), margin=value(margin))
    told = list(unreachable_sentences([one], observations_of(observation(NODEFS, 50 * GIB))))
    assert len(told) == len(sentences)
    assert all(part in each for part, each in zip(sentences, told, strict=True)), told


def test_a_late_threshold_is_reported_with_both_marks() -> None:
    """Of ours the nearest with a grace that is not longer, else the nearest."""
    quick, slow = threshold(NODEFS, "5Gi"), threshold(NODEFS, "15Gi", grace_seconds=60.0)
    lower, kubelets = threshold(NODEFS, "1Gi"), threshold(NODEFS, "10Gi")
    assert list(later_than_kubelet([lower, quick, slow], [kubelets], SEEN)) == [
        "nodefs.available: the mark of 5Gi = 5.0GiB acts later than the kubelet's of 10Gi = 10.0GiB"
    ]
    (sentence,) = later_than_kubelet([slow], [kubelets], SEEN)
    assert (
        "15.0GiB with its longer grace period acts later than the kubelet's of 10Gi = 10.0GiB"
        in sentence
    )


marks = st.builds(
    threshold,
    st.sampled_from([NODEFS, IMAGEFS, Signal.NODEFS_INODES_FREE]),
    st.sampled_from(["5%", "10%", "1Gi", "20Gi"]),
    grace_seconds=st.sampled_from([0.0, 30.0, 60.0]),
)
images = st.none() | st.tuples(st.integers(1, 100), st.integers(0, 99))


@given(st.lists(marks), st.lists(marks), images)
def test_a_ladder_has_every_mark_once_and_in_order(
    ours: list[Threshold], kubelets: list[Threshold], image_gc: tuple[int, int] | None
) -> None:
    """Nothing is lost, and in each signal the marks fall."""
    found = ladder(ours, kubelets, image_gc, observations=SEEN)
    observed = [one for one in (*ours, *kubelets) if one.signal in SEEN]
    assert len(found) == len(observed) + (0 if image_gc is None else 2)
    order = list(KUBELET_SIGNALS)
    places = [(order.index(mark.signal), -mark.mark) for mark in found]
    assert places == sorted(places)
    assert list(later_than_kubelet(kubelets, kubelets, SEEN)) == []
