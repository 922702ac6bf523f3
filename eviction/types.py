"""Thresholds, node conditions and decisions.

Values only, in the kubelet's words (`pkg/kubelet/eviction/api/types.go`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, NamedTuple

from signals.quantity import Percentage, format_quantity, whole
from signals.types import FsLayout, Signal

# of the configuration file, and of all JSON that is printed
API_VERSION: Final = "reclaimd.io/v1alpha1"

Json = dict[str, Any]
"""A JSON object, as it is printed, or read, maybe from another version."""
Fields = Mapping[str, Any]
"""One that is only read."""


class EvictionError(Exception):
    """The base class of this package's errors."""


class NodeCondition(StrEnum):
    """A condition of the node.

    RECLAIM_PRESSURE is ours: a threshold of reclaimd's is met, or was within the transition period.
    DISK_PRESSURE is the kubelet's: a signal is below the kubelet's own mark now, so the kubelet
    would report it. It is never reported where the kubelet's marks are not known.
    """

    RECLAIM_PRESSURE = "ReclaimPressure"
    DISK_PRESSURE = "DiskPressure"


class Extent(StrEnum):
    """Where a pass stops: when the thresholds are clear, or, as the kubelet, at the row's end."""

    ENOUGH = "enough"
    ALL = "all"


@dataclass(frozen=True)
class ThresholdValue:
    """Either a quantity, exact bytes or inodes, or a percentage of the capacity."""

    quantity: Fraction | None = None
    percentage: Percentage | None = None
    at_most: int | None = None
    """The bound of a percentage, in bytes; None: it has none."""

    def amount(self, capacity: int) -> Fraction | int:
        """Bytes or inodes at this capacity.

        A percentage is truncated to a whole number; a quantity stays exact.
        """
        if self.percentage is not None:
            share = self.percentage.of(capacity)
            return share if self.at_most is None else min(share, self.at_most)
        assert self.quantity is not None
        return self.quantity

    def __str__(self) -> str:
        if self.percentage is not None:
            bound = f" (at most {format_quantity(self.at_most)})" if self.at_most else ""
            return f"{self.percentage}{bound}"
        assert self.quantity is not None
        return (
            format_quantity(whole(self.quantity))
            if self.quantity.denominator == 1
            else f"{float(self.quantity):g}"
        )


@dataclass(frozen=True)
class Threshold:
    """The value below which a signal must not fall.

    A hard threshold is one with a grace period of 0 seconds. `margin` is added to the value, so
    that reclaimd acts before the kubelet where both have the same value. Each of the two is
    computed and truncated by itself, so bytes can be added to a percentage, and the kubelet's
    arithmetic stays exact. `min_reclaim`: how far above the mark the signal must rise before a
    threshold that was acted on counts as cleared. Either is left out if the sum is not below the
    capacity: everything would be removed, for ever. `origin`: where the value comes from, for
    people.
    """

    signal: Signal
    value: ThresholdValue
    grace_seconds: float = 0.0
    min_reclaim: ThresholdValue | None = None
    origin: str = ""
    margin: ThresholdValue | None = None

    def __hash__(self) -> int:
        return hash(self.signal)  # all fields take long, and few thresholds share one

    @property
    def hard(self) -> bool:
        return self.grace_seconds == 0

    def mark(self, capacity: int) -> int:
        """Bytes or inodes below which the threshold is met at this capacity: value and margin.

        A fraction of a byte is rounded up, as the kubelet's `Quantity.Value` does: a whole number
        of bytes is below the exact sum if and only if it is below the rounded one.
        """
        return math.ceil(self._exact_mark(capacity))

    def mark_with_min_reclaim(self, capacity: int) -> int:
        """The mark with the minimum reclaim on top, rounded up once."""
        return math.ceil(_raised(self._exact_mark(capacity), self.min_reclaim, capacity))

    def _exact_mark(self, capacity: int) -> Fraction | int:
        return _raised(self.value.amount(capacity), self.margin, capacity)

    def text(self) -> str:
        """The value as written: `10%`, or `10% + 5%` with a margin."""
        return str(self.value) if self.margin is None else f"{self.value} + {self.margin}"


def _raised(amount: Fraction | int, by: ThresholdValue | None, capacity: int) -> Fraction | int:
    """The sum if that much can be available, else the amount alone."""
    raised = amount if by is None else amount + by.amount(capacity)
    return raised if raised < capacity else amount


Thresholds = tuple[Threshold, ...]

Row = tuple[str, ...]
"""The names of reclaim functions, in the order in which they are called."""


class Decision(NamedTuple):
    """What `synchronize` makes of one set of observations.

    `conditions`: those reported now; ours includes the transition period. `thresholds_met`:
    met, or not yet resolved. `acted_on`: the one threshold to act on, None if there is
    none. `row`: the names of the functions in its row, in order. `others`: further
    thresholds that could be acted on, in order of preference, for a caller that finds that
    nothing more can be done about the first.
    """

    conditions: frozenset[NodeCondition]
    thresholds_met: Thresholds = ()
    acted_on: Threshold | None = None
    row: Row = ()
    layout: FsLayout | None = None
    others: Thresholds = ()

    @property
    def signal(self) -> Signal | None:
        """Of the threshold to act on."""
        return None if self.acted_on is None else self.acted_on.signal
