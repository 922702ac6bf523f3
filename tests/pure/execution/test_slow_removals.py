"""When a runtime that deletes is given a rest, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reclaim.execution.slow_removals import LONGEST_PAUSE_SECONDS, SlowRemovals
from reclaim.types import Action, Kind, Outcome, Reason, Result, Verdict


def took(seconds: float, kind: Kind = Kind.IMAGE, result: Result | None = Result.REMOVED) -> Outcome:
    """A removal that took so long."""
    return Outcome(Verdict(kind, "x", "x", Action.REMOVE, Reason.UNUSED), result, "", seconds, call_seconds=seconds)


@pytest.mark.parametrize(
    ("before", "seconds", "rest"),
    [
        ([], 4.9, 0.0),
        ([], 6.0, 6.0),
        ([0.1] * 5, 4.9, 0.0),
        ([0.1] * 5, 5.0, 5.0),
        ([1.0] * 5, 9.9, 0.0),
        ([1.0] * 5, 10.0, 10.0),
        ([0.1] * 5, 300.0, LONGEST_PAUSE_SECONDS),
        ([0.1, 0.1, 0.1, 60.0], 5.0, 5.0),
    ],
)
def test_ten_times_the_usual_and_at_least_5_s_is_far_longer(before: list[float], seconds: float, rest: float) -> None:
    """The rest is as long as the removal was, at most 10 s; one slow removal does not become the usual."""
    pace = SlowRemovals()
    for each in before:
        pace.pause_after(took(each))
    assert pace.pause_after(took(seconds)) == rest


def test_a_runtime_that_is_always_slow_is_not_rested_for_ever() -> None:
    """When 20 s are usual, 20 s are no sign of anything."""
    pace = SlowRemovals()
    assert [pace.pause_after(took(20.0)) for _ in range(4)] == [LONGEST_PAUSE_SECONDS, 0.0, 0.0, 0.0]


def test_kinds_are_apart() -> None:
    """That images take long says nothing of containers."""
    pace = SlowRemovals()
    pace.pause_after(took(20.0))
    assert pace.pause_after(took(6.0, Kind.CONTAINER)) == 6.0


@pytest.mark.parametrize("result", [None, Result.PLANNED, Result.IN_USE, Result.ALREADY_GONE])
def test_what_was_not_removed_tells_nothing(result: Result | None) -> None:
    """A dry run and an object that stays send no removal."""
    assert SlowRemovals().pause_after(took(60.0, result=result)) == 0.0


@pytest.mark.regression
def test_a_check_that_takes_long_is_no_slow_removal() -> None:
    """A question that hung for 10 s, and a call that was answered at once, or not sent: no rest."""
    for result, call_seconds in ((Result.REMOVED, 0.1), (Result.UNANSWERED, 0.0)):
        outcome = replace(took(10.0, result=result), call_seconds=call_seconds)
        assert SlowRemovals().pause_after(outcome) == 0.0
