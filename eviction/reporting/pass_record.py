"""The record of a pass in JSON, as log lines, commands and drill reports have it; and the fields of a log line.

They are a stable interface for programs: bytes and inodes are integers, times RFC 3339 in UTC, durations floats named
`*_seconds`. Fields may be added; existing ones keep their names and meanings.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Annotated, Literal, NotRequired, TypedDict

from eviction.record import OF_PASSES, Pass, PassResult, Timings
from eviction.reporting.json_shapes import (
    LEFT_OUT,
    Count,
    Keywords,
    LeftOut,
    RoleName,
    Seconds,
    Time,
    Versioned,
    VersionedJson,
    document_of,
    one_of,
)
from eviction.reporting.observations_json import (
    ObservationJson,
    ThresholdJson,
    observations_json,
    threshold_json,
    timestamp,
)
from eviction.reporting.space import Attribution
from eviction.types import API_VERSION, NodeCondition
from reclaim.evidence.states import Why
from reclaim.types import Action, EventReason, Kind, Outcome, Reason, ReclaimResult, Result, Rule
from signals.quantity import format_bytes
from signals.types import FsLayout

MOST_REPORTED = 32  # removals of one pass in a log line and in an answer of the daemon
LONGEST_NAME = 512  # characters; names of Kubernetes objects have at most 253, image references are rarely longer

KindWord = Annotated[str, one_of(Kind, open_=True)]
"""A kind of object: one that the kubelet's functions remove, or another function's."""

ReasonWord = Annotated[str, one_of(Reason, open_=True)]
"""A reason: one that the kubelet's functions give, or another function's."""


class AmountsJson(TypedDict):
    """What a filesystem has gained."""

    bytes: int
    """At least 0."""
    inodes: int
    """At least 0."""


class BytesJson(TypedDict):
    """An amount of bytes, with an unknown number of inodes."""

    bytes: Count
    """The sum of sizes that a runtime reports; layers that images share count once for each image."""
    inodes: None
    """Not known."""


class OutcomeJson(TypedDict):
    """One object of a pass or a plan, with its verdict and what became of it."""

    kind: KindWord
    """What it is."""
    id: str
    """The runtime's id for it; for a file, its path."""
    name: str
    """For people, at most 512 characters."""
    size: Count | None
    """In bytes, as the runtime reports it; null if it does not."""
    frees: NotRequired[Count]
    """The bytes that its removal frees once everything before it is gone; missing if that is not known."""
    needed_in_seconds: NotRequired[Seconds]
    """When it is expected to be needed again, if that had a say in its place; missing if not."""
    age_seconds: float | None
    """Its age; null if the verdict did not depend on it."""
    verdict: Annotated[str, one_of(Action)]
    """Whether it may be removed."""
    reason: ReasonWord
    """Why it may be removed, or is kept."""
    rule: Annotated[str, one_of(Rule)]
    """kubelet: the kubelet would decide the same. guard: reclaimd is stricter."""
    result: Annotated[str, one_of(Result)] | None
    """What became of it; null if it was kept."""
    error: str | None
    """Why it was not removed; null if nothing failed."""
    duration_seconds: Seconds
    """How long its removal took."""
    freed: AmountsJson
    """What the filesystem had gained right after the removal."""


class FunctionJson(TypedDict):
    """What one function of the row did."""

    name: str
    """Its name in the reclaim table."""
    removed: Count
    """How many objects it removed."""
    measured: AmountsJson
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


@dataclass(frozen=True, slots=True)
class Room:
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
    missing: Count = field(init=False)
    """How much less is available than was asked for; 0: the room is there."""
    sentence: str = field(init=False)
    """The same for people."""

    def __post_init__(self) -> None:
        missing, verb = max(self.asked - self.available, 0), "would be" if self.dry_run else "is"
        asked, available = format_bytes(self.asked), format_bytes(self.available)
        spare = format_bytes(max(self.available - self.kept_free, 0))
        short = f"{format_bytes(missing)} {verb} missing" if missing else f"the room {verb} there"
        sentence = (
            f"{available} {verb} available on {self.filesystem}, {spare} of it above the marks; {asked} was asked for"
        )
        object.__setattr__(self, "missing", missing)
        object.__setattr__(self, "sentence", f"{sentence}: {short}")


