"""The conditions in words: whose mark is crossed, ours or the kubelet's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eviction.decision.thresholds import thresholds_met
from eviction.types import NodeCondition
from eviction.wording.tables import condition_begins, conditions_in_words, disk_pressure, why_met
from signals.types import Signal
from tests.pure.values import GIB, observation, observations_of, threshold

NODEFS = Signal.NODEFS_AVAILABLE


@pytest.mark.parametrize(
    ("conditions", "known", "available", "words"),
    [
        ([], True, 11 * GIB, "no ReclaimPressure, no DiskPressure"),
        ([], False, 11 * GIB, "no ReclaimPressure"),
        (["ReclaimPressure"], True, 9 * GIB, "ReclaimPressure (below our mark), no DiskPressure"),
        (["ReclaimPressure"], True, 10 * GIB, "ReclaimPressure (is coming), no DiskPressure"),
        (["ReclaimPressure"], False, 11 * GIB, "ReclaimPressure (was below our mark)"),
        (
            ["DiskPressure", "ReclaimPressure"],
            True,
            9 * GIB,
            "ReclaimPressure (below our mark), DiskPressure (below the kubelet's own mark)",
        ),
        (
            ["DiskPressure"],
            True,
            11 * GIB,
            "no ReclaimPressure, DiskPressure (below the kubelet's own mark)",
        ),
    ],
    ids=["clear", "not known", "ours", "is coming", "a while ago", "both", "the kubelet's"],
)
def test_the_words_say_whose_mark_is_crossed(
    conditions: list[str], known: bool, available: int, words: str
) -> None:
    """Ours, of 10 GiB, of which 11 are needed for what is coming; and the kubelet's where its marks
    are known."""
    seen = {NODEFS: replace(observation(NODEFS, available), needed=11 * GIB)}
    met = thresholds_met([threshold(NODEFS, "10Gi")], seen, enforce_min_reclaim=False)
    assert conditions_in_words(conditions, known, why_met(met, seen)) == words


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


def test_what_btrfs_has_promised_counts_for_our_mark_and_not_for_the_kubelets() -> None:
    """Of 8 GiB that statvfs shows, 3 are promised."""
    seen = observations_of(replace(observation(NODEFS, 5 * GIB), promised=3 * GIB))
    ours, kubelets = (
        condition_begins(condition, [threshold(NODEFS, "10Gi")], seen)
        for condition in NodeCondition
    )
    assert ours == "ReclaimPressure: nodefs.available 5.0GiB < 10.0GiB"
    assert kubelets.endswith("DiskPressure: nodefs.available 8.0GiB < 10.0GiB")


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
