"""How long a row of the table pauses after a pass."""

from __future__ import annotations

import pytest

from eviction.daemon.manager import RowBackoff
from eviction.record import Pass, PassResult, Trigger
from eviction.types import Decision
from reclaim.types import Action, Kind, Outcome, Reason, ReclaimResult, Result, Verdict
from tests.pure.values import observations_of

VERDICT = Verdict(Kind.IMAGE, "1", "image", Action.REMOVE, Reason.UNUSED)
FREED = ReclaimResult("DeleteUnusedImages", (Outcome(VERDICT, Result.REMOVED),))
NOTHING = ReclaimResult("DeleteUnusedImages")
YOUNG = ReclaimResult("DeleteUnusedImages", eligible_in_seconds=1.5)


@pytest.mark.parametrize(
    ("result", "function", "seconds"),
    [
        (PassResult.SATISFIED, FREED, [0.0, 0.0, 0.0]),
        (PassResult.NOT_ENOUGH, FREED, [1.0, 1.0, 1.0]),
        (PassResult.FAILED, NOTHING, [1.0, 1.0, 1.0]),
        (PassResult.NOT_ENOUGH, NOTHING, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]),
        (PassResult.NOT_ENOUGH, YOUNG, [1.0, 1.5, 1.5]),
    ],
)
def test_a_row_pauses_for_longer_only_while_it_frees_nothing(
    result: PassResult, function: ReclaimResult, seconds: list[float]
) -> None:
    """None after success, 1 s after a gain and after a failure, else doubled, up to a minute; not beyond the next
    object's age."""
    decision = Decision(frozenset(), (), None, (), None)
    record = Pass(
        "1",
        0.0,
        Trigger.INTERVAL,
        observations_of(),
        decision,
        functions=(function,),
        result=result,
    )
    backoff, found = RowBackoff(), []
    for _ in seconds:
        backoff.record(record, 100.0)
        found.append(backoff.until - 100.0)
    assert found == seconds
