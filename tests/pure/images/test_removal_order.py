"""Least recently used first, unless the disk would be full before that order has freed enough."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.disk_need import NEVER, Need, OrderDecision
from reclaim.images.removal_order import (
    MOST_REPOSITORIES,
    ImageRemovalOrder,
    RemovalHistory,
    choose,
    record_removal,
    repository,
    seconds_needed,
)
from reclaim.types import Action, Kind, Outcome, Reason, Result, Verdict
from tests.pure.values import GIB, MIB

TENTH = RemovalHistory(seconds=0.1)  # a removal takes 0.1 s and brings what the runtime promised
FIFTH = RemovalHistory(seconds=0.2)


def image(number: int, size_bytes: int | None = MIB, name: str = "") -> Verdict:
    """A verdict to remove; the lower number was used longer ago."""
    return Verdict(Kind.IMAGE, f"image-{number}", name or f"r/{number}:1", Action.REMOVE, Reason.UNUSED, size_bytes)


def images(*sizes: int | None) -> list[Verdict]:
    """Images of these sizes, least recently used first."""
    return [image(number, size) for number, size in enumerate(sizes)]


def going(order: ImageRemovalOrder, pending: Sequence[Verdict], need: Need | None) -> list[str]:
    """The ids in the order in which they go, were the need the same all the time."""
    left = list(pending)
    return [left.pop(order.next_index(left, need)).id for _ in pending]


def test_in_time_the_least_recently_used_is_removed_first() -> None:
    """9 images of 10 MiB at 0.1 s each are 90 MiB in 0.9 s; the disk is full in 2 s: their order stays."""
    plan = images(*[10 * MIB] * 9, 500 * MIB)
    order = ImageRemovalOrder(TENTH, 1)
    assert going(order, plan, Need(90 * MIB, 100, 50.0)) == [verdict.id for verdict in plan]
    assert order.decision is not None
    assert (order.decision.by_yield, order.decision.sentence) == (False, "")
    assert order.decision.seconds_to_full == 2.0


def test_too_late_the_largest_yield_is_removed_first_with_the_reason() -> None:
    """The old ones bring too little before the disk is full in 0.5 s; the one of 500 MiB brings it at once."""
    plan = images(10 * MIB, 20 * MIB, 500 * MIB)
    need = Need(missing=400 * MIB, left=50 * MIB, fill_per_second=100.0 * MIB)
    order = ImageRemovalOrder(FIFTH, 1)
    assert plan[order.next_index(plan, need)].id == "image-2"
    assert order.decision is not None
    assert order.decision.seconds_by_last_use == pytest.approx(0.6)
    assert order.decision.sentence == (
        "largest yield of bytes first: the disk is full in 0.5 s, and least recently used first would take 0.6 s"
    )


def test_as_soon_as_there_is_time_the_least_recently_used_is_removed_again() -> None:
    """Each removal is chosen anew; the decision reported is the one for the largest yield."""
    plan, order = images(10 * MIB, 500 * MIB, 20 * MIB), ImageRemovalOrder(FIFTH, 1)
    assert order.next_index(plan, Need(400 * MIB, 10 * MIB, 100.0 * MIB)) == 1
    del plan[1]
    assert order.next_index(plan, Need(5 * MIB, 400 * MIB, 1.0 * MIB)) == 0
    assert order.decision is not None
    assert order.decision.by_yield


def test_where_not_even_everything_is_enough_and_the_disk_is_full_before_its_end_the_largest_is_removed_first() -> None:
    """As much room as can be had, as soon as can be."""
    order = ImageRemovalOrder(TENTH, 1)
    assert going(order, images(MIB, 2 * MIB), Need(GIB, MIB, 10.0 * MIB)) == ["image-1", "image-0"]
    assert order.decision is not None
    assert order.decision.sentence.endswith("least recently used first would never free enough")


def test_where_everything_is_removed_in_time_the_order_is_kept() -> None:
    """Not even everything is enough, but all is removed long before the disk is full: least recently used first."""
    assert not choose(images(MIB, 2 * MIB), TENTH, Need(GIB, GIB, 1.0 * MIB)).by_yield


@pytest.mark.parametrize("fill", [0.0, -5.0])
def test_a_disk_that_does_not_fill_leaves_the_order_alone(fill: float) -> None:
    """It is never full, so there is time, even if removing everything is not enough."""
    found = choose(images(MIB, 2 * MIB), TENTH, Need(GIB, 0, fill))
    assert (found.by_yield, found.seconds_to_full) == (False, NEVER)


def test_what_is_relieved_already_is_left_alone() -> None:
    """Nothing is missing: the order says nothing."""
    assert not choose(images(MIB, GIB), TENTH, Need(0, 0, 1e9)).by_yield


def test_without_a_need_nothing_is_chosen() -> None:
    """Without a need the order is that of the plan, and no decision is reported."""
    order = ImageRemovalOrder(TENTH, 1)
    assert order.next_index(images(MIB, GIB), None) == 0
    assert order.decision is None


def test_the_fill_goes_on_during_the_removals() -> None:
    """10 MiB are missing, an image brings 10 MiB in 0.1 s, and 50 MiB/s take 5 of them away: two are needed."""
    need = Need(10 * MIB, GIB, 50.0 * MIB)
    assert seconds_needed(images(10 * MIB, 10 * MIB, 10 * MIB), TENTH, need) == 0.2


def test_side_by_side_the_order_has_more_time() -> None:
    """What takes 0.6 s one after another is in time for 0.4 s where two go at a time."""
    plan, need = images(MIB, MIB, 2 * MIB), Need(missing=4 * MIB - 20, left=4, fill_per_second=10.0)
    assert choose(plan, FIFTH, need).by_yield
    assert not choose(plan, FIFTH, need, parallel=2).by_yield


def removed(verdict: Verdict, freed_bytes: int, freed_inodes: int, seconds: float) -> Outcome:
    """An image that went."""
    return Outcome(verdict, Result.REMOVED, "", seconds, freed_bytes, freed_inodes)


def test_for_inodes_the_image_of_many_files_is_removed_first() -> None:
    """An image of 1 MiB whose repository has brought 3 000 inodes goes before one of 500 MiB that has brought 3."""
    known = record_removal(removed(image(0, 500 * MIB, "r/model:1"), GIB, 3, 0.2), FIFTH)
    known = record_removal(removed(image(1, MIB, "r/sources:1"), 3 * MIB, 3000, 0.2), known)
    plan = [image(2, 500 * MIB, "r/model:2"), image(3, MIB, "r/sources:2")]
    order = ImageRemovalOrder(known, 1)
    assert order.next_index(plan, Need(2000, 100, 5000.0, inodes=True)) == 1
    assert order.decision is not None
    assert order.decision.sentence.startswith("largest yield of inodes first: ")
    assert order.next_index(plan, Need(GIB, 100, 5000.0)) == 0, "of bytes it is the other one"


def test_an_image_without_a_size_comes_last() -> None:
    """Of which nothing is known is taken to bring nothing; equal ones keep their order."""
    plan = images(MIB, None, MIB)
    assert going(ImageRemovalOrder(TENTH, 1), plan, Need(GIB, 0, 1.0)) == ["image-0", "image-2", "image-1"]


def test_removals_teach_what_a_promised_byte_brings() -> None:
    """containerd frees about twice what it promises: after some images of 20 MiB that is what is expected."""
    known = RemovalHistory()
    for number in range(20):
        known = record_removal(removed(image(number, 20 * MIB), 40 * MIB, 200, 0.01), known)
    assert known.expected_yield(image(99, 50 * MIB), inodes=False) == pytest.approx(100 * MIB, rel=0.01)
    assert known.expected_yield(image(99, 50 * MIB), inodes=True) == pytest.approx(500, rel=0.01)
    assert known.expected_yield(image(99, None), inodes=False) == 0
    assert known.seconds_each == pytest.approx(0.01, rel=0.2)


def test_one_removal_that_freed_nothing_does_not_make_all_images_worthless() -> None:
    """Its layers were shared: others still differ by their size."""
    known = record_removal(removed(image(0, 10 * MIB), 0, 0, 0.01), RemovalHistory())
    assert 0 < known.expected_yield(image(1, MIB), inodes=False) < known.expected_yield(image(2, 2 * MIB), inodes=False)


def test_what_teaches_nothing_leaves_what_was_known() -> None:
    """Failures, containers and images without a size say nothing."""
    failed = Outcome(image(0), Result.FAILED, "", 1.0)
    container = Outcome(Verdict(Kind.CONTAINER, "c", "c", Action.REMOVE, Reason.POD_GONE, 5), Result.REMOVED)
    for outcome in (failed, container, removed(image(0, None), 5, 5, 1.0), removed(image(0, 0), 5, 5, 1.0)):
        assert record_removal(outcome, TENTH) is TENTH


def test_the_repositories_that_are_remembered_are_bounded() -> None:
    """The last 256 of them: a daemon that runs for years does not grow by it."""
    known = RemovalHistory()
    for number in range(MOST_REPOSITORIES + 10):
        known = record_removal(removed(image(number), MIB, 1, 0.01), known)
    assert len(known.by_repository) == MOST_REPOSITORIES
    assert "r/9" not in known.by_repository
    assert "r/10" in known.by_repository


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("registry.example:5000/team/app:1", "registry.example:5000/team/app"),
        ("registry.example/app@sha256:ab", "registry.example/app"),
        ("registry.example/app:1@sha256:ab", "registry.example/app"),
        ("app:1", "app"),
        ("sha256:abcd", "sha256:abcd"),
    ],
)
def test_a_repository_is_the_name_without_tag_and_digest(name: str, expected: str) -> None:
    """A port is no tag, and an id is its own."""
    assert repository(name) == expected


@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=20),
    st.floats(0.001, 10),
    st.integers(-(2**40), 2**40),
    st.integers(-(2**40), 2**40),
    st.floats(-1e9, 1e9),
    st.integers(1, 8),
)
def test_every_image_is_removed_once_and_the_next_one_frees_most_or_was_used_longest_ago(
    sizes: list[int], seconds: float, missing: int, left: int, fill: float, parallel: int
) -> None:
    """Nothing is added or lost; times are no NaN; the largest yield goes first only on a disk that fills."""
    plan, need = images(*sizes), Need(missing, left, fill)
    order = ImageRemovalOrder(RemovalHistory(seconds=seconds), parallel)
    place = order.next_index(plan, need)
    chosen = order.decision
    assert isinstance(chosen, OrderDecision)
    assert not math.isnan(chosen.seconds_by_last_use)
    assert sizes[place] == max(sizes) if chosen.by_yield else place == 0
    assert fill > 0 or not chosen.by_yield
    assert sorted(going(order, plan, need)) == sorted(verdict.id for verdict in plan)
