"""Events: what the kubelet would tell the API server about its node, under its reasons.

Source: kubelet, `pkg/kubelet/events/event.go`. They go to the log always.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from eviction.log import Log


class EventReason(StrEnum):
    """The kubelet's reasons that concern garbage collection and eviction; all are warnings about the node."""

    EVICTION_THRESHOLD_MET = "EvictionThresholdMet"
    CONTAINER_GC_FAILED = "ContainerGCFailed"
    IMAGE_GC_FAILED = "ImageGCFailed"
    FREE_DISK_SPACE_FAILED = "FreeDiskSpaceFailed"
    INVALID_DISK_CAPACITY = "InvalidDiskCapacity"


class EventSink(Protocol):
    """Where events go. Never raises and never waits."""

    def warn(self, reason: EventReason, message: str) -> None:
        """A warning about the node."""


class LogEvents:
    """Events as lines of the log, with the reason as a field."""

    def __init__(self, log: Log):
        self._log = log

    def warn(self, reason: EventReason, message: str) -> None:
        """One line."""
        self._log.warning(message, event=str(reason))
