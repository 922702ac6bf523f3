"""The last observations with the decisions made on them, kept so that they can be replayed.

A dump is JSON and complete: `replay` runs `synchronize` over it again and gets the same decisions. A doubtful decision
can be examined later, on another machine.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from eviction.decision.synchronize import EvictionConfig, ManagerState, synchronize
from eviction.types import Decision, NodeCondition, Threshold, ThresholdValue
from signals.quantity import Percentage
from signals.types import FilesystemIdentity, FsLayout, Signal, SignalObservation, SignalObservations

KEPT_ENTRIES = 512

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One pass of `synchronize`: the state before it, the observations, the decision."""

    before: ManagerState
    observations: SignalObservations
    decision: Decision


class History:
    """The last passes, at most `KEPT_ENTRIES`; emptied when the thresholds change."""

    def __init__(self) -> None:
        self._entries: deque[HistoryEntry] = deque(maxlen=KEPT_ENTRIES)

    def add(self, entry: HistoryEntry) -> None:
        """Appends a pass."""
        if self._entries and self._entries[-1].before.config != entry.before.config:
            self._entries.clear()
        self._entries.append(entry)

    def dump(self) -> Json:
        """Everything that a replay needs; empty lists before the first pass."""
        entries = list(self._entries)
        if not entries:
            return {"thresholds": [], "state": None, "looks": []}
        table = _Table()
        state = _state_json(entries[0].before, table)
        passes = [
            {"observations": _observations_json(entry.observations), "decision": decision_json(entry.decision, table)}
            for entry in entries
        ]
        return {"thresholds": [_threshold_json(t) for t in table.thresholds], "state": state, "looks": passes}


def replay(dump: Json) -> tuple[list[Json], list[Json]]:
    """The decisions in the dump, and those that `synchronize` makes now from the same state and observations.

    Raises KeyError, TypeError or ValueError for a document that is not a dump.
    """
    if dump["state"] is None:
        return [], []
    if "kubelets" not in dump["state"]:
        dump = _as_named_now(dump)
    table = _Table([_threshold(entry) for entry in dump["thresholds"]])
    state = _state(dump["state"], table)
    made: list[Json] = []
    for entry in dump["looks"]:
        observations = _observations(entry["observations"])
        state, decision = synchronize(state, observations, observations.time)
        made.append(decision_json(decision, table))
    return [entry["decision"] for entry in dump["looks"]], made


def _as_named_now(dump: Json) -> Json:
    """The dump of an older daemon, which gave its own condition the name of the kubelet's."""
    new = str(NodeCondition.RECLAIM_PRESSURE)

    def renamed(entry: Json) -> Json:
        return {**entry, "conditions": [new] * len(entry["conditions"])}

    state = renamed(dump["state"])
    state["conditions_last_observed_at"] = dict(zip([new], state["conditions_last_observed_at"].values(), strict=False))
    looks = [{**entry, "decision": renamed(entry["decision"])} for entry in dump["looks"]]
    return {**dump, "state": state, "looks": looks}


class _Table:
    """Numbers for thresholds: a dump holds each threshold once and refers to it by number."""

    def __init__(self, thresholds: Iterable[Threshold] = ()):
        self.thresholds = list(thresholds)

    def number(self, threshold: Threshold) -> int:
        if threshold not in self.thresholds:
            self.thresholds.append(threshold)
        return self.thresholds.index(threshold)


def decision_json(decision: Decision, table: _Table) -> Json:
    """A decision, with thresholds by number."""
    return {
        "conditions": sorted(str(condition) for condition in decision.conditions),
        "thresholds_met": [table.number(threshold) for threshold in decision.thresholds_met],
        "acted_on": None if decision.acted_on is None else table.number(decision.acted_on),
        "others": [table.number(threshold) for threshold in decision.others],
        "row": [str(function) for function in decision.row],
        "layout": None if decision.layout is None else str(decision.layout),
    }


def _value_json(value: ThresholdValue | None) -> str | None:
    """Exact: a quantity as a fraction, a percentage as the floating-point number that it holds."""
    if value is None:
        return None
    return str(value.quantity) if value.percentage is None else f"{value.percentage.fraction!r}%"


