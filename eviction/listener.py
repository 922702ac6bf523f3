"""Who hears what happens on a node: log, metrics, history, events and shadow listen, each as one object."""

from __future__ import annotations

from collections.abc import Callable

from eviction.record import Pass
from eviction.types import Decision
from reclaim.services import Listener as ReclaimListener
from reclaim.types import ReclaimResult
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


def _tells(name: str) -> Callable[..., None]:
    def tell(self: Listeners, *what: object) -> None:
        for listener in self._all:
            getattr(listener, name)(*what)

    return tell


for _name in [each for each in dir(Listener) if not each.startswith("_")]:
    setattr(Listeners, _name, _tells(_name))
