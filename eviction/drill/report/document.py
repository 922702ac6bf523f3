"""The report of a run: one JSON document, made from the result of a drill, and read back to be drawn.

The page, the picture and JUnit XML are made from the document, so they can also be made from the file of an earlier
run. That file may come from a later version or another person: unknown fields are ignored, and everything that is drawn
is checked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from eviction.configuration.models import ConfigDict, Field, Model, TypeAdapter, ValidationError
from eviction.configuration.strict_yaml import ConfigurationError, first_problem
from eviction.drill.judgement.judge import Check, DrillResult, Response, lost_beyond_need
from eviction.drill.measurement.measurements import (
    ConditionPeriod,
    EndedPod,
    MeasuredFilesystem,
    MeasuredRemoval,
    Measurements,
    Sample,
    downsample,
)
from eviction.drill.pressure.schedule import FaultOccurrence, Moment, PressurePeriod
from eviction.reporting.json_shapes import Count, Keywords, RoleName, SignalName, Versioned, one_of, to_json
from eviction.reporting.observations_json import ThresholdJson, threshold_json
from eviction.reporting.pass_record import PassJson, pass_json
from eviction.types import Threshold
from signals.types import FsLayout, SignalObservations, in_order

LARGEST_POINTS = 2000

# Every number within these bounds can be drawn.
Amount = Annotated[int, Field(ge=-(2**63), le=2**63)]
Name = Annotated[str, Field(max_length=200)]


ReportError = ConfigurationError  # a report is rejected as a configuration is, with one sentence


# ---- its shape


class MarkJson(ThresholdJson):
    """A threshold with its mark."""

    filesystem: RoleName | None
    """The filesystem of its signal; null: not observed."""
    effective_with_min_reclaim: Count | None
    """The mark plus the minimum reclaim; null: the capacity is not known."""


class MeasuredPassJson(PassJson):
    """One pass, and when it began."""

    from_seconds: float
    """Since the start."""
    collector: Count
    """The number of the agent that made it, from 1."""


@dataclass(frozen=True, slots=True)
class AvailableJson:
    """What was available on one filesystem."""

    available_bytes: Amount
    """In bytes."""
    inodes_free: Amount
    """In inodes."""


# The names of all other filesystems are keys.
PointJson = Annotated[
    dict[str, AvailableJson],
    Keywords(
        {
            "properties": {
                "seconds": {"description": "Since the start.", "type": "number"},
                "available_bytes": {"description": "On the first filesystem.", "type": "integer"},
                "inodes_free": {"description": "On the first filesystem.", "type": "integer"},
            },
            "required": ["seconds"],
        }
    ),
]
"""One point of the timeline."""


class _Run(Versioned):
    """What the document and the report that is read back share."""

    kind: Literal["DrillReport"] = "DrillReport"
    """What the document is."""
    scenario: Name
    """The scenario's name."""
    why: str
    """What the scenario shows."""
    response: Annotated[Name, one_of(Response)] = "reclaimd"
    """What relieved the node: reclaimd, or another component, which was only observed."""
    held: bool
    """Whether every expectation that could be judged held."""
    simulated: bool
    """Whether a filesystem was a size-limited view of a directory."""
    filesystem: str
    """The filesystems of the node, for people."""
    layout: Annotated[str, Keywords({"enum": [*map(str, FsLayout), "unknown"]})]
    """How the roles are spread over the filesystems."""
    crossed_seconds: Moment | None = None
    """When a mark was first crossed; null: never."""
    first_removal_seconds: Moment | None = None
    """When the first object was removed; null: never."""
    relieved_seconds: Moment | None = None
    """When every threshold was clear again; null: never."""
    ended_seconds: Annotated[float, Field(gt=0, le=1e6)]
    """When the run ended."""
    from_crossing_to_first_removal_seconds: Moment | None = None
    """Null: no mark was crossed, or nothing was removed."""
    from_crossing_to_first_relief_seconds: Moment | None = None
    """Until the first space was freed. Null: no mark was crossed, or nothing was freed."""
    from_crossing_to_relief_seconds: Moment | None = None
    """The longest time from crossing to relief. Null: no mark was crossed, or pressure remained."""
    images_lost_beyond_need: Count | None = 0
    """How many images were removed although the other removals were enough; null: their layers are not known."""
    lowest: dict[SignalName, Amount | None] = field(default_factory=dict)
    """Signal -> the least that was available; null: not measured."""
    checks: list[Check]
    """The expectations, judged."""
    filesystems: list[MeasuredFilesystem]
    """The filesystems that were measured."""
    conditions: list[ConditionPeriod]
    """When conditions were reported."""
    pressures: list[PressurePeriod]
    """What grew, and when."""
    faults: list[FaultOccurrence]
    """What went wrong on purpose."""
    removals: list[MeasuredRemoval]
    """The objects that were removed."""
    ended_pods: list[EndedPod] = field(default_factory=list)
    """The pods that ended."""
    lists_apart_seconds: Moment | None = None
    """The longest time between two polls of the runtime's lists; null: removals are known without polling."""
    history: dict[str, Any] = field(default_factory=dict)
    """The last observations and decisions, if an expectation did not hold. Its form is not part of this contract."""


