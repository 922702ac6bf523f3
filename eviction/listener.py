"""The interface of everything that follows what happens on a node: log, metrics, history, events and shadow."""

from __future__ import annotations

from collections.abc import Callable

from eviction.record import Pass
from eviction.types import Decision
from reclaim.services import Listener as ReclaimListener
from reclaim.types import ReclaimResult
from signals.types import SignalObservations


class Listener(ReclaimListener):
    """Ignores everything; a subclass overrides the methods that it needs. A method must return quickly. Observations
    come on the loop's thread, passes and removals on any thread."""

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """The node was observed, and this was decided."""

    def passed(self, record: Pass) -> None:
        """A pass has ended."""

    def attributed(self, record: Pass) -> None:
        """Some seconds after a pass that was not enough: its attributions are known. Not after every such pass."""

    def detected(self) -> None:
        """The image records have been updated, while no disk was under pressure."""

    def collected(self, result: ReclaimResult) -> None:
        """A pass of a periodic loop has ended."""


class Listeners(Listener):
    """Passes each call on to every listener that was added, in that order."""

    def __init__(self) -> None:
        self._all: list[Listener] = []

    def add(self, listener: Listener) -> None:
        self._all.append(listener)


def _tells(name: str) -> Callable[..., None]:
    def tell(self: Listeners, *what: object) -> None:
        for listener in self._all:
            getattr(listener, name)(*what)

    return tell


for _name in [each for each in dir(Listener) if not each.startswith("_")]:
    setattr(Listeners, _name, _tells(_name))
