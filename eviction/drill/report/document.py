"""The report of a run: one JSON document, made from the result of a drill, and read back to be drawn.

The page, the picture, JUnit XML and the comparison are made from the document, so they can also be made from the file
of an earlier run. That may come from another version, or from another person: unknown fields are ignored, a field that
older versions did not have may be missing, and what is drawn is checked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from eviction.configuration.models import (
    Discriminator,
    Field,
    Model,
    SkipValidation,
    Tag,
    TypeAdapter,
    ValidationError,
    read_as,
)
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
from eviction.reporting.json_shapes import Count, Keywords, RoleName, SignalName, one_of, to_json
from eviction.reporting.observations_json import ThresholdJson, threshold_json
from eviction.reporting.pass_record import PassJson, pass_json
from eviction.types import NodeCondition, Threshold
from signals.types import FsLayout, SignalObservations, in_order

KIND = "DrillReport"
LARGEST_BYTES = 64 << 20
LARGEST_POINTS = 2000

# With these bounds every number can be drawn.
Amount = Annotated[int, Field(ge=-(2**63), le=2**63)]
# A sum of sizes that a runtime reports, each of which may be as large as a CRI message can hold.
Sum = Annotated[int, Field(ge=-(2**80), le=2**80)]
Name = Annotated[str, Field(max_length=200)]


class ReportError(ConfigurationError):
    """A file that is not the report of a drill. The message is one sentence."""


# ---- its shape


class MarkJson(ThresholdJson):
    """A threshold with its mark."""

    filesystem: RoleName | None
    """The filesystem that it is on; null: not observed."""
    effective_with_min_reclaim: Count | None
    """The mark with the minimum reclaim on top; null while the capacity is not known."""


class MeasuredPassJson(PassJson):
    """One pass, and when it was."""

    from_seconds: float
    """Since the start."""
    collector: Count
    """Of several agents the how many-th."""


@dataclass(frozen=True, slots=True)
class AvailableJson:
    """What was available on one filesystem."""

    available_bytes: Amount
    """Bytes."""
    inodes_free: Amount
    """Inodes."""


# The names of the further filesystems are keys.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What the document and the report that is drawn share."""

    apiVersion: Annotated[Literal["reclaimd.io/v1alpha1"], SkipValidation] = "reclaimd.io/v1alpha1"  # noqa: N815 # JSON
    """The version of this format. Fields may be added to it."""
    kind: Literal["DrillReport"] = "DrillReport"
    """What the document is."""
    scenario: Name
    """Its name."""
    why: str
    """What it shows."""
    response: Annotated[Name, one_of(Response)] = "reclaimd"
    """What relieved the node: our daemon, or another component that was only observed."""
    held: bool
    """Whether every expectation held that could be judged."""
    simulated: bool
    """Whether the filesystem was a size-limited view of a directory."""
    filesystem: str
    """What it was made of, in words."""
    layout: Annotated[str, Keywords({"enum": [*map(str, FsLayout), "unknown"]})]
    """How the roles are spread over filesystems."""
    crossed_seconds: Moment | None = None
    """When a mark was first crossed; null: never."""
    first_removal_seconds: Annotated[float | None, SkipValidation] = None
    """When the first object went; null: none did."""
    relieved_seconds: Annotated[float | None, SkipValidation] = None
    """When every threshold was clear again; null: never."""
    ended_seconds: Annotated[float, Field(gt=0, le=1e6)]
    """When it ended."""
    from_crossing_to_first_removal_seconds: Moment | None = None
    """Null where there was no such thing."""
    from_crossing_to_first_relief_seconds: Moment | None = None
    """Until something was freed; null where nothing was."""
    from_crossing_to_relief_seconds: Moment | None = None
    """Null where there was no such thing."""
    images_lost_beyond_need: Count | None = 0
    """Images that went although the others were enough; null where their layers are not known."""
    lowest: dict[SignalName, Amount | None] = field(default_factory=dict)
    """Signal -> the least that was available; null: not measured."""
    checks: list[Check]
    """The expectations, judged."""
    filesystems: list[MeasuredFilesystem]
    """Those that were measured."""
    conditions: list[ConditionPeriod]
    """When conditions were reported."""
    pressures: list[PressurePeriod]
    """What grew, and when."""
    faults: list[FaultOccurrence]
    """What went wrong on purpose."""
    removals: list[MeasuredRemoval]
    """The objects that went."""
    ended_pods: list[EndedPod] = field(default_factory=list)
    """The pods that ended."""
    lists_apart_seconds: Moment | None = None
    """The longest time between two looks at the runtime's lists; null where removals are known without."""
    history: Annotated[dict[str, Any], SkipValidation] = field(default_factory=dict)
    """The last observations and decisions, where an expectation did not hold. Its form is not part of this contract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillReportJson(_Run):
    """A run of a drill: the answer of `reclaimd drill`, and its file. Times are seconds since its start."""

    marks: list[MarkJson]
    """The thresholds in force."""
    passes: list[MeasuredPassJson]
    """Those of our own daemon."""
    timeline: list[PointJson]
    """At most 2 000 points: seconds, and what was available on the first filesystem; on each further one under its
    name."""


# ---- made from a result


def result_json(result: DrillResult) -> dict[str, Any]:
    """The document of a run: expectations, times, passes, and the timeline downsampled to at most 2 000 points."""
    measured = result.measurements
    report = DrillReportJson(
        scenario=result.name,
        why=result.why,
        response=result.response,
        held=result.held,
        simulated=result.simulated,
        filesystem=result.filesystem,
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
        checks=list(result.checks),
        filesystems=list(measured.filesystems),
        marks=[_mark(threshold, measured) for threshold in measured.thresholds],
        conditions=[_rounded(one) for one in measured.condition_periods],
        pressures=[_rounded(one) for one in measured.pressure_periods],
        faults=[_rounded(one) for one in measured.faults],
        removals=[_rounded(one) for one in measured.removals],
        ended_pods=[_rounded(one) for one in measured.ended_pods],
        lists_apart_seconds=None if result.lists_apart_seconds is None else round(result.lists_apart_seconds, 4),
        history=dict(result.history),
        passes=[
            {**pass_json(one.record), "from_seconds": round(one.seconds, 4), "collector": one.collector}
            for one in measured.passes
        ],
        timeline=[_point(sample, measured) for sample in downsample(measured.samples, LARGEST_POINTS)],
    )
    document: dict[str, Any] = to_json(report)
    return document


def _rounded(record: Any) -> Any:
    """The same record with its times in tenths of a millisecond."""
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return replace(record, **{name: round(value, 4) for name, value in values.items() if isinstance(value, float)})


def _mark(threshold: Threshold, measured: Measurements) -> MarkJson:
    """A threshold in force, with its filesystem and its mark with minimum reclaim."""
    names = [str(one.name) for one in measured.filesystems if threshold.signal.filesystem in one.roles]
    observation = None if measured.observations is None else measured.observations.signals.get(threshold.signal)
    release = None if observation is None else threshold.mark_with_min_reclaim(observation.capacity)
    described = threshold_json(threshold, measured.observations or SignalObservations({}, None, 0.0))
    return {**described, "filesystem": names[0] if names else None, "effective_with_min_reclaim": release}


def _point(sample: Sample, measured: Measurements) -> dict[str, Any]:
    amounts = [to_json(AvailableJson(*each)) for each in sample.available]
    further = {str(one.name): each for one, each in zip(measured.filesystems[1:], amounts[1:], strict=True)}
    return {"seconds": round(sample.seconds, 4), **(amounts[0] if amounts else {}), **further}


# ---- read back


@dataclass(frozen=True, slots=True)
class DrawnMark:
    """Of a threshold what is drawn."""

    signal: str
    value: str
    filesystem: str | None = None
    effective: Amount | None = None
    effective_with_min_reclaim: Amount | None = None
    grace_seconds: Moment = 0.0

    @property
    def counts_inodes(self) -> bool:
        """True if the mark is a number of inodes."""
        return self.signal.endswith(".inodesFree")


class ActedOn(Model):
    """The threshold that a pass acted on."""

    signal: str


class Freed(Model):
    """Bytes and inodes; None: not known."""

    bytes: Sum | None = None
    inodes: Sum | None = None


class Timings(Model):
    """Where the time of a pass went."""

    list_seconds: Moment
    plan_seconds: Moment
    remove_seconds: Moment
    total_seconds: Moment


class DrawnPass(Model):
    """Of a pass what is shown."""

    from_seconds: Moment
    row: list[str]
    removals: list[Any]
    measured: Freed
    nominal: Freed
    result: str
    reason: str
    timings: Timings
    collector: int = 1
    acted_on: ActedOn | None = None


def _with_seconds(point: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(point.get("seconds"), float):
        raise ValueError("seconds is missing")  # noqa: TRY004 # pydantic makes a problem of it
    return point


_NUMBER, _FILESYSTEM = "<number>", "<filesystem>"
DrawnValue = Annotated[
    Annotated[float, Field(ge=-(2**63), le=2**63), Tag(_NUMBER)] | Annotated[AvailableJson, Tag(_FILESYSTEM)],
    Discriminator(lambda value: _FILESYSTEM if isinstance(value, dict) else _NUMBER),
]
DrawnPoint = Annotated[dict[str, Any], read_as(dict[str, DrawnValue], _with_seconds)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(_Run):
    """A report that was read."""

    marks: list[DrawnMark]
    passes: list[DrawnPass]
    timeline: list[DrawnPoint]

    @property
    def reclaim_pressure(self) -> list[ConditionPeriod]:
        """The periods of our own condition. Older reports have them under the kubelet's name."""
        return [one for one in self.conditions if one.condition != NodeCondition.DISK_PRESSURE] or self.conditions

    @property
    def disk_pressure(self) -> list[ConditionPeriod]:
        """The periods in which the kubelet would have reported DiskPressure."""
        ours = self.reclaim_pressure
        return [one for one in self.conditions if one not in ours]

    @property
    def verdict(self) -> str:
        """The verdict in words, with the number of expectations that could not be judged."""
        if not self.checks:
            return "observed; nothing was expected"
        open_ = sum(check.held is None for check in self.checks)
        verdict = "everything held" if self.held else "not everything held"
        if not open_:
            return verdict
        return f"{verdict} of what could be judged; {open_} of {len(self.checks)} could not be judged"

    @property
    def times(self) -> dict[str, float | None]:
        """How long after the first crossing what came; None where there was no such thing."""
        return {
            "first removal": self.from_crossing_to_first_removal_seconds,
            "first relief": self.from_crossing_to_first_relief_seconds,
            "relief": self.from_crossing_to_relief_seconds,
        }

    @property
    def title(self) -> str:
        """The name of the scenario; with `observed` if another component relieved the node."""
        return self.scenario if self.response == "reclaimd" else f"{self.scenario}, {self.response}"

    def series(self, filesystem: str, *, inodes: bool) -> list[tuple[float, float]]:
        """What was available on one filesystem: (seconds, bytes or inodes)."""
        unit = "inodes_free" if inodes else "available_bytes"
        first = bool(self.filesystems) and self.filesystems[0].name == filesystem
        found = [
            (point["seconds"], point.get(unit) if first else getattr(point.get(filesystem), unit, None))
            for point in self.timeline
        ]
        return [(seconds, amount) for seconds, amount in found if isinstance(amount, int | float)]


def report_of(document: Mapping[str, Any], name: str) -> Report:
    """The report in a document. `name` names it in the error message. Raises ReportError."""
    if document.get("kind") != KIND:
        raise ReportError(f"{name}: is not a report of a drill: its kind is not {KIND}")
    try:
        # As JSON, whose objects are dataclasses even if no type is turned into another.
        return TypeAdapter(Report).validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        raise ReportError(first_problem(error, name, Model)) from None


def read_report(path: str) -> Report:
    """The report in a JSON file. Raises ReportError with one sentence."""
    try:
        if os.stat(path).st_size > LARGEST_BYTES:
            raise ReportError(f"{path}: larger than {LARGEST_BYTES} bytes, the largest allowed")
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not readable as JSON: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise ReportError(f"{path}: is not a report of a drill: not one JSON object")
    return report_of(document, path)
