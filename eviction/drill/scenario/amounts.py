"""Amounts and durations in a scenario: the texts of its file, and their values."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from eviction.configuration.models import PlainSerializer, read_as
from eviction.configuration.text_forms import Duration, Quantity, QuantityOrPercentage
from eviction.types import EvictionError
from signals.quantity import Percentage, parse_duration, parse_percentage, parse_quantity, whole

LARGEST_BYTES = 1 << 40
SMALLEST_FILESYSTEM_BYTES = 1 << 20


class ScenarioError(EvictionError):
    """A scenario that cannot be used. The message is one sentence."""


def as_written(text: str | None) -> Any:
    """A default as the file would have it."""
    return text


def read_amount(text: str, at_least: int = 0) -> int:
    """Bytes or files; a fraction is rounded up. Raises ValueError unless it is between `at_least` and 1 Ti."""
    found = whole(parse_quantity(text))
    if not at_least <= found <= LARGEST_BYTES:
        raise ValueError(f"must be between {at_least} and 1Ti, but it was {text!r}")
    return found


def amount_of(field: str, text: str, at_least: int = 0) -> int:
    """The same for a text outside of a file. Raises ScenarioError with the name of the field."""
    try:
        return read_amount(text, at_least)
    except ValueError as error:
        raise ScenarioError(f"{field}: {error}") from None


def read_seconds(text: str) -> float:
    """A duration in seconds. Raises ValueError if it is negative."""
    seconds = parse_duration(text)
    if seconds < 0:
        raise ValueError(f"must not be negative, but it was {text!r}")
    return seconds


def _read_share(text: str) -> int | Percentage:
    return parse_percentage(text) if text.endswith("%") else read_amount(text)


Amount = Annotated[int, read_as(Quantity, read_amount), PlainSerializer(str)]
"""Bytes or files."""

Rate = Annotated[int, read_as(Quantity, partial(read_amount, at_least=1))]
"""Bytes or files a second."""

FilesystemSize = Annotated[int, read_as(Quantity, partial(read_amount, at_least=SMALLEST_FILESYSTEM_BYTES))]
"""Bytes of a filesystem."""

Share = Annotated[int | Percentage, read_as(QuantityOrPercentage, _read_share)]
"""Bytes or inodes, or a percentage of them all."""

Seconds = Annotated[float, read_as(Duration, read_seconds)]
"""A duration."""
