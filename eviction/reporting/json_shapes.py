"""What JSON documents have in common: their version, and words for types that say more than Python's.

A document's shape is a TypedDict beside what makes it, so mypy holds the two together. JSON Schemas are made from these
(`eviction.cli.schemas`): the docstring of a class or of a field is its description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from signals.types import AVAILABLE, INODES_FREE, ROLE_NAME


@dataclass(frozen=True, slots=True, eq=False)  # hashed as itself: Annotated hashes it
class Keywords:
    """Keywords of JSON Schema for an annotated type: `Annotated[str, Keywords({"format": "date-time"})]`."""

    keywords: Mapping[str, Any]


def one_of(*closed_lists: type[StrEnum], open_: bool = False) -> Keywords:
    """A text that is a word of these lists. `open_`: or another word, so that the list only says what is usual."""
    words = {"enum": [str(word) for closed in closed_lists for word in closed]}
    return Keywords({"anyOf": [words, {"minLength": 1}]} if open_ else words)


_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$"

Time = Annotated[str, Keywords({"format": "date-time", "pattern": _TIME})]
"""RFC 3339 in UTC."""

Count = Annotated[int, Keywords({"minimum": 0})]
"""Bytes, inodes, objects: never negative."""

Seconds = Annotated[float, Keywords({"minimum": 0})]
"""A duration in seconds."""

SignalName = Annotated[str, Keywords({"pattern": rf"^{ROLE_NAME.pattern}\.({AVAILABLE}|{INODES_FREE})$"})]
"""A signal of the kubelet, or of a filesystem of the configuration's own."""

RoleName = Annotated[str, Keywords({"pattern": f"^{ROLE_NAME.pattern}$"})]
"""A filesystem: nodefs, imagefs, containerfs, or one of the configuration's own."""
