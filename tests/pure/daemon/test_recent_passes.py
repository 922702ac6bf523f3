"""The recent passes: bounded, in order, and a summary with the same id is replaced."""

from __future__ import annotations

from eviction.daemon.recent_passes import RecentPasses


def test_the_oldest_go_first() -> None:
    """Of four, three stay."""
    passes = RecentPasses(3)
    for name in "abcd":
        passes.keep({"id": name})
    assert [kept["id"] for kept in passes.all()] == ["b", "c", "d"]


def test_a_summary_with_the_same_id_is_replaced() -> None:
    """It keeps its place, and is there once."""
    passes = RecentPasses(3)
    for name in "abc":
        passes.keep({"id": name, "reason": ""})
    passes.keep({"id": "b", "reason": "explained"})
    assert [(kept["id"], kept["reason"]) for kept in passes.all()] == [("a", ""), ("b", "explained"), ("c", "")]
