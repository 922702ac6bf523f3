"""Why a daemon should be started anew."""

from __future__ import annotations

import pytest

from eviction.wording.status import hanging_sentences, why_not_alive
from reclaim.removals import StageId


@pytest.mark.parametrize(
    ("late_seconds", "stalled_seconds", "why"),
    [
        (-10.0, 0.0, None),
        (8.0, 90.0, None),
        (8.1, 0.0, "the next observation is 8.1 s late"),
        (0.0, 90.1, "the pass has made no progress for 90 s"),
    ],
)
def test_a_daemon_is_alive_as_long_as_it_observes_and_its_pass_goes_forward(
    late_seconds: float, stalled_seconds: float, why: str | None
) -> None:
    """Three filesystems that hang take 6 s.

    A pass that waits for the runtime goes forward, as each wait is bounded.
    """
    assert why_not_alive(late_seconds, stalled_seconds, 90.0) == why


def test_each_plan_that_hangs_is_a_sentence() -> None:
    """With its function and stage; none, and nothing is said."""
    hanging = frozenset({StageId("two", 1), StageId("one", 2)})
    assert [sentence.partition(":")[0] for sentence in hanging_sentences(hanging)] == [
        "one, stage 2",
        "two, stage 1",
    ]
    assert not list(hanging_sentences(frozenset()))