def _value(text: str | None) -> ThresholdValue | None:
    if text is None:
        return None
    if text.endswith("%"):
        return ThresholdValue(percentage=Percentage(float(text[:-1])))
    return ThresholdValue(quantity=Fraction(text))


def _threshold_json(threshold: Threshold) -> Json:
    return {
        "signal": str(threshold.signal),
        "value": _value_json(threshold.value),
        "grace_seconds": threshold.grace_seconds,
        "min_reclaim": _value_json(threshold.min_reclaim),
        "origin": threshold.origin,
        "margin": _value_json(threshold.margin),
    }


def _threshold(entry: Json) -> Threshold:
    value = _value(entry["value"])
    if value is None:
        raise ValueError("a threshold without a value")
    return Threshold(
        Signal(entry["signal"]),
        value,
        entry["grace_seconds"],
        _value(entry["min_reclaim"]),
        entry["origin"],
        _value(entry["margin"]),
    )


def _observation_json(observation: SignalObservation) -> Json:
    return {
        "signal": str(observation.signal),
        "available": observation.available,
        "capacity": observation.capacity,
        "time": observation.time,
        "stale": observation.stale,
        "device_id": None if observation.filesystem is None else observation.filesystem.device_id,
        "filesystem_type": "" if observation.filesystem is None else observation.filesystem.type,
    }


def _observation(entry: Json) -> SignalObservation:
    device = entry["device_id"]
    return SignalObservation(
        Signal(entry["signal"]),
        entry["available"],
        entry["capacity"],
        entry["time"],
        entry["stale"],
        None if device is None else FilesystemIdentity("", device, type=entry.get("filesystem_type", "")),
    )


def _signals(entries: list[Json]) -> Mapping[Signal, SignalObservation]:
    return {observation.signal: observation for observation in map(_observation, entries)}


def _observations_json(observations: SignalObservations) -> Json:
    return {
        "signals": [_observation_json(observation) for observation in observations.signals.values()],
        "layout": None if observations.layout is None else str(observations.layout),
        "time": observations.time,
        "wall_time": observations.wall_time,
    }


def _observations(entry: Json) -> SignalObservations:
    layout = entry["layout"]
    return SignalObservations(
        _signals(entry["signals"]), None if layout is None else FsLayout(layout), entry["time"], entry["wall_time"]
    )


def _state_json(state: ManagerState, table: _Table) -> Json:
    return {
        "thresholds": [table.number(threshold) for threshold in state.config.thresholds],
        "kubelets": None
        if state.config.kubelets is None
        else [table.number(threshold) for threshold in state.config.kubelets],
        "transition_period_seconds": state.config.transition_period_seconds,
        "longest_gap_seconds": None
        if math.isinf(state.config.longest_gap_seconds)
        else state.config.longest_gap_seconds,
        "first_observed_at": [[table.number(t), time] for t, time in state.first_observed_at.items()],
        "conditions_last_observed_at": {str(c): time for c, time in state.conditions_last_observed_at.items()},
        "met": [table.number(threshold) for threshold in state.met],
        "conditions": sorted(str(condition) for condition in state.conditions),
        "last_observations": [_observation_json(observation) for observation in state.last_observations.values()],
        "last_look_at": state.last_observed_at,
    }


def _state(entry: Json, table: _Table) -> ManagerState:
    thresholds, gap, kubelets = table.thresholds, entry["longest_gap_seconds"], entry.get("kubelets")
    return ManagerState(
        EvictionConfig(
            tuple(thresholds[n] for n in entry["thresholds"]),
            entry["transition_period_seconds"],
            math.inf if gap is None else gap,
            kubelets=None if kubelets is None else tuple(thresholds[number] for number in kubelets),
        ),
        {thresholds[number]: time for number, time in entry["first_observed_at"]},
        {NodeCondition(name): time for name, time in entry["conditions_last_observed_at"].items()},
        tuple(thresholds[number] for number in entry["met"]),
        frozenset(NodeCondition(name) for name in entry["conditions"]),
        _signals(entry["last_observations"]),
        entry["last_look_at"],
    )
