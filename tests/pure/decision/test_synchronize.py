"""When a threshold is acted on and how long a condition is reported: stories of
several passes of `synchronize`.

Covers grace periods, minimum reclaim, the transition period, repeated and stale readings, gaps
without observations. Which threshold is chosen, and which row is called: `test_synchronize_choice`.
Source: kubelet, `pkg/kubelet/eviction/eviction_manager.go` (synchronize) and
`pkg/kubelet/eviction/helpers.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.thresholds import thresholds_met
from eviction.types import Decision, NodeCondition, Threshold
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from signals.types import FsLayout, Signal, SignalObservation
from tests.pure.story import Story
from tests.pure.values import GIB, MIB, observation, threshold
from tests.pure.values import value as value_of

NODEFS, INODES = Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE
IMAGEFS = Signal.IMAGEFS_AVAILABLE
C, I = DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES  # noqa: E741 # the table's
PRESSURE = frozenset({NodeCondition.RECLAIM_PRESSURE})
NONE: frozenset[NodeCondition] = frozenset()


def test_a_hard_threshold_is_acted_on_at_once() -> None:
    """1 byte below 1Gi: ReclaimPressure, and the whole row, at once."""
    hard = threshold(NODEFS, "1Gi")
    decision = Story(hard).nodefs(0.0, GIB - 1)
    assert decision == Decision(PRESSURE, (hard,), hard, (C, I), FsLayout.SINGLE)


def test_a_node_with_room_is_left_alone() -> None:
    """Exactly at the mark nothing is met."""
    assert Story(threshold(NODEFS, "1Gi")).nodefs(0.0, GIB) == Decision(
        NONE, (), None, (), FsLayout.SINGLE
    )


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


def test_a_soft_threshold_with_a_grace_of_0_is_hard() -> None:
    """It is acted on in the first pass."""
    soft = threshold(NODEFS, "1Gi", grace_seconds=0.0)
    assert soft.hard
    assert Story(soft).nodefs(0.0, 0).acted_on == soft


def test_grace_starts_over_after_one_pass_without_pressure() -> None:
    """Clear at 100 s, met again at 110 s: the 120 s are served at 230 s."""
    soft = threshold(NODEFS, "1Gi", grace_seconds=120.0)
    story = Story(soft)
    story.nodefs(0.0, 0)
    story.nodefs(100.0, GIB)
    assert [story.nodefs(seconds, 0).acted_on for seconds in (110.0, 229.0, 230.0)] == [
        None,
        None,
        soft,
    ]


def test_each_signal_has_a_grace_period_of_its_own() -> None:
    """imagefs comes under pressure 60 s after nodefs: its grace of 120 s is
    served at 180 s, not at 120 s.
    """
    nodefs, imagefs = (
        threshold(signal, "1Gi", grace_seconds=120.0) for signal in (NODEFS, IMAGEFS)
    )
    story = Story(nodefs, imagefs)

    def acted_on(now: float, nodefs_available: int, imagefs_available: int) -> Threshold | None:
        seen = (
            observation(NODEFS, nodefs_available, time=now),
            observation(IMAGEFS, imagefs_available, time=now),
        )
        return story.at(now, *seen).acted_on

    assert [acted_on(0.0, 0, GIB), acted_on(60.0, 0, 0), acted_on(120.0, 0, 0)] == [
        None,
        None,
        nodefs,
    ]
    assert [acted_on(179.9, GIB, 0), acted_on(180.0, GIB, 0)] == [None, imagefs]


def test_hard_and_soft_thresholds_of_one_signal_have_grace_periods_of_their_own() -> None:
    """Below the soft mark only the grace of the soft one runs; below the hard mark
    the hard one acts at once.
    """
    hard, soft = threshold(NODEFS, "1Gi"), threshold(NODEFS, "2Gi", grace_seconds=60.0)
    story = Story(hard, soft)
    assert story.nodefs(0.0, 3 * GIB // 2).thresholds_met == (soft,)
    assert story.nodefs(10.0, GIB // 2).acted_on == hard
    assert story.nodefs(60.0, 3 * GIB // 2).acted_on == soft


def test_a_soft_threshold_on_a_dedicated_image_filesystem() -> None:
    """Soft 2Gi, grace 2 minutes: pressure at 60 s, the row at 180 s, and no second time
    with the same time stamp.
    """
    soft = threshold(IMAGEFS, "2Gi", grace_seconds=120.0)
    story = Story(soft)
    rows = {}
    for now, time in ((60.0, 60.0), (170.0, 170.0), (180.0, 180.0), (190.0, 180.0)):
        seen = observation(IMAGEFS, 3 * GIB // 2, time=time)
        decision = story.at(now, seen, layout=FsLayout.DEDICATED_IMAGEFS)
        assert decision.conditions == PRESSURE
        rows[now] = decision.row
    assert rows == {60.0: (), 170.0: (), 180.0: (C, I), 190.0: ()}


def test_minimum_reclaim_keeps_an_acted_on_threshold_met() -> None:
    """Above the mark but below mark and minimum reclaim it is acted on
    again; at their sum it is over.
    """
    hard = threshold(NODEFS, "1Gi", min_reclaim="500Mi")
    story = Story(hard)
    available = [GIB - 1, GIB + 100 * MIB, GIB + 500 * MIB - 1, GIB + 500 * MIB, GIB + 100 * MIB]
    acted = [
        story.nodefs(10.0 * number, amount).acted_on for number, amount in enumerate(available)
    ]
    assert acted == [hard, hard, hard, None, None]


def test_minimum_reclaim_never_triggers_from_above() -> None:
    """Between mark and minimum reclaim, coming from above, nothing is met."""
    decision = Story(threshold(NODEFS, "1Gi", min_reclaim="500Mi")).nodefs(0.0, GIB + 1)
    assert (decision.conditions, decision.acted_on) == (NONE, None)


def test_minimum_reclaim_does_not_hold_a_soft_threshold_in_its_grace() -> None:
    """Only a threshold that was met for its grace period stays met below its minimum reclaim."""
    story = Story(threshold(NODEFS, "1Gi", grace_seconds=120.0, min_reclaim="500Mi"))
    story.nodefs(0.0, 0)
    assert story.nodefs(10.0, GIB).thresholds_met == ()


def test_minimum_reclaim_keeps_a_soft_threshold_met_after_its_grace() -> None:
    """Above the mark, below mark and minimum reclaim, it is acted on again
    without another grace period.
    """
    soft = threshold(NODEFS, "1Gi", grace_seconds=30.0, min_reclaim="500Mi")
    story = Story(soft)
    available = [(0.0, 0), (30.0, 0), (40.0, GIB + MIB), (50.0, GIB + 500 * MIB), (60.0, 0)]
    assert [story.nodefs(now, amount).acted_on for now, amount in available] == [
        None,
        soft,
        soft,
        None,
        None,
    ]


@pytest.mark.regression
@pytest.mark.parametrize("reclaim", ["500%", "99Gi"])
def test_a_minimum_reclaim_that_cannot_be_reached_is_left_out(reclaim: str) -> None:
    """With the mark more than the 100Gi that the filesystem has, or as
    much: it would purge for ever.
    """
    hard = threshold(NODEFS, "1Gi", min_reclaim=reclaim)
    story = Story(hard)
    assert [
        story.nodefs(now, left).acted_on for now, left in ((0.0, 0), (10.0, GIB - 1), (20.0, GIB))
    ] == [
        hard,
        hard,
        None,
    ]


@pytest.mark.regression
@pytest.mark.parametrize(("value", "margin"), [("10Gi", "500Ti"), ("10Gi", "90Gi"), ("60%", "50%")])
def test_a_margin_that_can_never_be_cleared_is_left_out(value: str, margin: str) -> None:
    """Of a filesystem of 100Gi: what is above the kubelet's own value, too,
    would be removed for ever.
    """
    inherited = replace(threshold(NODEFS, value), margin=value_of(margin))
    story, own = Story(inherited), threshold(NODEFS, value).mark(100 * GIB)
    assert [
        story.nodefs(now, left).acted_on for now, left in ((0.0, own), (10.0, own - 1), (20.0, own))
    ] == [
        None,
        inherited,
        None,
    ]


def test_a_condition_stays_for_less_than_the_transition_period() -> None:
    """Seen last at 10 s, it is reported at 309.9 s and gone at 310 s."""
    story = Story(threshold(NODEFS, "1Gi"))
    story.nodefs(0.0, 0)
    story.nodefs(10.0, 0)
    assert [story.nodefs(seconds, GIB).conditions for seconds in (20.0, 309.9, 310.0)] == [
        PRESSURE,
        PRESSURE,
        NONE,
    ]


def test_node_conditions_are_held_by_an_unmet_minimum_reclaim() -> None:
    """Between mark and minimum reclaim every pass renews the condition, for longer
    than the transition period.
    """
    story = Story(threshold(NODEFS, "1Gi", min_reclaim="500Mi"), transition_period_seconds=15.0)
    story.nodefs(0.0, 0)
    assert all(
        story.nodefs(float(now), GIB + MIB).conditions == PRESSURE for now in range(10, 100, 10)
    )
    assert story.nodefs(100.0, GIB + 500 * MIB).conditions == PRESSURE
    assert story.nodefs(105.0, GIB + 500 * MIB).conditions == frozenset()


def test_a_relief_does_not_clear_the_condition_and_a_relapse_is_a_new_trigger() -> None:
    """Met again within the transition period, it is acted on at once: the
    decision has no back-off.
    """
    hard = threshold(NODEFS, "1Gi")
    story = Story(hard)
    decisions = [
        story.nodefs(now, amount) for now, amount in ((0.0, 0), (10.0, 50 * GIB), (20.0, 0))
    ]
    assert [decision.conditions for decision in decisions] == [PRESSURE] * 3
    assert [decision.acted_on for decision in decisions] == [hard, None, hard]


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
    """Hard 1Gi, minimum reclaim 500Mi, 5 minutes: pressure at 60 s, clear at 360
    s, a half relief at 430 s.
    """
    hard = threshold(NODEFS, "1Gi", min_reclaim="500Mi")
    story = Story(hard)
    past = {
        0.0: 16 * GIB,
        60.0: 750 * MIB,
        70.0: 16 * GIB,
        359.9: 16 * GIB,
        360.0: 16 * GIB,
        420.0: 750 * MIB,
    }
    for earlier in (seconds for seconds in past if seconds < now):
        story.nodefs(earlier, past[earlier])
    decision = story.nodefs(now, available)
    assert (decision.conditions, decision.row) == (conditions, (C, I) if acts else ())
    assert decision.acted_on == (hard if acts else None)


def test_a_reading_is_new_if_it_is_newer_than_that_of_the_pass_before() -> None:
    """Times 10, 5, 6: 5 is older than 10, but 6 is newer than 5, and is acted on."""
    hard = threshold(NODEFS, "1Gi")
    story = Story(hard)
    acted = [
        story.at(now, observation(NODEFS, 0, time=time)).acted_on
        for now, time in ((0, 10.0), (1, 5.0), (2, 6.0))
    ]
    assert acted == [hard, None, hard]


def test_a_signal_that_was_missing_for_one_pass_counts_as_new() -> None:
    """Even with the time that it had before."""
    hard = threshold(NODEFS, "1Gi")
    story = Story(hard)
    low, other = observation(NODEFS, 0, time=5.0), observation(IMAGEFS, GIB, time=1.0)
    assert [
        story.at(now, *seen).acted_on for now, seen in ((0, (low,)), (1, (other,)), (2, (low,)))
    ] == [
        hard,
        None,
        hard,
    ]


def test_a_repeated_reading_counts_for_everything_but_acting() -> None:
    """Conditions, times of first observation and grace go on with the old reading."""
    soft = threshold(IMAGEFS, "1Gi", grace_seconds=20.0)
    story = Story(soft)
    for now in (0.0, 10.0, 20.0):
        decision = story.at(now, observation(IMAGEFS, 0, time=1.0))
        assert (decision.conditions, decision.acted_on) == (PRESSURE, None)
    assert story.state.met == (soft,)
    assert story.at(30.0, observation(IMAGEFS, 0, time=30.0)).acted_on == soft


def test_a_stale_reading_is_no_pressure() -> None:
    """0 bytes in a stale reading raise no condition and are not acted on;
    other filesystems are served.
    """
    images = threshold(IMAGEFS, "1Gi")
    story = Story(threshold(NODEFS, "1Gi"), images)
    stale = observation(NODEFS, 0, stale=True)
    assert story.at(0.0, stale).conditions == NONE
    assert story.at(10.0, stale, observation(IMAGEFS, 0, time=10.0)).thresholds_met == (images,)


def test_a_pass_that_could_read_nothing_changes_nothing() -> None:
    """400 s without a reading: the condition does not expire, the grace goes on,
    and nothing else changes.
    """
    soft = threshold(NODEFS, "1Gi", grace_seconds=60.0)
    story = Story(soft)
    story.nodefs(0.0, 0)
    before = story.state
    decision = story.at(400.0, observation(NODEFS, 50 * GIB, stale=True))
    assert decision == Decision(PRESSURE, (), None, (), FsLayout.SINGLE)
    assert story.state == replace(before, last_observed_at=400.0)
    assert story.nodefs(401.0, 0).acted_on == soft


def test_a_grace_that_ends_while_nothing_can_be_read_is_not_served_before_the_next_reading() -> (
    None
):
    """Low at 1 s, unreadable at 26 s when the grace of 25 s is over, back at its mark at 27 s: no
    pressure, and the minimum reclaim of a threshold that was never acted on holds nothing."""
    story = Story(threshold(IMAGEFS, "1Gi", grace_seconds=25.0, min_reclaim="5%"))
    for now, seen in (
        (1.0, [observation(IMAGEFS, 0, time=1.0)]),
        (26.0, [observation(IMAGEFS, 0, time=26.0, stale=True), observation(NODEFS, 0, time=26.0)]),
        (27.0, [observation(IMAGEFS, GIB, time=27.0)]),
    ):
        assert story.at(now, *seen).acted_on is None


def gapped(*thresholds: Threshold) -> Story:
    """A story with a longest gap of 30 s between two passes."""
    story = Story(*thresholds)
    story.state = replace(story.state, config=replace(story.state.config, longest_gap_seconds=30.0))
    return story


def test_after_a_gap_without_observations_grace_starts_over() -> None:
    """30 s of a grace of 60 s, then 100 s without observations: it acts 60
    s after the first new one.
    """
    soft = threshold(NODEFS, "1Gi", grace_seconds=60.0)
    story = gapped(soft)
    acted = [
        story.nodefs(seconds, 0).acted_on for seconds in (0.0, 30.0, 130.0, 160.0, 189.0, 190.0)
    ]
    assert acted == [None, None, None, None, None, soft]


def test_passes_that_could_read_nothing_are_no_gap() -> None:
    """A filesystem that did not answer for 40 s does not start its grace over,
    as in the kubelet.
    """
    soft = threshold(NODEFS, "1Gi", grace_seconds=60.0)
    story = gapped(soft)
    story.nodefs(0.0, 0)
    story.at(20.0, observation(NODEFS, 0, stale=True))
    story.at(40.0, observation(NODEFS, 0, stale=True))
    assert story.nodefs(60.0, 0).acted_on == soft


def test_after_a_gap_a_hard_threshold_acts_on_what_is_read_now() -> None:
    """It has no grace period, and its reading is new."""
    hard = threshold(NODEFS, "1Gi")
    story = gapped(hard)
    story.nodefs(0.0, GIB)
    assert story.nodefs(1000.0, 0).acted_on == hard


@dataclass
class Oracle:
    """What the rules need to remember, kept in the plainest way, beside the state under test."""

    met_since: dict[Threshold, float] = field(default_factory=dict)
    served: set[Threshold] = field(default_factory=set)
    reading_times: dict[Signal, float] = field(default_factory=dict)
    pressure_at: float | None = None

    def take_in(
        self, concerned: list[Threshold], usable: dict[Signal, SignalObservation], now: float
    ) -> None:
        """Which of these thresholds hold, since when, and which have served their grace."""
        for one in concerned:
            reading = usable.get(one.signal)
            held = one in self.served
            if reading is None or reading.available >= (
                one.mark_with_min_reclaim if held else one.mark
            )(reading.capacity):
                self.met_since.pop(one, None)
                self.served.discard(one)
            elif now - self.met_since.setdefault(one, now) >= one.grace_seconds:
                self.served.add(one)


configured = st.lists(
    st.builds(
        threshold,
        st.sampled_from([NODEFS, INODES, IMAGEFS]),
        st.sampled_from(["1Gi", "10%", "1"]),
        grace_seconds=st.sampled_from([0.0, 25.0, 60.0]),
        min_reclaim=st.sampled_from(["", "5%"]),
    ),
    max_size=4,
    unique_by=lambda one: (one.signal, one.value, one.grace_seconds),
)
readings = st.dictionaries(
    st.sampled_from([NODEFS, INODES, IMAGEFS]),
    st.tuples(st.integers(0, 3 * GIB), st.sampled_from(["fresh", "fresh", "repeated", "stale"])),
)
PERIOD_SECONDS = 45.0


@given(configured, st.lists(st.tuples(st.floats(0.5, 40), readings), max_size=12))
def test_acting_needs_pressure_a_served_grace_and_a_new_reading_and_conditions_last_their_period(
    thresholds: list[Threshold], past: list[tuple[float, dict[Signal, tuple[int, str]]]]
) -> None:
    """Checked against an oracle that keeps need, grace, readings and the time of
    the last pressure by itself.
    """
    story, oracle, now = Story(*thresholds, transition_period_seconds=PERIOD_SECONDS), Oracle(), 0.0
    for step, amounts in past:
        now += step
        seen: dict[Signal, SignalObservation] = {}
        for signal, (available, kind) in amounts.items():
            time = oracle.reading_times.get(signal, now) if kind == "repeated" else now
            seen[signal] = observation(
                signal, available, 10 * GIB, time=time, stale=kind == "stale"
            )
        decision = story.at(now, *seen.values())
        usable = {signal: reading for signal, reading in seen.items() if not reading.stale}
        if usable:  # a pass without any reading changes nothing
            oracle.take_in(
                [one for one in thresholds if one.signal in usable or one.signal not in seen],
                usable,
                now,
            )
        acted_on = decision.acted_on
        if acted_on is not None:
            reading = seen[acted_on.signal]
            assert not reading.stale
            assert reading.available < acted_on.mark_with_min_reclaim(reading.capacity), (
                "there is need"
            )
            assert acted_on in oracle.served, "the grace was served"
            assert (
                amounts[acted_on.signal][1] == "fresh"
                or acted_on.signal not in oracle.reading_times
            )
        if usable:
            oracle.reading_times = {
                signal: reading.time or 0.0 for signal, reading in usable.items()
            }
        if thresholds_met(thresholds, seen, enforce_min_reclaim=False):
            oracle.pressure_at = now
        if oracle.pressure_at is not None and now - oracle.pressure_at < PERIOD_SECONDS:
            assert decision.conditions == PRESSURE, "a condition does not vanish inside the period"
