"""The recent passes: bounded, in order, and a summary with the same id is replaced."""

from __future__ import annotations

from eviction.daemon.recent_passes import RecentPasses
from eviction.record import Pass, Trigger
from eviction.reporting.pass_record import pass_summary
from eviction.reporting.pass_shapes import PassJson
from eviction.types import Decision
from signals.types import SignalObservations


def summary(identity: str, reason: str = "") -> PassJson:
    """Of a pass that did nothing."""
    decision = Decision(frozenset(), (), None, (), None)
    return pass_summary(
        Pass(identity, 0.0, Trigger.REQUEST, SignalObservations({}, None, 0.0), decision, reason=reason)
    )


def test_the_oldest_go_first() -> None:
    """Of four, three stay."""
    passes = RecentPasses(3)
    for name in "abcd":
        passes.keep(summary(name))
    assert [kept["id"] for kept in passes.all()] == ["b", "c", "d"]


def test_a_summary_with_the_same_id_is_replaced() -> None:
    """It keeps its place, and is there once."""
    passes = RecentPasses(3)
    for name in "abc":
        passes.keep(summary(name))
    passes.keep(summary("b", "explained"))
    assert [(kept["id"], kept["reason"]) for kept in passes.all()] == [("a", ""), ("b", "explained"), ("c", "")]
