"""Only a read that lost its connection is repeated, and only for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from reclaim.cri.inventory import retried
from reclaim.types import AnsweredLate, ConnectionLost, RemovalFailed, RuntimeUnavailable

LOST = ConnectionLost("connection refused")
LATE = AnsweredLate("no answer within 10 s")


def answers(*given: Exception | str) -> tuple[Callable[[], str], list[Exception | str]]:
    """A read that gives these answers one after another, and those that are
    left; the last is repeated.
    """
    left = list(given)

    def read() -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return read, left


def test_an_answer_is_an_answer() -> None:
    """Nothing waits when the first attempt works."""
    slept: list[float] = []
    assert retried(answers("here")[0], sleep=slept.append) == "here"
    assert slept == []


def test_a_lost_connection_is_tried_again_at_once_and_then_with_growing_waits() -> None:
    """A runtime that restarts is back within a moment: at once, then after 50, 100 and 200 ms."""
    slept: list[float] = []
    assert retried(answers(LOST, LOST, LOST, LOST, "here")[0], sleep=slept.append) == "here"
    assert slept == [0.05, 0.1, 0.2]


@pytest.mark.parametrize("error", [LATE, RemovalFailed("refused"), OSError("defect")])
def test_after_other_errors_a_read_is_not_repeated(error: Exception) -> None:
    """A read that exceeded its deadline would take as long again."""
    read, left = answers(error, "here")
    with pytest.raises(type(error)) as raised:
        retried(read, sleep=lambda _: None)
    assert raised.value is error
    assert left == ["here"]


def test_an_answer_that_is_late_after_a_lost_connection_ends_the_attempts() -> None:
    """Each attempt is judged by itself."""
    read, left = answers(LOST, LATE, "here")
    with pytest.raises(RuntimeUnavailable, match="no answer"):
        retried(read, sleep=lambda _: None)
    assert left == ["here"]


def test_after_the_time_for_retries_the_last_error_is_raised() -> None:
    """A runtime that is down for the whole half second is unavailable, after a few attempts."""
    with pytest.raises(RuntimeUnavailable, match="connection refused"):
        retried(answers(LOST)[0])


def test_no_wait_is_longer_than_half_the_time() -> None:
    """So that the last attempt comes before the time is over."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds)

    with pytest.raises(RuntimeUnavailable):
        retried(answers(LOST)[0], sleep=sleep)
    assert slept
    assert max(slept) <= 0.25
    assert sum(slept) <= 0.5
