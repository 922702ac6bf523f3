"""What JSON documents have in common: how a record becomes one, and types
that say more than Python's.

Whatever is printed is a frozen dataclass. `to_json` makes its JSON, and `.ci/schemas.py` its
JSON Schema, with the docstrings of the class and of each field as descriptions. Where a
record is printed otherwise than it is, the form is a `Document`, which is filled from the
record by the names of its fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum, StrEnum
from typing import Annotated, Any, Final, Literal, Self, cast, dataclass_transform

from pydantic import Field

from eviction.types import API_VERSION, ThresholdValue
from signals.types import AVAILABLE, INODES_FREE, ROLE_NAME

# characters; names of Kubernetes objects have at most 253, image references are rarely longer
LONGEST_NAME = 512

Json = dict[str, Any]
"""A JSON object, as it is printed, or read, maybe from another version."""

_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$"

Time = Annotated[str, Field(pattern=_TIME, json_schema_extra={"format": "date-time"})]
"""RFC 3339 in UTC."""

Count = Annotated[int, Field(ge=0)]
"""Bytes, inodes, objects: never negative."""

Seconds = Annotated[float, Field(ge=0)]
"""A duration in seconds."""

SignalName = Annotated[str, Field(pattern=rf"^{ROLE_NAME.pattern}\.({AVAILABLE}|{INODES_FREE})$")]
"""A signal of the kubelet, or of a filesystem that the configuration adds."""

RoleName = Annotated[str, Field(pattern=f"^{ROLE_NAME.pattern}$")]
"""A filesystem: nodefs, imagefs, containerfs, or one that the configuration adds."""


class LeftOut(Enum):
    """The value of a field that the document does not have: `cost: Cost | LeftOut = LEFT_OUT`."""

    LEFT_OUT = "left out"


LEFT_OUT: Final = LeftOut.LEFT_OUT


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Document:
    """What is printed: a subclass is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def of(cls, *records: object, **given: Any) -> Self:
        """A document: each field as it is given, else the attribute of that name of the first
        record that has it, numbers rounded to a microsecond, else its default. None of a field that
        may be left out leaves it out."""
        defaults = {each.name: each.default for each in fields(cast("Any", cls))}
        found = {
            name: getattr(record, name)
            for record in reversed(records)
            for name in defaults
            if hasattr(record, name)
        }
        return cls(
            **{
                name: round(value, 6) if isinstance(value, float) else value
                for name, value in (found | given).items()
                if value is not None or defaults[name] is not LEFT_OUT
            }
        )


class Versioned(Document):
    """A document with a version and a kind."""

    apiVersion: Literal["reclaimd.io/v1alpha1"] = API_VERSION  # noqa: N815 # the name that Kubernetes gives it
    """The version of this format. Fields may be added to it."""
    kind: str
    """What the document is."""


def to_json(record: Any) -> Any:
    """The document of a frozen dataclass: its fields by name, except those that are `LEFT_OUT`.

    Enumerations and thresholds' values become texts, tuples become lists, and sets sorted
    lists. Numbers are not rounded.
    """
    if isinstance(record, StrEnum | ThresholdValue):
        return str(record)
    if is_dataclass(record):
        # `pass` is a keyword
        record = {each.name.rstrip("_"): getattr(record, each.name) for each in fields(record)}
    if isinstance(record, Mapping):
        return {
            str(name): to_json(value) for name, value in record.items() if value is not LEFT_OUT
        }
    if isinstance(record, list | tuple):
        return [to_json(value) for value in record]
    if isinstance(record, set | frozenset):
        return sorted(to_json(value) for value in record)
    return record


def shortened(name: str, longest: int = LONGEST_NAME) -> str:
    """A text from the runtime, cut in the middle: names differ at the end. At most 512 characters,
    as a log line with many names must stay below 48 KiB, where journald splits it."""
    end = longest // 2
    return name if len(name) <= longest else f"{name[: longest - end - 1]}…{name[-end:]}"
