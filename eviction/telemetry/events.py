"""Events: what the kubelet would tell the API server about its node, under its reasons.

Source: kubelet, `pkg/kubelet/events/event.go`. They go to the log always, and where it is switched on to the API server
too (`event_recorder`).
"""

from __future__ import annotations

from typing import Protocol

from eviction.reporting.log import Log
from reclaim.types import GCEvent


class EventSink(Protocol):
    """Where events go. Never raises and never waits."""

    def warn(self, event: GCEvent) -> None:
        """A warning about the node."""


class LogEvents:
    """Events as lines of the log, with the reason as a field."""

    def __init__(self, log: Log):
        self._log = log

    def warn(self, event: GCEvent) -> None:
        """One line."""
        self._log.warning(event.message, event=str(event.reason), **event.values)


class FanOutSink:
    """Events to several sinks, in their order."""

    def __init__(self, *sinks: EventSink):
        self._sinks = sinks

    def warn(self, event: GCEvent) -> None:
        """To each."""
        for sink in self._sinks:
            sink.warn(event)
