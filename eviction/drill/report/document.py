"""The report of a run: one record, made from the result of a drill.

JSON, the page and JUnit XML are made from it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Field

from eviction.drill.judge import Check, DrillResult, Response
from eviction.drill.measurements import (
    PLURALS,
    ConditionPeriod,
    MeasuredFilesystem,
    MeasuredRemoval,
    Measurements,
    Sample,
    downsample,
)
from eviction.drill.schedule import FaultOccurrence, PressurePeriod
from eviction.records.json_shapes import (
    Count,
    LeftOut,
    RoleName,
    SignalName,
    ThresholdJson,
    Versioned,
    threshold_json,
    to_json,
)
from eviction.records.pass_json import PassJson, pass_json
from eviction.types import Json, Threshold
from eviction.wording.explain import amount, reason_in_words, table
from reclaim.types import Reason
from signals.quantity import format_duration
from signals.types import INODES_FREE, FsLayout, SignalObservations, in_order

LARGEST_POINTS = 2000


class MarkJson(ThresholdJson):
    """A threshold with its mark."""

    filesystem: RoleName | None
    """The filesystem of its signal; null: not observed."""
    effective_with_min_reclaim: Count | None
    """The mark plus the minimum reclaim; null: the capacity is not known."""

    @property
    def counts_inodes(self) -> bool:
        return self.signal.endswith(f".{INODES_FREE}")


class MeasuredPassJson(PassJson):
    """One pass, and when it began."""

    kind: Literal["Pass"] = "Pass"
    from_seconds: float
    """Since the start."""


@dataclass(frozen=True)
class AvailableJson:
    """What was available on one filesystem."""

    available_bytes: int
    """In bytes."""
    inodes_free: int
    """In inodes."""


# The names of all other filesystems are keys.
PointJson = Annotated[
    dict[str, AvailableJson],
    Field(
        json_schema_extra={
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


class DrillReportJson(Versioned):
    """A run of a drill, as `reclaimd drill` prints and writes it.

    Times are seconds since its start.
    """

    """What the document is."""
    scenario: str
    """The scenario's name."""
    why: str
    """What the scenario shows."""
    response: Response
    """What relieved the node: reclaimd, or another component, which was only observed."""
    held: bool
    """Whether every expectation that could be judged held."""
    filesystem: str
    """The filesystems of the node, for people."""
    layout: FsLayout | Literal["unknown"]
    """How the roles are spread over the filesystems."""
    crossed_seconds: float | None
    """When a mark was first crossed; null: never."""
    first_removal_seconds: float | None
    """When the first object was removed; null: never."""
    relieved_seconds: float | None
    """When every threshold was clear again; null: never."""
    ended_seconds: float
    """When the run ended."""
    from_crossing_to_first_removal_seconds: float | None
    """Null: no mark was crossed, or nothing was removed."""
    from_crossing_to_first_relief_seconds: float | None
    """Until the first space was freed. Null: no mark was crossed, or nothing was freed."""
    from_crossing_to_relief_seconds: float | None
    """The longest time from crossing to relief. Null: no mark was crossed, or pressure remained."""
    lowest: dict[SignalName, int | None]
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
    ended_pods: list[MeasuredRemoval]
    """The pods that ended."""
    lists_apart_seconds: float | None
    """The longest time between two polls of the runtime's lists; null: removals
    are known without polling.
    """
    marks: list[MarkJson]
    """The thresholds in force."""
    passes: list[MeasuredPassJson]
    """The passes of reclaimd."""
    timeline: list[PointJson]
    """At most 2 000 points: the seconds, what was available on the first filesystem, and by name
    what was available on the others."""

    @property
    def verdict(self) -> str:
        """The verdict, with the number of expectations that could not be judged."""
        verdict = "everything held" if self.held else "NOT everything held"
        if open_ := sum(check.held is None for check in self.checks):
            verdict += (
                f" of what could be judged; {open_} of {len(self.checks)} could not be judged"
            )
        if not self.checks:
            verdict = "observed; nothing was expected"
        return verdict

    @property
    def title(self) -> str:
        """The scenario's name, with `observed` if another component relieved the node."""
        return self.scenario if self.response == "reclaimd" else f"{self.scenario}, {self.response}"

    def series(self, filesystem: str, inodes: bool) -> list[tuple[float, float]]:
        """What was available on one filesystem, as (seconds, bytes or inodes)."""
        unit = "inodes_free" if inodes else "available_bytes"
        first = self.filesystems[0].name == filesystem
        points: Any = self.timeline
        return [
            (point["seconds"], (point if first else point[filesystem])[unit]) for point in points
        ]


def report_of(result: DrillResult) -> DrillReportJson:
    """The report of a run."""
    measured = result.measurements
    return DrillReportJson.of(
        result,
        measured,
        layout=(measured.observations and measured.observations.layout) or "unknown",
        ended_seconds=round(measured.ended, 4),
        lowest={
            signal: measured.lowest(signal)
            for signal in in_order({each.signal for each in measured.thresholds})
        },
        marks=[_mark(threshold, measured) for threshold in measured.thresholds],
        passes=[
            MeasuredPassJson.of(
                pass_json(record), from_seconds=record.started_wall - measured.began_wall
            )
            for record in measured.passes
        ],
        timeline=[
            _point(sample, measured) for sample in downsample(measured.samples, LARGEST_POINTS)
        ],
    )


