"""What is decided on: thresholds, conditions, decisions. Values only; the words are the kubelet's
(`pkg/kubelet/eviction/api/types.go`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from signals.quantity import Percentage, format_quantity, whole
from signals.types import FsLayout, Signal


class EvictionError(Exception):
    """Root of what can go wrong while deciding and running."""


class NodeCondition(StrEnum):
    """The condition that the disk signals raise."""

    DISK_PRESSURE = "DiskPressure"


@dataclass(frozen=True, slots=True)
class ThresholdValue:
    """A quantity (exact, bytes or inodes) or a percentage of the capacity; exactly one of the two."""

    quantity: Fraction | None = None
    percentage: Percentage | None = None

    def __post_init__(self) -> None:
        if (self.quantity is None) == (self.percentage is None):
            raise ValueError("a threshold value is a quantity or a percentage, not both and not neither")

    def amount(self, capacity: int) -> Fraction | int:
        """Bytes or inodes at this capacity. A percentage is truncated to a whole number; a quantity stays exact."""
        if self.percentage is not None:
            return self.percentage.of(capacity)
        assert self.quantity is not None
        return self.quantity

    def __str__(self) -> str:
        if self.percentage is not None:
            return str(self.percentage)
        assert self.quantity is not None
        return format_quantity(whole(self.quantity)) if self.quantity.denominator == 1 else f"{float(self.quantity):g}"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A signal must not fall below `value`. Hard means a grace of 0 seconds, and nothing else.

    `margin` raises the mark, computed on the same capacity and truncated by itself: where the value is the kubelet's,
    acting that far above it is acting before the kubelet. `min_reclaim`: how far above the mark the signal must rise
    before an acted-on threshold counts as cleared. `origin` says where the value comes from, for people.
    """

    signal: Signal
    value: ThresholdValue
    grace_seconds: float = 0.0
    min_reclaim: ThresholdValue | None = None
    origin: str = ""
    margin: ThresholdValue | None = None

    @property
    def hard(self) -> bool:
        """Whether it acts as soon as it is met."""
        return self.grace_seconds == 0

    def effective(self, capacity: int, *, with_min_reclaim: bool = False) -> Fraction | int:
        """The mark at this capacity, with or without the minimum reclaim on top."""
        mark = self.value.amount(capacity)
        if self.margin is not None:
            mark += self.margin.amount(capacity)
        if with_min_reclaim and self.min_reclaim is not None:
            mark += self.min_reclaim.amount(capacity)
        return mark

    def text(self) -> str:
        """The mark as written: `10%`, or `10% + 5%` with a margin."""
        return str(self.value) if self.margin is None else f"{self.value} + {self.margin}"

    def same_as(self, other: Threshold) -> bool:
        """Whether two entries are one threshold: signal, value and grace agree; minimum reclaim is not compared."""
        mine = (self.signal, self.value, self.margin, self.grace_seconds)
        return mine == (other.signal, other.value, other.margin, other.grace_seconds)


@dataclass(frozen=True, slots=True)
class Decision:
    """What one look means.

    `conditions`: reported now, the transition period included. `thresholds_met`: met, or not yet resolved.
    `acted_on`: the one threshold to act on, None if there is none; `row`: the names of the functions of its row,
    in order.
    `others`: what could be acted on as well, in the order of choice: for a caller that has just found that nothing more
    can be done about the first.
    """

    conditions: frozenset[NodeCondition]
    thresholds_met: tuple[Threshold, ...]
    acted_on: Threshold | None
    row: tuple[str, ...]
    layout: FsLayout | None
    others: tuple[Threshold, ...] = ()
