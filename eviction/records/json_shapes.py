"""What JSON documents have in common: how a record becomes one, and types
that say more than Python's.

Whatever is printed is a frozen dataclass. `to_json` makes its JSON, and `.ci/schemas.py` its
JSON Schema, with the docstrings of the class and of each field as descriptions. Where a
record is printed otherwise than it is, the form is a `Document`, which is filled from the
record by the names of its fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Annotated, Any, Final, Literal, Self, cast, dataclass_transform

from pydantic import Field

from eviction.types import API_VERSION, Threshold, ThresholdValue
from reclaim.evidence.states import Distrust, Why
from signals.types import AVAILABLE, INODES_FREE, ROLE_NAME, SignalObservations, in_order

# characters; names of Kubernetes objects have at most 253, image references are rarely longer
LONGEST_NAME = 512

Time = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$",
        json_schema_extra={"format": "date-time"},
    ),
]
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
    """A document with a version and a kind: the name of its class, unless it says otherwise."""

    apiVersion: Literal["reclaimd.io/v1alpha1"] = API_VERSION  # noqa: N815 # the name that Kubernetes gives it
    """The version of this format. Fields may be added to it."""
    kind: str = ""
    """What the document is."""

    def __init_subclass__(cls) -> None:
        if "kind" not in cls.__annotations__:
            cls.kind = cls.__name__.removesuffix("Json")
            cls.__annotations__["kind"] = cast("Any", Literal)[cls.kind]
        super().__init_subclass__()


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


# ---- observations and thresholds


class FilesystemJson(Document):
    """What a filesystem is, and where."""

    path: str
    """The path that was read."""
    device: str
    """The device that is mounted there."""
    type: str
    """The kernel's name for its type, such as ext4 or xfs."""


class ObservationJson(Document):
    """One observed signal."""

    signal: SignalName
    """Its name."""
    available: Count
    """In bytes, or in inodes for an inode signal."""
    capacity: Count
    """Of the whole filesystem, in the same unit."""
    promised: Count | LeftOut = LEFT_OUT
    """Bytes that btrfs has promised to files and statvfs does not show. They count as used here,
    and not for the kubelet; missing if there are none."""
    time: Time | None
    """When the filesystem was read; null if it never was."""
    stale: bool
    """The filesystem did not answer in time, so this is an earlier reading."""
    filesystem: FilesystemJson | None
    """The filesystem; null if it is not known."""


class ThresholdJson(Document):
    """One threshold."""

    signal: SignalName
    """The signal that it is for."""
    value: str
    """A quantity or a percentage, as in the configuration."""
    margin: str | None
    """What is added to the value, so that reclaimd acts before the kubelet; null: nothing."""
    effective: Count | None
    """The mark in bytes or inodes; null while the capacity is not known."""
    needed: Count | LeftOut = LEFT_OUT
    """How many bytes must be available for what is coming, or it reaches the kubelet's mark. The
    threshold is met below this, too; missing if nothing is coming."""
    min_reclaim: str | None
    """How far above the mark the signal must rise to clear it; null: not at all."""
    hard: bool
    """Whether it acts without a grace period."""
    grace_seconds: Seconds
    """How long it must have been met before it acts."""
    origin: str
    """Where the value comes from, for people."""


def timestamp(wall: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC with milliseconds."""
    return (
        datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def observations_json(observations: SignalObservations) -> list[ObservationJson]:
    started = observations.wall_time - observations.time
    signals = observations.signals
    return [
        ObservationJson.of(
            observation,
            promised=observation.promised or None,
            time=timestamp(started + observation.time),
            filesystem=FilesystemJson.of(observation.filesystem),
        )
        for observation in map(signals.__getitem__, in_order(signals))
    ]


def threshold_json(threshold: Threshold, observations: SignalObservations) -> ThresholdJson:
    seen = observations.signals.get(threshold.signal)
    if seen is None:
        return ThresholdJson.of(threshold, effective=None)
    return ThresholdJson.of(
        threshold,
        effective=threshold.mark(seen.capacity),
        needed=seen.needed if threshold.hard and seen.needed else None,
    )


class PodDirectories(Document):
    """Whether the kubelet's pod directories are believed to show which pods exist."""

    believed: bool = True
    """Whether they are; while they are not, no pod counts as gone."""
    why: Why | None = None
    """Why they are not, in a word; null if they are."""
    sentence: str | None = None
    """Why they are not, for people; null if they are."""


def pod_directories(doubt: Distrust | None) -> PodDirectories:
    return PodDirectories() if doubt is None else PodDirectories.of(doubt, believed=False)
