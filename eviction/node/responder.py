"""Observes one node, decides, and makes the passes that follow. Used by daemon, `reclaimd reclaim`, dry run, drill and
tests.

Covers: the state between observations, the one writer of fill rates. Does not cover: what one pass does (`one_pass`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eviction.decision.headroom import FillRates, update_fill_rates
from eviction.decision.synchronize import EvictionConfig, ManagerState, synchronize
from eviction.node.one_pass import AS_CONFIGURED, OnePass, Request, Setting
from eviction.record import Pass, Trigger
from eviction.reporting.replay import History, HistoryEntry
from eviction.types import Decision, Extent
from signals.types import SignalObservations


class Responder:
    """`synchronize` is for one thread at a time; passes of different filesystems may run side by side.

    `fill_rates`: written by `synchronize` alone; a pass that reads more often goes on from them for itself. `lead`:
    whether passes begin before their mark is reached, where removals take long.
    """

    def __init__(self, setting: Setting, config: EvictionConfig, extent: Extent, *, lead: bool = True):
        unknown = config.functions - setting.functions.keys()
        if unknown:
            raise ValueError(f"the reclaim table names functions that do not exist: {', '.join(sorted(unknown))}")
        self._setting = setting
        self._extent = extent
        self.lead = lead
        self.state = ManagerState(config)
        self.fill_rates: FillRates = {}
        self.history = History()

    def set_config(self, config: EvictionConfig, extent: Extent, *, lead: bool) -> None:
        """Replaces the thresholds. The state of thresholds in both configurations is kept. Not while a pass runs."""
        self.state = replace(self.state, config=config)
        self._extent = extent
        self.lead = lead

    def functions_here(self, observations: SignalObservations) -> tuple[str, ...]:
        """All functions that rows name and that free space on a filesystem that there is."""
        roles, named = set(map(str, observations.filesystems)), self.state.config.functions
        functions = self._setting.functions
        return tuple(name for name in functions if name in named and functions[name].frees in roles)

    @property
    def lead_seconds(self) -> float:
        """How long before the kubelet's mark a pass begins at the latest: what removals have lately taken; 0: it is
        switched off, or there is no time to be gained as the pass goes to the end of its row."""
        return self._setting.lead_seconds() if self.lead and self._extent is Extent.ENOUGH else 0.0

    def synchronize(self) -> tuple[SignalObservations, Decision]:
        """Observes the node and decides; remembers both in the history."""
        observations = self._setting.observe()
        before = self.state
        self.state, decision = synchronize(before, observations, observations.time)
        self.fill_rates = update_fill_rates(self.fill_rates, observations)
        observations = replace(observations, polls={})  # they are in the fill rates
        self.history.add(HistoryEntry(before, observations, decision))
        return observations, decision

    def begin(
        self,
        observations: SignalObservations,
        decision: Decision,
        trigger: Trigger,
        request: Request = AS_CONFIGURED,
        *,
        setting: Setting | None = None,
        gives_way: Callable[[], bool] = lambda: False,
    ) -> OnePass:
        """The pass that follows; it has done nothing yet. `setting`: in place of that of all passes."""
        return OnePass(
            setting or self._setting,
            self.state.config,
            self._extent,
            self.fill_rates,
            observations,
            decision,
            trigger,
            request,
            gives_way=gives_way,
        )

    def reclaim(
        self, observations: SignalObservations, decision: Decision, trigger: Trigger, request: Request | None = None
    ) -> Pass:
        """Makes the pass and runs it. Never raises for what the runtime or one object does."""
        return self.begin(observations, decision, trigger, request or AS_CONFIGURED).run()
