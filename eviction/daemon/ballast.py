"""Makes the ballast of the configuration again after it was released, once there is room for it twice over."""

from __future__ import annotations

from eviction.configuration.functions import FunctionKind
from eviction.decision.thresholds import highest_mark
from eviction.listener import Listener
from eviction.node.node import Node
from eviction.reporting.log import Log
from eviction.types import Decision
from reclaim.ballast import Ballast, BallastKeeper, BallastSettings
from reclaim.execution.workers import Workers
from signals.quantity import format_bytes
from signals.types import SignalObservations


class BallastKeepers(Listener):
    """The keeper of the ballast of the configuration, by its filesystem; mostly there is none. For one thread."""

    def __init__(self, node: Node, log: Log):
        self._node = node
        self._log = log
        self._threads = Workers("ballast", 1)
        self._keepers = {
            each.frees: BallastKeeper(BallastSettings(each.path, each.size_bytes), self._threads.run, self._report)
            for each in node.configuration.functions
            if each.kind is FunctionKind.BALLAST
        }

    def prepare(self) -> None:
        """Starts the thread that makes it. Raises NoThread."""
        self._threads.prepare(len(self._keepers))

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """After each observation: has what is missing made again, never at pressure nor in a dry run. Never raises."""
        if self._node.dry_run:
            return
        under_pressure = bool(decision.thresholds_met or decision.conditions)
        for role, keeper in self._keepers.items():
            if role in observations.filesystems:
                available = observations.filesystems[role][1].available_bytes
                mark = highest_mark(self._node.thresholds(observations.layout), observations, role)
                keeper.restore_if_room(available, mark, observations.time, under_pressure=under_pressure)

    def close(self) -> None:
        """Gives up what is being made."""
        for keeper in self._keepers.values():
            keeper.close()
        self._threads.close()

    def _report(self, made: Ballast | str) -> None:
        if isinstance(made, str):
            self._log.warning(f"the ballast is not made again: {made}")
        else:
            self._log.info(f"the ballast {made.path} of {format_bytes(made.size_bytes)} is there again")
