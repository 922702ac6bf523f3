"""The last passes: bounded, in order, and a later form of one takes its place."""

from __future__ import annotations

from eviction.daemon.recent_passes import RecentPasses


def test_the_oldest_go_first() -> None:
    """Of four, three stay."""
    passes = RecentPasses(3)
    for name in "abcd":
        passes.keep({"id": name})
    assert [kept["id"] for kept in passes.all()] == ["b", "c", "d"]


def test_a_later_form_takes_the_place_of_the_earlier() -> None:
    """What is explained afterwards stays where it was, and is there once."""
    passes = RecentPasses(3)
    for name in "abc":
        passes.keep({"id": name, "reason": ""})
    passes.keep({"id": "b", "reason": "explained"})
    assert [(kept["id"], kept["reason"]) for kept in passes.all()] == [("a", ""), ("b", "explained"), ("c", "")]
