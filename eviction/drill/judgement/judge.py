"""What was expected against what was seen."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eviction.decision.reclaim_table import DELETE_UNUSED_IMAGES, relieved_by
from eviction.drill.measurement.measurements import NamedObject, PassSeen, Seen
from eviction.drill.scenario.types import Expectation, ObjectPattern
from eviction.reporting.pass_record import PassResult
from eviction.reporting.tables import amount
from eviction.types import NodeCondition, Threshold
from reclaim.types import Kind, Result
from signals.quantity import format_duration


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation: what was expected, what was seen, whether it held (None: it could not be judged; `seen` says
    why)."""

    name: str
    expected: str
    seen: str
    held: bool | None


def judge(expect: Expectation, seen: Seen) -> tuple[Check, ...]:
    """Every expectation of a scenario, in the order in which they are reported."""
    return (
        *_conditions(expect, seen),
        *_relief(expect, seen),
        *_first_removal(expect, seen),
        *_numbers(expect, seen),
        *(_goes(pattern, seen) for pattern in expect.goes),
        *(_stays(pattern, seen) for pattern in expect.stays),
        *_afterwards(expect, seen),
    )


def lost_beyond_need(seen: Seen) -> int:
    """Images that went although everything else that went in their pass was enough.

    From the last one of each satisfied pass back: as long as the room above mark and minimum reclaim at the end of the
    pass is at least what the image would take, it need not have gone. It would take its layers, without those that
    another image holds. What was written meanwhile counts for the need, so the number is never too high.
    """
    layers = seen.layers or {}
    held = {layer for found in seen.after if found.kind == Kind.IMAGE for layer in layers.get(found.name, ())}
    counted: set[str] = set()  # two collectors may both have seen one image go
    needless = 0
    for one in reversed(seen.passes):
        gone = [o for o in one.record.removals if o.verdict.kind is Kind.IMAGE and o.result is Result.REMOVED]
        room = _room_at_the_end(one, seen.thresholds)
        for outcome in reversed([o for o in gone if o.verdict.name not in counted]):
            counted.add(outcome.verdict.name)
            own = set(layers.get(outcome.verdict.name, ())) - held
            held |= own
            taken = (sum(layer.bytes for layer in own), sum(layer.inodes for layer in own))
            room = [(threshold, left - taken[threshold.signal.counts_inodes]) for threshold, left in room]
            if not room or min(left for _, left in room) < 0:
                room = []  # this one was needed, and so were those that went before it
            else:
                needless += 1
    return needless


def _room_at_the_end(one: PassSeen, thresholds: tuple[Threshold, ...]) -> list[tuple[Threshold, int]]:
    """What each threshold that images relieve has above mark and minimum reclaim; empty where it is not known."""
    after, layout = one.record.after, one.record.decision.layout
    if one.record.result is not PassResult.SATISFIED or after is None or layout is None:
        return []
    room: list[tuple[Threshold, int]] = []
    for threshold in relieved_by(thresholds, DELETE_UNUSED_IMAGES, layout):
        observation = after.signals.get(threshold.signal)
        if observation is None:
            return []
        mark = threshold.mark_with_min_reclaim(observation.capacity)
        room.append((threshold, observation.available - mark))
    return room


# ---- conditions and times


def _conditions(expect: Expectation, seen: Seen) -> Iterator[Check]:
    wanted = expect.condition
    bands = [band for band in seen.bands if band.condition is NodeCondition.DISK_PRESSURE]
    if wanted.never:
        yield Check("DiskPressure", "never", "never" if not bands else f"after {_time(bands[0].began)}", not bands)
        return
    came = None if not bands or seen.crossed is None else max(bands[0].began - seen.crossed, 0.0)
    if wanted.comes_within_seconds is None:
        yield Check("DiskPressure", "comes", "came" if bands else "never came", bool(bands))
    else:
        yield _within("DiskPressure comes", "crossing the mark", wanted.comes_within_seconds, came, "never came")
    if wanted.goes_within_seconds is not None:
        relieved = seen.episodes[-1].relieved if seen.episodes else None
        ended = bands[-1].ended if bands else None
        took = None if relieved is None or ended is None else max(ended - relieved, 0.0)
        yield _within("DiskPressure goes", "relief", wanted.goes_within_seconds, took, "did not go")


