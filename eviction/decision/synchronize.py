"""The state of the eviction manager between observations, and its decision.

`synchronize` is one pass of the kubelet's eviction manager
(`pkg/kubelet/eviction/eviction_manager.go`) up to the point where it acts, without clock, I/O or
logging. The same state and observations always give the same decision.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from eviction.decision import thresholds as rules
from eviction.decision.reclaim_table import BUILT_IN, NO_ROWS, Rows, entries_of, row
from eviction.types import Decision, NodeCondition, Row, Threshold, Thresholds
from signals.types import FsLayout, Signal, SignalObservation, SignalObservations, order_of


class EvictionConfig(NamedTuple):
    """The thresholds as configured.

    `transition_period_seconds`: how long ReclaimPressure is reported after it was last observed.
    `kubelets`: the kubelet's own thresholds, without a margin; None if they are unknown.
    `longest_gap_seconds`: grace periods start over if two observations are further apart than this.
    `rows`: those of the configuration, which replace the built-in ones.
    """

    thresholds: Thresholds = ()
    transition_period_seconds: float = 300.0
    longest_gap_seconds: float = math.inf
    rows: Rows = NO_ROWS
    kubelets: Thresholds | None = None

    def in_layout(self, layout: FsLayout | None) -> Thresholds:
        """The thresholds in force; those of containerfs are derived from the layout.

        The kubelet derives them once and uses them one pass late; here they follow every
        change of the layout at once.
        """
        return rules.update_container_fs_thresholds(self.thresholds, layout)

    def kubelets_in_layout(self, layout: FsLayout | None) -> Thresholds:
        """The kubelet's own thresholds in a layout; none if they are unknown."""
        return rules.update_container_fs_thresholds(self.kubelets or (), layout)

    def marks_to_watch(self, layout: FsLayout | None) -> Thresholds:
        """The thresholds that none may pass unseen: those in force and the kubelet's."""
        return (*self.in_layout(layout), *self.kubelets_in_layout(layout))

    def row(self, signal: Signal, observations: SignalObservations) -> Row:
        """The names of the functions for a signal; none for the kubelet's without a layout."""
        return row(signal, observations.layout, self.rows)

    def goal(self, function: str, observations: SignalObservations) -> tuple[Thresholds, bool]:
        """What a reclaim function has to clear: the thresholds in force that it can relieve; and
        whether it waits: if its row calls it only below a mark of its own that is lower than the
        threshold's, that mark counts."""
        # it must not go on for a threshold that it cannot relieve: pressure on the kubelet's own
        # filesystem would otherwise cost every image
        relieves = tuple(
            threshold
            for threshold in self.in_layout(observations.layout)
            if function in self.row(threshold.signal, observations)
        )
        goal = tuple(self._lower(threshold, function, observations) for threshold in relieves)
        return goal, goal != relieves

    def _lower(
        self, threshold: Threshold, function: str, observations: SignalObservations
    ) -> Threshold:
        """The threshold, or the mark of the function in its row if that is lower."""
        observation = observations.signals.get(threshold.signal)
        if observation is None:
            return threshold
        capacity = observation.capacity
        own = [
            Threshold(threshold.signal, entry.below, origin=f"reclaimTable: {function}")
            for entry in entries_of(threshold.signal, observations.layout, self.rows) or ()
            if entry.function == function and entry.below is not None
        ]
        return min([threshold, *own], key=lambda mark: mark.mark(capacity))

    @property
    def functions(self) -> frozenset[str]:
        """The names of all functions that rows call."""
        return frozenset(
            {*BUILT_IN, *(entry.function for entries in self.rows.values() for entry in entries)}
        )


