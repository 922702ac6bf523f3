"""Reads a JSON answer of the kubelet field by field; trusts nothing.

Whatever is not of the expected form raises KubeletAnswerError. Its message says where, and quotes no value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reclaim.pods.pod_list import MOST_VALUES
from reclaim.types import ReclaimError

LARGEST_UINT64 = 2**64 - 1


class KubeletAnswerError(ReclaimError):
    """An answer that is not of the expected form. The message is a clause that says where."""


class Field:
    """A value with the path at which it was found. A missing value and null are the same: an empty one."""

    __slots__ = ("_value", "where")

    def __init__(self, value: Any, where: str = ""):
        self._value = value
        self.where = where

    @property
    def present(self) -> bool:
        """Whether there is a value."""
        return self._value is not None

    def get(self, key: str) -> Field:
        """The field of an object."""
        return Field(self._object().get(key), f"{self.where}.{key}" if self.where else key)

    def names(self) -> tuple[str, ...]:
        """The names of the fields of an object, in their order."""
        return tuple(self._object())

    def elements(self) -> Iterator[Field]:
        """The elements of a list."""
        if self._value is not None and not isinstance(self._value, list):
            raise self.error("is not a list")
        for index, value in enumerate(self._value or ()):
            yield Field(value, f"{self.where}[{index}]")

    def text(self) -> str:
        """The text; empty without one."""
        if self._value is not None and not isinstance(self._value, str):
            raise self.error("is not a text")
        return self._value or ""

    def integer(self, least: int = 0, most: int = LARGEST_UINT64) -> int | None:
        """The whole number within bounds; None without one."""
        if self._value is None:
            return None
        if type(self._value) is not int or not least <= self._value <= most:
            raise self.error(f"is not a whole number between {least} and {most}")
        return self._value

    def error(self, problem: str) -> KubeletAnswerError:
        """The error that this field is not as it should be."""
        return KubeletAnswerError(f"{self.where or 'it'} {problem}")

    def _object(self) -> dict[str, Any]:
        if self._value is not None and not isinstance(self._value, dict):
            raise self.error("is not an object")
        return self._value or {}


def parse_answer(body: bytes) -> Field:
    """The answer as a field. Raises KubeletAnswerError, and nothing else, for anything that is not a JSON object."""
    import json

    if sum(body.count(opening) for opening in (b",", b"{", b"[")) > MOST_VALUES:
        raise KubeletAnswerError("it is too large")
    try:
        document = json.loads(body.decode())
    except (ValueError, RecursionError, MemoryError) as error:
        raise KubeletAnswerError("it is not JSON, or cut short") from error
    if not isinstance(document, dict):
        raise KubeletAnswerError("it is not an object")
    return Field(document)