def _mark(threshold: Threshold, measured: Measurements) -> MarkJson:
    signal = threshold.signal
    observations = measured.observations or SignalObservations({}, None, 0.0)
    release = None
    if signal in observations.signals:
        release = threshold.mark_with_min_reclaim(observations.signals[signal].capacity)
    return MarkJson.of(
        threshold_json(threshold, observations),
        filesystem=next(
            (each.name for each in measured.filesystems if signal.filesystem in each.roles), None
        ),
        effective_with_min_reclaim=release,
    )


def mark_text(mark: ThresholdJson) -> str:
    """The value with its margin."""
    return " + ".join(str(each) for each in (mark.value, mark.margin) if each)


def _point(sample: Sample, measured: Measurements) -> Json:
    point: Json = {"seconds": round(sample.seconds, 4)}
    for filesystem, available in zip(measured.filesystems, sample.available, strict=True):
        room = to_json(AvailableJson(*available))
        point |= {str(filesystem.name): room} if len(point) > 1 else room
    return point


# ---- for people

Row = tuple[str, str]
"""A word and what it is about."""

Fate = tuple[str, str, str, str]
"""What became of an object: removed, kept, spared or ended; its kind, its name, the reason."""


def before_rows(node: str, pressures: Iterable[str], faults: Iterable[str]) -> list[Row]:
    """What a run is to show: the node, what fills it, what goes wrong."""
    return [
        ("node", node),
        *[("filled", what) for what in pressures],
        *(("fault", what) for what in faults),
    ]


def story_rows(report: DrillReportJson) -> list[Row]:
    """What happened: the mark and its row, what went and stayed, how long it took."""
    which = "a mark"
    acted_on = ""
    row: list[Row] = []
    for one in report.passes:
        mark = one.acted_on
        if mark is not None:
            acted_on = mark.signal
            figure = amount(acted_on, mark.effective or 0)
            which = f"the mark of {acted_on}, {mark_text(mark)} = {figure},"
            row = [("row", ", ".join(one.row) or "empty")]
            break
    crossed = report.crossed_seconds
    how = "no mark" if crossed is None else f"{which} after {format_duration(crossed)}"
    rows = [("crossed", how), *row]
    reasons: dict[str, str] = {}
    fates: dict[str, Fate] = {}
    for one in report.passes:
        reasons |= {verdict.id: verdict.reason for verdict in one.removals}
        if isinstance(one.kept, LeftOut):
            continue
        for verdict in one.kept:
            # spared: enough was freed without it
            word = "spared" if verdict.reason == Reason.RELIEVED else "kept"
            fates[verdict.id] = (word, verdict.kind, verdict.name, verdict.reason)
    for gone in report.removals:  # in their order, whatever an earlier pass kept
        fates.pop(gone.id, None)
        fates[gone.id] = ("removed", gone.kind, gone.name, reasons.get(gone.id, ""))
    for pod in report.ended_pods:
        fates[pod.id] = ("ended", pod.kind, pod.name, "")
    rows += _fate_rows(fates.values())
    if crossed is not None:
        rows.append(("relief", _outcome_text(report, acted_on)))
    return rows


def verdict_rows(report: DrillReportJson) -> list[Row]:
    """What did not hold, and the verdict."""
    rows = [
        ("NOT", f"{check.name} {check.expected}: {check.seen}")
        for check in report.checks
        if check.held is False
    ]
    return [*rows, ("ok" if report.held else "NOT", f"{report.scenario}: {report.verdict}")]


def _outcome_text(report: DrillReportJson, acted_on: str) -> str:
    """How long after the first crossing everything came, and the lowest point. Of a removal, polled
    lists say only by when it was."""
    removal = "first removal" if report.lists_apart_seconds is None else "first removal within"
    times = [
        f"{what} {'never' if took is None else format_duration(took)}"
        for what, took in (
            (removal, report.from_crossing_to_first_removal_seconds),
            ("first byte", report.from_crossing_to_first_relief_seconds),
            ("relief", report.from_crossing_to_relief_seconds),
        )
    ]
    points = ", ".join(
        dict.fromkeys(
            "-" if least is None else amount(signal, least)
            for signal, least in report.lowest.items()
            if signal == (acted_on or signal)
        )
    )
    return f"from crossing the mark: {', '.join(times)}; lowest point {points}"


def _fate_rows(fates: Collection[Fate]) -> list[Row]:
    """Of each fate and kind of object their number, and one with the usual reason.

    The kinds stand in one order, whichever of them was first: functions run side
    by side where it hurries.
    """
    rows = []
    kinds = dict.fromkeys((*PLURALS, *sorted(kind for _, kind, _, _ in fates)))
    for word, kind in product(("removed", "kept", "spared", "ended"), kinds):
        names: dict[str, list[str]] = {}  # by reason
        for fate in fates:
            if fate[:2] == (word, kind):
                names.setdefault(fate[3], []).append(fate[2])
        if names:
            usual = max(names, key=lambda reason: len(names[reason]))
            why = f" ({reason_in_words(usual)})" if usual else ""
            count = sum(map(len, names.values()))
            example = f"{count}, such as {names[usual][0]}{why}"
            rows.append((word, f"{PLURALS.get(kind, f'{kind}s')}: {example}"))
    return rows


def row_lines(rows: Iterable[Row]) -> list[str]:
    """Rows as lines, their words in a column."""
    return [f"{word:9}{text}" for word, text in rows]


def checks_table(report: DrillReportJson, width: int | None = None) -> list[str]:
    """The expectations with what was measured."""
    words = {True: "ok", False: "NOT", None: "-"}
    rows = [[words[check.held], check.name, check.expected, check.seen] for check in report.checks]
    return table([["HELD", "WHAT", "EXPECTED", "MEASURED"], *rows], width) if rows else []
