"""Least recently used first, unless the disk would be full before that order has freed enough."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaim.types import Action, Kind, Outcome, Plan, Reason, Result, Verdict
from reclaim.yield_order import (
    NEVER,
    Experience,
    Need,
    Yield,
    estimated_yields,
    learn,
    ordered,
    seconds_needed,
)
from tests.pure.values import GIB, MIB


def image(number: int, size_bytes: int | None = MIB) -> Verdict:
    """A verdict to remove; the lower number was used longer ago."""
    return Verdict(Kind.IMAGE, f"image-{number}", f"name-{number}", Action.REMOVE, Reason.UNUSED, size_bytes)


def plan_of(*sizes: int | None) -> Plan:
    """A plan of images of these sizes, least recently used first."""
    return Plan(tuple(image(number, size) for number, size in enumerate(sizes)))


def ids(plan: Plan) -> list[str]:
    return [verdict.id for verdict in plan.remove]


def yields(*amounts: float, seconds: float = 0.1) -> dict[str, Yield]:
    """What the images bring, in their order."""
    return {f"image-{number}": Yield(amount, seconds) for number, amount in enumerate(amounts)}


def test_in_time_the_least_recently_used_goes_first() -> None:
    """10 images of 10 MiB at 0.1 s each need 1 s for 100 MiB; the disk is full in 2 s: nothing changes."""
    plan = plan_of(*[10 * MIB] * 9, 500 * MIB)
    found = ordered(plan, yields(*[10 * MIB] * 9, 500 * MIB), Need(90 * MIB, 100, 50.0))
    assert found.plan == plan
    assert not found.by_yield
    assert found.sentence == ""
    assert found.seconds_to_full == 2.0


def test_too_late_the_largest_yield_goes_first_and_says_why() -> None:
    """The old ones bring too little before the disk is full in 0.5 s; the one of 500 MiB brings it at once."""
    plan = plan_of(10 * MIB, 20 * MIB, 500 * MIB)
    need = Need(missing=400 * MIB, left=50 * MIB, fill_per_second=100.0 * MIB)
    found = ordered(plan, yields(10 * MIB, 20 * MIB, 500 * MIB, seconds=0.2), need)
    assert ids(found.plan) == ["image-2", "image-1", "image-0"]
    assert found.by_yield
    assert found.seconds_by_last_use == pytest.approx(0.6)
    assert found.sentence == (
        "largest yield first: the disk is full in 0.5 s, and least recently used first would take 0.6 s"
    )


def test_where_not_even_everything_is_enough_the_largest_goes_first_too() -> None:
    """As much room as can be had, as soon as can be."""
    found = ordered(plan_of(MIB, 2 * MIB), yields(MIB, 2 * MIB), Need(GIB, GIB, 1.0 * MIB))
    assert ids(found.plan) == ["image-1", "image-0"]
    assert found.sentence.endswith("least recently used first would never free enough")


def test_a_disk_that_does_not_fill_leaves_the_order_alone() -> None:
    """It is never full, so there is no hurry, even where everything is not enough."""
    for fill in (0.0, -5.0):
        found = ordered(plan_of(MIB, 2 * MIB), yields(MIB, 2 * MIB), Need(GIB, 0, fill))
        assert (found.by_yield, found.seconds_to_full) == (False, NEVER)


def test_what_is_relieved_already_is_left_alone() -> None:
    """Nothing is missing: the order says nothing."""
    assert not ordered(plan_of(MIB, GIB), yields(MIB, GIB), Need(0, 0, 1e9)).by_yield


def test_the_fill_goes_on_during_the_removals() -> None:
    """10 MiB are missing, an image brings 10 MiB in 0.1 s, and 50 MiB/s take 5 of them away: two are needed."""
    need = Need(10 * MIB, GIB, 50.0 * MIB)
    assert seconds_needed(plan_of(MIB, MIB, MIB).remove, yields(10 * MIB, 10 * MIB, 10 * MIB), need) == 0.2


def test_side_by_side_the_order_has_more_time() -> None:
    """What takes 0.6 s one after another is in time for 0.4 s where two go at a time."""
    plan, brings = plan_of(MIB, MIB, 2 * MIB), yields(MIB, MIB, 2 * MIB, seconds=0.2)
    need = Need(missing=4 * MIB - 20, left=4, fill_per_second=10.0)
    assert ordered(plan, brings, need).by_yield
    assert not ordered(plan, brings, need, parallel=2).by_yield


def test_of_inodes_the_image_of_many_files_goes_first() -> None:
    """The unit that is short decides, not the size."""
    plan = plan_of(500 * MIB, MIB)
    found = ordered(plan, yields(3, 3000), Need(missing=2000, left=100, fill_per_second=5000.0))
    assert ids(found.plan) == ["image-1", "image-0"]


def test_an_image_without_a_yield_comes_last() -> None:
    """Of which nothing is known is taken to bring nothing."""
    found = ordered(plan_of(MIB, None, MIB), {"image-2": Yield(MIB, 1.0)}, Need(MIB, 0, 1.0))
    assert ids(found.plan) == ["image-2", "image-0", "image-1"]


def removed(size_bytes: int | None, freed_bytes: int, freed_inodes: int, seconds: float) -> Outcome:
    """An image that went."""
    return Outcome(image(0, size_bytes), Result.REMOVED, "", seconds, freed_bytes, freed_inodes)


def test_removals_teach_what_a_promised_byte_brings() -> None:
    """containerd frees about twice what it promises: 20 MiB promised brought 40 MiB and 200 inodes in 10 ms each."""
    learned = learn([removed(10 * MIB, 25 * MIB, 150, 0.005), removed(10 * MIB, 15 * MIB, 50, 0.015)])
    assert learned == Experience(2.0, 200 / (20 * MIB), 0.01)
    brings = estimated_yields(plan_of(50 * MIB, None), learned, inodes=False)
    assert brings == {"image-0": Yield(100.0 * MIB, 0.01), "image-1": Yield(0.0, 0.01)}
    assert estimated_yields(plan_of(50 * MIB), learned, inodes=True)["image-0"].amount == pytest.approx(500)


def test_what_teaches_nothing_leaves_what_was_known() -> None:
    """Failures, containers and images without a size say nothing."""
    before = Experience(3.0, 1.0, 1.0)
    failed = Outcome(image(0), Result.FAILED, "", 1.0)
    assert learn([failed, removed(None, 5, 5, 1.0), removed(0, 5, 5, 1.0)], before) == before
    assert learn([]) == Experience()


@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.floats(0, 10)), max_size=20),
    st.integers(-(2**40), 2**40),
    st.integers(-(2**40), 2**40),
    st.floats(-1e9, 1e9),
    st.integers(1, 8),
)
def test_an_order_is_always_of_the_same_images_and_never_slower_to_the_first_gain(
    images: list[tuple[int, float]], missing: int, left: int, fill: float, parallel: int
) -> None:
    """Nothing is added, lost or changed; the first one brings at least as much as before; times are no NaN."""
    plan = plan_of(*[amount for amount, _ in images])
    brings = {f"image-{number}": Yield(amount, seconds) for number, (amount, seconds) in enumerate(images)}
    found = ordered(plan, brings, Need(missing, left, fill), parallel=parallel)
    assert sorted(ids(found.plan)) == sorted(ids(plan))
    assert found.plan.keep == plan.keep
    assert not math.isnan(found.seconds_by_last_use)
    if found.by_yield:
        amounts = [brings[name].amount for name in ids(found.plan)]
        assert amounts == sorted(amounts, reverse=True)
    else:
        assert found.plan == plan
