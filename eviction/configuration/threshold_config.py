"""Parses the four eviction maps (signal -> text) into thresholds.

Rules (kubelet, `pkg/kubelet/eviction/helpers.go`, ParseThresholdConfig):

* A value is a quantity or a percentage. The texts `0%` and `100%` switch the signal off. A quantity
  must be above 0, a percentage between 0 and 100.
* A soft threshold needs a grace period, unless it is switched off. A grace period
  of 0 makes it a hard one.
* A minimum reclaim belongs to the signal: it applies to its hard and its soft threshold. It may be
  0 as a quantity, but not as a percentage, and has no upper bound.
* A grace period or minimum reclaim of a signal without a threshold is ignored.
* The order of the checks: hard, soft, grace periods, minimum reclaims, soft without grace period.
  The first problem is raised.

Hard thresholds come before soft ones, each in the order of the signals; the kubelet
does not define an order.

Memory and PID signals are checked like disk signals, but returned separately:
they are left to the kubelet.

Thresholds of containerfs never take effect as configured; see
`decision.thresholds.update_container_fs_thresholds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from eviction.types import EvictionError, Threshold, ThresholdValue
from signals.quantity import (
    DURATION_FORMS,
    PERCENTAGE_FORMS,
    QUANTITY_FORMS,
    QuantityError,
    parse_duration,
    parse_percentage,
    parse_quantity,
)
from signals.types import KUBELET_SIGNALS, Signal

# kubelet, pkg/kubelet/eviction/defaults_linux.go
KUBELET_EVICTION_HARD: Mapping[str, str] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}

LEFT_TO_KUBELET = ("memory.available", "allocatableMemory.available", "pid.available")

LARGEST_MARGIN = 0.5
LARGEST_MARGIN_BYTES = 1 << 60  # 1Ei: no disk is that large
_OFF = ("0%", "100%")

Value = TypeVar("Value")


class FieldError(EvictionError, ValueError):
    """A value is not allowed, in itself or with other fields.

    `problem`: the end of a sentence about the field, with what is allowed. `key`: the entry, if the
    field is a map.
    """

    def __init__(self, field: str, problem: str, key: str | None = None):
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.key = key


@dataclass(frozen=True, slots=True)
class ParsedThresholds:
    """The thresholds of the disk signals, and those of others."""

    thresholds: tuple[Threshold, ...]
    left_to_kubelet: tuple[tuple[str, str], ...] = ()
    """(signal, value) as written, with ` (soft)` after the value of a soft one whose grace period
    is not 0."""


def parse_threshold_config(  # noqa: PLR0917 # the four maps, in the kubelet's order
    hard: Mapping[str, str],
    soft: Mapping[str, str],
    grace_periods: Mapping[str, str],
    minimum_reclaims: Mapping[str, str],
    *,
    origin: str = "",
    signals: Sequence[Signal] = KUBELET_SIGNALS,
) -> ParsedThresholds:
    """The thresholds of the four maps. Raises FieldError with the first problem.

    `origin`: of each threshold; empty: the name of its map. `signals`: those of the node.
    """
    names = (*signals, *LEFT_TO_KUBELET)
    hard_values = _read_map("evictionHard", hard, names, read=read_value, left_out=_OFF)
    soft_values = _read_map("evictionSoft", soft, names, read=read_value, left_out=_OFF)
    graces = _read_map("evictionSoftGracePeriod", grace_periods, names, read=read_duration)
    reclaims = _read_map(
        "evictionMinimumReclaim", minimum_reclaims, names, read=read_minimum_reclaim
    )
    for name in soft_values:
        if name not in graces:
            problem = f"needs a grace period in evictionSoftGracePeriod, {DURATION_FORMS}"
            raise FieldError("evictionSoft", f"{name}: {problem}", name)
    thresholds: list[Threshold] = []
    left: list[tuple[str, str]] = []
    for field, written, values in (
        ("evictionHard", hard, hard_values),
        ("evictionSoft", soft, soft_values),
    ):
        for name, value in values.items():
            grace = graces[name] if values is soft_values else 0.0
            if isinstance(name, Signal):
                reclaim = reclaims.get(name)
                thresholds.append(
                    Threshold(name, value, grace, min_reclaim=reclaim, origin=origin or field)
                )
            else:
                left.append((name, f"{written[name]} (soft)" if grace > 0 else written[name]))
    return ParsedThresholds(tuple(thresholds), tuple(left))


def _read_map(
    field: str,
    written: Mapping[str, str],
    names: Sequence[str],
    *,
    read: Callable[[str], Value],
    left_out: Sequence[str] = (),
) -> dict[str, Value]:
    for name in written:
        if name not in names:
            problem = f"unknown signal {_quoted(name)}; allowed are {', '.join(names)}"
            raise FieldError(field, problem, name)
    values: dict[str, Value] = {}
    for name in names:
        if name in written and written[name] not in left_out:
            try:
                values[name] = read(written[name])
            except ValueError as error:
                raise FieldError(field, f"{name}: {error}", name) from None
    return values


def read_duration(text: str) -> float:
    """Seconds, not negative.

    Raises ValueError, as all of these do, with the end of a sentence about the field.
    """
    seconds = parse_duration(text)
    if seconds < 0:
        raise ValueError(f"must not be negative, but it was {text!r}")
    return seconds


def read_value(text: str) -> ThresholdValue:
    """The value of a threshold. Raises ValueError."""
    value = _read(text)
    if value.percentage is not None and not 0 <= value.percentage.fraction <= 1:
        raise ValueError(f"must be between 0% and 100%, but it was {text!r}")
    if value.quantity is not None and value.quantity <= 0:
        raise ValueError(f"must be above 0 (0% switches the signal off), but it was {text!r}")
    return value


def read_minimum_reclaim(text: str) -> ThresholdValue:
    """The value of a minimum reclaim. Raises ValueError."""
    value = _read(text)
    if value.percentage is not None and value.percentage.fraction <= 0:
        raise ValueError(f"must be above 0%, but it was {text!r}")
    if value.quantity is not None and value.quantity < 0:
        raise ValueError(f"must not be negative, but it was {text!r}")
    return value


def read_margin(text: str) -> ThresholdValue:
    """A share of the capacity, 0% to 50%, or bytes, less than 1Ei.

    Bytes raise only the marks of the `available` signals. Raises ValueError.
    """
    margin = _read(text)
    if margin.percentage is not None and not 0 <= margin.percentage.fraction <= LARGEST_MARGIN:
        raise ValueError(f"must be between 0% and 50%, but it was {text!r}")
    if margin.quantity is not None and margin.quantity < 0:
        raise ValueError(f"must not be negative, but it was {text!r}")
    if margin.quantity is not None and margin.quantity >= LARGEST_MARGIN_BYTES:
        raise ValueError(f"must be less than 1Ei, but it was {text!r}")
    return margin


def _read(text: str) -> ThresholdValue:
    try:
        if text.endswith("%"):
            return ThresholdValue(percentage=parse_percentage(text))
        return ThresholdValue(quantity=parse_quantity(text))
    except QuantityError:
        raise ValueError(
            f"{_quoted(text)} is neither {QUANTITY_FORMS} nor {PERCENTAGE_FORMS}"
        ) from None


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