class RecordedPassJson(TypedDict):
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
    removals_by_result: dict[KindWord, dict[Annotated[str, one_of(Result)], Count]]
    """Kind -> result -> how many objects."""
    measured: AmountsJson
    """What the filesystems gained."""
    nominal: BytesJson
    """The reported sizes of the removed objects."""
    written_meanwhile: AmountsJson
    """How much less the filesystems have than before, if they gained nothing."""
    timings: Timings
    """How long its parts took."""
    result: Annotated[str, one_of(PassResult)]
    """How it ended."""
    reason: str
    """The same in a sentence."""
    errors: list[str]
    """Why functions failed, each sentence once."""


class PassFieldsJson(RecordedPassJson):
    """Everything that happened in one pass."""

    trigger: Annotated[str, Keywords({"enum": [*map(str, OF_PASSES)]})]
    """What started it."""
    observations: list[ObservationJson]
    """What was observed before it, in the order of the signals."""
    conditions: list[NodeCondition]
    """The node conditions that were reported."""
    thresholds_met: list[ThresholdJson]
    """Met, or not resolved yet."""
    kept_by_reason: dict[ReasonWord, Count]
    """Reason -> how many objects were kept for it."""
    kept: NotRequired[list[OutcomeJson]]
    """The objects that were kept; not in summaries."""
    observations_after: NotRequired[list[ObservationJson]]
    """What was observed at its end."""
    still_met: NotRequired[list[ThresholdJson]]
    """The thresholds that were still met then."""
    attribution: NotRequired[list[Attribution]]
    """What uses the bytes of each filesystem, if the pass was not enough."""
    room: NotRequired[Room]
    """With --room: whether it is there, and how much is missing."""
    removals_left_out: NotRequired[Count]
    """In summaries, which list the first 32 removals: how many more there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToDo(Versioned):
    """The answer of `reclaimd reclaim` if nothing was under pressure, or the room was there, so there was no pass."""

    kind: Literal["NothingToDo"] = "NothingToDo"
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


class PassJson(PassFieldsJson, VersionedJson):
    """The record of one pass: the answer of `reclaimd reclaim`, and part of status, reports and log lines."""

    kind: Literal["Pass"]
    """What the document is."""


# `pass` is a keyword of Python, so it cannot be a field of a class.
OfAPass = TypedDict(
    "OfAPass",
    {"pass": NotRequired[Annotated[str, Keywords({"description": "The id of the pass that it is about."})]]},
)


class LogLineJson(OfAPass):
    """One event, as one line of the log. The message is for people, the fields are for programs."""

    time: Time
    """When it was written."""
    level: Literal["error", "warning", "info", "debug"]
    """warning: an operator should look at it."""
    message: str
    """A sentence."""
    result: NotRequired[Annotated[str, one_of(PassResult)]]
    """How a pass ended."""
    record: NotRequired[PassJson]
    """The record of the pass, with its first 32 removals."""
    attribution: NotRequired[Attribution]
    """What uses the bytes of a filesystem, some seconds after a pass that was not enough."""
    condition: NotRequired[Annotated[str, one_of(NodeCondition)]]
    """The node condition that changed."""
    status: NotRequired[bool]
    """Whether it is reported now."""
    event: NotRequired[Annotated[str, one_of(EventReason)]]
    """The kubelet's reason of an event about the node."""
    usage_percent: NotRequired[int]
    """In an event: how full imagefs is."""
    capacity_bytes: NotRequired[Count]
    """In an event: how large imagefs is."""
    target_bytes: NotRequired[Count]
    """In an event: how much was to be freed."""
    freed_bytes: NotRequired[Count]
    """In an event: how much was freed."""
    function: NotRequired[str]
    """The reclaim function whose program printed the line."""
    id: NotRequired[str]
    """The runtime's id for the object that the line is about."""
    signal: NotRequired[RoleName]
    """The filesystem that could not be read: its role, not a signal."""
    reason: NotRequired[Literal["held_off"]]
    """Why there is no pass although a threshold is met."""
    why: NotRequired[Annotated[str, one_of(Why)]]
    """Why the kubelet's pod directories are not believed."""
    endpoint: NotRequired[str]
    """In the first line: the endpoint of the runtime."""
    address: NotRequired[str]
    """Where metrics and health are served."""


