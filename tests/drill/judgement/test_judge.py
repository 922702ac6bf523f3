"""Every expectation, held and not held, on invented runs."""

from __future__ import annotations

from typing import Any

import pytest

from eviction.drill.judgement.judge import Check, judge
from eviction.drill.measurement.measurements import ConditionPeriod, Episode
from eviction.drill.scenario import NEVER, ConditionExpectation, Expectation
from eviction.types import NodeCondition
from signals.types import Signal
from tests.drill.documents import MIB, measurements

Changes = dict[str, Any]


def condition(**fields: Any) -> Changes:
    return {"condition": ConditionExpectation.model_construct(**fields)}


def condition_period(began: float, ended: float | None) -> Changes:
    return {"conditions": (ConditionPeriod(NodeCondition.RECLAIM_PRESSURE, began, ended),)}


HOLDS: dict[str, Changes] = {
    "ReclaimPressure comes": {},
    "in time": condition(comes_within_seconds=0.1, goes_within_seconds=0.6),
    "relieved in time": {"relief": 0.3},
    "first removal in time": {"first_removal_within_seconds": 0.2},
    "first removal not too early": {"first_removal_not_before_seconds": 0.05},
    "what goes": {"goes": ("image a:*",)},
    "what stays": {"stays": ("container default/*", "b:1")},
    "images left": {"images_left_at_least": 1},
    "lowest point": {"lowest": {Signal.NODEFS_AVAILABLE: 9 * MIB, Signal.IMAGEFS_INODES_FREE: 800}},
    "passes": {"passes_at_most": 1},
    "what is said": {"says": "removed 1"},
    "quiet": {"quiet_seconds": 0.9},
}

BREAKS: dict[str, tuple[Changes, Changes, str]] = {
    "ReclaimPressure never comes": ({}, {"conditions": ()}, "never came"),
    "ReclaimPressure comes late": (
        condition(comes_within_seconds=0.1),
        condition_period(1.2, None),
        "after 0.200 s",
    ),
    "ReclaimPressure comes though it should not": (condition(never=True), {}, "after 1.010 s"),
    "ReclaimPressure goes late": (condition(goes_within_seconds=0.4), {}, "after 0.500 s"),
    "ReclaimPressure does not go": (
        condition(goes_within_seconds=9.0),
        condition_period(1.0, None),
        "did not go",
    ),
    "relieved late": ({"relief": 0.1}, {}, "after 0.200 s"),
    "never relieved": ({"relief": 9.0}, {"episodes": (Episode(1.0),)}, "not relieved"),
    "one of two never relieved": (
        {"relief": 9.0},
        {"episodes": (Episode(1.0, 1.1), Episode(1.5))},
        "not relieved",
    ),
    "the second relieved late": (
        {"relief": 0.5},
        {"episodes": (Episode(1.0, 1.1), Episode(1.5, 2.2))},
        "after 0.700 s",
    ),
    "no mark crossed": ({"relief": 9.0}, {"episodes": ()}, "no mark was crossed"),
    "relieved though it cannot be": ({"relief": NEVER}, {}, "does not remain"),
    "first removal late": ({"first_removal_within_seconds": 0.05}, {}, "after 0.100 s"),
    "no removal": ({"first_removal_within_seconds": 9.0}, {"removals": ()}, "nothing was removed"),
    "first removal too early": ({"first_removal_not_before_seconds": 0.5}, {}, "after 0.100 s"),
    "something goes": ({"nothing_goes": True}, {}, "removed: a:1"),
    "what should go is there": ({"goes": ("image b:1",)}, {}, "still there: b:1"),
    "what should go never was": ({"goes": ("image c:1",)}, {}, "was never there"),
    "only some of it goes": ({"goes": ("image *",)}, {}, "still there: b:1"),
    "of another kind": ({"goes": ("container a:1",)}, {}, "was never there"),
    "what should stay is gone": ({"stays": ("image *",)}, {}, "gone: a:1"),
    "what should stay never was": ({"stays": ("image c:1",)}, {}, "was never there"),
    "too few images": ({"images_left_at_least": 2}, {}, "1"),
    "too low": ({"lowest": {Signal.NODEFS_AVAILABLE: 10 * MIB}}, {}, "9.0MiB"),
    "too few inodes": ({"lowest": {Signal.NODEFS_INODES_FREE: 801}}, {}, "800 inodes"),
    "never seen": ({"lowest": {Signal.NODEFS_AVAILABLE: 0}}, {"samples": ()}, "not measured"),
    "too many passes": ({"passes_at_most": 0}, {}, "1"),
    "not said": ({"says": "sorry"}, {}, "removed 1 object"),
    "nothing to say": ({"says": "sorry"}, {"passes": ()}, "there was no pass"),
    "not quiet": ({"quiet_seconds": 1.1}, {}, "for 1.000 s"),
    "a fault that was never triggered": ({"faults": 1}, {}, "0 triggered"),
    "a container runs again": ({}, {"would_restart": ("web/init",)}, "would start web/init"),
    "no new pod": ({}, {"new_pod_problem": "no space left on device"}, "no space left on device"),
    "a new pod was not tried": ({}, {"new_pod_problem": None}, "not tried"),
}


def judged(expect: Changes, changes: Changes) -> tuple[Check, ...]:
    faults = expect.get("faults", 0)
    fields = {name: value for name, value in expect.items() if name != "faults"}
    return judge(
        Expectation.model_validate({}).model_copy(update=fields), measurements(**changes), faults
    )


@pytest.mark.parametrize("holds", HOLDS)
def test_an_expectation_that_is_met_holds(holds: str) -> None:
    """Each expectation by itself, on a run in which everything went well."""
    checks = judged(HOLDS[holds], {})
    assert [check.name for check in checks if not check.held] == []
    assert len(checks) >= len(judged({}, {}))


@pytest.mark.parametrize("breaks", BREAKS)
def test_an_expectation_that_is_not_met_fails(breaks: str) -> None:
    """Exactly one check fails, and it says what was measured instead."""
    expect, changes, shown = BREAKS[breaks]
    (failed,) = [check for check in judged(expect, changes) if not check.held]
    assert failed.seen == shown
    assert failed.expected


def test_only_configured_expectations_are_judged() -> None:
    """A restart or a missing new pod fails only if the scenario expects otherwise."""
    checks = judged(
        {"no_restarts": False, "new_pod_starts": False},
        {"would_restart": ("a/b",), "new_pod_problem": None},
    )
    assert [check.name for check in checks] == ["ReclaimPressure"]
