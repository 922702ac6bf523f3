"""What the status says in sentences."""

from __future__ import annotations

from eviction.wording.status import hanging_sentences
from reclaim.removals import StageId


def test_each_plan_that_hangs_is_a_sentence() -> None:
    """With its function and stage; none, and nothing is said."""
    hanging = frozenset({StageId("two", 1), StageId("one", 2)})
    assert [sentence.partition(":")[0] for sentence in hanging_sentences(hanging)] == [
        "one, stage 2",
        "two, stage 1",
    ]
    assert not list(hanging_sentences(frozenset()))
