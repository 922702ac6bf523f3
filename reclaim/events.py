"""The kubelet's events about its node that concern garbage collection: values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class EventReason(StrEnum):
    """The kubelet's reasons of events about its node that concern garbage collection and eviction
    (`pkg/kubelet/events/event.go`, `pkg/kubelet/eviction/eviction_manager.go`). All are warnings."""

    EVICTION_THRESHOLD_MET = "EvictionThresholdMet"
    CONTAINER_GC_FAILED = "ContainerGCFailed"
    IMAGE_GC_FAILED = "ImageGCFailed"
    INVALID_DISK_CAPACITY = "InvalidDiskCapacity"
    FREE_DISK_SPACE_FAILED = "FreeDiskSpaceFailed"


@dataclass(frozen=True, slots=True)
class GCEvent:
    """An event about the node: the sentence, and the numbers in it by name (bytes, percent).

    `repeated`: the same state was announced before, and lasts.
    """

    reason: EventReason
    message: str
    values: Mapping[str, int] = field(default_factory=dict)
    repeated: bool = False
