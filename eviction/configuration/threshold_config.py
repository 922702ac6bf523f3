"""Parses the four eviction maps (signal -> text) into thresholds.

Rules (kubelet, `pkg/kubelet/eviction/helpers.go`, ParseThresholdConfig):

* A value is a quantity or a percentage. `0%` and `100%`, as texts, switch the signal off. A quantity must be above 0, a
  percentage between 0 and 100.
* A soft threshold needs a grace period; one that is switched off needs none. A grace of 0 makes it a hard one.
* A minimum reclaim belongs to the signal: it applies to its hard and its soft threshold. It may be 0 as a quantity,
  not as a percentage, and has no upper bound.
* A grace period or minimum reclaim of a signal without a threshold is ignored.
* Checked in this order: hard, soft, grace periods, minimum reclaims, soft without grace. The first problem is raised.

The thresholds are returned hard before soft, each in the order of the signals; the kubelet leaves the order open.

Memory and PID signals are checked like the others and left to the kubelet: they are returned apart.

Thresholds of containerfs never take effect as configured; see `decision.thresholds.update_container_fs_thresholds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    Signal.NODEFS_AVAILABLE: "10%",
    Signal.NODEFS_INODES_FREE: "5%",
    Signal.IMAGEFS_AVAILABLE: "15%",
    Signal.IMAGEFS_INODES_FREE: "5%",
}

LEFT_TO_KUBELET = ("memory.available", "allocatableMemory.available", "pid.available")

LARGEST_MARGIN = 0.5
_OFF = ("0%", "100%")


class ThresholdConfigError(EvictionError, ValueError):
    """A map is invalid: the field, the name of the signal in it, and the problem with what is allowed."""

    def __init__(self, field: str, signal: str, problem: str):
        super().__init__(
            f"{field}: {problem}" if problem.startswith("unknown signal") else f"{field}: {signal}: {problem}"
        )
        self.field = field
        self.signal = signal
        self.problem = str(self).removeprefix(f"{field}: ")


@dataclass(frozen=True, slots=True)
class EvictionMaps:
    """The four maps as written; an empty one is the same as none."""

    hard: Mapping[str, str]
    soft: Mapping[str, str]
    soft_grace_period: Mapping[str, str]
    minimum_reclaim: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ParsedThresholds:
    """`thresholds` of the disk signals; `left_to_kubelet`: the others, (signal, value) as written, ` (soft)` behind a
    soft one whose grace is not 0."""

    thresholds: tuple[Threshold, ...]
    left_to_kubelet: tuple[tuple[str, str], ...] = ()

    @property
    def hard_memory(self) -> tuple[tuple[str, str], ...]:
        """The hard memory thresholds, (signal, value): configured as hard, or soft with a grace of 0."""
        return tuple(
            (name, text)
            for name, text in self.left_to_kubelet
            if name == "memory.available" and not text.endswith(" (soft)")
        )


def parse_threshold_config(
    maps: EvictionMaps, origin: str = "", signals: Sequence[Signal] = KUBELET_SIGNALS
) -> ParsedThresholds:
    """The thresholds. `origin`: of each of them; empty: the name of the map that it comes from. `signals`: those of the
    node.

    Raises ThresholdConfigError with the first problem.
    """
    names = (*signals, *LEFT_TO_KUBELET)
    hard, soft = _values("evictionHard", maps.hard, names), _values("evictionSoft", maps.soft, names)
    graces = {
        name: _grace(name, text) for name, text in _named("evictionSoftGracePeriod", maps.soft_grace_period, names)
    }
    reclaims = {
        name: read_minimum_reclaim("evictionMinimumReclaim", name, text)
        for name, text in _named("evictionMinimumReclaim", maps.minimum_reclaim, names)
    }
    for name in soft:
        if name not in graces:
            raise ThresholdConfigError(
                "evictionSoft", name, f"needs a grace period in evictionSoftGracePeriod, {DURATION_FORMS}"
            )
    thresholds = [
        Threshold(signal, values[signal], grace_of(signal), reclaims.get(signal), origin=origin or field)
        for field, values, grace_of in (
            ("evictionHard", hard, lambda _: 0.0),
            ("evictionSoft", soft, graces.__getitem__),
        )
        for signal in signals
        if signal in values
    ]
    left = tuple(
        (name, f"{written[name]}{' (soft)' if grace_of(name) > 0 else ''}")
        for written, grace_of in ((maps.hard, lambda _: 0.0), (maps.soft, graces.__getitem__))
        for name in LEFT_TO_KUBELET
        if name in written and written[name] not in _OFF
    )
    return ParsedThresholds(tuple(thresholds), left)


def _named(field: str, written: Mapping[str, str], names: Sequence[str]) -> list[tuple[str, str]]:
    for name in written:
        if name not in names:
            raise ThresholdConfigError(field, name, f"unknown signal {_quoted(name)}; allowed are {', '.join(names)}")
    return [(name, written[name]) for name in names if name in written]


def _values(field: str, written: Mapping[str, str], names: Sequence[str]) -> dict[str, ThresholdValue]:
    named = _named(field, written, names)
    return {name: read_value(field, name, text) for name, text in named if text not in _OFF}


def _grace(name: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except QuantityError as error:
        raise ThresholdConfigError("evictionSoftGracePeriod", name, str(error)) from None
    if seconds < 0:
        raise ThresholdConfigError("evictionSoftGracePeriod", name, f"must not be negative, but it was {_quoted(text)}")
    return seconds


def read_value(field: str, name: str, text: str) -> ThresholdValue:
    """The value of a threshold. Raises ThresholdConfigError."""
    value = _read(field, name, text)
    if value.percentage is not None and not 0 <= value.percentage.fraction <= 1:
        raise ThresholdConfigError(field, name, f"must be between 0% and 100%, but it was {_quoted(text)}")
    if value.quantity is not None and value.quantity <= 0:
        raise ThresholdConfigError(
            field, name, f"must be above 0 (0% switches the signal off), but it was {_quoted(text)}"
        )
    return value


def read_minimum_reclaim(field: str, name: str, text: str) -> ThresholdValue:
    """The value of a minimum reclaim. Raises ThresholdConfigError."""
    value = _read(field, name, text)
    if value.percentage is not None and value.percentage.fraction <= 0:
        raise ThresholdConfigError(field, name, f"must be above 0%, but it was {_quoted(text)}")
    if value.quantity is not None and value.quantity < 0:
        raise ThresholdConfigError(field, name, f"must not be negative, but it was {_quoted(text)}")
    return value


def read_margin(text: str) -> ThresholdValue:
    """A share of the capacity, 0% to 50%, or bytes, which raise only the marks of the `available` signals.

    Raises ValueError.
    """
    try:
        margin = _parsed(text)
    except QuantityError:
        raise ValueError(f"{_quoted(text)} is neither {PERCENTAGE_FORMS} nor {QUANTITY_FORMS}") from None
    if margin.percentage is not None and not 0 <= margin.percentage.fraction <= LARGEST_MARGIN:
        raise ValueError(f"must be between 0% and 50%, but it was {text!r}")
    if margin.quantity is not None and margin.quantity < 0:
        raise ValueError(f"must not be negative, but it was {text!r}")
    return margin


def _read(field: str, name: str, text: str) -> ThresholdValue:
    try:
        return _parsed(text)
    except QuantityError:
        raise ThresholdConfigError(
            field, name, f"{_quoted(text)} is neither {QUANTITY_FORMS} nor {PERCENTAGE_FORMS}"
        ) from None


def _parsed(text: str) -> ThresholdValue:
    if text.endswith("%"):
        return ThresholdValue(percentage=parse_percentage(text))
    return ThresholdValue(quantity=parse_quantity(text))


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")


def effective_hard(written: Mapping[str, str] | None, *, merge_defaults: bool) -> dict[str, str]:
    """The kubelet's `evictionHard` once its file is loaded, before drop-ins (`cmd/kubelet/app/server.go`).

    None (not in the file): the defaults. Otherwise the map as written, even if empty; with
    `mergeDefaultEvictionSettings` the defaults of the other signals are added. A user's value wins, also one that
    switches the signal off.
    """
    if written is None:
        return dict(KUBELET_EVICTION_HARD)
    return {**KUBELET_EVICTION_HARD, **written} if merge_defaults else dict(written)