class DrillReportJson(_Run):
    """A run of a drill, as `reclaimd drill` prints and writes it. Times are seconds since its start."""

    marks: list[MarkJson]
    """The thresholds in force."""
    passes: list[MeasuredPassJson]
    """The passes of reclaimd."""
    timeline: list[PointJson]
    """At most 2 000 points: the seconds, what was available on the first filesystem, and by name what was available on
    the others."""


# ---- made from a result


def result_json(result: DrillResult) -> dict[str, Any]:
    """The document of a run."""
    measured = result.measurements
    report = DrillReportJson.of(
        result,
        measured,
        scenario=result.name,
        layout="unknown" if result.layout is None else result.layout,
        crossed_seconds=measured.crossed,
        first_removal_seconds=measured.first_removal,
        relieved_seconds=measured.relieved,
        ended_seconds=round(measured.ended, 4),
        from_crossing_to_first_removal_seconds=measured.to_first_removal,
        from_crossing_to_first_relief_seconds=measured.to_first_relief,
        from_crossing_to_relief_seconds=measured.to_relief,
        images_lost_beyond_need=None if measured.layers is None else lost_beyond_need(measured),
        lowest={signal: measured.lowest(signal) for signal in in_order({each.signal for each in measured.thresholds})},
        marks=[_mark(threshold, measured) for threshold in measured.thresholds],
        conditions=[_rounded(one) for one in measured.condition_periods],
        pressures=[_rounded(one) for one in measured.pressure_periods],
        faults=[_rounded(one) for one in measured.faults],
        removals=[_rounded(one) for one in measured.removals],
        ended_pods=[_rounded(one) for one in measured.ended_pods],
        lists_apart_seconds=None if result.lists_apart_seconds is None else round(result.lists_apart_seconds, 4),
        passes=[
            MeasuredPassJson.of(pass_json(one.record), from_seconds=round(one.seconds, 4), collector=one.collector)
            for one in measured.passes
        ],
        timeline=[_point(sample, measured) for sample in downsample(measured.samples, LARGEST_POINTS)],
    )
    document: dict[str, Any] = to_json(report)
    return document


def _rounded(record: Any) -> Any:
    """The record with its times rounded to a tenth of a millisecond."""
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return replace(record, **{name: round(value, 4) for name, value in values.items() if isinstance(value, float)})


def _mark(threshold: Threshold, measured: Measurements) -> MarkJson:
    names = [str(one.name) for one in measured.filesystems if threshold.signal.filesystem in one.roles]
    observation = None if measured.observations is None else measured.observations.signals.get(threshold.signal)
    release = None if observation is None else threshold.mark_with_min_reclaim(observation.capacity)
    described = threshold_json(threshold, measured.observations or SignalObservations({}, None, 0.0))
    return MarkJson.of(described, filesystem=names[0] if names else None, effective_with_min_reclaim=release)


