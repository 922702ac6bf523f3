"""Which threshold is chosen, and which row is called: one pass of `synchronize`.

When a threshold is acted on, over several passes: `test_synchronize`. Source: kubelet,
`pkg/kubelet/eviction/eviction_manager.go` (synchronize, reclaimNodeLevelResources) and
`pkg/kubelet/eviction/helpers.go`.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.synchronize import EvictionConfig, ManagerState
from eviction.decision.thresholds import thresholds_met
from eviction.types import Decision, NodeCondition, Threshold
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from signals.types import KUBELET_SIGNALS, FsLayout, Signal
from tests.pure.story import Story
from tests.pure.values import GIB, MIB, observation, threshold, value

NODEFS, INODES = Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE
IMAGEFS, CONTAINERFS = Signal.IMAGEFS_AVAILABLE, Signal.CONTAINERFS_AVAILABLE
C, I = DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES  # noqa: E741 # the table's
PRESSURE = frozenset({NodeCondition.RECLAIM_PRESSURE})
NONE: frozenset[NodeCondition] = frozenset()


def test_a_percentage_follows_a_filesystem_that_is_resized() -> None:
    """10% of 100Gi are met with 9Gi; after shrinking to 80Gi they are not, after
    growing to 200Gi they are again.
    """
    story = Story(threshold(NODEFS, "10%"))
    sizes = ((0.0, 100), (10.0, 80), (20.0, 200))
    acted = [
        story.at(now, observation(NODEFS, 9 * GIB, size * GIB, time=now)).acted_on
        for now, size in sizes
    ]
    assert [one is not None for one in acted] == [True, False, True]


def test_inodes_of_a_filesystem_that_counts_none() -> None:
    """0 of 0: a percentage is never met, a plain number always."""
    share, number = threshold(INODES, "5%"), threshold(INODES, "1")
    assert Story(share, number).at(0.0, observation(INODES, 0, 0)).thresholds_met == (number,)


def test_without_thresholds_nothing_is_ever_under_pressure() -> None:
    """Not even an empty disk."""
    assert Story().nodefs(0.0, 0) == Decision(frozenset(), (), None, (), FsLayout.SINGLE)


def test_a_threshold_that_is_met_and_unresolved_is_reported_once() -> None:
    """In the second pass it is both met now and not yet resolved."""
    hard = threshold(NODEFS, "1Gi", min_reclaim="500Mi")
    story = Story(hard)
    story.nodefs(0.0, 0)
    assert story.nodefs(10.0, 0).thresholds_met == (hard,)


def test_thresholds_are_reported_in_the_order_met_unresolved_unreadable() -> None:
    """nodefs is met now, imagefs is held by its minimum reclaim, the inodes of nodefs
    were met and cannot be read.
    """
    space, inodes = threshold(NODEFS, "1Gi"), threshold(INODES, "5")
    images = threshold(IMAGEFS, "1Gi", min_reclaim="500Mi")
    story = Story(inodes, images, space)
    story.at(0.0, observation(IMAGEFS, 0), observation(INODES, 0, 100), observation(NODEFS, GIB))
    seen = (
        observation(IMAGEFS, GIB),
        observation(INODES, 0, 100, stale=True),
        observation(NODEFS, 0),
    )
    assert story.at(10.0, *seen).thresholds_met == (space, images, inodes)


def test_the_largest_relative_deficit_is_acted_on_first() -> None:
    """Of two met thresholds that with the larger deficit relative to its mark."""
    small, large = threshold(NODEFS, "10Gi"), threshold(IMAGEFS, "2Gi")
    decision = Story(small, large).at(0.0, observation(NODEFS, 9 * GIB), observation(IMAGEFS, GIB))
    assert decision.acted_on == large
    assert decision.thresholds_met == (small, large)


def test_the_others_are_further_thresholds_to_act_on_in_the_order_of_choice() -> None:
    """Without the chosen one, and without thresholds whose grace period has not passed."""
    small, large, soft = (
        threshold(NODEFS, "10Gi"),
        threshold(IMAGEFS, "2Gi"),
        threshold(IMAGEFS, "3Gi", grace_seconds=60.0),
    )
    decision = Story(small, large, soft).at(
        0.0, observation(NODEFS, 9 * GIB), observation(IMAGEFS, GIB)
    )
    assert decision.acted_on == large
    assert [other.signal for other in decision.others] == [NODEFS], (
        "and nothing whose grace has not been served"
    )


def test_pressure_that_nothing_relieves_does_not_delay_pressure_that_a_function_relieves() -> None:
    """With a dedicated image filesystem the row of nodefs is empty: imagefs is
    chosen, with a smaller deficit.
    """
    own, images = threshold(NODEFS, "10Gi"), threshold(IMAGEFS, "10Gi")
    seen = (observation(NODEFS, 0), observation(IMAGEFS, 9 * GIB))
    both = Story(own, images).at(0.0, *seen, layout=FsLayout.DEDICATED_IMAGEFS)
    assert (both.acted_on, both.row) == (images, (C, I))
    alone = Story(own).at(0.0, *seen, layout=FsLayout.DEDICATED_IMAGEFS)
    assert (alone.acted_on, alone.row) == (own, ())


def test_of_several_that_nothing_relieves_the_one_with_the_largest_deficit_is_chosen() -> None:
    """A dedicated image filesystem, and nodefs lacks bytes and, relatively more, inodes."""
    space, inodes = threshold(NODEFS, "2Gi"), threshold(INODES, "100")
    seen = (observation(NODEFS, GIB), observation(INODES, 1, 1000))
    decision = Story(space, inodes).at(0.0, *seen, layout=FsLayout.DEDICATED_IMAGEFS)
    assert (decision.acted_on, decision.row) == (inodes, ())


def test_while_the_layout_is_unknown_nothing_is_acted_on() -> None:
    """The condition is reported, but there is no row to call before the layout is known."""
    hard = threshold(NODEFS, "1Gi")
    story = Story(hard)
    unknown = story.at(0.0, observation(NODEFS, 0, time=0.0), layout=None)
    assert (unknown.conditions, unknown.thresholds_met, unknown.acted_on, unknown.row) == (
        PRESSURE,
        (hard,),
        None,
        (),
    )
    assert story.nodefs(10.0, 0).acted_on == hard


def test_without_a_layout_the_thresholds_are_those_configured() -> None:
    """Those of containerfs are derived from the layout."""
    config = EvictionConfig((threshold(NODEFS, "1Gi"),))
    assert config.in_layout(None) == config.thresholds
    derived = config.in_layout(FsLayout.SINGLE)
    assert [one.signal for one in derived] == [NODEFS, CONTAINERFS]


def test_a_configured_threshold_of_containerfs_is_ignored_while_the_layout_is_unknown() -> None:
    """As in every layout (UpdateContainerFsThresholds)."""
    written = threshold(CONTAINERFS, "50%")
    assert EvictionConfig((written,)).in_layout(None) == ()
    decision = Story(written).at(0.0, observation(CONTAINERFS, 0), layout=None)
    assert decision == Decision(NONE, (), None, (), None)


def test_the_threshold_of_containerfs_follows_a_layout_that_changes() -> None:
    """A dedicated image filesystem appears: containerfs follows imagefs from
    then on, and at once.
    """
    story = Story(threshold(NODEFS, "1Gi"), threshold(IMAGEFS, "2Gi"))
    seen = (
        observation(NODEFS, 50 * GIB),
        observation(IMAGEFS, 50 * GIB),
        observation(CONTAINERFS, GIB + 1),
    )
    assert story.at(0.0, *seen).acted_on is None
    decision = story.at(
        10.0, *(replace(one, time=10.0) for one in seen), layout=FsLayout.DEDICATED_IMAGEFS
    )
    assert decision.acted_on is not None
    assert (decision.acted_on.signal, decision.acted_on.value) == (CONTAINERFS, value("2Gi"))
    assert decision.row == (C, I)


def test_the_split_layout_takes_the_threshold_of_nodefs_for_containerfs() -> None:
    """Hard nodefs 10% and imagefs 15%: containerfs is under pressure below 10%,
    and calls containers only.
    """
    story = Story(threshold(NODEFS, "10%"), threshold(IMAGEFS, "15%"))
    clear = story.at(0.0, observation(CONTAINERFS, 12 * GIB), layout=FsLayout.SPLIT)
    low = story.at(10.0, observation(CONTAINERFS, 9 * GIB, time=10.0), layout=FsLayout.SPLIT)
    assert (clear.row, low.row) == ((), (C,))


@pytest.mark.parametrize(
    ("layout", "row"),
    [(FsLayout.SINGLE, (C, I)), (FsLayout.DEDICATED_IMAGEFS, ()), (FsLayout.SPLIT, (C,))],
)
def test_the_row_follows_from_the_layout(layout: FsLayout, row: tuple[str, ...]) -> None:
    """A shortage of inodes removes images too on a single filesystem; for a
    dedicated nodefs the row is empty.
    """
    story = Story(threshold(INODES, "5%"))
    decision = story.at(0.0, observation(INODES, 0, 1000), layout=layout)
    assert (decision.conditions, decision.row) == (PRESSURE, row)


def test_a_threshold_that_a_reload_removed_is_neither_held_nor_frozen() -> None:
    """One was acted on and has a minimum reclaim, the other has a stale reading: after
    the reload neither is met.
    """
    story = Story(threshold(NODEFS, "1Gi", min_reclaim="500Mi"), threshold(IMAGEFS, "1Gi"))
    story.at(0.0, observation(NODEFS, 0), observation(IMAGEFS, 0))
    story.reload(threshold(INODES, "1"))
    seen = (observation(NODEFS, GIB + MIB, time=10.0), observation(IMAGEFS, 0, stale=True))
    assert story.at(10.0, *seen).thresholds_met == ()


def test_a_filesystem_that_cannot_be_read_freezes_its_own_thresholds_only() -> None:
    """imagefs is stale for 301 s while nodefs is read: its condition stays, and
    nothing of it is acted on.
    """
    story = Story(threshold(NODEFS, "1Gi"), threshold(IMAGEFS, "1Gi"))
    story.at(0.0, observation(NODEFS, 50 * GIB), observation(IMAGEFS, 0))
    decision = story.at(
        301.0, observation(NODEFS, 50 * GIB, time=301.0), observation(IMAGEFS, 0, stale=True)
    )
    assert decision.conditions == PRESSURE
    assert decision.acted_on is None


@pytest.mark.parametrize(
    ("mark", "reclaim", "available", "met"),
    [
        ("0.0%", "1Gi", GIB - 1, True),
        ("0.0%", "1Gi", GIB, False),
        ("0.0%", "", 0, False),
        ("1Gi", "0", GIB, False),
    ],
)
def test_a_minimum_reclaim_on_0_percent_never_triggers_and_counts_for_success(
    mark: str, reclaim: str, available: int, met: bool
) -> None:
    """With 0 percent the mark is 0, and success still asks for the minimum reclaim."""
    one = threshold(NODEFS, mark, min_reclaim=reclaim)
    seen = {NODEFS: observation(NODEFS, available)}
    assert bool(thresholds_met([one], seen, enforce_min_reclaim=True)) is met
    assert Story(one).nodefs(0.0, available).acted_on is None


def test_success_asks_for_every_threshold_whatever_its_grace_and_the_age_of_its_reading() -> None:
    """A soft threshold of another filesystem, with a reading that is not new, makes
    the reclaim insufficient.
    """
    hard, soft = threshold(NODEFS, "1Gi"), threshold(IMAGEFS, "1Gi", grace_seconds=3600.0)
    old = observation(IMAGEFS, 0, time=-1000.0)
    after = {NODEFS: observation(NODEFS, 50 * GIB), IMAGEFS: old}
    assert thresholds_met([hard, soft], after, enforce_min_reclaim=True) == (soft,)


def test_the_transition_period_is_5_minutes_by_default_and_values_are_immutable() -> None:
    """Neither a configuration nor a state can be changed in place."""
    config = EvictionConfig()
    assert (config.thresholds, config.transition_period_seconds) == ((), 300.0)
    with pytest.raises(FrozenInstanceError):
        config.transition_period_seconds = 1.0  # type: ignore[misc] # that is the point
    with pytest.raises(FrozenInstanceError):
        ManagerState(config).met = ()  # type: ignore[misc] # that is the point


configured = st.lists(
    st.builds(
        threshold,
        st.sampled_from(KUBELET_SIGNALS),
        st.sampled_from(["1Gi", "10%", "0%", "100%", "1"]),
        grace_seconds=st.sampled_from([0.0, 30.0]),
        min_reclaim=st.sampled_from(["", "5%"]),
    ),
    max_size=5,
)
seen_amounts = st.dictionaries(
    st.sampled_from(KUBELET_SIGNALS), st.tuples(st.integers(0, 12 * GIB), st.booleans())
)
passes = st.lists(
    st.tuples(st.floats(0, 40), seen_amounts, st.sampled_from([*FsLayout, None])), max_size=8
)


@given(configured, passes)
def test_only_a_met_threshold_is_acted_on_and_equal_observations_give_equal_decisions(
    thresholds: list[Threshold],
    past: list[tuple[float, dict[Signal, tuple[int, bool]], FsLayout | None]],
) -> None:
    """It is below its mark, or below mark and minimum reclaim; there is no row without it."""
    one, other, now = Story(*thresholds), Story(*thresholds), 0.0
    for step, amounts, layout in past:
        now += step
        seen = [
            observation(signal, amount, 10 * GIB, time=now, stale=stale)
            for signal, (amount, stale) in amounts.items()
        ]
        decision = one.at(now, *seen, layout=layout)
        assert decision == other.at(now, *seen, layout=layout)
        if decision.acted_on is None:
            assert decision.row == ()
            continue
        found = next(o for o in seen if o.signal is decision.acted_on.signal)
        assert not found.stale
        assert found.available < decision.acted_on.mark_with_min_reclaim(found.capacity)
        assert decision.acted_on in decision.thresholds_met
        assert decision.conditions == PRESSURE
        assert layout is not None