def shortened(name: str) -> str:
    """A text from the runtime, cut at 512 characters: a log line with many names must stay below 48 KiB, where journald
    splits it."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _amounts(freed_bytes: int, freed_inodes: int | None = None) -> dict[str, int | None]:
    return {"bytes": freed_bytes, "inodes": freed_inodes}


def outcome_json(outcome: Outcome) -> OutcomeJson:
    verdict = outcome.verdict
    return document_of(
        OutcomeJson,
        verdict,
        name=shortened(verdict.name),
        size=verdict.size_bytes,
        frees=LEFT_OUT if verdict.frees_bytes is None else verdict.frees_bytes,
        needed_in_seconds=LEFT_OUT if verdict.needed_in_seconds is None else verdict.needed_in_seconds,
        verdict=verdict.action,
        result=outcome.result,
        error=shortened(outcome.error) or None,
        duration_seconds=outcome.duration_seconds,
        freed=_amounts(outcome.freed_bytes, outcome.freed_inodes),
    )


def pass_summary(record: Pass) -> PassJson:
    """The record of a pass in bounded size, for log lines and for records in memory: the first 32 removals; the others
    and the kept objects are only counted."""
    document = pass_json(record, with_kept=False, most_removals=MOST_REPORTED)
    document["removals_left_out"] = max(len(record.removals) - MOST_REPORTED, 0)
    return document


def pass_json(record: Pass, *, with_kept: bool = True, most_removals: int | None = None) -> PassJson:
    """The record of a pass. `with_kept`: kept objects are listed, and not only counted by reason. `most_removals`: how
    many removals are listed; all are counted."""
    decision, seen, after = record.decision, record.observations, record.after
    by_result = defaultdict[str, Counter[str]](Counter)
    for outcome in record.removals:
        by_result[outcome.verdict.kind][str(outcome.result)] += 1
    found = document_of(
        PassFieldsJson,
        record,
        started=timestamp(record.started_wall),
        layout=decision.layout,
        observations=observations_json(seen),
        conditions=decision.conditions,
        thresholds_met=[threshold_json(threshold, seen) for threshold in decision.thresholds_met],
        acted_on=None if decision.acted_on is None else threshold_json(decision.acted_on, seen),
        functions=list(map(function_json, record.functions)),
        removals=list(map(outcome_json, record.removals[:most_removals])),
        removals_by_result=by_result,
        kept_by_reason=dict(sorted(Counter(str(outcome.verdict.reason) for outcome in record.kept).items())),
        measured=_amounts(record.measured_bytes, record.measured_inodes),
        nominal=_amounts(record.nominal_bytes),
        written_meanwhile=_amounts(record.written_bytes, record.written_inodes),
        timings=document_of(Timings, record.timings),
        kept=list(map(outcome_json, record.kept)) if with_kept else LEFT_OUT,
        observations_after=LEFT_OUT if after is None else observations_json(after),
        still_met=LEFT_OUT if after is None else [threshold_json(threshold, after) for threshold in record.still_met],
        attribution=record.attributions or LEFT_OUT,
    )
    return {"apiVersion": API_VERSION, "kind": "Pass", **found}


def function_json(function: ReclaimResult) -> FunctionJson:
    return document_of(
        FunctionJson,
        function,
        name=function.operation,
        removed=function.count(Result.REMOVED),
        measured=_amounts(function.freed_bytes, function.freed_inodes),
        nominal=_amounts(function.nominal_bytes),
        skipped=shortened(function.skipped) or None,
        error=shortened(function.error) or None,
    )
