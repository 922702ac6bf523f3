"""Makes the ballast of the configuration again after it was released, once there is room for it twice over."""

from __future__ import annotations

import threading
from contextlib import suppress

from eviction.ballast import create_ballast, room_problem
from eviction.configuration.functions import FunctionKind
from eviction.decision.thresholds import highest_mark
from eviction.listener import Listener
from eviction.node.node import Node
from eviction.reporting.log import Log
from eviction.types import Decision
from reclaim.ballast import BallastRefused, BallastSettings
from reclaim.execution.workers import NoThread, Workers
from signals.quantity import format_bytes
from signals.types import SignalObservations

RETRY_SECONDS = 300.0  # between two attempts


class BallastKeeper(Listener):
    """Keeps the file of ballast in place, where the configuration has one. Its methods are for one thread.

    The look at the file and its making are done on a thread of `workers`, of which there is one: a disk may hang. When
    pressure comes while it is made, what there is of it is removed.
    """

    def __init__(self, node: Node, log: Log, workers: Workers):
        self._node = node
        self._log = log
        self._workers = workers
        functions = node.configuration.functions
        self._ballast = next((each for each in functions if each.kind is FunctionKind.BALLAST), None)
        self._next = float("-inf")
        self._abandoned = threading.Event()

    def prepare(self) -> None:
        """Starts the thread that makes it. Raises NoThread."""
        if self._ballast is not None:
            self._workers.prepare(1)

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """After each observation: has what is missing made again. Never under pressure, that is while a threshold is
        met on any filesystem or a condition is reported; not in a dry run, not while one is made, each 5 minutes at
        most, and with room for it twice over above the highest mark of its filesystem. Returns at once, never raises.
        """
        ballast, filesystems = self._ballast, observations.filesystems
        if decision.thresholds_met or decision.conditions:
            self._abandoned.set()
            return
        if ballast is None or ballast.frees not in filesystems or self._node.dry_run or observations.time < self._next:
            return
        mark = highest_mark(self._node.thresholds(observations.layout), observations, ballast.frees)
        settings = BallastSettings(ballast.path, ballast.size_bytes)
        if room_problem(filesystems[ballast.frees][1].available_bytes, settings, mark) is None:
            self._next = observations.time + RETRY_SECONDS
            self._begin(settings, mark)

    def close(self) -> None:
        """Gives up a file that is being made; its thread removes what there is of it."""
        self._abandoned.set()
        self._workers.close()

    def _begin(self, settings: BallastSettings, mark_bytes: int) -> None:
        abandoned = threading.Event()

        def restore() -> None:
            try:
                made = create_ballast(settings, mark_bytes, abandoned.is_set)[1]
            except BallastRefused as error:
                self._log.warning(f"the ballast is not made again: {error}")
            else:
                if made:
                    self._log.info(f"the ballast {settings.path} of {format_bytes(settings.size_bytes)} is there again")

        with suppress(NoThread):  # none can be started, or it is at work
            self._workers.run(restore)
            self._abandoned = abandoned
