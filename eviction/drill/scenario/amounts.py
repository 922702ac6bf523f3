"""Texts of a scenario as amounts; every sentence names its field."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from eviction.configuration.strict_yaml import quoted
from eviction.types import EvictionError
from signals.quantity import QuantityError, parse_duration, parse_quantity, whole

LARGEST_BYTES = 1 << 40

_Value = TypeVar("_Value")


class ScenarioError(EvictionError):
    """A scenario that cannot be used. The message is one sentence."""


def read_text(field: str, text: str, read: Callable[[str], _Value]) -> _Value:
    """What a text says, read by `read`. Raises ScenarioError."""
    try:
        return read(text)
    except QuantityError as error:
        raise ScenarioError(f"{field}: {error}") from None


def amount_of(field: str, text: str, at_least: int = 0) -> int:
    """Bytes or files, a fraction rounded up. Raises ScenarioError."""
    found = whole(read_text(field, text, parse_quantity))
    if not at_least <= found <= LARGEST_BYTES:
        raise ScenarioError(f"{field}: must be between {at_least} and 1Ti, but it was {text!r}")
    return found


def seconds_of(field: str, text: str) -> float:
    """A duration, at least 0. Raises ScenarioError."""
    seconds = read_text(field, text, parse_duration)
    if seconds < 0:
        raise ScenarioError(f"{field}: must not be negative, but it was {text!r}")
    return seconds


def seconds_or_none(field: str, text: str | None) -> float | None:
    """A duration where one is written. Raises ScenarioError."""
    return None if text is None else seconds_of(field, text)


def refuse_twice(field: str, names: Iterable[str]) -> None:
    """Raises ScenarioError when a name is there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ScenarioError(f"{field}: the name {quoted(name)} is there twice")
        seen.add(name)
