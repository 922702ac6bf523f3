"""What a drill hears of the daemon that it runs."""

from __future__ import annotations

from collections.abc import Callable

from eviction.listener import Listener
from eviction.record import Pass
from eviction.types import Decision
from signals.types import SignalObservations


class DrillListener(Listener):
    """Passes on passes, and observations where they are wanted."""

    def __init__(
        self,
        on_pass: Callable[[Pass], None],
        on_observation: Callable[[SignalObservations, Decision], None] | None = None,
    ):
        self._on_pass = on_pass
        self._on_observation = on_observation

    def passed(self, record: Pass) -> None:
        """Passed on."""
        self._on_pass(record)

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """Passed on."""
        if self._on_observation is not None:
            self._on_observation(observations, decision)
