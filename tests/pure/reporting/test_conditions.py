"""The conditions in words: whose mark is crossed, ours or the kubelet's."""

from __future__ import annotations

from typing import Any

import pytest

from eviction.reporting.tables import disk_pressure, kubelets_crossed, ours_crossed, status_in_words
from signals.types import Signal
from tests.pure.values import GIB, observation, observations_of, threshold

NODEFS = Signal.NODEFS_AVAILABLE


def answer(available_gib: int, conditions: list[str], **fields: Any) -> dict[str, Any]:
    """An answer of a daemon whose mark is 15 GiB."""
    return {
        "conditions": conditions,
        "observations": [{"signal": "nodefs.available", "available": available_gib * GIB, "stale": False}],
        "thresholds": [{"signal": "nodefs.available", "effective": 15 * GIB}],
        **fields,
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (answer(50, [], disk_pressure=False), "no ReclaimPressure, no DiskPressure"),
        (answer(50, [], disk_pressure=None), "no ReclaimPressure"),
        (
            answer(12, ["ReclaimPressure"], disk_pressure=False),
            "ReclaimPressure (below our mark), no DiskPressure",
        ),
        (answer(50, ["ReclaimPressure"], disk_pressure=None), "ReclaimPressure (was below our mark)"),
        (
            answer(5, ["DiskPressure", "ReclaimPressure"], disk_pressure=True),
            "ReclaimPressure (below our mark), DiskPressure (below the kubelet's own mark)",
        ),
        (
            answer(50, ["DiskPressure"], disk_pressure=True),
            "no ReclaimPressure, DiskPressure (below the kubelet's own mark)",
        ),
    ],
    ids=["clear", "kubelet not known", "ours", "a while ago", "both", "only the kubelet's"],
)
def test_the_words_say_whose_mark_is_crossed(given: dict[str, Any], words: str) -> None:
    """Ours, and the kubelet's where its marks are known."""
    assert status_in_words(given) == words


def test_a_stale_reading_is_not_below_a_mark() -> None:
    """Its amount is an old one."""
    given = answer(5, ["ReclaimPressure"], disk_pressure=False)
    given["observations"][0]["stale"] = True
    assert status_in_words(given) == "ReclaimPressure (was below our mark), no DiskPressure"


def test_the_log_names_the_signal_and_both_amounts() -> None:
    """One sentence for our mark, another for the kubelet's."""
    seen, ten = observations_of(observation(NODEFS, 5 * GIB)), threshold(NODEFS, "10Gi")
    assert ours_crossed([ten], seen) == "ReclaimPressure: nodefs.available 5.0GiB < 10.0GiB"
    assert kubelets_crossed([ten], seen) == (
        "below the kubelet's own mark, so the kubelet would report DiskPressure: nodefs.available 5.0GiB < 10.0GiB"
    )


@pytest.mark.regression
def test_a_threshold_that_stays_met_is_told_with_what_it_must_reach() -> None:
    """Another one has raised the condition: this one is above its mark, which its amount would deny."""
    stays, ten = threshold(Signal.IMAGEFS_AVAILABLE, "10Gi", min_reclaim="5Gi"), threshold(NODEFS, "10Gi")
    seen = observations_of(observation(NODEFS, 5 * GIB), observation(Signal.IMAGEFS_AVAILABLE, 12 * GIB))
    assert ours_crossed([ten, stays], seen) == (
        "ReclaimPressure: nodefs.available 5.0GiB < 10.0GiB, imagefs.available 12.0GiB < 15.0GiB, the mark of 10.0GiB "
        "with its minimum reclaim"
    )


def test_json_tells_not_crossed_from_not_known() -> None:
    """false and null."""
    assert [disk_pressure(found, known) for found, known in (((), None), ((), ()), (("DiskPressure",), ()))] == [
        None,
        False,
        True,
    ]
