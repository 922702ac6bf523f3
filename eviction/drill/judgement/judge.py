"""Judges each expectation of a scenario against the measurements of a run."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eviction.decision.reclaim_table import DELETE_UNUSED_IMAGES, relieved_by
from eviction.drill.measurement.measurements import MeasuredPass, Measurements, NamedObject
from eviction.drill.scenario.types import Expectation, ObjectPattern
from eviction.record import PassResult
from eviction.reporting.tables import amount
from eviction.types import NodeCondition, Threshold
from reclaim.types import Kind, Result
from signals.quantity import format_duration


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation: what was expected, what was measured (`seen`), and whether it held.

    `held` is None if it could not be judged; `seen` says why.
    """

    name: str
    expected: str
    seen: str
    held: bool | None


def judge(expect: Expectation, measured: Measurements) -> tuple[Check, ...]:
    """Every expectation of a scenario, judged, in the order of the report."""
    return (
        *_conditions(expect, measured),
        *_relief(expect, measured),
        *_first_removal(expect, measured),
        *_numbers(expect, measured),
        *(_goes(pattern, measured) for pattern in expect.goes),
        *(_stays(pattern, measured) for pattern in expect.stays),
        *_afterwards(expect, measured),
    )


def lost_beyond_need(measured: Measurements) -> int:
    """The number of images that were removed although the other removals of their pass were enough.

    Goes through each satisfied pass from its last image back. An image was not needed if the surplus (available beyond
    mark and minimum reclaim at the end of the pass) is at least the size of its layers, without those that another
    image shares. What was written during the pass lowers the surplus, so the number is never too high.
    """
    layers = measured.layers or {}
    needed = {layer for found in measured.after if found.kind == Kind.IMAGE for layer in layers.get(found.name, ())}
    counted: set[str] = set()  # two collectors may both report the removal of one image
    not_needed = 0
    for one in reversed(measured.passes):
        removed = [o for o in one.record.removals if o.verdict.kind is Kind.IMAGE and o.result is Result.REMOVED]
        surplus = _surplus_at_the_end(one, measured.thresholds)
        for outcome in reversed([o for o in removed if o.verdict.name not in counted]):
            counted.add(outcome.verdict.name)
            own = set(layers.get(outcome.verdict.name, ())) - needed
            needed |= own
            taken = (sum(layer.bytes for layer in own), sum(layer.inodes for layer in own))
            surplus = [(threshold, left - taken[threshold.signal.counts_inodes]) for threshold, left in surplus]
            if not surplus or min(left for _, left in surplus) < 0:
                surplus = []  # this one was needed, and so were those removed before it
            else:
                not_needed += 1
    return not_needed


def _surplus_at_the_end(one: MeasuredPass, thresholds: tuple[Threshold, ...]) -> list[tuple[Threshold, int]]:
    """The surplus of each threshold that removing images relieves; empty if it is not known."""
    after, layout = one.record.after, one.record.decision.layout
    if one.record.result is not PassResult.SATISFIED or after is None or layout is None:
        return []
    surplus: list[tuple[Threshold, int]] = []
    for threshold in relieved_by(thresholds, DELETE_UNUSED_IMAGES, layout):
        observation = after.signals.get(threshold.signal)
        if observation is None:
            return []
        mark = threshold.mark_with_min_reclaim(observation.capacity)
        surplus.append((threshold, observation.available - mark))
    return surplus


# ---- conditions and times


