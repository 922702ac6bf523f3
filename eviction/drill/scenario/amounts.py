"""Reads amounts and durations from the texts of a scenario. Every error message names the field."""

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
    """The value that `read` makes of a text. Raises ScenarioError."""
    try:
        return read(text)
    except QuantityError as error:
        raise ScenarioError(f"{field}: {error}") from None


def amount_of(field: str, text: str, at_least: int = 0) -> int:
    """Bytes or files; a fraction is rounded up. Raises ScenarioError unless it is between `at_least` and 1 Ti."""
    found = whole(read_text(field, text, parse_quantity))
    if not at_least <= found <= LARGEST_BYTES:
        raise ScenarioError(f"{field}: must be between {at_least} and 1Ti, but it was {text!r}")
    return found


def seconds_of(field: str, text: str) -> float:
    """A duration in seconds. Raises ScenarioError if it is negative."""
    seconds = read_text(field, text, parse_duration)
    if seconds < 0:
        raise ScenarioError(f"{field}: must not be negative, but it was {text!r}")
    return seconds


def seconds_or_none(field: str, text: str | None) -> float | None:
    """A duration in seconds; None if there is no text. Raises ScenarioError."""
    return None if text is None else seconds_of(field, text)


def refuse_duplicates(field: str, names: Iterable[str]) -> None:
    """Raises ScenarioError if a name occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ScenarioError(f"{field}: the name {quoted(name)} occurs twice")
        seen.add(name)
