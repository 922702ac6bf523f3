"""Events about the node, with the kubelet's reasons, and the sinks that receive them.

Source: kubelet, `pkg/kubelet/events/event.go`. Every event is logged; if switched on, it is also sent to the API server
(`event_recorder`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from eviction.reporting.log import Level, Log
from reclaim.events import GCEvent


class EventSink(Protocol):
    """Receives events. Never raises and never waits."""

    def warn(self, event: GCEvent) -> None:
        """A warning about the node."""


class LogSink:
    """Logs events, with the reason as a field; one that repeats what was announced only as a debug event."""

    def __init__(self, log: Log):
        self._log = log

    def warn(self, event: GCEvent) -> None:
        """Logs one line."""
        level = Level.DEBUG if event.repeated else Level.WARNING
        self._log.event(level, event.message, event=str(event.reason), **event.values)


class SinkWhile:
    """Passes events on while a condition holds, and drops them otherwise."""

    def __init__(self, sink: EventSink, condition: Callable[[], bool]):
        self._sink = sink
        self._condition = condition

    def warn(self, event: GCEvent) -> None:
        """Passes it on, or not."""
        if self._condition():
            self._sink.warn(event)


class FanOutSink:
    """Passes each event to several sinks, in their order."""

    def __init__(self, *sinks: EventSink):
        self._sinks = sinks

    def warn(self, event: GCEvent) -> None:
        """Passes it to each sink."""
        for sink in self._sinks:
            sink.warn(event)
