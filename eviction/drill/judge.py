"""What was expected against what was seen (pure)."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from eviction.drill.seen import NamedObject, PassSeen, Seen
from eviction.drill.types import Expectation, ObjectPattern
from eviction.explain import amount
from eviction.reclaim_table import relieved_by
from eviction.record import PassResult
from eviction.types import NodeCondition, ReclaimFunction
from reclaim.types import Kind, Result
from signals.quantity import format_duration


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation: what was expected, what was seen, whether it held."""

    name: str
    expected: str
    seen: str
    held: bool


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
    """Images that went although everything that had gone before them in their pass was enough.

    From the last one of each pass back: as long as the surplus above mark and minimum reclaim at the end of the pass
    is as large as the image's own layer, the image need not have gone. What its shared layers gave is left out, and
    what was written meanwhile counts for the need, so the number is never too high.
    """
    return sum(_needless(one, seen) for one in seen.passes)


def _needless(one: PassSeen, seen: Seen) -> int:
    after, layout = one.record.after, one.record.decision.layout
    if one.record.result is not PassResult.SATISFIED or after is None or layout is None:
        return 0
    goals = relieved_by(seen.thresholds, ReclaimFunction.DELETE_UNUSED_IMAGES, layout)
    surplus: list[int] = []
    for threshold in goals:
        observation = after.signals.get(threshold.signal)
        if observation is None:
            return 0
        surplus.append(observation.available - int(threshold.effective(observation.capacity, with_min_reclaim=True)))
    needless = 0
    images = [o for o in one.record.removals if o.verdict.kind is Kind.IMAGE and o.result is Result.REMOVED]
    for outcome in reversed(images):
        own = (seen.layers or {}).get(outcome.verdict.name)
        if own is None:
            break
        surplus = [left - own[goal.signal.counts_inodes] for left, goal in zip(surplus, goals, strict=True)]
        if min(surplus, default=-1) < 0:
            break
        needless += 1
    return needless


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
