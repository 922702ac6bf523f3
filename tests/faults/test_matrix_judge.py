"""The judge of the fault matrix finds each broken promise: runs that held, with
one thing changed at a time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.matrix.bench import Run
from tests.faults.matrix.judge import broken_promises, seconds_until_relief
from tests.faults.matrix.pressure import Cycle
from tests.faults.matrix.program import Answer
from tests.faults.matrix.rows import SLACK_SECONDS, Fault, Kind, Livez, Relief, Row, When

pytestmark = pytest.mark.house("tests/faults/matrix")

LATE = 2.0 + SLACK_SECONDS + 1.0
GOES_ON = Row("x", Fault.ABSENT, Relief(When.GOES_ON))
COMES_BACK = Row("x", Fault.ABSENT, Relief(When.COMES_BACK, meanwhile=frozenset({Kind.CONTAINER})))
NOT_EXPECTED = Row("x", Fault.HANGS, Relief(When.NOT_EXPECTED, reason="…"))


def answers(*statuses: tuple[float, int | None]) -> list[Answer]:
    """Answers of `/livez` at these times, each within 0.1 s."""
    return [Answer(at, at + 0.1, status) for at, status in statuses]


HELD = {
    When.GOES_ON: Run(
        GOES_ON,
        began=10.0,
        ended=13.0,
        terminated=14.0,
        cycles=[Cycle(9.0, 9.1), Cycle(10.5, 10.7), Cycle(11.0, 11.3), Cycle(13.1, 13.2)],
        removed_at={Kind.IMAGE: [9.1, 10.7, 11.3, 13.2], Kind.CONTAINER: [], Kind.SANDBOX: []},
        answers=answers((9.0, 200), (10.5, 200), (12.5, 200), (13.5, 200)),
        exit_code=0,
    ),
    When.COMES_BACK: Run(
        COMES_BACK,
        began=10.0,
        ended=13.0,
        terminated=14.0,
        cycles=[Cycle(9.0, 9.1), Cycle(9.4, 13.5)],
        removed_at={Kind.IMAGE: [9.1, 13.5], Kind.CONTAINER: [10.4], Kind.SANDBOX: []},
        answers=answers((9.0, 200), (13.5, 200)),
        exit_code=0,
    ),
    When.NOT_EXPECTED: Run(
        NOT_EXPECTED,
        began=10.0,
        terminated=14.0,
        cycles=[Cycle(9.0, 9.1)],
        removed_at={Kind.IMAGE: [9.1], Kind.CONTAINER: [], Kind.SANDBOX: []},
        answers=answers((9.0, 200), (13.5, 200)),
        exit_code=0,
    ),
}


@pytest.mark.parametrize("run", HELD.values(), ids=HELD)
def test_a_run_in_which_everything_held_breaks_no_promise(run: Run) -> None:
    """One for each way of relief."""
    assert broken_promises(run) == []


@pytest.mark.parametrize(
    ("when", "changed", "words"),
    [
        (
            When.GOES_ON,
            {"cycles": [Cycle(9.0, 9.1), Cycle(13.1, 13.2)]},
            "0 reliefs while the fault lasted",
        ),
        (
            When.GOES_ON,
            {"ended": None, "cycles": [Cycle(10.5, 10.6), Cycle(11.0, 11.0 + LATE)]},
            "1 reliefs while",
        ),
        (When.GOES_ON, {"cycles": [Cycle(10.5, 10.7), Cycle(11.0, 11.3)]}, "no relief within"),
        (When.COMES_BACK, {"cycles": [Cycle(9.0, 9.1)]}, "no relief within"),
        (When.COMES_BACK, {"cycles": [Cycle(9.4, 13.0 + LATE)]}, "a relief only after"),
        (
            When.COMES_BACK,
            {"removed_at": {kind: [] for kind in Kind}},
            "no container went while the fault lasted",
        ),
        (When.NOT_EXPECTED, {"lost": ["image sha256:1"]}, "image sha256:1 is gone, and must stay"),
        (When.NOT_EXPECTED, {"ended_by_itself": [1]}, "the process ended by itself, with 1"),
        (When.NOT_EXPECTED, {"exit_code": None}, "SIGTERM did not end it"),
        (When.NOT_EXPECTED, {"exit_code": -9}, "it ended with -9 after SIGTERM"),
        (
            When.NOT_EXPECTED,
            {"was_healthy": False},
            "without the fault the disk was not relieved either",
        ),
        (When.NOT_EXPECTED, {"problems": ["x was never asked"]}, "x was never asked"),
        (When.NOT_EXPECTED, {"answers": []}, "/livez was never answered"),
        (
            When.NOT_EXPECTED,
            {"answers": answers((9.0, 200), (11.0, None))},
            "/livez was not answered, 1.0 s after",
        ),
        (When.NOT_EXPECTED, {"answers": answers((9.0, 200), (30.0, 503))}, "/livez said 503"),
    ],
)
def test_each_broken_promise_is_told(when: When, changed: dict[str, object], words: str) -> None:
    """One thing is changed, and one sentence says it."""
    found = broken_promises(replace(HELD[when], **changed))  # type: ignore[arg-type] # fields of different types
    assert any(words in each for each in found), found


@pytest.mark.parametrize(
    ("livez", "at", "status", "lies"),
    [
        (Livez.TRUTH, 15.0, 503, False),
        (Livez.TRUTH, 10.4, 503, True),
        (Livez.TRUTH, 15.0, 500, True),
        (Livez.TRUTH, 15.0, None, True),
        (Livez.UNHEARD, 15.0, None, False),
        (Livez.OK, 15.0, 503, True),
    ],
)
def test_503_is_the_truth_only_while_nothing_is_removed(
    livez: Livez, at: float, status: int | None, lies: bool
) -> None:
    """An object went at 9.1 s; from 14.1 s on a row may be told that nothing progresses."""
    row = replace(NOT_EXPECTED, livez=livez)
    run = replace(HELD[When.NOT_EXPECTED], row=row, answers=answers((9.0, 200), (at, status)))
    assert bool(broken_promises(run)) == lies


def test_the_seconds_that_are_printed() -> None:
    """The longest relief under a fault through which it goes on, else the first after its end."""
    assert seconds_until_relief(HELD[When.GOES_ON]) == pytest.approx(0.3)
    assert seconds_until_relief(HELD[When.COMES_BACK]) == pytest.approx(0.5)
    assert seconds_until_relief(HELD[When.NOT_EXPECTED]) is None
