"""Calls to a runtime that may not answer yet."""

from __future__ import annotations

from eviction.drill.node.embedded_node import until_answered
from reclaim.types import RuntimeUnavailable


def test_a_call_is_repeated_until_it_is_answered() -> None:
    """After two failures and two pauses the third call is answered."""
    answers = ["third"]
    refusals = [RuntimeUnavailable("starting"), RuntimeUnavailable("starting")]

    def ask() -> str:
        if refusals:
            raise refusals.pop()
        return answers.pop()

    assert until_answered(ask) == "third"
    assert (answers, refusals) == ([], [])
