"""The shapes of the records of the history in JSON (`entries` makes them). A record has a `kind` of its own, in small
letters, and no version: the file has one."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from eviction.record import PassResult, Trigger
from eviction.reporting.json_shapes import Count, Keywords, Time, one_of
from eviction.reporting.observations_json import ThresholdJson
from eviction.reporting.pass_record import (
    AmountsJson,
    BytesJson,
    FunctionJson,
    KindWord,
    LayoutName,
    OutcomeJson,
    TimingsJson,
)
from reclaim.types import Result

PERIODIC = "periodic"
"""The trigger of a pass of a periodic loop."""


class PassRecordJson(TypedDict):
    """One pass, with all of its removals; as the record of a pass, without what was observed and kept."""

    kind: Literal["pass"]
    """What the record is."""
    time: Time
    """When it was written."""
    id: str
    """Of the pass."""
    started: Time
    """When it began."""
    trigger: Annotated[str, Keywords({"enum": [*map(str, Trigger), PERIODIC]})]
    """What started it."""
    acted_on: ThresholdJson | None
    """The threshold that it acted on; null where a command or a periodic loop asked for it."""
    row: list[str]
    """The functions of the row, in order."""
    removals: list[OutcomeJson]
    """The objects that were to be removed, in order."""
    removals_by_result: dict[KindWord, dict[Annotated[str, one_of(Result)], Count]]
    """Kind -> result -> how many objects."""
    measured: AmountsJson
    """What the filesystems gained."""
    nominal: BytesJson
    """The sizes of what was removed."""
    result: Annotated[str, one_of(PassResult)]
    """How it ended."""
    reason: str
    """The same in a sentence."""
    errors: list[str]
    """Why functions failed, each sentence once."""
    layout: NotRequired[LayoutName | None]
    """Not of a periodic loop."""
    functions: NotRequired[list[FunctionJson]]
    """Not of a periodic loop."""
    written_meanwhile: NotRequired[AmountsJson]
    """Not of a periodic loop."""
    timings: NotRequired[TimingsJson]
    """Not of a periodic loop."""


# `pass` is a word of Python's, so it cannot be a field of a class.
_OfAPass = TypedDict(
    "_OfAPass", {"pass": Annotated[str, Keywords({"description": "The id of the pass that they belong to."})]}
)


class RemovalsRecordJson(_OfAPass):
    """Further removals of a pass whose own record was overwritten meanwhile."""

    kind: Literal["removals"]
    """What the record is."""
    time: Time
    """When it was written."""
    removals: list[OutcomeJson]
    """The objects, in order."""


class ParkedEndedRecordJson(TypedDict):
    """A removal that its pass did not wait for, and that has ended."""

    kind: Literal["parked_ended"]
    """What the record is."""
    time: Time
    """When it was written."""
    removals: list[OutcomeJson]
    """The one object."""


class DaemonRecordJson(TypedDict):
    """The daemon has started, or stopped."""

    kind: Literal["started", "stopped"]
    """What the record is."""
    time: Time
    """When it was written."""
    version: str
    """Of reclaimd."""
    pid: Count
    """Of its process."""


class DroppedRecordJson(TypedDict):
    """Records that could not be written."""

    kind: Literal["dropped"]
    """What the record is."""
    time: Time
    """When it was written."""
    records: Count
    """How many."""


RecordJson = PassRecordJson | RemovalsRecordJson | ParkedEndedRecordJson | DaemonRecordJson | DroppedRecordJson
