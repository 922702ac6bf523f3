"""What JSON documents have in common: how a record becomes one, and types that say more than Python's.

A record that is printed as it is, is one frozen dataclass. `to_json` makes its document, and `.ci/schemas.py` its JSON
Schema, with the docstrings of the class and of each field as descriptions. A document that differs from the record
behind it is a TypedDict, which `document_of` fills from the record, and from what is given where they differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, StrEnum
from typing import Annotated, Any, Final, Literal, TypedDict, TypeVar, cast

from eviction.types import API_VERSION, ThresholdValue
from signals.types import AVAILABLE, INODES_FREE, ROLE_NAME


@dataclass(frozen=True, slots=True, eq=False)  # hashed as itself: Annotated hashes it
class Keywords:
    """Keywords of JSON Schema for an annotated type: `Annotated[str, Keywords({"format": "date-time"})]`."""

    keywords: Mapping[str, Any]


def one_of(*closed_lists: type[StrEnum], open_: bool = False) -> Keywords:
    """A text that is in one of these lists. `open_`: it may be another one too, and the lists have the usual ones."""
    words = {"enum": [str(word) for closed in closed_lists for word in closed]}
    return Keywords({"anyOf": [words, {"minLength": 1}]} if open_ else words)


Shape = TypeVar("Shape")

_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$"

Time = Annotated[str, Keywords({"format": "date-time", "pattern": _TIME})]
"""RFC 3339 in UTC."""

Count = Annotated[int, Keywords({"minimum": 0})]
"""Bytes, inodes, objects: never negative."""

Seconds = Annotated[float, Keywords({"minimum": 0})]
"""A duration in seconds."""

SignalName = Annotated[str, Keywords({"pattern": rf"^{ROLE_NAME.pattern}\.({AVAILABLE}|{INODES_FREE})$"})]
"""A signal of the kubelet, or of a filesystem that the configuration adds."""

RoleName = Annotated[str, Keywords({"pattern": f"^{ROLE_NAME.pattern}$"})]
"""A filesystem: nodefs, imagefs, containerfs, or one that the configuration adds."""


class VersionedJson(TypedDict):
    """A document with a version and a kind."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]
    """The version of this format. Fields may be added to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versioned:
    """A record that is printed as a document."""

    apiVersion: Literal["reclaimd.io/v1alpha1"] = API_VERSION  # noqa: N815 # the name that Kubernetes gives it
    """The version of this format. Fields may be added to it."""
    kind: str
    """What the document is."""


class LeftOut(Enum):
    """The value of a field that the document does not have: `cost: Cost | LeftOut = LEFT_OUT`."""

    LEFT_OUT = "left out"


LEFT_OUT: Final = LeftOut.LEFT_OUT


def document_of(shape: type[Shape], record: object, **given: Any) -> Shape:
    """A document with the fields of this TypedDict or dataclass: what is given, else the attribute of the record with
    that name, rounded to a microsecond. What neither has, and what is `LEFT_OUT`, is left out."""
    found = {name: given[name] if name in given else getattr(record, name, LEFT_OUT) for name in shape.__annotations__}
    rounded = {name: round(value, 6) if isinstance(value, float) else value for name, value in found.items()}
    return cast("Shape", to_json(rounded))


def to_json(record: Any) -> Any:
    """The document of a frozen dataclass: its fields by name, except those that are `LEFT_OUT`.

    Enumerations and thresholds' values become texts, tuples become lists, and sets sorted lists. Numbers are not
    rounded.
    """
    if isinstance(record, StrEnum | ThresholdValue):
        return str(record)
    if is_dataclass(record):
        record = {field.name: getattr(record, field.name) for field in fields(record)}
    if isinstance(record, Mapping):
        return {str(name): to_json(value) for name, value in record.items() if value is not LEFT_OUT}
    if isinstance(record, list | tuple):
        return [to_json(value) for value in record]
    if isinstance(record, set | frozenset):
        return sorted(to_json(value) for value in record)
    return record
