"""Makes the ballast of the configuration again after it was released, once there is room for it twice over."""

from __future__ import annotations

from eviction.configuration.functions import FunctionKind
from eviction.decision.thresholds import highest_mark
from eviction.listener import Listener
from eviction.node.node import Node
from eviction.reporting.log import Log
from eviction.types import Decision
from reclaim.ballast.file import Ballast, BallastSettings
from reclaim.ballast.release import BallastKeeper
from reclaim.execution.workers import Workers
from signals.quantity import format_bytes
from signals.types import SignalObservations


class BallastKeepers(Listener):
    """One keeper for each ballast of the configuration, of which there is mostly none. For one thread."""

    def __init__(self, node: Node, log: Log):
        self._node = node
        self._log = log
        configured = [each for each in node.configuration.functions if each.kind is FunctionKind.BALLAST]
        self._threads = Workers("ballast", len(configured))  # one each: the disk of another may hang
        self._keepers = [
            (function.frees, self._keeper(BallastSettings(function.path, function.size_bytes)))
            for function in configured
        ]

    def prepare(self) -> None:
        """Starts the threads that make them. Raises NoThread."""
        self._threads.prepare(len(self._keepers))

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """After each observation: has what is missing made again, never at pressure nor in a dry run. Never raises."""
        if self._node.dry_run:
            return
        under_pressure = bool(decision.thresholds_met or decision.conditions)
        for role, keeper in self._keepers:
            if role in observations.filesystems:
                available = observations.filesystems[role][1].available_bytes
                mark = highest_mark(self._node.thresholds(observations.layout), observations, role)
                keeper.restore_if_room(available, mark, observations.time, under_pressure=under_pressure)

    def close(self) -> None:
        """Gives up what is being made."""
        for _, keeper in self._keepers:
            keeper.close()
        self._threads.close()

    def _keeper(self, settings: BallastSettings) -> BallastKeeper:
        return BallastKeeper(settings, self._threads.run, self._report)

    def _report(self, made: Ballast | str) -> None:
        if isinstance(made, str):
            self._log.warning(f"the ballast is not made again: {made}")
        else:
            self._log.info(f"the ballast {made.path} of {format_bytes(made.size_bytes)} is there again")
