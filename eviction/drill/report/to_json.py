"""What a drill leaves behind as data: one JSON document, and the lines that people read on a terminal.

Every other form of the report (the page, JUnit, a comparison) is made from this document, so that it can be made from
a file of another day as well.
"""

from __future__ import annotations

from typing import Any

from eviction.drill.judgement.judge import lost_beyond_need
from eviction.drill.judgement.result import DrillResult
from eviction.drill.measurement.downsample import thinned
from eviction.drill.measurement.measurements import PLURALS, FilesystemSeen, Sample, Seen
from eviction.drill.report.document import KIND
from eviction.reporting.observations_json import threshold_json
from eviction.reporting.pass_record import pass_json
from eviction.reporting.tables import amount, table
from eviction.types import Threshold
from signals.quantity import format_duration
from signals.types import Signal

LARGEST_POINTS = 2000
NAMED = 5  # so many of each kind on a terminal; the report names all


def result_json(result: DrillResult) -> dict[str, Any]:
    """The whole run: expectations, times, passes, and the timeline thinned to at most 2 000 points."""
    seen = result.seen
    return {
        "kind": KIND,
        "scenario": result.name,
        "why": result.why,
        "response": str(result.response),
        "held": result.held,
        "simulated": result.simulated,
        "filesystem": result.filesystem,
        "layout": "unknown" if result.layout is None else str(result.layout),
        "crossed_seconds": seen.crossed,
        "first_removal_seconds": seen.first_removal,
        "relieved_seconds": seen.relieved,
        "ended_seconds": round(seen.ended, 4),
        "from_crossing_to_first_removal_seconds": seen.to_first_removal,
        "from_crossing_to_first_relief_seconds": seen.to_first_relief,
        "from_crossing_to_relief_seconds": seen.to_relief,
        "images_lost_beyond_need": None if seen.layers is None else lost_beyond_need(seen),
        "lowest": {str(signal): seen.lowest(signal) for signal in signals_of(seen)},
        "checks": [
            {"name": check.name, "expected": check.expected, "seen": check.seen, "held": check.held}
            for check in result.checks
        ],
        "filesystems": [_filesystem_json(filesystem) for filesystem in seen.filesystems],
        "marks": [_mark_json(threshold, seen) for threshold in seen.thresholds],
        "conditions": [
            {"condition": str(band.condition), "from_seconds": round(band.began, 4), "to_seconds": _rounded(band.ended)}
            for band in seen.bands
        ],
        "pressures": [
            {
                "what": period.what,
                "from_seconds": round(period.began, 4),
                "to_seconds": _rounded(period.ended),
                "written": period.written,
            }
            for period in seen.periods
        ],
        "faults": [{"what": strike.what, "seconds": round(strike.seconds, 4)} for strike in seen.strikes],
        "removals": [
            {"seconds": round(each.seconds, 4), "kind": each.kind, "name": each.name, "id": each.id}
            for each in seen.removals
        ],
        "ended_pods": [
            {"seconds": round(each.seconds, 4), "name": each.name, "uid": each.uid} for each in seen.ended_pods
        ],
        "lists_apart_seconds": _rounded(result.lists_apart_seconds),
        "history": dict(result.history),
        "passes": [
            {**pass_json(one.record), "from_seconds": round(one.seconds, 4), "collector": one.collector}
            for one in seen.passes
        ],
        "timeline": [_point_json(sample, seen) for sample in thinned(seen.samples, LARGEST_POINTS)],
    }


def signals_of(seen: Seen) -> list[Signal]:
    """The signals that have a mark, in the order of the kubelet's list."""
    marked = {threshold.signal for threshold in seen.thresholds}
    return [signal for signal in Signal if signal in marked]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def _filesystem_json(filesystem: FilesystemSeen) -> dict[str, Any]:
    return {
        "name": str(filesystem.name),
        "roles": [str(role) for role in filesystem.roles],
        "capacity_bytes": filesystem.capacity_bytes,
        "inodes_total": filesystem.inodes_total,
    }


