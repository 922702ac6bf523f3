"""The shape of the record of a pass in JSON (`pass_record` makes it), and the closed lists in it."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from eviction.record import PassResult, Trigger
from eviction.reporting.attribution import Attribution
from eviction.reporting.json_shapes import Count, Seconds, Time, one_of
from eviction.reporting.observations_json import ObservationJson, ThresholdJson
from eviction.types import NodeCondition
from reclaim.types import Action, Kind, Reason, Result, Rule
from signals.types import FsLayout

KindWord = Annotated[str, one_of(Kind, open_=True)]
"""A kind of objects: of the kubelet's own functions, or of another one."""

ReasonWord = Annotated[str, one_of(Reason, open_=True)]
"""A reason: of the kubelet's own functions, or of another one."""

LayoutName = Annotated[str, one_of(FsLayout)]
ConditionName = Annotated[str, one_of(NodeCondition)]


class AmountsJson(TypedDict):
    """What a filesystem has gained."""

    bytes: int
    """Never counted below 0."""
    inodes: int
    """Never counted below 0."""


class BytesJson(TypedDict):
    """An amount of bytes of which the inodes are not known."""

    bytes: Count
    """Of sizes that a runtime reports: layers that images share count once for each image."""
    inodes: None
    """Not known."""


class OutcomeJson(TypedDict):
    """One object of a pass or a plan: removed, kept, or what became of it."""

    kind: KindWord
    """What it is."""
    id: str
    """The runtime's id of it; of a file its path."""
    name: str
    """For people, at most 512 characters."""
    size: Count | None
    """Bytes as the runtime reports them; null where it says none."""
    age_seconds: float | None
    """Its age, where the verdict depended on it."""
    verdict: Annotated[str, one_of(Action)]
    """Whether it may go."""
    reason: ReasonWord
    """Why it may go, or stays."""
    rule: Annotated[str, one_of(Rule)]
    """kubelet: the kubelet would decide the same. guard: reclaimd is stricter."""
    result: Annotated[str, one_of(Result)] | None
    """What became of it; null for what was kept."""
    error: str | None
    """Why it was not removed, where something failed."""
    duration_seconds: Seconds
    """How long its removal took."""
    freed: AmountsJson
    """What the filesystem had gained right after it."""


class FunctionJson(TypedDict):
    """What one function of the row did."""

    name: str
    """Its name in the reclaim table."""
    removed: Count
    """How many objects."""
    measured: AmountsJson
    """What the filesystems gained."""
    nominal: BytesJson
    """The sizes of what was removed."""
    seconds: Seconds
    """How long it took."""
    relieved: bool
    """Whether the thresholds were clear after it, so that no further function was needed."""
    skipped: str | None
    """Why it was not called; null if it was."""
    error: str | None
    """Why it could not do its work; null if it could."""


class TimingsJson(TypedDict):
    """Where the time of a pass went."""

    detect_seconds: Seconds
    """From the observation that met the threshold to the start of the pass."""
    list_seconds: Seconds
    """The runtime's lists."""
    plan_seconds: Seconds
    """The verdicts."""
    remove_seconds: Seconds
    """The removals."""
    total_seconds: Seconds
    """The whole pass."""


class PassFieldsJson(TypedDict):
    """Everything that happened in one pass."""

    id: str
    """One for each pass; log lines name it as `pass`."""
    started: Time
    """When it began."""
    trigger: Annotated[str, one_of(Trigger)]
    """What started it."""
    layout: LayoutName | None
    """How the roles are spread over filesystems; null while that is not known."""
    observations: list[ObservationJson]
    """What was observed before it, in the order of the signals."""
    conditions: list[ConditionName]
    """The node conditions that were reported."""
    thresholds_met: list[ThresholdJson]
    """Met, or not resolved yet."""
    acted_on: ThresholdJson | None
    """The threshold that it acted on; null where a command asked for it."""
    row: list[str]
    """The functions of the row, in order."""
    functions: list[FunctionJson]
    """What each function that was considered did."""
    removals: list[OutcomeJson]
    """The objects that were to be removed, in order; in summaries the first 32."""
    removals_by_result: dict[KindWord, dict[Annotated[str, one_of(Result)], Count]]
    """Kind -> result -> how many objects."""
    kept_by_reason: dict[ReasonWord, Count]
    """Reason -> how many objects were kept for it."""
    measured: AmountsJson
    """What the filesystems gained over the whole pass."""
    nominal: BytesJson
    """The sizes of what was removed."""
    written_meanwhile: AmountsJson
    """How much less the filesystems have than before, where they gained nothing."""
    result: Annotated[str, one_of(PassResult)]
    """How it ended."""
    reason: str
    """The same in a sentence."""
    errors: list[str]
    """Why functions failed, each sentence once."""
    timings: TimingsJson
    """Where its time went."""
    kept: NotRequired[list[OutcomeJson]]
    """The objects that were kept; not in summaries."""
    observations_after: NotRequired[list[ObservationJson]]
    """What was observed at its end."""
    still_met: NotRequired[list[ThresholdJson]]
    """The thresholds that were still met then."""
    attribution: NotRequired[list[Attribution]]
    """Where the bytes are, for each filesystem, where the pass was not enough."""
    removals_left_out: NotRequired[Count]
    """In summaries: how many removals are only counted."""


class PassJson(PassFieldsJson):
    """The record of one pass: the answer of `reclaimd reclaim`, part of status, of reports and of the log."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]
    """The version of this format. Fields may be added to it."""
    kind: Literal["Pass"]
    """What the document is."""


class NothingToDoJson(TypedDict):
    """The answer of `reclaimd reclaim` where nothing was under pressure, so that there was no pass."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]
    """The version of this format. Fields may be added to it."""
    kind: Literal["NothingToDo"]
    """What the document is."""
    result: Literal["idle"]
    """As of a pass."""
    reason: str
    """The same in a sentence."""
    removals: list[OutcomeJson]
    """None."""
    observations: list[ObservationJson]
    """What was observed, in the order of the signals."""
    layout: LayoutName | None
    """How the roles are spread over filesystems; null while that is not known."""