def _point(sample: Sample, measured: Measurements) -> dict[str, Any]:
    amounts = [to_json(AvailableJson(*each)) for each in sample.available]
    further = {str(one.name): each for one, each in zip(measured.filesystems[1:], amounts[1:], strict=True)}
    return {"seconds": round(sample.seconds, 4), **(amounts[0] if amounts else {}), **further}


# ---- read back


@dataclass(frozen=True, slots=True)
class DrawnMark:
    """What is drawn of a threshold."""

    signal: str
    value: str
    margin: str | None = None
    filesystem: str | None = None
    effective: Amount | None = None
    effective_with_min_reclaim: Amount | None = None
    grace_seconds: Moment = 0.0

    @property
    def counts_inodes(self) -> bool:
        return self.signal.endswith(".inodesFree")

    @property
    def text(self) -> str:
        """The value with its margin."""
        return " + ".join(filter(None, (self.value, self.margin)))


class DrawnObject(Model):
    """What is shown of an object of a pass."""

    kind: str
    id: str
    name: str
    reason: str


class DrawnTimings(Model):
    """How long a pass took."""

    total_seconds: Moment


class DrawnPass(Model):
    """What is shown of a pass."""

    from_seconds: Moment
    row: list[str]
    removals: list[DrawnObject]
    result: str
    reason: str
    timings: DrawnTimings
    collector: int
    acted_on: DrawnMark | None
    kept: tuple[DrawnObject, ...] = Field((), strict=False)


class DrawnPoint(Model):
    """One point of the timeline; the names of all filesystems but the first are fields, too."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, AvailableJson]
    seconds: Moment
    available_bytes: Amount | None = None
    inodes_free: Amount | None = None


class Report(_Run):
    """A report that was read back."""

    marks: list[DrawnMark]
    passes: list[DrawnPass]
    timeline: list[DrawnPoint]

    @property
    def verdict(self) -> str:
        """The verdict, with the number of expectations that could not be judged."""
        verdict = "everything held" if self.held else "NOT everything held"
        if open_ := sum(check.held is None for check in self.checks):
            verdict += f" of what could be judged; {open_} of {len(self.checks)} could not be judged"
        if not self.checks:
            verdict = "observed; nothing was expected"
        return f"{verdict} (simulated filesystem)" if self.simulated else verdict

    @property
    def times(self) -> dict[str, float | None]:
        """How long after the first crossing each of these came; None: never."""
        return {
            "first removal": self.from_crossing_to_first_removal_seconds,
            "first byte": self.from_crossing_to_first_relief_seconds,
            "relief": self.from_crossing_to_relief_seconds,
        }

    @property
    def title(self) -> str:
        """The scenario's name, with `observed` if another component relieved the node."""
        return self.scenario if self.response == "reclaimd" else f"{self.scenario}, {self.response}"

    def series(self, filesystem: str, *, inodes: bool) -> list[tuple[float, float]]:
        """What was available on one filesystem, as (seconds, bytes or inodes)."""
        unit = "inodes_free" if inodes else "available_bytes"
        first = bool(self.filesystems) and self.filesystems[0].name == filesystem
        rooms = [
            (point.seconds, point if first else point.__pydantic_extra__.get(filesystem)) for point in self.timeline
        ]
        found = [(seconds, getattr(room, unit, None)) for seconds, room in rooms]
        return [(seconds, amount) for seconds, amount in found if amount is not None]


def report_of(document: Any, name: str) -> Report:
    """The report in a document, which error messages call `name`. Raises ReportError."""
    if not isinstance(document, dict) or document.get("kind") != "DrillReport":
        raise ReportError(f"{name}: is not a report of a drill: no JSON object of the kind DrillReport")
    try:
        # As JSON: strict validation makes dataclasses of JSON objects, and not of dictionaries.
        return TypeAdapter(Report).validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        raise ReportError(first_problem(error, name)) from None