def _relief(expect: Expectation, seen: Seen) -> Iterator[Check]:
    if expect.never_relieved:
        remains = bool(seen.episodes) and seen.episodes[-1].relieved is None
        yield Check("pressure", "remains", "remains" if remains else "does not remain", remains)
    if expect.relieved_within_seconds is not None:
        yield _within(
            "relieved", "crossing the mark", expect.relieved_within_seconds, seen.to_relief, _not_relieved(seen)
        )


def _not_relieved(seen: Seen) -> str:
    return "not relieved" if seen.episodes else "no mark was crossed"


def _first_removal(expect: Expectation, seen: Seen) -> Iterator[Check]:
    latest, earliest = expect.first_removal_within_seconds, expect.first_removal_not_before_seconds
    took = seen.to_first_removal
    if latest is not None:
        yield _within("first removal", "crossing the mark", latest, took, "nothing was removed")
    if earliest is not None:
        shown = "nothing was removed" if took is None else f"after {_time(took)}"
        expected = f"not before {format_duration(earliest)} after crossing the mark"
        yield Check("first removal", expected, shown, took is None or took >= earliest)
    if expect.nothing_goes:
        gone = ", ".join(removal.name for removal in seen.removals)
        yield Check("nothing", "goes", f"went: {gone}" if gone else "nothing went", not gone)


# ---- numbers


def _numbers(expect: Expectation, seen: Seen) -> Iterator[Check]:
    if expect.images_left_at_least:
        left = sum(1 for found in seen.after if found.kind == Kind.IMAGE)
        at_least = expect.images_left_at_least
        yield Check("images left", f"at least {at_least}", str(left), left >= at_least)
    if expect.images_lost_beyond_need is not None:
        lost, most = lost_beyond_need(seen), expect.images_lost_beyond_need
        yield Check("images lost beyond need", f"at most {most}", str(lost), lost <= most)
    for signal, least in (expect.lowest or {}).items():
        lowest = seen.lowest(signal)
        shown = "not seen" if lowest is None else amount(signal, lowest)
        held = lowest is not None and lowest >= least
        yield Check(f"lowest {signal}", f"at least {amount(signal, least)}", shown, held)
    if expect.passes_at_most is not None:
        passes, most = len(seen.passes), expect.passes_at_most
        yield Check("passes", f"at most {most}", str(passes), passes <= most)
    if expect.says:
        said = seen.passes[-1].record.reason if seen.passes else "there was no pass"
        yield Check("last pass says", expect.says, said, expect.says in said)


# ---- objects


def _goes(pattern: ObjectPattern, seen: Seen) -> Check:
    was, left = _matching(pattern, seen.before), _matching(pattern, seen.after)
    shown = f"still there: {', '.join(left)}" if left else "gone" if was else "never was"
    return Check(str(pattern), "goes", shown, bool(was) and not left)


def _stays(pattern: ObjectPattern, seen: Seen) -> Check:
    was, left = _matching(pattern, seen.before), _matching(pattern, seen.after)
    gone = sorted(set(was) - set(left))
    shown = f"gone: {', '.join(gone)}" if gone else "there" if was else "never was"
    return Check(str(pattern), "stays", shown, bool(was) and not gone)


def _matching(pattern: ObjectPattern, objects: Iterable[NamedObject]) -> list[str]:
    candidates = (each.name for each in objects if pattern.kind in ("", each.kind))
    return sorted(name for name in candidates if fnmatch.fnmatchcase(name, pattern.glob))


# ---- afterwards


def _afterwards(expect: Expectation, seen: Seen) -> Iterator[Check]:
    if expect.quiet_seconds is not None:
        quiet = seen.ended - seen.quiet_since
        held = quiet >= expect.quiet_seconds
        yield Check("quiet", f"for {format_duration(expect.quiet_seconds)} at the end", f"for {_time(quiet)}", held)
    if expect.faults_strike:
        struck = len(seen.strikes)
        yield Check("faults", f"{expect.faults_strike} strike", f"{struck} struck", struck == expect.faults_strike)
    if expect.no_restarts:
        names = ", ".join(seen.restarted)
        yield Check("the kubelet", "starts nothing again", f"would start {names}" if names else "nothing", not names)
    if expect.new_pod_starts:
        shown = "not tried" if seen.new_pod is None else seen.new_pod or "started"
        yield Check("new pod", "starts afterwards", shown, seen.new_pod == "")


def _within(name: str, since: str, limit: float, took: float | None, never: str) -> Check:
    expected = f"within {format_duration(limit)} of {since}"
    return Check(name, expected, never if took is None else f"after {_time(took)}", took is not None and took <= limit)


def _time(seconds: float) -> str:
    return f"{seconds:.3f} s"
