"""The record of a pass in JSON, as log lines, commands and drill reports have it.

They are a stable interface for programs: bytes and inodes are integers, times RFC 3339
in UTC, durations floats named `*_seconds`. Fields may be added; existing ones keep
their names and meanings.
"""

from collections import Counter, defaultdict
from typing import Literal

from eviction.records.attribution import Attribution
from eviction.records.json_shapes import (
    LEFT_OUT,
    Count,
    Document,
    LeftOut,
    ObservationJson,
    RoleName,
    Seconds,
    ThresholdJson,
    Time,
    Versioned,
    observations_json,
    shortened,
    threshold_json,
    timestamp,
)
from eviction.records.passes import MOST_REPORTED, Pass, PassResult, Timings, Trigger
from eviction.types import NodeCondition
from reclaim.types import Action, Amounts, Kind, Outcome, Reason, ReclaimResult, Result, Rule
from signals.quantity import format_bytes
from signals.types import FsLayout

KindWord = Kind | str
"""A kind of object: one that the kubelet's functions remove, or another function's."""

ReasonWord = Reason | str
"""A reason: one that the kubelet's functions give, or another function's."""


class BytesJson(Document):
    """An amount of bytes, with an unknown number of inodes."""

    bytes: Count
    """The sum of sizes that a runtime reports; layers that images share count once for each image.
    """
    inodes: None = None
    """Not known."""


class OutcomeJson(Document):
    """One object of a pass or a plan, with its verdict and what became of it."""

    kind: KindWord
    """What it is."""
    id: str
    """The runtime's id for it; for a file, its path."""
    name: str
    """For people, at most 512 characters."""
    size: Count | None
    """In bytes, as the runtime reports it; null if it does not."""
    frees: Count | LeftOut = LEFT_OUT
    """The bytes that its removal frees once everything before it is gone;
    missing if that is not known.
    """
    needed_in_seconds: Seconds | LeftOut = LEFT_OUT
    """When it is expected to be needed again, if that had a say in its place; missing if not."""
    eligible_in_seconds: float | LeftOut | None = LEFT_OUT
    """How long until it is old enough; missing if its age is not what keeps it."""
    age_seconds: float | None
    """Its age; null if the verdict did not depend on it."""
    verdict: Action
    """Whether it may be removed."""
    reason: ReasonWord
    """Why it may be removed, or is kept."""
    rule: Rule
    """kubelet: the kubelet would decide the same. guard: reclaimd is stricter."""
    result: Result | None
    """What became of it; null if it was kept."""
    error: str | None
    """Why it was not removed; null if nothing failed."""
    duration_seconds: Seconds
    """How long its removal took."""
    freed: Amounts
    """What the filesystem had gained right after the removal."""


class FunctionJson(Document):
    """What one function of the row did."""

    name: str
    """Its name in the reclaim table."""
    removed: Count
    """How many objects it removed."""
    measured: Amounts
    """What the filesystems gained."""
    nominal: BytesJson
    """The reported sizes of the removed objects."""
    seconds: Seconds
    """How long it took."""
    relieved: bool
    """Whether the thresholds were clear afterwards, so that no further function was needed."""
    skipped: str | None
    """Why it was not called; null if it was."""
    error: str | None
    """Why it failed; null if it did not."""


class Room(Document):
    """The room that `reclaimd reclaim --room` asked for, in bytes."""

    filesystem: RoleName
    """Where."""
    asked: Count
    """How much was to be available."""
    available: int
    """How much is. After a dry run: would be, by what each removal is to free."""
    kept_free: Count
    """Of that, the marks with their minimum reclaim: using it makes reclaimd remove more."""
    dry_run: bool
    """Whether nothing was removed."""
    missing: Count
    """How much less is available than was asked for; 0: the room is there."""
    sentence: str
    """The same for people."""


def room_of(filesystem: str, asked: int, available: int, *, kept_free: int, dry_run: bool) -> Room:
    """The room, with what is missing and the sentence."""
    missing = max(asked - available, 0)
    verb = "would be" if dry_run else "is"
    spare = format_bytes(max(available - kept_free, 0))
    short = f"{format_bytes(missing)} {verb} missing" if missing else f"the room {verb} there"
    there = (
        f"{format_bytes(available)} {verb} available on {filesystem}, {spare} of it above the marks"
    )
    return Room(
        filesystem=filesystem,
        asked=asked,
        available=available,
        kept_free=kept_free,
        dry_run=dry_run,
        missing=missing,
        sentence=f"{there}; {format_bytes(asked)} was asked for: {short}",
    )


