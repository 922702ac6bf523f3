"""The record of a pass and its JSON form, used in log lines, answers of commands and reports of drills.

The fields are a stable interface for programs: bytes and inodes are integers, times RFC 3339 in UTC, durations floats
named `*_seconds`. Fields may be added; existing ones keep their names and meanings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from eviction.reporting.attribution import Attribution, attribution_json
from eviction.reporting.observations_json import observations_json, threshold_json, timestamp
from eviction.reporting.pass_shapes import (
    FunctionJson,
    OrderJson,
    OutcomeJson,
    PassFieldsJson,
    PassJson,
    ReleasedJson,
    TimingsJson,
)
from eviction.reporting.pass_shapes import PassResult as PassResult
from eviction.reporting.pass_shapes import Trigger as Trigger
from eviction.types import API_VERSION, Decision, Threshold
from reclaim.disk_need import NEVER, OrderDecision
from reclaim.released import Released
from reclaim.types import Outcome, ReclaimResult, Result
from signals.quantity import counted, format_bytes
from signals.types import SignalObservations

MOST_REPORTED = 32  # removals of one pass in a log line and in an answer of the daemon
LONGEST_NAME = 512  # characters; names of Kubernetes objects have at most 253, image references are rarely longer


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds. `detect_seconds`: from the observation that met the threshold to the start of the pass."""

    detect_seconds: float = 0.0
    list_seconds: float = 0.0
    plan_seconds: float = 0.0
    remove_seconds: float = 0.0
    total_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Pass:
    """Everything that happened in one pass.

    `measured_*`: the gain that the filesystems report, 0 if they have less than before; then `written_*` is how much
    less. `nominal_bytes`: the sizes that the runtime reported for the removed objects. `after`: the observations at the
    end. `jumped_bytes`: what went at once when the threshold was crossed, where that decided something; else 0.
    `started_wall`: seconds since the epoch. `attributions`: what the bytes are used for, one for each filesystem;
    measured when reclaim was not enough.
    """

    id: str
    started_wall: float
    trigger: Trigger
    observations: SignalObservations
    decision: Decision
    row: tuple[str, ...] = ()
    functions: tuple[ReclaimResult, ...] = ()
    measured_bytes: int = 0
    measured_inodes: int = 0
    written_bytes: int = 0
    written_inodes: int = 0
    result: PassResult = PassResult.IDLE
    reason: str = ""
    timings: Timings = Timings()
    after: SignalObservations | None = None
    still_met: tuple[Threshold, ...] = ()
    attributions: tuple[Attribution, ...] = ()
    jumped_bytes: int = 0

    @property
    def removals(self) -> tuple[Outcome, ...]:
        """The objects that were to be removed, function by function, in the order of the plans."""
        return tuple(outcome for function in self.functions for outcome in function.outcomes)

    @property
    def kept(self) -> tuple[Outcome, ...]:
        """The objects that were kept."""
        return tuple(outcome for function in self.functions for outcome in function.kept)

    @property
    def order(self) -> OrderDecision | None:
        """The order in which images were removed, and why; None where there was no choice."""
        return next((function.order for function in self.functions if function.order is not None), None)

    @property
    def released(self) -> Released | None:
        """What was given back without removing anything; None where no function of the row does that."""
        return next((function.released for function in self.functions if function.released is not None), None)

    @property
    def side_by_side(self) -> str:
        """That the pass did not begin with the first function of its row, and why; empty where it did."""
        called = [f.operation for f in self.functions if f.released is None and not f.skipped]
        first_of_row = next((name for name in self.row if name in called), None)
        if not self.removals or first_of_row in (None, called[0]):
            return ""
        return f"side by side, {called[0]} first: the disk is full within a minute"

    @property
    def jump(self) -> str:
        """That the threshold was crossed by a jump, and what follows from it; empty where it decided nothing."""
        if not self.jumped_bytes:
            return ""
        return f"a jump: {format_bytes(self.jumped_bytes)} went at once, which is no fill, so there was no hurry"

    @property
    def nominal_bytes(self) -> int:
        """Sum of the sizes that the runtime reported for the removed objects."""
        return sum(function.nominal_bytes for function in self.functions)

    @property
    def errors(self) -> tuple[str, ...]:
        """Why functions failed, each sentence once."""
        return tuple(dict.fromkeys(function.error for function in self.functions if function.error))


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
        "order": None if record.order is None else order_json(record.order),
        "released": None if record.released is None else released_json(record.released),
        "functions": [function_json(function) for function in record.functions],
        "removals": [outcome_json(outcome) for outcome in record.removals],
        "removals_by_result": removals_by_result(record.removals),
        "kept_by_reason": kept_by_reason(record.kept),
        "measured": {"bytes": record.measured_bytes, "inodes": record.measured_inodes},
        "nominal": {"bytes": record.nominal_bytes, "inodes": None},
        "written_meanwhile": {"bytes": record.written_bytes, "inodes": record.written_inodes},
        "jumped": {"bytes": record.jumped_bytes, "inodes": None},
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
        document["attribution"] = [attribution_json(attribution) for attribution in record.attributions]
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


def freed_in_words(gained_bytes: int, gained_inodes: int) -> str:
    """The gain of a pass as text. A filesystem that has less than before was written to meanwhile: nothing is freed
    below zero."""
    if gained_bytes >= 0 and gained_inodes >= 0:
        return f"freed {format_bytes(gained_bytes)} and {counted(gained_inodes, 'inode')}"
    written = [format_bytes(-gained_bytes)] * (gained_bytes < 0)
    written += [counted(-gained_inodes, "inode")] * (gained_inodes < 0)
    freed = "nothing"
    if gained_bytes > 0:
        freed = f"{format_bytes(gained_bytes)} and no inodes"
    elif gained_inodes > 0:
        freed = f"{counted(gained_inodes, 'inode')} and no bytes"
    return f"freed {freed}, as {' and '.join(written)} were written meanwhile"


def released_in_words(record: Pass, *, dry_run: bool) -> str:
    """What was given back without removing anything, or in a dry run what would be; empty if nothing was."""
    released = record.released
    if released is None or not released.mount_points:
        return ""
    where = ", ".join(released.mount_points)
    if dry_run:
        return f"would first have XFS give back what it allocated ahead of files that grow, on {where}"
    if released.bytes <= 0:
        return ""
    return f"XFS gave back {format_bytes(released.bytes)} that it had allocated ahead of files that grow, on {where}"


def released_json(released: Released) -> ReleasedJson:
    """What was given back without removing anything. `skipped`: null, or why there was no call, or no further one."""
    return {
        "bytes": released.bytes,
        "inodes": released.inodes,
        "calls": released.calls,
        "mount_points": list(released.mount_points),
        "skipped": released.skipped or None,
    }


def order_json(order: OrderDecision) -> OrderJson:
    """The order in which images were removed: by yield of the unit that is short, or by last use. Seconds are null for
    never."""

    def seconds(value: float) -> float | None:
        return None if value == NEVER else round(value, 3)

    return {
        "by": "yield" if order.by_yield else "last_use",
        "short": "inodes" if order.inodes else "bytes",
        "seconds_to_full": seconds(order.seconds_to_full),
        "seconds_by_last_use": seconds(order.seconds_by_last_use),
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
