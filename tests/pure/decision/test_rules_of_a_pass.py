"""The rules of one pass of the kubelet's eviction manager, each as a story or a property.

Sources: `pkg/kubelet/eviction/eviction_manager.go` (synchronize, reclaimNodeLevelResources) and
`pkg/kubelet/eviction/helpers.go`; the function is named with each rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.reclaim_table import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from eviction.decision.thresholds import thresholds_met
from eviction.types import Decision, NodeCondition, Threshold
from signals.types import FsLayout, Signal, SignalObservation
from tests.pure.story import Story
from tests.pure.values import GIB, MIB, observation, threshold, value

NODEFS, INODES = Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE
IMAGEFS, CONTAINERFS = Signal.IMAGEFS_AVAILABLE, Signal.CONTAINERFS_AVAILABLE
C, I = DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES  # noqa: E741 # the table's
PRESSURE = frozenset({NodeCondition.DISK_PRESSURE})


def test_thresholds_met_percentages_follow_a_filesystem_that_is_resized() -> None:
    """10% of 100Gi are met with 9Gi; after shrinking to 80Gi they are not, after growing to 200Gi they are again."""
    story = Story(threshold(NODEFS, "10%"))
    sizes = ((0.0, 100), (10.0, 80), (20.0, 200))
    acted = [story.at(now, observation(NODEFS, 9 * GIB, size * GIB, time=now)).acted_on for now, size in sizes]
    assert [one is not None for one in acted] == [True, False, True]


def test_merge_thresholds_does_not_count_one_threshold_twice() -> None:
    """Met now and not yet resolved at once: it is told once."""
    hard = threshold(NODEFS, "1Gi", min_reclaim="500Mi")
    story = Story(hard)
    story.nodefs(0.0, 0)
    assert story.nodefs(10.0, 0).thresholds_met == (hard,)


def test_thresholds_met_first_observed_at_is_not_shared_between_signals_of_equal_content() -> None:
    """imagefs comes under pressure 60 s after nodefs: its grace of 120 s is served at 180 s, not at 120 s."""
    nodefs, imagefs = (threshold(signal, "1Gi", grace_seconds=120.0) for signal in (NODEFS, IMAGEFS))
    story = Story(nodefs, imagefs)

    def acted_on(now: float, nodefs_available: int, imagefs_available: int) -> Threshold | None:
        seen = (observation(NODEFS, nodefs_available, time=now), observation(IMAGEFS, imagefs_available, time=now))
        return story.at(now, *seen).acted_on

    assert [acted_on(0.0, 0, GIB), acted_on(60.0, 0, 0), acted_on(120.0, 0, 0)] == [None, None, nodefs]
    assert [acted_on(179.9, GIB, 0), acted_on(180.0, GIB, 0)] == [None, imagefs]


def test_thresholds_met_grace_period_hard_and_soft_of_one_signal_serve_apart() -> None:
    """Below the soft mark only the soft one counts its grace; below the hard one it acts at once."""
    hard, soft = threshold(NODEFS, "1Gi"), threshold(NODEFS, "2Gi", grace_seconds=60.0)
    story = Story(hard, soft)
    assert story.nodefs(0.0, 3 * GIB // 2).thresholds_met == (soft,)
    assert story.nodefs(10.0, GIB // 2).acted_on is hard
    assert story.nodefs(60.0, 3 * GIB // 2).acted_on is soft


def test_thresholds_met_grace_period_a_soft_threshold_that_acted_is_held_by_its_minimum_reclaim() -> None:
    """Above the mark, below mark and minimum reclaim: it goes on acting without serving its grace again."""
    soft = threshold(NODEFS, "1Gi", grace_seconds=30.0, min_reclaim="500Mi")
    story = Story(soft)
    available = [(0.0, 0), (30.0, 0), (40.0, GIB + MIB), (50.0, GIB + 500 * MIB), (60.0, 0)]
    assert [story.nodefs(now, amount).acted_on for now, amount in available] == [None, soft, soft, None, None]


def test_a_soft_threshold_with_a_grace_of_0_is_hard_everywhere() -> None:
    """It acts at the first look, and nothing tells it from a hard one."""
    soft = threshold(NODEFS, "1Gi", grace_seconds=0.0)
    assert soft.hard
    assert Story(soft).nodefs(0.0, 0).acted_on is soft


def test_node_conditions_last_observed_at_the_window_slides_with_every_look() -> None:
    """Pressure for 1000 s, then clear: the period of 300 s counts from the last look with pressure."""
    story = Story(threshold(NODEFS, "1Gi"))
    for now in range(0, 1001, 10):
        story.nodefs(float(now), 0)
    assert story.nodefs(1299.9, GIB).conditions == PRESSURE
    assert story.nodefs(1300.0, GIB).conditions == frozenset()


def test_node_conditions_are_held_by_an_unmet_minimum_reclaim() -> None:
    """Between mark and minimum reclaim the condition is renewed at every look, for longer than the period."""
    story = Story(threshold(NODEFS, "1Gi", min_reclaim="500Mi"), transition_period_seconds=15.0)
    story.nodefs(0.0, 0)
    assert all(story.nodefs(float(now), GIB + MIB).conditions == PRESSURE for now in range(10, 100, 10))
    assert story.nodefs(100.0, GIB + 500 * MIB).conditions == PRESSURE
    assert story.nodefs(105.0, GIB + 500 * MIB).conditions == frozenset()


def test_a_relief_does_not_clear_the_condition_and_a_relapse_is_a_new_trigger() -> None:
    """Inside the transition period it acts again at once: there is no back-off in the decision."""
    hard = threshold(NODEFS, "1Gi")
    story = Story(hard)
    told = [story.nodefs(now, amount) for now, amount in ((0.0, 0), (10.0, 50 * GIB), (20.0, 0))]
    assert [decision.conditions for decision in told] == [PRESSURE] * 3
    assert [decision.acted_on for decision in told] == [hard, None, hard]


def test_thresholds_updated_stats_compare_with_the_look_directly_before_also_when_time_went_back() -> None:
    """Times 10, 5, 6: 5 is older than 10, 6 is newer than 5."""
    hard = threshold(NODEFS, "1Gi")
    story = Story(hard)
    acted = [story.at(now, observation(NODEFS, 0, time=time)).acted_on for now, time in ((0, 10.0), (1, 5.0), (2, 6.0))]
    assert acted == [hard, None, hard]


def test_thresholds_updated_stats_a_signal_that_vanished_for_one_look_counts_as_new() -> None:
    """Even with the time stamp that it had before."""
    hard = threshold(NODEFS, "1Gi")
    story = Story(hard)
    low, other = observation(NODEFS, 0, time=5.0), observation(IMAGEFS, GIB, time=1.0)
    assert [story.at(now, *seen).acted_on for now, seen in ((0, (low,)), (1, (other,)), (2, (low,)))] == [
        hard,
        None,
        hard,
    ]


def test_a_repeated_reading_settles_everything_but_the_action() -> None:
    """Conditions, first-seen times and what is remembered go on with the old reading; the grace is served by it."""
    soft = threshold(IMAGEFS, "1Gi", grace_seconds=20.0)
    story = Story(soft)
    for now in (0.0, 10.0, 20.0):
        decision = story.at(now, observation(IMAGEFS, 0, time=1.0))
        assert (decision.conditions, decision.acted_on) == (PRESSURE, None)
    assert story.state.met == (soft,)
    assert story.at(30.0, observation(IMAGEFS, 0, time=30.0)).acted_on is soft


@pytest.mark.parametrize(
    ("mark", "reclaim", "available", "met"),
    [("0.0%", "1Gi", GIB - 1, True), ("0.0%", "1Gi", GIB, False), ("0.0%", "", 0, False), ("1Gi", "0", GIB, False)],
)
def test_reclaim_node_level_resources_a_zero_percentage_blocks_success_by_its_minimum_reclaim(
    mark: str, reclaim: str, available: int, met: bool
) -> None:
    """It never triggers, but success asks for 0 and the minimum reclaim."""
    one = threshold(NODEFS, mark, min_reclaim=reclaim)
    seen = {NODEFS: observation(NODEFS, available)}
    assert bool(thresholds_met([one], seen, enforce_min_reclaim=True)) is met
    assert Story(one).nodefs(0.0, available).acted_on is None


@pytest.mark.parametrize(
    ("after", "enough"),
    [(16 * GIB, True), (1_100_000_000, False), (GIB + 500 * MIB - 1, False), (GIB + 500 * MIB, True)],
)
def test_reclaim_node_level_resources_is_enough_at_the_mark_and_the_minimum_reclaim(after: int, enough: bool) -> None:
    """Hard 1Gi, minimum reclaim 500Mi: 16Gi are enough, 1.1G are above the mark and not enough, the sum is."""
    hard = threshold(NODEFS, "1Gi", min_reclaim="500Mi")
    assert not thresholds_met([hard], {NODEFS: observation(NODEFS, after)}, enforce_min_reclaim=False)
    met = thresholds_met([hard], {NODEFS: observation(NODEFS, after)}, enforce_min_reclaim=True)
    assert met == (() if enough else (hard,))


def test_reclaim_node_level_resources_looks_at_every_threshold_whatever_its_grace_and_the_age_of_its_reading() -> None:
    """A soft one on another filesystem, and a reading that the look before has had already, make it insufficient."""
    hard, soft = threshold(NODEFS, "1Gi"), threshold(IMAGEFS, "1Gi", grace_seconds=3600.0)
    old = observation(IMAGEFS, 0, time=-1000.0)
    after = {NODEFS: observation(NODEFS, 50 * GIB), IMAGEFS: old}
    assert thresholds_met([hard, soft], after, enforce_min_reclaim=True) == (soft,)


def test_a_minimum_reclaim_that_cannot_be_reached_makes_the_threshold_stick() -> None:
    """500 percent: once met it stays met, with all of the filesystem free."""
    hard = threshold(NODEFS, "1Gi", min_reclaim="500%")
    story = Story(hard)
    assert story.nodefs(0.0, 100 * GIB).acted_on is None
    story.nodefs(10.0, 0)
    assert story.nodefs(20.0, 100 * GIB).acted_on is hard


def test_inodes_of_a_filesystem_that_counts_none() -> None:
    """0 of 0: a percentage is never met, a plain number always."""
    share, number = threshold(INODES, "5%"), threshold(INODES, "1")
    assert Story(share, number).at(0.0, observation(INODES, 0, 0)).thresholds_met == (number,)


def test_update_container_fs_thresholds_follows_a_layout_that_changes() -> None:
    """A dedicated image filesystem appears: containerfs follows imagefs from then on, and at once."""
    story = Story(threshold(NODEFS, "1Gi"), threshold(IMAGEFS, "2Gi"))
    seen = (observation(NODEFS, 50 * GIB), observation(IMAGEFS, 50 * GIB), observation(CONTAINERFS, GIB + 1))
    assert story.at(0.0, *seen).acted_on is None
    decision = story.at(10.0, *(replace(one, time=10.0) for one in seen), layout=FsLayout.DEDICATED_IMAGEFS)
    assert decision.acted_on is not None
    assert (decision.acted_on.signal, decision.acted_on.value) == (CONTAINERFS, value("2Gi"))
    assert decision.row == (C, I)


def test_the_split_layout_takes_the_threshold_of_nodefs_for_containerfs() -> None:
    """Hard nodefs 10% and imagefs 15%: containerfs is under pressure below 10%, and calls containers only."""
    story = Story(threshold(NODEFS, "10%"), threshold(IMAGEFS, "15%"))
    clear = story.at(0.0, observation(CONTAINERFS, 12 * GIB), layout=FsLayout.SPLIT)
    low = story.at(10.0, observation(CONTAINERFS, 9 * GIB, time=10.0), layout=FsLayout.SPLIT)
    assert (clear.row, low.row) == ((), (C,))


@pytest.mark.parametrize(
    ("layout", "row"), [(FsLayout.SINGLE, (C, I)), (FsLayout.DEDICATED_IMAGEFS, ()), (FsLayout.SPLIT, (C,))]
)
def test_build_signal_to_node_reclaim_funcs_what_nodefs_pressure_has_at_node_level(
    layout: FsLayout, row: tuple[str, ...]
) -> None:
    """Also a shortage of inodes removes images on a single filesystem; nothing is there for a dedicated one."""
    story = Story(threshold(INODES, "5%"))
    decision = story.at(0.0, observation(INODES, 0, 1000), layout=layout)
    assert (decision.conditions, decision.row) == (PRESSURE, row)


def test_what_a_reload_takes_away_is_neither_held_nor_frozen() -> None:
    """An acted-on threshold with minimum reclaim, and one whose reading is stale, are gone with the reload."""
    story = Story(threshold(NODEFS, "1Gi", min_reclaim="500Mi"), threshold(IMAGEFS, "1Gi"))
    story.at(0.0, observation(NODEFS, 0), observation(IMAGEFS, 0))
    story.reload(threshold(INODES, "1"))
    seen = (observation(NODEFS, GIB + MIB, time=10.0), observation(IMAGEFS, 0, stale=True))
    assert story.at(10.0, *seen).thresholds_met == ()


def test_a_grace_that_ends_while_nothing_can_be_read_is_not_served_before_the_next_reading() -> None:
    """Low at 1 s, unreadable at 26 s when the grace of 25 s is over, back at its mark at 27 s: no pressure, and the
    minimum reclaim of a threshold that was never acted on holds nothing."""
    story = Story(threshold(IMAGEFS, "1Gi", grace_seconds=25.0, min_reclaim="5%"))
    for now, seen in (
        (1.0, [observation(IMAGEFS, 0, time=1.0)]),
        (26.0, [observation(IMAGEFS, 0, time=26.0, stale=True), observation(NODEFS, 0, time=26.0)]),
        (27.0, [observation(IMAGEFS, GIB, time=27.0)]),
    ):
        assert story.at(now, *seen).acted_on is None


def test_without_thresholds_nothing_is_ever_under_pressure() -> None:
    """An empty disk is nobody's business then."""
    assert Story().nodefs(0.0, 0) == Decision(frozenset(), (), None, (), FsLayout.SINGLE)


