"""Events about the node, with the kubelet's reasons (`pkg/kubelet/events/event.go`): every one is logged."""

from __future__ import annotations

from collections.abc import Callable

from eviction.reporting.log import Level, Log
from reclaim.events import GCEvent


class LogSink:
    """Logs events, with the reason as a field; one that repeats what was announced only as a debug event.

    `also`: called with each event after that; it never raises and never waits.
    """

    def __init__(self, log: Log, also: Callable[[GCEvent], None] = lambda _: None):
        self._log = log
        self._also = also

    def warn(self, event: GCEvent) -> None:
        """Logs one line."""
        level = Level.DEBUG if event.repeated else Level.WARNING
        self._log.event(level, event.message, event=str(event.reason), **event.values)
        self._also(event)
