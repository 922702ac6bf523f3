"""How long a function of the configuration rests before it is called again."""

from __future__ import annotations

from reclaim.execution.rest import VAIN_CALLS, VAIN_RESTS_SECONDS, FunctionRests
from reclaim.types import Action, Outcome, ReclaimResult, Result, Verdict

NAME = "prune"
VERDICT = Verdict("program", NAME, NAME, Action.REMOVE, "configured")
NOTHING = ReclaimResult(NAME, outcomes=(Outcome(VERDICT, Result.REMOVED),))
SOMETHING = ReclaimResult(NAME, outcomes=(Outcome(VERDICT, Result.REMOVED, freed_bytes=1),))
ONLY_INODES = ReclaimResult(NAME, outcomes=(Outcome(VERDICT, Result.REMOVED, freed_inodes=1),))


def test_it_rests_for_its_cooldown() -> None:
    """Whatever it freed; another function does not."""
    rests = FunctionRests()
    assert rests.why_not(NAME, 0.0) == ""
    rests.record(NAME, 60.0, SOMETHING, 100.0)
    assert rests.why_not(NAME, 130.0) == "its cooldown is not over, so it rests for 30 s more"
    assert rests.why_not("another", 130.0) == ""
    assert rests.why_not(NAME, 160.0) == ""


def test_one_that_freed_nothing_three_times_rests_longer_from_time_to_time() -> None:
    """30 s, then 60, up to 5 min; twice is by chance."""
    rests, now, found = FunctionRests(), 0.0, []
    for _ in range(VAIN_CALLS - 1):
        rests.record(NAME, 0.0, NOTHING, now)
        assert rests.why_not(NAME, now) == ""
    for _ in range(6):
        rests.record(NAME, 0.0, NOTHING, now)
        start = now
        while rests.why_not(NAME, now):
            now += 1.0
        found.append(now - start)
    shortest, longest = VAIN_RESTS_SECONDS
    assert found == [shortest, 60.0, 120.0, 240.0, longest, longest]


def test_whatever_it_frees_ends_that() -> None:
    """Bytes or inodes."""
    for freed in (SOMETHING, ONLY_INODES):
        rests = FunctionRests()
        for _ in range(VAIN_CALLS):
            rests.record(NAME, 0.0, NOTHING, 0.0)
        assert rests.why_not(NAME, 1.0) == "it freed nothing in 3 calls, so it rests for 29 s more"
        rests.record(NAME, 0.0, freed, 31.0)
        assert rests.why_not(NAME, 31.0) == ""
        rests.record(NAME, 0.0, NOTHING, 32.0)
        assert rests.why_not(NAME, 32.0) == ""
