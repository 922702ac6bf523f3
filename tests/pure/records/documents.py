"""Passes, outcomes and answers of a daemon, for the tests of what is told of them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args, get_origin, get_type_hints

from eviction.records.history import (
    DaemonRecordJson,
    DroppedRecordJson,
    RemovalsRecordJson,
    ReturnedRecordJson,
    encoded,
)
from eviction.records.json_shapes import Document, timestamp, to_json
from eviction.records.pass_json import outcome_json
from eviction.records.passes import Pass, PassResult, Trigger
from eviction.surface.daemon import Status
from eviction.types import Decision, Threshold
from reclaim.types import Action, Amounts, Kind, Outcome, Reason, ReclaimResult, Result, Verdict
from signals.types import FsLayout, Signal
from tests.pure.values import GIB, MIB, image_id, observation, observations_of, threshold

LOW = threshold(Signal.NODEFS_AVAILABLE, "10%")


def outcome(
    number: int,
    name: str = "",
    result: Result = Result.REMOVED,
    error: str = "",
    kind: str = Kind.IMAGE,
) -> Outcome:
    """One image after a pass, or what else can go."""
    verdict = Verdict(
        kind,
        image_id(number),
        name or f"registry.example/app:{number}",
        Action.REMOVE,
        Reason.UNUSED,
        24 * MIB,
        60.0,
    )
    freed = Amounts(13 * MIB if result is Result.REMOVED else 0)
    return Outcome(verdict, result, error=error, duration_seconds=0.02, freed=freed)


def a_pass(*functions: ReclaimResult, met: Threshold | None = None, **fields: Any) -> Pass:
    """A pass with these results, which acted on a threshold if one was met; `fields` replace values
    of it."""
    marks, row = (met,) if met else (), fields.get("row", ())
    decision = Decision(frozenset(), marks, met, row, FsLayout.SINGLE)
    seen = observations_of()
    usual = Pass("id", 1_800_000_000.0, Trigger.INTERVAL, seen, decision, after=seen)
    return replace(usual, functions=functions, **fields)


def a_status(**given: Any) -> Status:
    """That of a daemon that has seen nothing yet, but for what is given."""
    empty = {
        name: None if type(None) in get_args(kind) else (get_origin(kind) or kind)()
        for name, kind in get_type_hints(Status).items()
        if name not in ("apiVersion", "kind")
    }
    return Status(**{**empty, **given})


def periodic_pass(function: ReclaimResult) -> Pass:
    """A pass of a periodic loop."""
    result = PassResult.FAILED if function.error else PassResult.SATISFIED
    row = (function.operation,)
    return a_pass(function, id="periodic-1", trigger=Trigger.PERIODIC, row=row, result=result)


def pass_of(
    outcomes: Iterable[Outcome] = (),
    result: PassResult = PassResult.SATISFIED,
    identity: str = "0123456789ab",
) -> Pass:
    """A pass that acted on nodefs.available."""
    observations = observations_of(observation(LOW.signal, GIB))
    return a_pass(
        ReclaimResult("DeleteUnusedImages", tuple(outcomes)),
        met=LOW,
        id=identity,
        observations=observations,
        row=("DeleteUnusedImages",),
        measured=Amounts(13 * MIB),
        result=result,
        reason="removed 1 object",
        after=observations,
    )


def of_one(document: Document) -> bytes:
    """The one record of a document."""
    (record,) = encoded(to_json(document))
    return record


def parked_ended_record(ended: Outcome, wall: float) -> bytes:
    """A removal that has ended after its pass."""
    return of_one(
        RemovalsRecordJson(
            kind="parked_ended", time=timestamp(wall), removals=[outcome_json(ended)]
        )
    )


def daemon_record(wall: float) -> bytes:
    """The daemon has started."""
    return of_one(DaemonRecordJson(kind="started", time=timestamp(wall), version="0.1.0", pid=7))


def dropped_record(records: int, wall: float) -> bytes:
    """So many records were not written."""
    return of_one(DroppedRecordJson(kind="dropped", time=timestamp(wall), records=records))


def returned_record(number: int, wall: float, gone: int | None = None) -> bytes:
    """An image is there again: by its id, or by its tag in place of the one numbered `gone`."""
    record = ReturnedRecordJson(
        kind="returned",
        time=timestamp(wall),
        id=image_id(number),
        name=f"registry.example/app:{number}",
        size=20 * MIB,
        gone_id=image_id(number if gone is None else gone),
    )
    return of_one(record)
