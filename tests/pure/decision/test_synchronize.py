"""Stories of one look after another: what is reported, what is acted on, and when.

Source: kubelet, `pkg/kubelet/eviction/eviction_manager.go` (synchronize).
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.reclaim_table import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from eviction.decision.synchronize import EvictionConfig, ManagerState
from eviction.decision.thresholds import thresholds_met
from eviction.types import Decision, NodeCondition, Threshold
from signals.types import FsLayout, Signal
from tests.pure.story import Story
from tests.pure.values import GIB, MIB, observation, threshold

NODEFS, NODEFS_INODES = Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE
IMAGEFS, CONTAINERFS = Signal.IMAGEFS_AVAILABLE, Signal.CONTAINERFS_AVAILABLE
C, I = DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES  # noqa: E741 # the table's
PRESSURE = frozenset({NodeCondition.DISK_PRESSURE})
NONE: frozenset[NodeCondition] = frozenset()


def test_a_hard_threshold_is_acted_on_at_the_first_look() -> None:
    """1 byte below 1Gi: DiskPressure, and the whole row, at once."""
    hard = threshold(NODEFS, "1Gi")
    decision = Story(hard).nodefs(0.0, GIB - 1)
    assert decision == Decision(PRESSURE, (hard,), hard, (C, I), FsLayout.SINGLE)


def test_a_node_with_room_is_left_alone() -> None:
    """Exactly at the mark nothing happens."""
    assert Story(threshold(NODEFS, "1Gi")).nodefs(0.0, GIB) == Decision(NONE, (), None, (), FsLayout.SINGLE)


def test_a_soft_threshold_raises_the_condition_at_once_and_acts_after_its_grace() -> None:
    """With a grace of 2 minutes it acts at exactly 120 s, not at 119.9 s."""
    soft = threshold(NODEFS, "1Gi", grace_seconds=120.0)
    story = Story(soft)
    acted = {seconds: story.nodefs(seconds, 0) for seconds in (0.0, 60.0, 119.9, 120.0)}
    assert all(decision.conditions == PRESSURE for decision in acted.values())
    assert {seconds: decision.acted_on for seconds, decision in acted.items()} == {
        0.0: None,
        60.0: None,
        119.9: None,
        120.0: soft,
    }


def test_grace_starts_over_after_one_look_without_pressure() -> None:
    """Clear at 100 s, met again at 110 s: the 120 s are served at 230 s."""
    soft = threshold(NODEFS, "1Gi", grace_seconds=120.0)
    story = Story(soft)
    story.nodefs(0.0, 0)
    story.nodefs(100.0, GIB)
    assert [story.nodefs(seconds, 0).acted_on for seconds in (110.0, 229.0, 230.0)] == [None, None, soft]


def test_minimum_reclaim_keeps_an_acted_on_threshold_met() -> None:
    """Above the mark but below mark and minimum reclaim it is acted on again; at their sum it is over."""
    hard = threshold(NODEFS, "1Gi", min_reclaim="500Mi")
    story = Story(hard)
    available = [GIB - 1, GIB + 100 * MIB, GIB + 500 * MIB - 1, GIB + 500 * MIB, GIB + 100 * MIB]
    acted = [story.nodefs(10.0 * number, amount).acted_on for number, amount in enumerate(available)]
    assert acted == [hard, hard, hard, None, None]


def test_minimum_reclaim_never_triggers_from_above() -> None:
    """Falling into the region between mark and minimum reclaim is nothing."""
    decision = Story(threshold(NODEFS, "1Gi", min_reclaim="500Mi")).nodefs(0.0, GIB + 1)
    assert (decision.conditions, decision.acted_on) == (NONE, None)


def test_minimum_reclaim_does_not_hold_a_soft_threshold_in_its_grace() -> None:
    """What was not acted on is not remembered as unresolved."""
    story = Story(threshold(NODEFS, "1Gi", grace_seconds=120.0, min_reclaim="500Mi"))
    story.nodefs(0.0, 0)
    assert story.nodefs(10.0, GIB).thresholds_met == ()


def test_a_condition_stays_for_less_than_the_transition_period() -> None:
    """Seen last at 10 s, it is reported at 309.9 s and gone at 310 s."""
    story = Story(threshold(NODEFS, "1Gi"))
    story.nodefs(0.0, 0)
    story.nodefs(10.0, 0)
    assert [story.nodefs(seconds, GIB).conditions for seconds in (20.0, 309.9, 310.0)] == [PRESSURE, PRESSURE, NONE]


def test_a_repeated_reading_is_not_acted_on_twice() -> None:
    """Two looks with one reading: the condition stays, the action is taken once."""
    hard = threshold(NODEFS, "1Gi")
    story = Story(hard)
    decisions = [story.at(now, observation(NODEFS, 0, time=time)) for now, time in ((0, 5.0), (10, 5.0), (20, 6.0))]
    assert [decision.acted_on for decision in decisions] == [hard, None, hard]
    assert [decision.thresholds_met for decision in decisions] == [(hard,)] * 3


def test_a_stale_reading_is_no_pressure() -> None:
    """0 bytes in a reading that did not arrive in time raise nothing, act on nothing, and stop nothing else."""
    images = threshold(IMAGEFS, "1Gi")
    story = Story(threshold(NODEFS, "1Gi"), images)
    stale = observation(NODEFS, 0, stale=True)
    assert story.at(0.0, stale).conditions == NONE
    assert story.at(10.0, stale, observation(IMAGEFS, 0, time=10.0)).thresholds_met == (images,)


def test_a_look_at_which_nothing_could_be_read_changes_nothing() -> None:
    """The grace goes on over it, and what was remembered stays as it was."""
    soft = threshold(NODEFS, "1Gi", grace_seconds=60.0)
    story = Story(soft)
    story.nodefs(0.0, 0)
    before = story.state
    decision = story.at(30.0, observation(NODEFS, 50 * GIB, stale=True))
    assert decision == Decision(PRESSURE, (), None, (), FsLayout.SINGLE)
    assert story.state == replace(before, last_look_at=30.0)
    assert story.nodefs(60.0, 0).acted_on is soft


def gapped(*thresholds: Threshold) -> Story:
    """A story in which looks more than 30 s apart are not one after the other."""
    story = Story(*thresholds)
    story.state = replace(story.state, config=replace(story.state.config, longest_gap_seconds=30.0))
    return story


def test_after_a_gap_without_looks_grace_starts_over() -> None:
    """Of 60 s of grace 30 were seen, then nobody looked for 100: it acts 60 s after the first look that came again."""
    soft = threshold(NODEFS, "1Gi", grace_seconds=60.0)
    story = gapped(soft)
    acted = [story.nodefs(seconds, 0).acted_on for seconds in (0.0, 30.0, 130.0, 160.0, 189.0, 190.0)]
    assert acted == [None, None, None, None, None, soft]


def test_looks_that_could_read_nothing_are_no_gap() -> None:
    """Somebody looked: a filesystem that did not answer for 40 s does not start its grace over, as in the kubelet."""
    soft = threshold(NODEFS, "1Gi", grace_seconds=60.0)
    story = gapped(soft)
    story.nodefs(0.0, 0)
    story.at(20.0, observation(NODEFS, 0, stale=True))
    story.at(40.0, observation(NODEFS, 0, stale=True))
    assert story.nodefs(60.0, 0).acted_on is soft


def test_after_a_gap_a_hard_threshold_acts_on_what_is_read_now() -> None:
    """It has no grace to start over, and its reading is new."""
    hard = threshold(NODEFS, "1Gi")
    story = gapped(hard)
    story.nodefs(0.0, GIB)
    assert story.nodefs(1000.0, 0).acted_on is hard


def test_as_long_as_the_layout_is_unknown_nothing_is_acted_on() -> None:
    """The condition is reported, but there is no row to call; when the layout is known there is."""
    hard = threshold(NODEFS, "1Gi")
    story = Story(hard)
    unknown = story.at(0.0, observation(NODEFS, 0, time=0.0), layout=None)
    assert (unknown.conditions, unknown.thresholds_met, unknown.acted_on, unknown.row) == (PRESSURE, (hard,), None, ())
    assert story.nodefs(10.0, 0).acted_on is hard


def test_the_largest_relative_deficit_is_acted_on_first() -> None:
    """Of two met thresholds the one that lacks the larger share of its mark."""
    small, large = threshold(NODEFS, "10Gi"), threshold(IMAGEFS, "2Gi")
    decision = Story(small, large).at(0.0, observation(NODEFS, 9 * GIB), observation(IMAGEFS, GIB))
    assert decision.acted_on is large
    assert decision.thresholds_met == (small, large)


def test_equal_deficits_are_acted_on_in_the_order_of_the_signals() -> None:
    """nodefs before imagefs, bytes before inodes."""
    thresholds = [threshold(signal, "100") for signal in reversed(Signal)]
    seen = [observation(signal, 50, 1000) for signal in Signal]
    decision = Story(*thresholds).at(0.0, *seen)
    assert decision.acted_on is not None
    assert decision.acted_on.signal is NODEFS


def test_pressure_that_nothing_relieves_does_not_keep_a_relievable_one_waiting() -> None:
    """With a dedicated image filesystem an empty nodefs has no row: a smaller deficit of imagefs is acted on."""
    own, images = threshold(NODEFS, "10Gi"), threshold(IMAGEFS, "10Gi")
    seen = (observation(NODEFS, 0), observation(IMAGEFS, 9 * GIB))
    both = Story(own, images).at(0.0, *seen, layout=FsLayout.DEDICATED_IMAGEFS)
    assert (both.acted_on, both.row) == (images, (C, I))
    alone = Story(own).at(0.0, *seen, layout=FsLayout.DEDICATED_IMAGEFS)
    assert (alone.acted_on, alone.row) == (own, ())


@pytest.mark.parametrize(
    ("now", "available", "conditions", "acts"),
    [
        (0.0, 16 * GIB, NONE, False),
        (60.0, 750 * MIB, PRESSURE, True),
        (70.0, 16 * GIB, PRESSURE, False),
        (359.9, 16 * GIB, PRESSURE, False),
        (360.0, 16 * GIB, NONE, False),
        (420.0, 750 * MIB, PRESSURE, True),
        (430.0, 1_100_000_000, PRESSURE, True),
    ],
)
def test_pressure_relief_and_relapse_on_one_filesystem(
    now: float, available: int, conditions: frozenset[NodeCondition], acts: bool
) -> None:
    """Hard 1Gi, minimum reclaim 500Mi, 5 minutes: pressure at 60 s, clear at 360 s, a half relief at 430 s."""
    hard = threshold(NODEFS, "1Gi", min_reclaim="500Mi")
    story = Story(hard)
    told = {0.0: 16 * GIB, 60.0: 750 * MIB, 70.0: 16 * GIB, 359.9: 16 * GIB, 360.0: 16 * GIB, 420.0: 750 * MIB}
    for earlier in (seconds for seconds in told if seconds < now):
        story.nodefs(earlier, told[earlier])
    decision = story.nodefs(now, available)
    assert (decision.conditions, decision.row) == (conditions, (C, I) if acts else ())
    assert decision.acted_on is (hard if acts else None)


def test_a_soft_threshold_on_a_dedicated_image_filesystem() -> None:
    """Soft 2Gi, grace 2 minutes: pressure at 60 s, the row at 180 s, and no second time with the same time stamp."""
    soft = threshold(IMAGEFS, "2Gi", grace_seconds=120.0)
    story = Story(soft)
    rows = {}
    for now, time in ((60.0, 60.0), (170.0, 170.0), (180.0, 180.0), (190.0, 180.0)):
        seen = observation(IMAGEFS, 3 * GIB // 2, time=time)
        decision = story.at(now, seen, layout=FsLayout.DEDICATED_IMAGEFS)
        assert decision.conditions == PRESSURE
        rows[now] = decision.row
    assert rows == {60.0: (), 170.0: (), 180.0: (C, I), 190.0: ()}


@pytest.mark.parametrize(("signal", "row"), [(IMAGEFS, (I,)), (NODEFS, (C,)), (CONTAINERFS, (C,))])
def test_the_split_layout_calls_what_is_on_the_filesystem(signal: Signal, row: tuple[str, ...]) -> None:
    """Images alone: imagefs low removes images only, nodefs or containerfs low removes containers only."""
    story = Story(threshold(NODEFS, "10%"), threshold(IMAGEFS, "15%"), threshold(CONTAINERFS, "10%"))
    seen = [observation(s, GIB if s is signal else 50 * GIB) for s in (NODEFS, IMAGEFS, CONTAINERFS)]
    assert story.at(0.0, *seen, layout=FsLayout.SPLIT).row == row


def test_an_unrelated_soft_threshold_makes_relief_insufficient() -> None:
    """Bytes are back, but inodes are below a soft mark with 59 minutes of grace left: not enough."""
    space, inodes = threshold(NODEFS, "1Gi"), threshold(NODEFS_INODES, "1Mi", grace_seconds=3600.0)
    story = Story(space, inodes)
    low = observation(NODEFS_INODES, 1000, 10**8, time=60.0)
    assert story.at(60.0, observation(NODEFS, 0, time=60.0), low).acted_on is space
    after = {NODEFS: observation(NODEFS, 50 * GIB), NODEFS_INODES: low}
    assert thresholds_met((space, inodes), after, enforce_min_reclaim=True) == (inodes,)


configured = st.lists(
    st.builds(
        threshold,
        st.sampled_from(Signal),
        st.sampled_from(["1Gi", "10%", "0%", "100%", "1"]),
        grace_seconds=st.sampled_from([0.0, 30.0]),
        min_reclaim=st.sampled_from(["", "5%"]),
    ),
    max_size=5,
)
seen_amounts = st.dictionaries(st.sampled_from(Signal), st.tuples(st.integers(0, 12 * GIB), st.booleans()))
looks = st.lists(st.tuples(st.floats(0, 40), seen_amounts, st.sampled_from([*FsLayout, None])), max_size=8)


@given(configured, looks)
def test_nothing_is_acted_on_that_is_not_met_and_the_same_looks_decide_the_same(
    thresholds: list[Threshold],
    told: list[tuple[float, dict[Signal, tuple[int, bool]], FsLayout | None]],
) -> None:
    """What is acted on is below its mark, or below mark and minimum reclaim; a row is only called for it."""
    one, other, now = Story(*thresholds), Story(*thresholds), 0.0
    for step, amounts, layout in told:
        now += step
        seen = [
            observation(signal, amount, 10 * GIB, time=now, stale=stale) for signal, (amount, stale) in amounts.items()
        ]
        decision = one.at(now, *seen, layout=layout)
        assert decision == other.at(now, *seen, layout=layout)
        if decision.acted_on is None:
            assert decision.row == ()
            continue
        found = next(o for o in seen if o.signal is decision.acted_on.signal)
        assert not found.stale
        assert found.available < decision.acted_on.effective(found.capacity, with_min_reclaim=True)
        assert decision.acted_on in decision.thresholds_met
        assert decision.conditions == PRESSURE
        assert layout is not None


def test_a_look_without_any_reading_does_not_let_a_condition_expire() -> None:
    """400 s after the pressure was last seen, but nothing could be read: still reported."""
    story = Story(threshold(NODEFS, "1Gi"))
    story.nodefs(0.0, 0)
    assert story.at(400.0, observation(NODEFS, 0, stale=True)).conditions == PRESSURE


def test_a_filesystem_that_cannot_be_read_freezes_its_own_thresholds_only() -> None:
    """imagefs is stale for 301 s while nodefs is read: its condition stays, and nothing of it is acted on."""
    story = Story(threshold(NODEFS, "1Gi"), threshold(IMAGEFS, "1Gi"))
    story.at(0.0, observation(NODEFS, 50 * GIB), observation(IMAGEFS, 0))
    decision = story.at(301.0, observation(NODEFS, 50 * GIB, time=301.0), observation(IMAGEFS, 0, stale=True))
    assert decision.conditions == PRESSURE
    assert decision.acted_on is None


def test_the_others_are_what_could_be_acted_on_as_well() -> None:
    """In the order of choice and without the first: for a caller that has just found it hopeless."""
    small, large, soft = (
        threshold(NODEFS, "10Gi"),
        threshold(IMAGEFS, "2Gi"),
        threshold(IMAGEFS, "3Gi", grace_seconds=60.0),
    )
    decision = Story(small, large, soft).at(0.0, observation(NODEFS, 9 * GIB), observation(IMAGEFS, GIB))
    assert decision.acted_on == large
    assert [other.signal for other in decision.others] == [NODEFS], "and nothing whose grace has not been served"


def test_a_threshold_that_a_user_set_on_containerfs_has_no_effect_while_the_layout_is_unknown() -> None:
    """It has none in any layout (UpdateContainerFsThresholds), so not before one is known either."""
    written = threshold(CONTAINERFS, "50%")
    assert EvictionConfig((written,)).in_layout(None) == ()
    decision = Story(written).at(0.0, observation(CONTAINERFS, 0), layout=None)
    assert decision == Decision(NONE, (), None, (), None)


def test_without_a_layout_the_thresholds_are_those_configured() -> None:
    """containerfs follows from the layout; while that is not known there is nothing to derive."""
    config = EvictionConfig((threshold(NODEFS, "1Gi"),))
    assert config.in_layout(None) == config.thresholds
    derived = config.in_layout(FsLayout.SINGLE)
    assert [one.signal for one in derived] == [NODEFS, CONTAINERFS]
    assert EvictionConfig().transition_period_seconds == 300.0


def test_thresholds_are_told_in_the_order_met_now_unresolved_unreadable() -> None:
    """nodefs is met now, imagefs is held by its minimum reclaim, the inodes of nodefs were met and cannot be read."""
    space, inodes = threshold(NODEFS, "1Gi"), threshold(NODEFS_INODES, "5")
    images = threshold(IMAGEFS, "1Gi", min_reclaim="500Mi")
    story = Story(inodes, images, space)
    story.at(0.0, observation(IMAGEFS, 0), observation(NODEFS_INODES, 0, 100), observation(NODEFS, GIB))
    seen = (observation(IMAGEFS, GIB), observation(NODEFS_INODES, 0, 100, stale=True), observation(NODEFS, 0))
    assert story.at(10.0, *seen).thresholds_met == (space, images, inodes)


def test_the_transition_period_is_5_minutes_where_nothing_is_said() -> None:
    """And nobody changes a state or its thresholds in place."""
    config = EvictionConfig()
    assert (config.thresholds, config.transition_period_seconds) == ((), 300.0)
    with pytest.raises(FrozenInstanceError):
        config.transition_period_seconds = 1.0  # type: ignore[misc] # that is the point
    with pytest.raises(FrozenInstanceError):
        ManagerState(config).met = ()  # type: ignore[misc] # that is the point
