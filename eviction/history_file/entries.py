"""What the history records, as JSON documents of one line.

Each has `kind` and `time` (when it was written, RFC 3339 in UTC). The other fields are those of the record of a pass
(`eviction.reporting.pass_record`), without what was observed and kept:

* `pass`: one pass, with the removals that fit; `removals`: further ones of the pass whose id is `pass`. A pass of a
  periodic loop has the trigger `periodic`.
* `parked_ended`: a removal that its pass did not wait for, with its outcome.
* `started`, `stopped`: of the daemon; `dropped`: so many `records` could not be written.

Covers: values to bytes, and bytes to values. Does not cover: which passes are recorded (`recorder`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from eviction.history_file.shapes import PERIODIC
from eviction.record import Pass
from eviction.reporting.observations_json import timestamp
from eviction.reporting.pass_record import OutcomeJson, outcome_json, pass_fields, removals_by_result
from reclaim.types import Outcome, ReclaimResult, Result
from signals.quantity import counted

MOST_BYTES_OF_REMOVALS = 32 << 10  # in one record; one removal has at most some 8 KiB
MOST_BYTES_OF_A_PASS = 32 << 10  # without its removals
LONGEST_TEXTS = (4096, 512, 64)  # characters
LONGEST_LIST = 32

_NOT_RECORDED = (
    "observations",
    "observations_after",
    "conditions",
    "thresholds_met",
    "still_met",
    "attribution",
    "kept_by_reason",
    "removals",
)

Document = dict[str, Any]


def pass_records(record: Pass, wall: float) -> list[bytes]:
    """A pass, with all of its removals."""
    functions = tuple(replace(function, kept=()) for function in record.functions)
    fields = pass_fields(replace(record, functions=functions), with_kept=False)
    document = {name: value for name, value in fields.items() if name not in _NOT_RECORDED}
    return _with_removals(document, fields["removals"], wall)


def periodic_records(identity: str, result: ReclaimResult, wall: float) -> list[bytes]:
    """A pass of a periodic loop: `measured` is what the filesystem had gained right after each removal."""
    outcomes = result.outcomes
    document = {
        "id": identity,
        "started": timestamp(wall - result.list_seconds - result.plan_seconds - result.remove_seconds),
        "trigger": PERIODIC,
        "acted_on": None,
        "row": [result.operation],
        "removals_by_result": removals_by_result(outcomes),
        "measured": {
            "bytes": sum(outcome.freed_bytes for outcome in outcomes),
            "inodes": sum(outcome.freed_inodes for outcome in outcomes),
        },
        "nominal": {"bytes": result.nominal_bytes, "inodes": None},
        "result": "failed" if result.error else "satisfied",
        "reason": result.error or f"removed {counted(result.count(Result.REMOVED), 'object')}",
        "errors": [result.error] if result.error else [],
    }
    return _with_removals(document, [outcome_json(outcome) for outcome in outcomes], wall)


def parked_ended_record(outcome: Outcome, wall: float) -> bytes:
    """A removal that has ended after its pass."""
    return _encoded({"kind": "parked_ended", "time": timestamp(wall), "removals": [outcome_json(outcome)]})


def daemon_record(kind: str, version: str, wall: float, pid: int) -> bytes:
    """The daemon has `started` or `stopped`."""
    return _encoded({"kind": kind, "time": timestamp(wall), "version": version, "pid": pid})


def dropped_record(records: int, wall: float) -> bytes:
    """So many records were not written."""
    return _encoded({"kind": "dropped", "time": timestamp(wall), "records": records})


def documents_of(records: Iterable[bytes]) -> Iterator[Document]:
    """The documents of records, with the further removals of a pass in the pass; what is none is left out."""
    waiting: Document | None = None
    for record in records:
        try:
            document = json.loads(record)
        except ValueError:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            continue
        if waiting is not None:
            if document["kind"] == "removals" and document.get("pass") == waiting.get("id"):
                waiting["removals"] += document["removals"]
                continue
            yield waiting
            waiting = None
        if document["kind"] == "pass":
            waiting = document
        else:
            yield document
    if waiting is not None:
        yield waiting


def _with_removals(document: Document, removals: list[OutcomeJson], wall: float) -> list[bytes]:
    time = timestamp(wall)
    chunks = list(_chunks(removals)) or [[]]
    first = {"kind": "pass", "time": time, **_that_fits(document), "removals": chunks[0]}
    further = [{"kind": "removals", "time": time, "pass": document["id"], "removals": chunk} for chunk in chunks[1:]]
    return [_encoded(each) for each in (first, *further)]


def _that_fits(document: Document) -> Document:
    """The document with its texts and lists cut until it has at most 32 KiB: a runtime may say anything."""
    for longest in LONGEST_TEXTS:
        document = _cut(document, longest)
        if len(_encoded(document)) <= MOST_BYTES_OF_A_PASS:
            break
    return document


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= longest else value[: longest - 1] + "…"
    if isinstance(value, dict):
        return {key: _cut(each, longest) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut(each, longest) for each in value[:LONGEST_LIST]]
    return value


def _chunks(removals: list[OutcomeJson]) -> Iterator[list[OutcomeJson]]:
    chunk: list[OutcomeJson] = []
    left = MOST_BYTES_OF_REMOVALS
    for removal in removals:
        size = len(_encoded(removal))
        if chunk and size > left:
            yield chunk
            chunk, left = [], MOST_BYTES_OF_REMOVALS
        chunk.append(removal)
        left -= size
    if chunk:
        yield chunk


def _encoded(document: Mapping[str, Any]) -> bytes:
    """One line. What is not UTF-8 in a name stands as the escape that JSON has for it."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")
