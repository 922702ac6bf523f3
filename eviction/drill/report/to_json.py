"""The result of a drill as one JSON document, and as lines for a terminal.

The page, the picture, JUnit XML and the comparison are made from this document, so they can also be made from the file
of an earlier run.
"""

from __future__ import annotations

from typing import Any

from eviction.drill.judgement.judge import DrillResult, lost_beyond_need
from eviction.drill.measurement.downsample import downsample
from eviction.drill.measurement.measurements import PLURALS, MeasuredFilesystem, Measurements, Sample
from eviction.drill.report.shapes import DrillReportJson, MarkJson, MeasuredFilesystemJson
from eviction.reporting.observations_json import threshold_json
from eviction.reporting.pass_record import pass_json
from eviction.reporting.tables import amount, table
from eviction.types import API_VERSION, Threshold
from signals.quantity import format_duration
from signals.types import Signal, SignalObservations, in_order

LARGEST_POINTS = 2000
NAMED = 5  # objects of each kind named on a terminal; the report names all


def result_json(result: DrillResult) -> DrillReportJson:
    """The whole run: expectations, times, passes, and the timeline downsample to at most 2 000 points."""
    measured = result.measurements
    return {
        "apiVersion": API_VERSION,
        "kind": "DrillReport",
        "scenario": result.name,
        "why": result.why,
        "response": str(result.response),
        "held": result.held,
        "simulated": result.simulated,
        "filesystem": result.filesystem,
        "layout": "unknown" if result.layout is None else str(result.layout),
        "crossed_seconds": measured.crossed,
        "first_removal_seconds": measured.first_removal,
        "relieved_seconds": measured.relieved,
        "ended_seconds": round(measured.ended, 4),
        "from_crossing_to_first_removal_seconds": measured.to_first_removal,
        "from_crossing_to_first_relief_seconds": measured.to_first_relief,
        "from_crossing_to_relief_seconds": measured.to_relief,
        "images_lost_beyond_need": None if measured.layers is None else lost_beyond_need(measured),
        "lowest": {str(signal): measured.lowest(signal) for signal in signals_of(measured)},
        "checks": [
            {"name": check.name, "expected": check.expected, "seen": check.seen, "held": check.held}
            for check in result.checks
        ],
        "filesystems": [_filesystem_json(filesystem) for filesystem in measured.filesystems],
        "marks": [_mark_json(threshold, measured) for threshold in measured.thresholds],
        "conditions": [
            {"condition": str(one.condition), "from_seconds": round(one.began, 4), "to_seconds": _rounded(one.ended)}
            for one in measured.condition_periods
        ],
        "pressures": [
            {
                "what": period.what,
                "from_seconds": round(period.began, 4),
                "to_seconds": _rounded(period.ended),
                "written": period.written,
            }
            for period in measured.pressure_periods
        ],
        "faults": [{"what": fault.what, "seconds": round(fault.seconds, 4)} for fault in measured.faults],
        "removals": [
            {"seconds": round(each.seconds, 4), "kind": each.kind, "name": each.name, "id": each.id}
            for each in measured.removals
        ],
        "ended_pods": [
            {"seconds": round(each.seconds, 4), "name": each.name, "uid": each.uid} for each in measured.ended_pods
        ],
        "lists_apart_seconds": _rounded(result.lists_apart_seconds),
        "history": dict(result.history),
        "passes": [
            {**pass_json(one.record), "from_seconds": round(one.seconds, 4), "collector": one.collector}
            for one in measured.passes
        ],
        "timeline": [_point_json(sample, measured) for sample in downsample(measured.samples, LARGEST_POINTS)],
    }


def signals_of(measured: Measurements) -> list[Signal]:
    """The signals that have a threshold, in the order of the kubelet's list."""
    return list(in_order({threshold.signal for threshold in measured.thresholds}))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def _filesystem_json(filesystem: MeasuredFilesystem) -> MeasuredFilesystemJson:
    return {
        "name": str(filesystem.name),
        "roles": [str(role) for role in filesystem.roles],
        "capacity_bytes": filesystem.capacity_bytes,
        "inodes_total": filesystem.inodes_total,
    }


