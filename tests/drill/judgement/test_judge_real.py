"""The expectations that are judged on a real node; the others are reported as not judged."""

from __future__ import annotations

from typing import Any

import pytest

from eviction.drill.judgement.judge import Response, judge_real
from eviction.drill.measurement.measurements import MeasuredRemoval
from eviction.drill.scenario import NEVER, ConditionExpectation, Expectation
from signals.quantity import parse_percentage
from signals.types import Signal
from tests.drill.documents import measurements

EVERYTHING = Expectation.model_construct(
    condition=ConditionExpectation.model_construct(
        comes_within_seconds=0.1, goes_within_seconds=0.6
    ),
    relief=1.0,
    first_removal_within_seconds=1.0,
    first_removal_not_before_seconds=0.01,
    nothing_goes=True,
    goes=("image a:1", "image old-*"),
    stays=("image b:*", "container *"),
    images_left_at_least=1,
    lowest={Signal.NODEFS_AVAILABLE: parse_percentage("9%")},
    passes_at_most=3,
    says="relieved",
    quiet_seconds=0.5,
)
NOT_JUDGED = {
    "ReclaimPressure goes",
    "no removal",
    "nothing",
    "image old-*",
    "container *",
    "images left",
    "passes",
    "last pass says",
    "new pod",
}


def not_judged(response: Response, **changes: Any) -> dict[str, str]:
    """The checks that were not judged: name -> the reason given."""
    checks = judge_real(EVERYTHING, measurements(**changes), response)
    return {check.name: check.seen for check in checks if check.held is None}


def test_what_depends_on_the_node_of_the_scenario_is_not_judged() -> None:
    """Each of these checks says so."""
    reasons = not_judged(Response.OURS)
    assert reasons.keys() == NOT_JUDGED
    assert all(text.startswith("not judged: ") for text in reasons.values())
    assert not_judged(Response.OBSERVED).keys() == NOT_JUDGED | {"ReclaimPressure comes"}
    remains = EVERYTHING.model_copy(update={"relief": NEVER})
    checks = judge_real(remains, measurements(), Response.OURS)
    assert {check.name for check in checks if check.held is None} == NOT_JUDGED | {"pressure"}


def test_what_can_be_measured_on_any_node_is_judged() -> None:
    """Relief, the first removal, the lowest point, named objects, quiet, and that pods go on."""
    judged = {
        c.name: c.held
        for c in judge_real(EVERYTHING, measurements(), Response.OURS)
        if c.held is not None
    }
    assert judged == {
        "ReclaimPressure comes": True,
        "relieved": True,
        "first removal": True,
        "lowest nodefs.available": True,
        "image a:1": True,
        "image b:*": True,
        "quiet": True,
        "pods that ran": True,
    }


def test_a_lowest_point_as_a_share_is_one_of_this_nodes_sizes() -> None:
    """9 MiB were left of these 100 MiB: at least 9 % holds, 10 % does not,
    whatever size the scenario names.
    """
    for share, held in (("9%", True), ("10%", False)):
        expect = EVERYTHING.model_copy(
            update={"lowest": {Signal.NODEFS_AVAILABLE: parse_percentage(share)}}
        )
        checks = {
            check.name: check.held for check in judge_real(expect, measurements(), Response.OURS)
        }
        assert checks["lowest nodefs.available"] is held


def test_a_failed_expectation_fails_on_a_real_node_too() -> None:
    """A pod that ended, an image that was removed, relief that was late."""
    ended = (MeasuredRemoval(1.5, "pod", "default/web", "uid"),)
    changes = {"relief": 0.1, "stays": ("image a:1",), "goes": ()}
    expect = EVERYTHING.model_copy(update=changes)
    failed = {
        check.name: check.seen
        for check in judge_real(expect, measurements(ended_pods=ended), Response.OBSERVED)
        if check.held is False
    }
    assert failed == {
        "relieved": "after 0.200 s",
        "image a:1": "gone: a:1",
        "pods that ran": "ended: default/web",
    }


@pytest.mark.parametrize("response", Response)
def test_every_expectation_has_a_check(response: Response) -> None:
    """Each field that is set makes a check, judged or not. (A scenario with faults is refused.)"""
    nothing = Expectation.model_validate({}).model_copy(
        update={"no_restarts": False, "new_pod_starts": False}
    )
    without = len(judge_real(nothing, measurements(), response))
    for name in Expectation.model_fields:
        expect = nothing.model_copy(update={name: getattr(EVERYTHING, name)})
        checks = judge_real(expect, measurements(), response)
        assert len(checks) > without or name == "condition", name
