"""What is remembered between looks, and the decision.

`synchronize` is one pass of the kubelet's eviction manager (`pkg/kubelet/eviction/eviction_manager.go`) up to the
point where it acts: no clock, no I/O, no log in it. The same state and observations give the same decision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eviction.decision import thresholds as rules
from eviction.decision.reclaim_table import RECLAIM_TABLE, ReclaimTable, relieved_by, row
from eviction.decision.threshold_config import update_container_fs_thresholds
from eviction.types import Decision, NodeCondition, Threshold
from signals.types import FsLayout, Signal, SignalObservation, SignalObservations


@dataclass(frozen=True, slots=True)
class EvictionConfig:
    """The thresholds as configured, and how long a condition is reported after it was last seen (seconds).

    `longest_gap_seconds`: looks further apart than this are not one after the other: nobody looked in between.
    What is in force in each layout is derived once: every look asks for it several times.
    """

    thresholds: tuple[Threshold, ...] = ()
    transition_period_seconds: float = 300.0
    longest_gap_seconds: float = math.inf
    reclaim_table: ReclaimTable = field(default_factory=lambda: RECLAIM_TABLE, repr=False)
    _in_force: Mapping[FsLayout | None, tuple[Threshold, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        layouts = (None, *FsLayout)
        derived = {layout: update_container_fs_thresholds(self.thresholds, layout) for layout in layouts}
        object.__setattr__(self, "_in_force", derived)  # the way of a frozen dataclass to set a field of its own

    def in_layout(self, layout: FsLayout | None) -> tuple[Threshold, ...]:
        """The thresholds in force: those of containerfs follow from the layout.

        The kubelet derives them once, and looks at them one pass late; here they follow every change at once.
        """
        return self._in_force[layout]

    def row(self, signal: Signal, layout: FsLayout) -> tuple[str, ...]:
        """The names of the reclaim functions for a signal in a layout."""
        return row(signal, layout, self.reclaim_table)

    def relieved_by(self, function: str, layout: FsLayout) -> tuple[Threshold, ...]:
        """The thresholds in force in a layout that a reclaim function can relieve."""
        return relieved_by(self.in_layout(layout), function, layout, self.reclaim_table)


@dataclass(frozen=True, slots=True)
class ManagerState:
    """What one look leaves for the next; times are monotonic seconds.

    `met`: the thresholds that were met with their grace served; they stay met until minimum reclaim is reached.
    `conditions`: those reported last. `last_look_at`: when there was a look, whatever it could read; None: never.
    """

    config: EvictionConfig
    first_observed_at: Mapping[Threshold, float] = field(default_factory=dict)
    conditions_last_observed_at: Mapping[NodeCondition, float] = field(default_factory=dict)
    met: tuple[Threshold, ...] = ()
    conditions: frozenset[NodeCondition] = frozenset()
    last_observations: Mapping[Signal, SignalObservation] = field(default_factory=dict)
    last_look_at: float | None = None


def synchronize(state: ManagerState, observations: SignalObservations, now: float) -> tuple[ManagerState, Decision]:
    """What one look means. `now`: monotonic seconds.

    What could not be read changes nothing: conditions neither appear nor expire, and a grace period goes on, as in the
    kubelet, where one failed reading freezes the whole pass. Here it freezes the thresholds that it concerns: they are
    neither resolved nor acted on, nor taken to have served their grace, and the other filesystems are served. As long
    as the layout is not known there is no row to call, so nothing is acted on.

    After a gap in which nobody looked (a process that was stopped, a machine that was paused) what was seen before says
    nothing of the time between: grace periods start over.
    """
    state = _after_a_gap(state, now)
    usable = rules.usable(observations.signals)
    if not usable:
        return state, Decision(state.conditions, (), None, (), observations.layout)
    in_force = state.config.in_layout(observations.layout)
    met = rules.thresholds_met(in_force, usable, enforce_min_reclaim=False)
    remembered = [threshold for threshold in state.met if threshold in in_force]  # a reload may have taken some away
    unresolved = rules.thresholds_met(remembered, usable, enforce_min_reclaim=True)
    unread = observations.signals.keys() - usable.keys()
    frozen = [known for known in state.first_observed_at if known.signal in unread and known in in_force]
    met = rules.merge_thresholds(rules.merge_thresholds(met, unresolved), frozen)
    first_observed = rules.thresholds_first_observed_at(met, state.first_observed_at, now)
    last_observed = rules.node_conditions_last_observed_at(
        rules.node_conditions(met), state.conditions_last_observed_at, now
    )
    served = rules.thresholds_met_grace_period(first_observed, now)
    fresh = rules.thresholds_updated_stats(served, usable, state.last_observations)
    ranked = _ranked(rules.by_priority(fresh, usable), state.config, observations.layout)
    chosen = next(iter(ranked), None)
    decision = Decision(
        conditions=rules.node_conditions_observed_since(last_observed, state.config.transition_period_seconds, now),
        thresholds_met=met,
        acted_on=chosen,
        row=state.config.row(chosen.signal, observations.layout)
        if chosen is not None and observations.layout is not None
        else (),
        layout=observations.layout,
        others=ranked[1:],
    )
    state = replace(
        state,
        first_observed_at=first_observed,
        conditions_last_observed_at=last_observed,
        met=tuple(one for one in served if one.signal not in unread or one in state.met),
        conditions=decision.conditions,
        last_observations=dict(usable),
    )
    return state, decision


def _after_a_gap(state: ManagerState, now: float) -> ManagerState:
    """What is still known at a look at `now`."""
    last, gap = state.last_look_at, state.config.longest_gap_seconds
    known = {} if last is not None and now - last > gap else state.first_observed_at
    return replace(state, first_observed_at=known, last_look_at=now)


def _ranked(
    thresholds: tuple[Threshold, ...], config: EvictionConfig, layout: FsLayout | None
) -> tuple[Threshold, ...]:
    """In the order of choice: those whose row is not empty first; none while the layout is not known.

    Pressure that nothing here relieves (a kubelet's filesystem of its own) must not keep a relievable one waiting.
    """
    if layout is None:
        return ()
    return tuple(sorted(thresholds, key=lambda threshold: not config.row(threshold.signal, layout)))