def _mark_json(threshold: Threshold, seen: Seen) -> dict[str, Any]:
    """A threshold in force, with the filesystem that it is about and its mark with minimum reclaim."""
    names = [str(one.name) for one in seen.filesystems if threshold.signal.filesystem in one.roles]
    observation = None if seen.observations is None else seen.observations.signals.get(threshold.signal)
    release = None if observation is None else threshold.mark_with_min_reclaim(observation.capacity)
    described = {} if seen.observations is None else threshold_json(threshold, seen.observations)
    return {**described, "filesystem": names[0] if names else None, "effective_with_min_reclaim": release}


def _point_json(sample: Sample, seen: Seen) -> dict[str, Any]:
    rooms = [{"available_bytes": room[0], "inodes_free": room[1]} for room in sample.rooms]
    point: dict[str, Any] = {"seconds": round(sample.seconds, 4), **(rooms[0] if rooms else {})}
    for filesystem, room in list(zip(seen.filesystems, rooms, strict=True))[1:]:
        point[str(filesystem.name)] = room
    return point


def verdict_lines(result: DrillResult) -> list[str]:
    """Expectations with what was seen, the times, and the verdict."""
    rows = [["", "WHAT", "EXPECTED", "SEEN"]]
    words = {True: "ok", False: "NOT", None: "-"}
    rows += [[words[check.held], check.name, check.expected, check.seen] for check in result.checks]
    lines, seen = table(rows) if result.checks else [], result.seen
    if seen.to_first_removal is not None and seen.to_relief is not None:
        lines += [
            "",
            f"from crossing the mark to the first removal: {format_duration(seen.to_first_removal)}",
            f"from crossing the mark to relief:            {format_duration(seen.to_relief)}",
            f"lowest point:                                {lowest(seen)}",
        ]
    passed = "everything held" if result.held else "NOT everything held"
    open_ = sum(check.held is None for check in result.checks)
    if open_:
        passed += f" of what could be judged; {open_} of {len(result.checks)} could not be judged"
    return [*lines, "", f"{result.name}: {passed}{' (simulated filesystem)' * result.simulated}"]


def observation_lines(seen: Seen) -> list[str]:
    """What was seen of a node that is there, when nothing was expected of it."""
    rows = [["crossed a mark", "never" if seen.crossed is None else f"after {format_duration(seen.crossed)}"]]
    for what, took in (
        ("from crossing to the first removal", seen.to_first_removal),
        ("from crossing to the first relief", seen.to_first_relief),
        ("from crossing to relief", seen.to_relief),
    ):
        if seen.crossed is not None:
            rows.append([what, "not seen" if took is None else format_duration(took)])
    for signal in signals_of(seen):
        found = seen.lowest(signal)
        rows.append([f"lowest {signal}", "not seen" if found is None else amount(signal, found)])
    for kind, plural in PLURALS.items():
        went = [removal.name for removal in seen.removals if removal.kind == kind]
        rows.append([f"{plural} that went", ", ".join([str(len(went)), *went[:NAMED], *["…"] * (len(went) > NAMED)])])
    pods = [pod.name for pod in seen.ended_pods]
    rows.append(["pods that ended", ", ".join([str(len(pods)), *pods[:NAMED], *["…"] * (len(pods) > NAMED)])])
    rows += [["meanwhile", f"{strike.what}, after {format_duration(strike.seconds)}"] for strike in seen.strikes]
    return table(rows)


def lowest(seen: Seen) -> str:
    """The lowest point of the signal that was first acted on, for people."""
    acted_on = (one.record.decision.acted_on for one in seen.passes)
    signal = next((threshold.signal for threshold in acted_on if threshold is not None), None)
    value = None if signal is None else seen.lowest(signal)
    return "-" if signal is None or value is None else amount(signal, value)