def _mark_json(threshold: Threshold, measured: Measurements) -> MarkJson:
    """A threshold in force, with its filesystem and its mark with minimum reclaim."""
    names = [str(one.name) for one in measured.filesystems if threshold.signal.filesystem in one.roles]
    observation = None if measured.observations is None else measured.observations.signals.get(threshold.signal)
    release = None if observation is None else threshold.mark_with_min_reclaim(observation.capacity)
    described = threshold_json(threshold, measured.observations or SignalObservations({}, None, 0.0))
    return {**described, "filesystem": names[0] if names else None, "effective_with_min_reclaim": release}


def _point_json(sample: Sample, measured: Measurements) -> dict[str, Any]:
    amounts = [{"available_bytes": size, "inodes_free": inodes} for size, inodes in sample.available]
    point: dict[str, Any] = {"seconds": round(sample.seconds, 4), **(amounts[0] if amounts else {})}
    for filesystem, amounts_there in list(zip(measured.filesystems, amounts, strict=True))[1:]:
        point[str(filesystem.name)] = amounts_there
    return point


def verdict_lines(result: DrillResult, width: int | None = None) -> list[str]:
    """The expectations with what was measured, the times, and the verdict."""
    rows = [["HELD", "WHAT", "EXPECTED", "MEASURED"]]
    words = {True: "ok", False: "NOT", None: "-"}
    rows += [[words[check.held], check.name, check.expected, check.seen] for check in result.checks]
    lines, measured = table(rows, width) if result.checks else [], result.measurements
    if measured.to_first_removal is not None and measured.to_relief is not None:
        lines += [
            "",
            f"from crossing the mark to the first removal: {format_duration(measured.to_first_removal)}",
            f"from crossing the mark to relief:            {format_duration(measured.to_relief)}",
            f"lowest point:                                {lowest(measured)}",
        ]
    verdict = "everything held" if result.held else "NOT everything held"
    open_ = sum(check.held is None for check in result.checks)
    if open_:
        verdict += f" of what could be judged; {open_} of {len(result.checks)} could not be judged"
    return [*lines, "", f"{result.name}: {verdict}{' (simulated filesystem)' * result.simulated}"]


def observation_lines(measured: Measurements, width: int | None = None) -> list[str]:
    """What was measured on a real node, for a run without expectations."""
    rows = [["WHAT", "MEASURED"]]
    rows += [["crossed a mark", "never" if measured.crossed is None else f"after {format_duration(measured.crossed)}"]]
    for what, took in (
        ("from crossing to the first removal", measured.to_first_removal),
        ("from crossing to the first relief", measured.to_first_relief),
        ("from crossing to relief", measured.to_relief),
    ):
        if measured.crossed is not None:
            rows.append([what, "not measured" if took is None else format_duration(took)])
    for signal in signals_of(measured):
        found = measured.lowest(signal)
        rows.append([f"lowest {signal}", "not measured" if found is None else amount(signal, found)])
    for kind, plural in PLURALS.items():
        removed = [removal.name for removal in measured.removals if removal.kind == kind]
        rows.append(
            [f"{plural} removed", ", ".join([str(len(removed)), *removed[:NAMED], *["…"] * (len(removed) > NAMED)])]
        )
    pods = [pod.name for pod in measured.ended_pods]
    rows.append(["pods that ended", ", ".join([str(len(pods)), *pods[:NAMED], *["…"] * (len(pods) > NAMED)])])
    rows += [["meanwhile", f"{fault.what}, after {format_duration(fault.seconds)}"] for fault in measured.faults]
    return table(rows, width)


def lowest(measured: Measurements) -> str:
    """The lowest amount of the signal that a pass first acted on, as text; `-` if there is none."""
    acted_on = (one.record.decision.acted_on for one in measured.passes)
    signal = next((threshold.signal for threshold in acted_on if threshold is not None), None)
    value = None if signal is None else measured.lowest(signal)
    return "-" if signal is None or value is None else amount(signal, value)
