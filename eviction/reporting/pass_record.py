"""The JSON form of the record of a pass, used in log lines, answers of commands and reports of drills.

The fields are a stable interface for programs: bytes and inodes are integers, times RFC 3339 in UTC, durations floats
named `*_seconds`. Fields may be added; existing ones keep their names and meanings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eviction.record import Pass, Timings
from eviction.reporting.json_shapes import to_json
from eviction.reporting.observations_json import observations_json, threshold_json, timestamp
from eviction.reporting.pass_shapes import (
    FunctionJson,
    NothingToDoJson,
    OutcomeJson,
    PassFieldsJson,
    PassJson,
    TimingsJson,
)
from eviction.types import API_VERSION
from reclaim.types import Outcome, ReclaimResult, Result
from signals.types import SignalObservations

MOST_REPORTED = 32  # removals of one pass in a log line and in an answer of the daemon
LONGEST_NAME = 512  # characters; names of Kubernetes objects have at most 253, image references are rarely longer


def shortened(name: str) -> str:
    """A text from the runtime, cut at 512 characters, so that a log line with many names stays below the 48 KiB at
    which journald cuts."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def outcome_json(outcome: Outcome) -> OutcomeJson:
    """One object after a pass."""
    verdict = outcome.verdict
    return {
        "kind": str(verdict.kind),
        "id": verdict.id,
        "name": shortened(verdict.name),
        "size": verdict.size_bytes,
        "age_seconds": None if verdict.age_seconds is None else round(verdict.age_seconds, 3),
        "verdict": str(verdict.action),
        "reason": str(verdict.reason),
        "rule": str(verdict.rule),
        "result": None if outcome.result is None else str(outcome.result),
        "error": shortened(outcome.error) or None,
        "duration_seconds": round(outcome.duration_seconds, 6),
        "freed": {"bytes": outcome.freed_bytes, "inodes": outcome.freed_inodes},
    }


def pass_summary(record: Pass) -> PassJson:
    """The record of a pass in a bounded size: the first 32 removals, and only the numbers of the others and of kept
    objects. For log lines (journald cuts at 48 KiB) and for records kept in memory."""
    document = pass_json(replace(record, functions=_first_removals(record.functions)), with_kept=False)
    return {
        **document,
        "kept_by_reason": kept_by_reason(record.kept),
        "removals_by_result": removals_by_result(record.removals),
        "removals_left_out": max(len(record.removals) - MOST_REPORTED, 0),
    }


def _first_removals(functions: tuple[ReclaimResult, ...]) -> tuple[ReclaimResult, ...]:
    """The functions with the outcomes that are reported, and without kept objects."""
    shortened_functions, left = [], MOST_REPORTED
    for function in functions:
        shortened_functions.append(replace(function, outcomes=function.outcomes[:left], kept=()))
        left -= len(shortened_functions[-1].outcomes)
    return tuple(shortened_functions)


def pass_json(record: Pass, *, with_kept: bool = True) -> PassJson:
    """The record of a pass. `with_kept` false leaves the kept objects out and gives their number by reason only."""
    return {"apiVersion": API_VERSION, "kind": "Pass", **pass_fields(record, with_kept=with_kept)}


def nothing_to_do_json(reason: str, observations: SignalObservations) -> NothingToDoJson:
    """The answer where there was no pass, as nothing was under pressure."""
    return {
        "apiVersion": API_VERSION,
        "kind": "NothingToDo",
        "result": "idle",
        "reason": reason,
        "removals": [],
        "observations": observations_json(observations),
        "layout": None if observations.layout is None else str(observations.layout),
    }


def pass_fields(record: Pass, *, with_kept: bool = True) -> PassFieldsJson:
    """The same as part of a document of another kind."""
    document: PassFieldsJson = {
        "id": record.id,
        "started": timestamp(record.started_wall),
        "trigger": str(record.trigger),
        "layout": None if record.decision.layout is None else str(record.decision.layout),
        "observations": observations_json(record.observations),
        "conditions": sorted(str(condition) for condition in record.decision.conditions),
        "thresholds_met": [threshold_json(t, record.observations) for t in record.decision.thresholds_met],
        "acted_on": None
        if record.decision.acted_on is None
        else threshold_json(record.decision.acted_on, record.observations),
        "row": list(record.row),
        "functions": [function_json(function) for function in record.functions],
        "removals": [outcome_json(outcome) for outcome in record.removals],
        "removals_by_result": removals_by_result(record.removals),
        "kept_by_reason": kept_by_reason(record.kept),
        "measured": {"bytes": record.measured_bytes, "inodes": record.measured_inodes},
        "nominal": {"bytes": record.nominal_bytes, "inodes": None},
        "written_meanwhile": {"bytes": record.written_bytes, "inodes": record.written_inodes},
        "result": str(record.result),
        "reason": record.reason,
        "errors": list(record.errors),
        "timings": timings_json(record.timings),
    }
    if with_kept:
        document["kept"] = [outcome_json(outcome) for outcome in record.kept]
    if record.after is not None:
        document["observations_after"] = observations_json(record.after)
        document["still_met"] = [threshold_json(t, record.after) for t in record.still_met]
    if record.attributions:
        document["attribution"] = to_json(record.attributions)
    return document


def timings_json(timings: Timings) -> TimingsJson:
    """Where the time of a pass went."""
    return {
        "detect_seconds": round(timings.detect_seconds, 6),
        "list_seconds": round(timings.list_seconds, 6),
        "plan_seconds": round(timings.plan_seconds, 6),
        "remove_seconds": round(timings.remove_seconds, 6),
        "total_seconds": round(timings.total_seconds, 6),
    }


def function_json(function: ReclaimResult) -> FunctionJson:
    """What one function of the row did. `skipped`: null, or why it was not called."""
    return {
        "name": function.operation,
        "removed": function.count(Result.REMOVED),
        "measured": {"bytes": function.freed_bytes, "inodes": function.freed_inodes},
        "nominal": {"bytes": function.nominal_bytes, "inodes": None},
        "seconds": round(function.seconds, 6),
        "relieved": function.relieved,
        "skipped": shortened(function.skipped) or None,
        "error": shortened(function.error) or None,
    }


def removals_by_result(removals: Iterable[Outcome]) -> dict[str, dict[str, int]]:
    """The number of objects by kind and result: {"image": {"removed": 3}}."""
    counts: dict[str, dict[str, int]] = {}
    for outcome in removals:
        of_kind = counts.setdefault(str(outcome.verdict.kind), {})
        of_kind[str(outcome.result)] = of_kind.get(str(outcome.result), 0) + 1
    return counts


def kept_by_reason(kept: Iterable[Outcome]) -> dict[str, int]:
    """The number of kept objects by reason."""
    counts: dict[str, int] = {}
    for outcome in kept:
        counts[str(outcome.verdict.reason)] = counts.get(str(outcome.verdict.reason), 0) + 1
    return dict(sorted(counts.items()))
