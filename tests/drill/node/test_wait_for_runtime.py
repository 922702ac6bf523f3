"""A question to a runtime that may not answer yet."""

from __future__ import annotations

from eviction.drill.node.wait_for_runtime import answered
from reclaim.types import RuntimeUnavailable


def test_a_question_is_asked_again_until_it_is_answered() -> None:
    """Two refusals cost two pauses, and the answer is that of the third."""
    answers = ["third"]
    refusals = [RuntimeUnavailable("starting"), RuntimeUnavailable("starting")]

    def ask() -> str:
        if refusals:
            raise refusals.pop()
        return answers.pop()

    assert answered(ask) == "third"
    assert (answers, refusals) == ([], [])
