"""Who hears what happens on a node: log, metrics, history, events and shadow listen, each as one object."""

from __future__ import annotations

from eviction.record import Pass
from eviction.types import Decision
from reclaim.services import Listener as ReclaimListener
from reclaim.types import Outcome, ReclaimResult
from signals.types import SignalObservations


class Listener(ReclaimListener):
    """Hears nothing. A subclass overrides what it wants to hear; a method returns soon. What comes of passes and
    removals may come on any thread, observations on the loop's."""

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """The node was observed, and this was decided."""

    def passed(self, record: Pass) -> None:
        """A pass has ended."""

    def attributed(self, record: Pass) -> None:
        """Some seconds after a pass that was not enough it is known what the bytes are used for, once in a while."""

    def detected(self) -> None:
        """The image records have been updated, while no disk was under pressure."""

    def collected(self, result: ReclaimResult) -> None:
        """A pass of a periodic loop has ended."""


class Listeners(Listener):
    """Tells all that were added, in that order."""

    def __init__(self) -> None:
        self._all: list[Listener] = []

    def add(self, listener: Listener) -> None:
        """From now on it hears too."""
        self._all.append(listener)

    def called(self, call: str, seconds: float, failed: bool) -> None:
        """Told on."""
        for listener in self._all:
            listener.called(call, seconds, failed)

    def parked(self, outcome: Outcome) -> None:
        """Told on."""
        for listener in self._all:
            listener.parked(outcome)

    def parked_ended(self, outcome: Outcome) -> None:
        """Told on."""
        for listener in self._all:
            listener.parked_ended(outcome)

    def program_line(self, function: str, line: str) -> None:
        """Told on."""
        for listener in self._all:
            listener.program_line(function, line)

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """Told on."""
        for listener in self._all:
            listener.observed(observations, decision)

    def passed(self, record: Pass) -> None:
        """Told on."""
        for listener in self._all:
            listener.passed(record)

    def attributed(self, record: Pass) -> None:
        """Told on."""
        for listener in self._all:
            listener.attributed(record)

    def detected(self) -> None:
        """Told on."""
        for listener in self._all:
            listener.detected()

    def collected(self, result: ReclaimResult) -> None:
        """Told on."""
        for listener in self._all:
            listener.collected(result)
