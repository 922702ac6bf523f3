"""Reads a JSON answer of the kubelet field by field; trusts nothing.

Whatever is not of the expected form raises KubeletAnswerError. Its message says where, and quotes no value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reclaim.types import ReclaimError

LARGEST_UINT64 = 2**64 - 1
MOST_VALUES = 3_000_000  # 500 pods of 20 KiB hold below a million; each costs up to 100 bytes of memory and 0.3 µs


class KubeletAnswerError(ReclaimError):
    """An answer that is not of the expected form. The message is a clause that says where."""


class Field:
    """A value of an answer, which knows its path. A missing value and null are the same: an empty one."""

    __slots__ = ("_key", "_parent", "_value")

    def __init__(self, value: Any, parent: Field | None = None, key: str | int = ""):
        self._value = value
        self._parent = parent
        self._key = key

    @property
    def where(self) -> str:
        """The path at which it was found; of the whole answer it is empty."""
        if self._parent is None:
            return ""
        above = self._parent.where
        if isinstance(self._key, int):
            return f"{above}[{self._key}]"
        return f"{above}.{self._key}" if above else self._key

    @property
    def present(self) -> bool:
        """Whether there is a value."""
        return self._value is not None

    def get(self, key: str) -> Field:
        """The field of an object."""
        return Field(self._object().get(key), self, key)

    def names(self) -> tuple[str, ...]:
        """The names of the fields of an object, in their order."""
        return tuple(self._object())

    def elements(self) -> Iterator[Field]:
        """The elements of a list, none of which may be null."""
        if self._value is not None and not isinstance(self._value, list):
            raise self.error("is not a list")
        for index, value in enumerate(self._value or ()):
            field = Field(value, self, index)
            if value is None:
                raise field.error("is null")
            yield field

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

    def truth(self) -> bool | None:
        """True or false; None without one."""
        if self._value is not None and not isinstance(self._value, bool):
            raise self.error("is not true or false")
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
