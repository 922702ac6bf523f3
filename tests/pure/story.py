"""A story: several passes of `synchronize`, with the state kept between them."""

from __future__ import annotations

from dataclasses import replace

from eviction.decision.synchronize import EvictionConfig, ManagerState, synchronize
from eviction.types import Decision, Threshold
from signals.types import FsLayout, Signal, SignalObservation
from tests.pure.values import observation, observations_of

NODEFS = Signal.NODEFS_AVAILABLE


class Story:
    """Passes over one node, one after another."""

    def __init__(
        self,
        *thresholds: Threshold,
        transition_period_seconds: float = 300.0,
        kubelets: tuple[Threshold, ...] | None = None,
    ):
        self.state = ManagerState(
            EvictionConfig(thresholds, transition_period_seconds, kubelets=kubelets)
        )

    def at(
        self, now: float, *seen: SignalObservation, layout: FsLayout | None = FsLayout.SINGLE
    ) -> Decision:
        """The decision of the pass at `now` (seconds)."""
        self.state, decision = synchronize(
            self.state, observations_of(*seen, time=now, layout=layout), now
        )
        return decision

    def nodefs(self, now: float, available: int) -> Decision:
        """The decision where `available` bytes of 100Gi were read on nodefs just now."""
        return self.at(now, observation(NODEFS, available, time=now))

    def reload(self, *thresholds: Threshold) -> None:
        """Other thresholds, as after SIGHUP."""
        self.state = replace(self.state, config=replace(self.state.config, thresholds=thresholds))
