"""How long a row pauses after a pass in which XFS gave something back."""

from __future__ import annotations

import pytest
from reclaim.released import Released

from eviction.daemon.row_backoff import RowBackoff
from eviction.record import Pass, PassResult, Trigger
from eviction.types import Decision
from reclaim.types import ReclaimResult
from tests.pure.values import observations_of

GAVE = Released(bytes=1 << 30, calls=1, mount_points=("/data",))
NOTHING = Released(calls=1, mount_points=("/data",))
IMAGES = ReclaimResult("DeleteUnusedImages")


def released(what: Released, *, relieved: bool = False) -> ReclaimResult:
    return ReclaimResult("ReleaseSpeculativePreallocation", relieved=relieved, released=what)


@pytest.mark.parametrize(
    ("functions", "seconds"),
    [
        ((released(GAVE, relieved=True),), [0.0, 0.0, 0.0]),
        ((released(GAVE), IMAGES), [1.0, 1.0, 1.0]),
        ((released(GAVE),), [1.0, 1.0, 1.0]),
        ((released(NOTHING), IMAGES), [1.0, 2.0, 4.0]),
    ],
)
def test_what_was_enough_for_a_moment_is_tried_again_at_once(
    functions: tuple[ReclaimResult, ...], seconds: list[float]
) -> None:
    """Taken again at once: no pause, as the release has its own. A gain that was not enough: 1 s. None: doubled."""
    decision = Decision(frozenset(), (), None, (), None)
    record = Pass(
        "1",
        0.0,
        Trigger.INTERVAL,
        observations_of(),
        decision,
        functions=functions,
        result=PassResult.NOT_ENOUGH,
    )
    backoff, found = RowBackoff(), []
    for _ in seconds:
        backoff.record(record, 100.0)
        found.append(backoff.seconds)
        assert backoff.until == 100.0 + backoff.seconds
    assert found == seconds