def _conditions(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    wanted = expect.condition
    periods = [one for one in measured.condition_periods if one.condition is NodeCondition.RECLAIM_PRESSURE]
    if wanted.never:
        yield Check(
            "ReclaimPressure", "never", "never" if not periods else f"after {_time(periods[0].began)}", not periods
        )
        return
    came = None if not periods or measured.crossed is None else max(periods[0].began - measured.crossed, 0.0)
    if wanted.comes_within_seconds is None:
        yield Check("ReclaimPressure", "comes", "came" if periods else "never came", bool(periods))
    else:
        yield _within("ReclaimPressure comes", "crossing the mark", wanted.comes_within_seconds, came, "never came")
    if wanted.goes_within_seconds is not None:
        relieved = measured.episodes[-1].relieved if measured.episodes else None
        ended = periods[-1].ended if periods else None
        took = None if relieved is None or ended is None else max(ended - relieved, 0.0)
        yield _within("ReclaimPressure goes", "relief", wanted.goes_within_seconds, took, "did not go")


def _relief(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    if expect.never_relieved:
        remains = bool(measured.episodes) and measured.episodes[-1].relieved is None
        yield Check("pressure", "remains", "remains" if remains else "does not remain", remains)
    if expect.relieved_within_seconds is not None:
        yield _within(
            "relieved", "crossing the mark", expect.relieved_within_seconds, measured.to_relief, _not_relieved(measured)
        )


def _not_relieved(measured: Measurements) -> str:
    return "not relieved" if measured.episodes else "no mark was crossed"


def _first_removal(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    latest, earliest = expect.first_removal_within_seconds, expect.first_removal_not_before_seconds
    took = measured.to_first_removal
    if latest is not None:
        yield _within("first removal", "crossing the mark", latest, took, "nothing was removed")
    if earliest is not None:
        shown = "nothing was removed" if took is None else f"after {_time(took)}"
        expected = f"not before {format_duration(earliest)} after crossing the mark"
        yield Check("first removal", expected, shown, took is None or took >= earliest)
    if expect.nothing_goes:
        gone = ", ".join(removal.name for removal in measured.removals)
        yield Check("nothing", "goes", f"removed: {gone}" if gone else "nothing was removed", not gone)


# ---- numbers


def _numbers(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    if expect.images_left_at_least:
        left = sum(1 for found in measured.after if found.kind == Kind.IMAGE)
        at_least = expect.images_left_at_least
        yield Check("images left", f"at least {at_least}", str(left), left >= at_least)
    if expect.images_lost_beyond_need is not None:
        lost, most = lost_beyond_need(measured), expect.images_lost_beyond_need
        yield Check("images lost beyond need", f"at most {most}", str(lost), lost <= most)
    for signal, least in (expect.lowest or {}).items():
        lowest = measured.lowest(signal)
        shown = "not measured" if lowest is None else amount(signal, lowest)
        held = lowest is not None and lowest >= least
        yield Check(f"lowest {signal}", f"at least {amount(signal, least)}", shown, held)
    if expect.passes_at_most is not None:
        passes, most = len(measured.passes), expect.passes_at_most
        yield Check("passes", f"at most {most}", str(passes), passes <= most)
    if expect.says:
        reason = measured.passes[-1].record.reason if measured.passes else "there was no pass"
        yield Check("last pass says", expect.says, reason, expect.says in reason)


# ---- objects


def _goes(pattern: ObjectPattern, measured: Measurements) -> Check:
    was, left = _matching(pattern, measured.before), _matching(pattern, measured.after)
    shown = f"still there: {', '.join(left)}" if left else "gone" if was else "was never there"
    return Check(str(pattern), "goes", shown, bool(was) and not left)


def _stays(pattern: ObjectPattern, measured: Measurements) -> Check:
    was, left = _matching(pattern, measured.before), _matching(pattern, measured.after)
    gone = sorted(set(was) - set(left))
    shown = f"gone: {', '.join(gone)}" if gone else "there" if was else "was never there"
    return Check(str(pattern), "stays", shown, bool(was) and not gone)


def _matching(pattern: ObjectPattern, objects: Iterable[NamedObject]) -> list[str]:
    candidates = (each.name for each in objects if pattern.kind in ("", each.kind))
    return sorted(name for name in candidates if fnmatch.fnmatchcase(name, pattern.glob))


# ---- afterwards


def _afterwards(expect: Expectation, measured: Measurements) -> Iterator[Check]:
    if expect.quiet_seconds is not None:
        quiet = measured.ended - measured.last_change
        held = quiet >= expect.quiet_seconds
        yield Check("quiet", f"for {format_duration(expect.quiet_seconds)} at the end", f"for {_time(quiet)}", held)
    if expect.faults_triggered:
        triggered = len(measured.faults)
        held = triggered == expect.faults_triggered
        yield Check("faults", f"{expect.faults_triggered} triggered", f"{triggered} triggered", held)
    if expect.no_restarts:
        names = ", ".join(measured.would_restart)
        yield Check("the kubelet", "starts nothing again", f"would start {names}" if names else "nothing", not names)
    if expect.new_pod_starts:
        problem = measured.new_pod_problem
        yield Check(
            "new pod", "starts afterwards", "not tried" if problem is None else problem or "started", problem == ""
        )


def _within(name: str, since: str, limit: float, took: float | None, never: str) -> Check:
    expected = f"within {format_duration(limit)} of {since}"
    return Check(name, expected, never if took is None else f"after {_time(took)}", took is not None and took <= limit)


def _time(seconds: float) -> str:
    return f"{seconds:.3f} s"
