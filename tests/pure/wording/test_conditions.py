"""The conditions in words: whose mark is crossed, ours or the kubelet's."""

from __future__ import annotations

import pytest

from eviction.types import NodeCondition
from eviction.wording.tables import condition_begins, conditions_in_words, disk_pressure
from signals.types import Signal
from tests.pure.values import GIB, observation, observations_of, threshold

NODEFS = Signal.NODEFS_AVAILABLE


@pytest.mark.parametrize(
    ("conditions", "known", "below", "words"),
    [
        ([], True, False, "no ReclaimPressure, no DiskPressure"),
        ([], False, False, "no ReclaimPressure"),
        (["ReclaimPressure"], True, True, "ReclaimPressure (below our mark), no DiskPressure"),
        (["ReclaimPressure"], False, False, "ReclaimPressure (was below our mark)"),
        (
            ["DiskPressure", "ReclaimPressure"],
            True,
            True,
            "ReclaimPressure (below our mark), DiskPressure (below the kubelet's own mark)",
        ),
        (
            ["DiskPressure"],
            True,
            False,
            "no ReclaimPressure, DiskPressure (below the kubelet's own mark)",
        ),
    ],
    ids=["clear", "kubelet not known", "ours", "a while ago", "both", "only the kubelet's"],
)
def test_the_words_say_whose_mark_is_crossed(
    conditions: list[str], known: bool, below: bool, words: str
) -> None:
    """Ours, and the kubelet's where its marks are known."""
    assert conditions_in_words(conditions, known, below=below) == words


def test_the_log_names_the_signal_and_both_amounts() -> None:
    """One sentence for our mark, another for the kubelet's."""
    seen, ten = observations_of(observation(NODEFS, 5 * GIB)), threshold(NODEFS, "10Gi")
    assert (
        condition_begins(NodeCondition.RECLAIM_PRESSURE, [ten], seen)
        == "ReclaimPressure: nodefs.available 5.0GiB < 10.0GiB"
    )
    assert (
        condition_begins(NodeCondition.DISK_PRESSURE, [ten], seen)
        == "below the kubelet's own mark, so the kubelet would report DiskPressure:"
        " nodefs.available 5.0GiB < 10.0GiB"
    )


@pytest.mark.regression
def test_a_threshold_that_stays_met_is_told_with_what_it_must_reach() -> None:
    """Another one has raised the condition: this one is above its mark,
    which its amount would deny.
    """
    stays, ten = (
        threshold(Signal.IMAGEFS_AVAILABLE, "10Gi", min_reclaim="5Gi"),
        threshold(NODEFS, "10Gi"),
    )
    seen = observations_of(
        observation(NODEFS, 5 * GIB), observation(Signal.IMAGEFS_AVAILABLE, 12 * GIB)
    )
    assert (
        condition_begins(NodeCondition.RECLAIM_PRESSURE, [ten, stays], seen)
        == "ReclaimPressure: nodefs.available 5.0GiB < 10.0GiB, imagefs.available 12.0GiB <"
        " 15.0GiB, the mark of 10.0GiB with its minimum reclaim"
    )


def test_json_tells_not_crossed_from_not_known() -> None:
    """false and null."""
    assert [
        disk_pressure(found, known)
        for found, known in (((), None), ((), ()), (("DiskPressure",), ()))
    ] == [
        None,
        False,
        True,
    ]