@dataclass
class Oracle:
    """What the rules need to remember, kept in the plainest way, beside the state under test."""

    met_since: dict[Threshold, float] = field(default_factory=dict)
    served: set[Threshold] = field(default_factory=set)
    reading_times: dict[Signal, float] = field(default_factory=dict)
    pressure_at: float | None = None

    def take_in(self, concerned: list[Threshold], usable: dict[Signal, SignalObservation], now: float) -> None:
        """Which of these thresholds hold, since when, and which have served their grace."""
        for one in concerned:
            reading = usable.get(one.signal)
            held = one in self.served
            if reading is None or reading.available >= one.effective(reading.capacity, with_min_reclaim=held):
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
def test_never_without_need_never_early_never_on_an_old_reading_and_conditions_stay(
    thresholds: list[Threshold], told: list[tuple[float, dict[Signal, tuple[int, str]]]]
) -> None:
    """Against an oracle of its own: need, grace, fresh reading, and the condition for the whole period."""
    story, oracle, now = Story(*thresholds, transition_period_seconds=PERIOD_SECONDS), Oracle(), 0.0
    for step, amounts in told:
        now += step
        seen: dict[Signal, SignalObservation] = {}
        for signal, (available, kind) in amounts.items():
            time = oracle.reading_times.get(signal, now) if kind == "repeated" else now
            seen[signal] = observation(signal, available, 10 * GIB, time=time, stale=kind == "stale")
        decision = story.at(now, *seen.values())
        usable = {signal: reading for signal, reading in seen.items() if not reading.stale}
        if usable:  # a look at which nothing could be read changes nothing
            oracle.take_in([one for one in thresholds if one.signal in usable or one.signal not in seen], usable, now)
        acted_on = decision.acted_on
        if acted_on is not None:
            reading = seen[acted_on.signal]
            assert not reading.stale
            assert reading.available < acted_on.effective(reading.capacity, with_min_reclaim=True), "there is need"
            assert acted_on in oracle.served, "the grace was served"
            assert amounts[acted_on.signal][1] == "fresh" or acted_on.signal not in oracle.reading_times
        if usable:
            oracle.reading_times = {signal: reading.time or 0.0 for signal, reading in usable.items()}
        if thresholds_met(thresholds, seen, enforce_min_reclaim=False):
            oracle.pressure_at = now
        if oracle.pressure_at is not None and now - oracle.pressure_at < PERIOD_SECONDS:
            assert decision.conditions == PRESSURE, "a condition does not vanish inside the period"


def test_of_several_that_nothing_relieves_the_one_that_lacks_most_is_named() -> None:
    """A dedicated image filesystem, and the kubelet's own lacks bytes and, more so, inodes: these are named."""
    space, inodes = threshold(NODEFS, "2Gi"), threshold(INODES, "100")
    seen = (observation(NODEFS, GIB), observation(INODES, 1, 1000))
    decision = Story(space, inodes).at(0.0, *seen, layout=FsLayout.DEDICATED_IMAGEFS)
    assert (decision.acted_on, decision.row) == (inodes, ())
