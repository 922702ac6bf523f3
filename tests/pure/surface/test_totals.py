"""What the daemon has done since its start: sums for each reclaim function, and the last passes."""

from __future__ import annotations

from eviction.cli.status import function_lines
from eviction.records.passes import Pass, Trigger
from eviction.surface.daemon import KEPT_PASSES, Totals
from eviction.types import Decision
from reclaim.types import Action, Amounts, Outcome, ReclaimResult, Result, Verdict
from signals.types import FsLayout, Signal
from tests.pure.values import MIB, observation, observations_of

SEEN = observations_of(observation(Signal.NODEFS_AVAILABLE, 1, 10))


def a_pass(
    *functions: ReclaimResult, started: float = 1_800_000_000.0, name: str = "id", reason: str = ""
) -> Pass:
    """A pass with these results."""
    decision = Decision(frozenset(), (), None, (), FsLayout.SINGLE)
    return Pass(name, started, Trigger.INTERVAL, SEEN, decision, (), functions, reason=reason)


def pruned(count: int, seconds: float = 0.5) -> ReclaimResult:
    """So many files of 1 MiB, which promised twice as much."""
    outcomes = tuple(
        Outcome(
            Verdict("file", str(n), str(n), Action.REMOVE, "old", 2 * MIB),
            Result.REMOVED,
            freed=Amounts(MIB, 1),
        )
        for n in range(count)
    )
    return ReclaimResult("prune", outcomes, remove_seconds=seconds)


def test_calls_are_summed_and_the_last_one_is_kept() -> None:
    """Measured, nominal, seconds, calls."""
    totals = Totals()
    totals.passed(a_pass(pruned(2)))
    totals.passed(
        a_pass(
            pruned(1, 0.25),
            ReclaimResult("DeleteUnusedImages", error="no runtime"),
            started=1_800_000_060.0,
        )
    )
    found = totals.functions
    last = found["prune"]["last"]
    assert found["prune"] == {
        "last": last,
        "calls": 2,
        "removed": 3,
        "measured": {"bytes": 3 * MIB, "inodes": 3},
        "nominal": {"bytes": 6 * MIB, "inodes": None},
        "seconds": 0.75,
    }
    assert (last["started"], last["removed"], last["error"]) == (
        "2027-01-15T08:01:00.000Z",
        1,
        None,
    )
    assert found["DeleteUnusedImages"]["last"]["error"] == "no runtime"


def test_a_function_that_was_skipped_was_not_called() -> None:
    """Why is kept as its last result."""
    totals = Totals()
    totals.passed(a_pass(pruned(1)))
    totals.passed(a_pass(ReclaimResult("prune", skipped="it rests for 9 s more")))
    assert totals.functions["prune"]["calls"] == 1
    assert totals.functions["prune"]["last"]["skipped"] == "it rests for 9 s more"


def test_they_are_a_table_of_the_status() -> None:
    """Nothing before the first call."""
    totals = Totals()
    assert function_lines(totals.functions) == []
    totals.passed(a_pass(pruned(2)))
    _, head, line = function_lines(totals.functions)
    assert head.split() == [
        "FUNCTION",
        "CALLS",
        "REMOVED",
        "FREED",
        "INODES",
        "SECONDS",
        "LAST",
        "CALL",
    ]
    assert line.split() == ["prune", "1", "2", "2.0MiB", "2", "0.5", "2027-01-15T08:00:00Z"]


def test_the_oldest_passes_go_first() -> None:
    """Twenty stay."""
    totals, names = Totals(), [str(number) for number in range(KEPT_PASSES + 1)]
    for name in names:
        totals.passed(a_pass(name=name))
    assert [kept.id for kept in totals.passes()] == names[1:]


def test_a_pass_that_is_explained_later_is_replaced() -> None:
    """It keeps its place, is there once, and is not counted twice."""
    totals = Totals()
    for name in "abc":
        totals.passed(a_pass(pruned(1), name=name))
    totals.attributed(a_pass(pruned(1), name="b", reason="explained"))
    assert [(kept.id, kept.reason) for kept in totals.passes()] == [
        ("a", ""),
        ("b", "explained"),
        ("c", ""),
    ]
    assert totals.functions["prune"]["calls"] == 3
