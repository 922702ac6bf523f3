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

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from eviction.types import EvictionError, Threshold, Thresholds, ThresholdValue
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


Value = TypeVar("Value")
_Range = tuple[Callable[[Any], bool], str]
"""Which numbers are in it, and the same in words."""


class FieldError(EvictionError, ValueError):
    """A value is not allowed, in itself or with other fields.

    `problem`: the end of a sentence about the field, with what is allowed. `key`: the entry, if the
    field is a map.
    """

    def __init__(self, field: str, problem: str, key: str | None = None):
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.key = key


class ParsedThresholds(NamedTuple):
    """The thresholds of the disk signals, and those of others."""

    thresholds: Thresholds
    left_to_kubelet: tuple[tuple[str, str], ...]
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
    hard_values = _read_map("evictionHard", hard, names, read=read_value)
    soft_values = _read_map("evictionSoft", soft, names, read=read_value)
    graces = _read_map("evictionSoftGracePeriod", grace_periods, names, read=read_duration)
    reclaims = _read_map(
        "evictionMinimumReclaim", minimum_reclaims, names, read=read_minimum_reclaim
    )
    thresholds: list[Threshold] = []
    left: list[tuple[str, str]] = []
    for field, written, values in (
        ("evictionHard", hard, hard_values),
        ("evictionSoft", soft, soft_values),
    ):
        for name, value in values.items():
            if written[name] in ("0%", "100%"):
                continue
            if values is soft_values and name not in graces:
                raise FieldError(
                    field,
                    f"{name}: needs a grace period in evictionSoftGracePeriod, {DURATION_FORMS}",
                    name,
                )
            grace = graces[name] if values is soft_values else 0.0
            if isinstance(name, Signal):
                thresholds.append(
                    Threshold(
                        name, value, grace, min_reclaim=reclaims.get(name), origin=origin or field
                    )
                )
            else:
                left.append((name, f"{written[name]} (soft)" if grace > 0 else written[name]))
    return ParsedThresholds(tuple(thresholds), tuple(left))


def _read_map(
    field: str, written: Mapping[str, str], names: Sequence[str], *, read: Callable[[str], Value]
) -> dict[str, Value]:
    for name in written:
        if name not in names:
            raise FieldError(
                field, f"unknown signal {_quoted(name)}; allowed are {', '.join(names)}", name
            )
    values: dict[str, Value] = {}
    for name in names:
        if name in written:
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


def _read(text: str, *, shares: _Range, quantities: _Range) -> ThresholdValue:
    """A percentage or a quantity in its range. Raises ValueError."""
    try:
        if text.endswith("%"):
            value = ThresholdValue(percentage=parse_percentage(text))
        else:
            value = ThresholdValue(quantity=parse_quantity(text))
    except QuantityError:
        raise ValueError(
            f"{_quoted(text)} is neither {QUANTITY_FORMS} nor {PERCENTAGE_FORMS}"
        ) from None
    fits, allowed = shares if value.percentage else quantities
    if not fits(value.percentage.fraction if value.percentage else value.quantity):
        raise ValueError(f"must be {allowed}, but it was {text!r}")
    return value


read_value = partial(
    _read,
    shares=(lambda share: 0 <= share <= 1, "between 0% and 100%"),
    quantities=(lambda amount: amount > 0, "above 0 (0% switches the signal off)"),
)
"""The value of a threshold."""

read_mark = partial(
    _read,
    shares=(lambda share: 0 < share <= 1, "above 0% and at most 100%"),
    quantities=(lambda amount: amount > 0, "above 0"),
)
"""A mark to reach."""

read_minimum_reclaim = partial(
    _read,
    shares=(lambda share: share > 0, "above 0%"),
    quantities=(lambda amount: amount >= 0, "at least 0"),
)
"""The value of a minimum reclaim."""

_SHARES: _Range = lambda share: 0 <= share <= 0.5, "between 0% and 50%"
read_margin = partial(
    _read,
    shares=_SHARES,
    # no disk is that large
    quantities=(lambda amount: 0 <= amount < 1 << 60, "at least 0 and less than 1Ei"),
)
"""A share of the capacity, or bytes, which raise only the marks of the `available` signals."""

read_percent = partial(_read, shares=_SHARES, quantities=(lambda _: False, "a percentage"))
"""The percentage of a margin with a bound."""


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