class RecordedPassJson(Document):
    """What every record of a pass has, that of the history too."""

    id: str
    """The id of the pass."""
    started: Time
    """When it began."""
    layout: FsLayout | None
    """How the roles are spread over filesystems; null while that is not known."""
    acted_on: ThresholdJson | None
    """The threshold that it acted on; null if a command or a periodic loop requested the pass."""
    row: list[str]
    """The functions of the row, in order."""
    functions: list[FunctionJson]
    """What each function of the row did, or why it was not called."""
    removals: list[OutcomeJson]
    """The objects that were to be removed, in order."""
    removals_by_result: dict[KindWord, dict[Result, Count]]
    """Kind -> result -> how many objects."""
    measured: Amounts
    """What the filesystems gained."""
    nominal: BytesJson
    """The reported sizes of the removed objects."""
    written_meanwhile: Amounts
    """How much less the filesystems have than before, if they gained nothing."""
    timings: Timings
    """How long its parts took."""
    result: PassResult
    """How it ended."""
    reason: str
    """The same in a sentence."""
    errors: list[str]
    """Why functions failed, each sentence once."""
    seconds_to_eviction: Seconds | LeftOut = LEFT_OUT
    """How far the kubelet's hard mark was away when it began, at the fill rate then; 0: reached;
    missing if that is not known, or nothing was filled."""


class PassFieldsJson(RecordedPassJson, Versioned):
    """Everything that happened in one pass."""

    trigger: Trigger
    """What started it."""
    observations: list[ObservationJson]
    """What was observed before it, in the order of the signals."""
    conditions: list[NodeCondition]
    """The node conditions that were reported."""
    thresholds_met: list[ThresholdJson]
    """Met, or not resolved yet."""
    kept_by_reason: dict[ReasonWord, Count]
    """Reason -> how many objects were kept for it."""
    kept: list[OutcomeJson] | LeftOut = LEFT_OUT
    """The objects that were kept; not in summaries."""
    observations_after: list[ObservationJson] | LeftOut = LEFT_OUT
    """What was observed at its end."""
    still_met: list[ThresholdJson] | LeftOut = LEFT_OUT
    """The thresholds that were still met then."""
    attribution: tuple[Attribution, ...] | LeftOut = LEFT_OUT
    """What uses the bytes of each filesystem, if the pass was not enough."""
    room: Room | LeftOut = LEFT_OUT
    """With --room: whether it is there, and how much is missing."""
    removals_left_out: Count | LeftOut = LEFT_OUT
    """In summaries, which list the first 32 removals: how many more there are."""


class NothingToDo(Versioned):
    """The answer of `reclaimd reclaim` if nothing was under pressure, or the room was
    there, so there was no pass.
    """

    result: Literal["idle"] = "idle"
    """As in the record of a pass."""
    reason: str
    """The same in a sentence."""
    removals: tuple[OutcomeJson, ...] = ()
    """Always empty."""
    observations: list[ObservationJson]
    """What was observed, in the order of the signals."""
    layout: FsLayout | None
    """How the roles are spread over filesystems; null while that is not known."""
    room: Room | LeftOut = LEFT_OUT
    """With --room: that it is there."""


class PassJson(PassFieldsJson):
    """The record of one pass: the answer of `reclaimd reclaim`, and part of
    status, reports and log lines.
    """


def outcome_json(outcome: Outcome) -> OutcomeJson:
    verdict = outcome.verdict
    return OutcomeJson.of(
        outcome,
        verdict,
        name=shortened(verdict.name),
        size=verdict.size_bytes,
        frees=verdict.frees_bytes,
        verdict=verdict.action,
        error=shortened(outcome.error) or None,
    )


def function_json(function: ReclaimResult) -> FunctionJson:
    return FunctionJson.of(
        function,
        name=function.operation,
        removed=function.count(Result.REMOVED),
        nominal=BytesJson(bytes=function.nominal_bytes),
        skipped=shortened(function.skipped) or None,
        error=shortened(function.error) or None,
    )


def pass_json(record: Pass, *, with_kept: bool = True, limit: int | None = None) -> PassJson:
    """The record of a pass. `with_kept`: kept objects are listed, and not only counted by reason.
    `limit`: how many removals are listed; all are counted."""
    decision = record.decision
    seen = record.observations
    after = record.after
    acted_on = decision.acted_on
    removals = record.removals
    by_result = defaultdict[str, Counter[Result | None]](Counter)
    for outcome in removals:
        by_result[outcome.verdict.kind][outcome.result] += 1
    return PassJson.of(
        record,
        decision,
        started=timestamp(record.started_wall),
        observations=observations_json(seen),
        thresholds_met=[threshold_json(threshold, seen) for threshold in decision.thresholds_met],
        acted_on=None if acted_on is None else threshold_json(acted_on, seen),
        functions=list(map(function_json, record.functions)),
        removals=list(map(outcome_json, removals[:limit])),
        removals_left_out=None if limit is None else max(len(removals) - limit, 0),
        removals_by_result=by_result,
        kept_by_reason=dict(
            sorted(Counter(outcome.verdict.reason for outcome in record.kept).items())
        ),
        kept=list(map(outcome_json, record.kept)) if with_kept else None,
        nominal=BytesJson(bytes=record.nominal_bytes),
        timings=Timings.of(record.timings),
        observations_after=observations_json(after),
        still_met=[threshold_json(threshold, after) for threshold in record.still_met],
        attribution=record.attributions or None,
    )


def pass_summary(record: Pass) -> PassJson:
    """The record of a pass in bounded size, for log lines and for records in memory: the first 32
    removals; the others and the kept objects are only counted."""
    return pass_json(record, with_kept=False, limit=MOST_REPORTED)
