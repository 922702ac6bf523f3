"""A dump of the history is complete: replayed, it gives the decisions that were made."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.synchronize import EvictionConfig, ManagerState, synchronize
from eviction.records.replay import KEPT_ENTRIES, History, HistoryEntry
from eviction.types import Decision, Threshold
from signals.types import (
    KUBELET_SIGNALS,
    FilesystemIdentity,
    FsLayout,
    Signal,
    SignalObservation,
    SignalObservations,
)
from tests.pure.values import GIB, observation, observations_of, threshold, value
from tests.replay import replay

NODEFS = Signal.NODEFS_AVAILABLE
HARD = threshold(NODEFS, "1Gi", min_reclaim="10%")


class Remembered:
    """Passes over one node with their history."""

    def __init__(self, *thresholds: Threshold, transition_period_seconds: float = 300.0):
        self.state = ManagerState(EvictionConfig(thresholds, transition_period_seconds))
        self.history = History()
        self.decisions: list[Decision] = []

    def see(self, seen: SignalObservations) -> Decision:
        """One pass on these observations."""
        before = self.state
        self.state, decision = synchronize(before, seen, seen.time)
        self.history.add(HistoryEntry(before, seen, decision))
        self.decisions.append(decision)
        return decision

    def reload(self, *thresholds: Threshold) -> None:
        """Other thresholds, as after SIGHUP."""
        self.state = replace(
            self.state,
            config=EvictionConfig(thresholds, self.state.config.transition_period_seconds),
        )

    def nodefs(self, now: float, available: int) -> Decision:
        """One pass with so many bytes available on nodefs."""
        return self.see(observations_of(observation(NODEFS, available, time=now), time=now))


def through_json(history: History) -> Any:
    """The dump as another machine gets it."""
    return json.loads(json.dumps(history.dump(), allow_nan=False))


def test_before_the_first_pass_there_is_nothing_to_replay() -> None:
    """An empty dump is a dump."""
    assert replay(through_json(History())) == ([], [])


def test_a_story_is_replayed() -> None:
    """Pressure, the region of minimum reclaim, relief: three decisions, the same again."""
    story = Remembered(HARD)
    for now, available in ((0.0, GIB - 1), (10.0, 5 * GIB), (20.0, 50 * GIB)):
        story.nodefs(now, available)
    was, made = replay(through_json(story.history))
    assert was == made
    assert [entry["acted_on"] is not None for entry in made] == [True, True, False]
    assert [entry["conditions"] for entry in made] == [["ReclaimPressure"]] * 3
    assert made[0]["row"] == ["DeleteAllUnusedContainers", "DeleteUnusedImages"]
    assert [entry["layout"] for entry in made] == ["single"] * 3


def test_the_kubelets_thresholds_are_in_the_dump() -> None:
    """Its DiskPressure follows from them."""
    story = Remembered(HARD)
    story.state = replace(story.state, config=replace(story.state.config, kubelets=(HARD,)))
    story.nodefs(0.0, GIB - 1)
    was, made = replay(through_json(story.history))
    assert was == made
    assert made[0]["conditions"] == ["DiskPressure", "ReclaimPressure"]


def test_a_changed_dump_is_replayed_with_other_decisions() -> None:
    """A decision that does not follow from its observations differs in the replay."""
    story = Remembered(HARD)
    story.nodefs(0.0, 0)
    dump = through_json(story.history)
    dump["looks"][0]["observations"]["signals"][0][1]["available"] = 50 * GIB
    was, made = replay(dump)
    assert was != made


def test_a_dump_keeps_at_most_512_passes_and_the_state_before_the_first() -> None:
    """The time since when a soft threshold has been met is older than the dump;
    it is in the state.
    """
    story = Remembered(threshold(NODEFS, "1Gi", grace_seconds=600.0))
    for second in range(KEPT_ENTRIES + 100):
        story.nodefs(float(second), 0)
    dump = through_json(story.history)
    assert len(dump["looks"]) == KEPT_ENTRIES == 512
    assert [since for _, since in dump["state"]["first_observed_at"]] == [0.0]
    was, made = replay(dump)
    assert was == made
    assert sum(entry["acted_on"] is not None for entry in made) == 12, "600 to 611 s"
    assert len(json.dumps(dump)) < 512 * 900, "bytes; it goes over a socket"


def test_other_thresholds_start_a_new_history() -> None:
    """Decisions before a reload do not follow from the thresholds after it."""
    story = Remembered(HARD)
    story.nodefs(0.0, 0)
    story.reload(HARD, threshold(NODEFS, "5Gi", grace_seconds=30.0))
    story.nodefs(10.0, 2 * GIB)
    story.nodefs(40.0, 2 * GIB)
    dump = through_json(story.history)
    assert len(dump["looks"]) == 2
    was, made = replay(dump)
    assert was == made
    assert made[1]["acted_on"] is not None


def test_thresholds_that_a_reload_removed_are_in_the_dump() -> None:
    """The state still contains a threshold that the reload has removed."""
    story = Remembered(HARD)
    story.nodefs(0.0, 0)
    story.reload(threshold(Signal.IMAGEFS_AVAILABLE, "1Gi"))
    story.nodefs(10.0, 0)
    was, made = replay(through_json(story.history))
    assert (
        was
        == made
        == [
            {
                "conditions": ["ReclaimPressure"],
                "thresholds_met": [],
                "acted_on": None,
                "row": [],
                "layout": "single",
                "others": [],
            }
        ]
    )


@pytest.mark.parametrize("text", ["100m", "1n", "10%", "33.3%", "8Ei", "0.0%", "7.5%"])
def test_amounts_are_dumped_exactly(text: str) -> None:
    """A tenth of a byte, a billionth, single precision; as value, minimum reclaim and margin."""
    story = Remembered(Threshold(NODEFS, value(text), 1.5, value("1n"), "here", value(text)))
    first = observations_of(
        replace(
            observation(NODEFS, 0, 10**18, time=3.0),
            filesystem=FilesystemIdentity("/x", 42, "sda", "ext4"),
        ),
        time=3.25,
    )
    story.see(first)
    dump = through_json(story.history)
    assert replay(dump)[0] == replay(dump)[1]
    (entry,) = dump["state"]["config"]["thresholds"]
    assert (entry["grace_seconds"], entry["origin"], entry["signal"]) == (
        1.5,
        "here",
        "nodefs.available",
    )
    assert entry["value"] == entry["margin"]
    assert dump["looks"][0]["observations"]["signals"][0][1]["filesystem"]["device_id"] == 42


@pytest.mark.parametrize(
    "dump",
    [
        {},
        {"state": {}, "looks": []},
        {"state": {"config": {"thresholds": [3]}}, "looks": []},
        {"state": {"config": {"thresholds": [{"signal": "x"}]}}, "looks": []},
        {"state": 5, "looks": []},
    ],
)
def test_what_is_no_dump_is_refused(dump: Any) -> None:
    """LookupError, TypeError or ValueError, as documented."""
    with pytest.raises((LookupError, TypeError, ValueError)):
        replay(dump)


thresholds = st.lists(
    st.builds(
        lambda signal, text, grace, reclaim, margin: Threshold(
            signal,
            value(text),
            grace,
            value(reclaim) if reclaim else None,
            "o",
            value(margin) if margin else None,
        ),
        st.sampled_from(KUBELET_SIGNALS),
        st.sampled_from(["1Gi", "10%", "0.0%", "100m"]),
        st.sampled_from([0.0, 15.0, 60.0]),
        st.sampled_from(["", "500Mi", "5%"]),
        st.sampled_from(["", "2%", "1Mi"]),
    ),
    max_size=4,
)
readings = st.dictionaries(
    st.sampled_from(KUBELET_SIGNALS),
    st.tuples(st.integers(0, 4 * GIB), st.booleans(), st.sampled_from(["now", "same"])),
)
steps = st.lists(
    st.tuples(st.floats(0, 40), readings, st.sampled_from([*FsLayout, None])), max_size=12
)


def seen_at(
    now: float, past: dict[Signal, tuple[int, bool, str]], layout: FsLayout | None
) -> SignalObservations:
    """Observations; the times of their readings are now, or always the same."""
    times = {"now": now, "same": 1.0}
    seen = [
        SignalObservation(signal, available, 10 * GIB, times[time], stale)
        for signal, (available, stale, time) in past.items()
    ]
    return observations_of(*seen, time=now, layout=layout)


@given(thresholds, steps, st.none() | st.tuples(st.integers(0, 12), thresholds))
def test_any_history_is_replayed(
    configured: list[Threshold],
    past: list[tuple[float, dict[Signal, tuple[int, bool, str]], FsLayout | None]],
    reload: tuple[int, list[Threshold]] | None,
) -> None:
    """Soft and hard, stale and repeated readings, changing layouts, a reload in between."""
    story, now = Remembered(*configured, transition_period_seconds=45.0), 0.0
    for number, (step, amounts, layout) in enumerate(past):
        if reload is not None and reload[0] == number:
            story.reload(*reload[1])
        now += step
        story.see(seen_at(now, amounts, layout))
    was, made = replay(through_json(story.history))
    assert was == made
    assert len(made) <= len(past)
    assert [entry["row"] for entry in made] == [
        [str(function) for function in decision.row]
        for decision in story.decisions[len(past) - len(made) :]
    ]
