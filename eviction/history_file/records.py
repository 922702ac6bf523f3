"""What the history records, as JSON documents of one line, and how they are read.

Removals beyond the first eight of a pass are in records of their own, which are put together when they are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypedDict

from eviction.record import Pass, PassResult, Trigger
from eviction.reporting.json_shapes import LEFT_OUT, Count, Keywords, LeftOut, Time, one_of, to_json
from eviction.reporting.observations_json import ThresholdJson, timestamp
from eviction.reporting.pass_record import (
    AmountsJson,
    BytesJson,
    FunctionJson,
    KindWord,
    LayoutName,
    OutcomeJson,
    TimingsJson,
    outcome_json,
    pass_fields,
    removals_by_result,
)
from reclaim.types import ReclaimResult, Result
from signals.quantity import counted

PERIODIC = "periodic"  # the trigger of a pass of a periodic loop
MOST_REMOVALS = 8  # in one record; one removal has at most some 8 KiB
MOST_BYTES_OF_A_PASS = 32 << 10  # without its removals
LONGEST_TEXTS = (4096, 512, 64)  # characters
LONGEST_LIST = 32

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What every record has."""

    kind: str
    """What the record is."""
    time: Time
    """When it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecordJson(Record):
    """One pass, with all of its removals; as the record of a pass, without what was observed and kept."""

    kind: Literal["pass"] = "pass"
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
    layout: LayoutName | LeftOut | None = LEFT_OUT
    """Not of a periodic loop."""
    functions: list[FunctionJson] | LeftOut = LEFT_OUT
    """Not of a periodic loop."""
    written_meanwhile: AmountsJson | LeftOut = LEFT_OUT
    """Not of a periodic loop."""
    timings: TimingsJson | LeftOut = LEFT_OUT
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedEndedRecordJson(Record):
    """A removal that its pass did not wait for, and that has ended."""

    kind: Literal["parked_ended"] = "parked_ended"
    removals: list[OutcomeJson]
    """The one object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonRecordJson(Record):
    """The daemon has started, or stopped."""

    kind: Literal["started", "stopped"]
    version: str
    """Of reclaimd."""
    pid: Count
    """Of its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRecordJson(Record):
    """Records that could not be written."""

    kind: Literal["dropped"] = "dropped"
    records: Count
    """How many."""


RecordJson = PassRecordJson | RemovalsRecordJson | ParkedEndedRecordJson | DaemonRecordJson | DroppedRecordJson


def pass_records(record: Pass, wall: float) -> list[bytes]:
    """A pass, with all of its removals."""
    recorded = {field.name for field in fields(PassRecordJson)}
    found = pass_fields(record, with_kept=False)
    document = {name: value for name, value in found.items() if name in recorded}
    return _with_removals({"kind": "pass", "time": timestamp(wall), **document})


def periodic_records(identity: str, result: ReclaimResult, wall: float) -> list[bytes]:
    """A pass of a periodic loop: `measured` is what the filesystem had gained right after each removal."""
    record = PassRecordJson(
        time=timestamp(wall),
        id=identity,
        started=timestamp(wall - result.seconds),
        trigger=PERIODIC,
        acted_on=None,
        row=[result.operation],
        removals_by_result=removals_by_result(result.outcomes),
        measured={"bytes": result.freed_bytes, "inodes": result.freed_inodes},
        nominal={"bytes": result.nominal_bytes, "inodes": None},
        result="failed" if result.error else "satisfied",
        reason=result.error or f"removed {counted(result.count(Result.REMOVED), 'object')}",
        errors=[result.error] if result.error else [],
        removals=[outcome_json(outcome) for outcome in result.outcomes],
    )
    return _with_removals(to_json(record))


def encoded(record: Record | Document) -> bytes:
    """One line. What is not UTF-8 in a name stands as the escape that JSON has for it."""
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=to_json)
    return text.encode("utf-8", "backslashreplace")


def documents_of(records: Iterable[bytes]) -> Iterator[Document]:
    """The documents of records, with the further removals of a pass in the pass; what is none is left out."""
    last: Document = {}
    for record in records:
        try:
            document = json.loads(record)
        except ValueError:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            continue
        if document["kind"] == "removals" and last.get("id") == document.get("pass", ""):
            last["removals"] += document["removals"]
            continue
        if last:
            yield last
        last = document
    if last:
        yield last


def _with_removals(document: Document) -> list[bytes]:
    """The records of a pass. Its texts and lists are cut until it has at most 32 KiB: a runtime may say anything."""
    removals = document.pop("removals")
    for longest in LONGEST_TEXTS:
        document = _cut(document, longest)
        if len(encoded(document)) <= MOST_BYTES_OF_A_PASS:
            break
    document["removals"] = removals[:MOST_REMOVALS]
    records = [document]
    for start in range(MOST_REMOVALS, len(removals), MOST_REMOVALS):
        further = removals[start : start + MOST_REMOVALS]
        records.append({"kind": "removals", "time": document["time"], "pass": document["id"], "removals": further})
    return [encoded(each) for each in records]


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= longest else value[: longest - 1] + "…"
    if isinstance(value, dict):
        return {key: _cut(each, longest) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut(each, longest) for each in value[:LONGEST_LIST]]
    return value