class ManagerState(NamedTuple):
    """What one pass leaves for the next. Times are in monotonic seconds.

    `first_observed_at`: when each threshold that is met was first met.
    `pressure_last_observed_at`: when a threshold that raises ReclaimPressure was last met. `met`:
    the thresholds that were met for their grace period; they stay met until the minimum reclaim is
    reached. `conditions`: those last reported. `last_observed_at`: when the last pass was,
    whatever could be read; None before the first.
    """

    first_observed_at: Mapping[Threshold, float] = {}
    pressure_last_observed_at: float = -math.inf
    met: Thresholds = ()
    conditions: frozenset[NodeCondition] = frozenset()
    last_observations: Mapping[Signal, SignalObservation] = {}
    last_observed_at: float | None = None


def synchronize(
    config: EvictionConfig, state: ManagerState, observations: SignalObservations
) -> tuple[ManagerState, Decision]:
    """One pass: the next state and the decision.

    A failed reading freezes the thresholds of its filesystem: they are neither resolved nor acted
    on, their grace period continues but cannot end, and conditions neither appear nor expire
    because of them. Other filesystems are served. (In the kubelet one failed reading freezes the
    whole pass.) While the layout is unknown there is no row to call, so nothing is acted on.

    After a gap without observations (the process was stopped, the machine suspended)
    grace periods start over.
    """
    now = observations.time
    last = state.last_observed_at
    if last is not None and now - last > config.longest_gap_seconds:
        state = state._replace(first_observed_at={})  # no threshold has been observed since
    state = state._replace(last_observed_at=now)
    usable = rules.usable(observations.signals)
    if not usable:
        return state, Decision(state.conditions, layout=observations.layout)
    in_force = config.in_layout(observations.layout)
    met = rules.thresholds_met(in_force, usable)
    # a reload may have removed some
    still_in_force = [threshold for threshold in state.met if threshold in in_force]
    unresolved = rules.thresholds_met(still_in_force, usable, enforce_min_reclaim=True)
    unread = observations.signals.keys() - usable.keys()
    frozen = [
        threshold
        for threshold in state.first_observed_at
        if threshold.signal in unread and threshold in in_force
    ]
    met = tuple(dict.fromkeys((*met, *unresolved, *frozen)))
    first_observed = {threshold: state.first_observed_at.get(threshold, now) for threshold in met}
    pressure_at = now if rules.raise_pressure(met) else state.pressure_last_observed_at
    served = rules.thresholds_met_grace_period(first_observed, now)
    ranked = _ranked(
        rules.thresholds_updated_stats(served, usable, state.last_observations),
        config,
        observations,
    )
    chosen = next(iter(ranked), None)
    decision = Decision(
        conditions=rules.node_conditions(
            reclaim_pressure=now - pressure_at < config.transition_period_seconds,
            disk_pressure=rules.below_kubelets_marks(
                config.kubelets_in_layout(observations.layout),
                observations.signals,
                before=NodeCondition.DISK_PRESSURE in state.conditions,
            ),
        ),
        thresholds_met=met,
        acted_on=chosen,
        row=() if chosen is None else config.row(chosen.signal, observations),
        layout=observations.layout,
        others=ranked[1:],
    )
    state = state._replace(
        first_observed_at=first_observed,
        pressure_last_observed_at=pressure_at,
        met=tuple(
            threshold
            for threshold in served
            if threshold.signal not in unread or threshold in state.met
        ),
        conditions=decision.conditions,
        last_observations=dict(usable),
    )
    return state, decision


def _ranked(
    thresholds: Thresholds, config: EvictionConfig, observations: SignalObservations
) -> Thresholds:
    """In order of choice: those with a non-empty row first, as pressure that no function relieves
    (on a filesystem of the kubelet's own) must not delay pressure that one does; then the largest
    deficit relative to the mark, then by signal, hard before soft.

    None of the kubelet's while the layout is unknown.
    """
    relievable = [
        threshold
        for threshold in thresholds
        if observations.layout is not None or not threshold.signal.filesystem.kubelets
    ]
    return tuple(
        sorted(
            relievable,
            key=lambda threshold: (
                not config.row(threshold.signal, observations),
                -rules.deficit(threshold, observations.signals),
                order_of(threshold.signal),
                threshold.grace_seconds,
            ),
        )
    )
