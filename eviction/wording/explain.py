"""Sentences and tables about passes and marks, for people. Decides nothing.

The ladder lists all marks of a filesystem in the order in which a filling disk reaches them: ours
first, as it should be, then the kubelet's image garbage collection, then the kubelet's soft and
hard thresholds. Where our mark is below the kubelet's for the same signal, the kubelet acts first;
`later_than_kubelet` finds these.

In a pipe, a table has all columns, and lines of any length. On a terminal, it fits the width:

* Texts wrap within their column. Names are cut in the middle, as their ends tell them apart.
* If the columns at their narrowest are still too wide together, some are left out, in the order of
  `LEFT_OUT_FIRST`, until the rest fits. The first column is always kept.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from textwrap import TextWrapper

from eviction.decision.thresholds import (
    as_shown,
    is_coming,
    short_of_min_reclaim,
    thresholds_met,
)
from eviction.printable import escaped
from eviction.records.attribution import Attribution
from eviction.records.json_shapes import Count, shortened
from eviction.records.passes import MOST_REPORTED, Pass, PassResult, remarks_on
from eviction.types import NodeCondition, Threshold, Thresholds
from reclaim.types import Kind, Outcome, Reason, Result
from signals.quantity import counted, format_bytes, format_duration
from signals.types import (
    INODES_FREE,
    KUBELET_ROLES,
    FilesystemRole,
    Signal,
    SignalObservation,
    SignalObservations,
    in_order,
    order_of,
)

REASONS: dict[str, str] = {reason: reason.words for reason in Reason} | {
    "set_aside": "was set aside to be freed under pressure",
    "rotated": "a newer rotated log of its container is kept",
    "left_behind": "was left behind by a rotation that did not finish",
    "unreferenced": "nothing in containerd refers to it",
    "in_table": "the reclaim table names it",
    "listed_by_program": "the program says that it would remove it",
    "current": "its container is writing to it",
    "newest_rotated": "is among the newest rotated logs of its container",
    "being_rotated": "its rotation may not be finished",
    "replaced": "has been replaced since it was planned",
    "cached": "can be made again, and has not been used lately",
    "over_limit_of_cache": "is over the maxSize of its directory, and has not been used lately",
    "interrupted": "is left of a removal that was interrupted",
    "used_lately": "was used within minAge (a read is noted once a day, with noatime never)",
    "open": "a process has it open, mapped, locked or as its directory",
    "mounted": "something is mounted in it",
    "not_tagged": "its directory has no CACHEDIR.TAG any more",
    "newest_checkpoint": "is among the newest checkpoints of its container",
}
"""What each reason says, also those of the functions that are off until they are named."""


PARTS = ("WHAT", "HOW MANY", "SIZE", "RECLAIMABLE", "BY, OR WHAT TO DO")
FORESEEN_SECONDS = 3600.0  # beyond that, no fill goes on as it is
WHICH: Mapping[str, str] = {Kind.CONTAINER: "dead ", Kind.SANDBOX: "dead ", Kind.IMAGE: "unused "}


def lead_sentence(lead_seconds: float) -> str:
    """When a pass begins before its mark is reached; empty if none does."""
    if lead_seconds <= 0:
        return ""
    near = format_duration(round(lead_seconds, 2))
    return (
        f"a pass begins before its mark when the kubelet's is less than {near} away (removals take"
        " that long)"
    )


@dataclass(frozen=True)
class LadderMark:
    """One mark of the ladder."""

    signal: Signal
    """The signal that reaches it."""
    mark: Count
    """Bytes or inodes that are available when it is reached."""
    what: str
    """What happens then, for people."""
    whose: str
    """Who does it: reclaimd or the kubelet."""


def ladder(
    ours: Iterable[Threshold],
    kubelets: Iterable[Threshold],
    image_gc: tuple[int, int] | None,
    *,
    observations: Mapping[Signal, SignalObservation],
) -> tuple[LadderMark, ...]:
    """All marks of the observed signals, in the order of the signals, the highest first.

    `image_gc`: the kubelet's high and low threshold in percent, None if its periodic image GC is
    off or not known. It acts on imagefs when `usage >= high`, with the usage rounded up
    (`pkg/kubelet/images/image_gc_manager.go`).
    """
    marks = [
        LadderMark(
            threshold.signal,
            threshold.mark(observations[threshold.signal].capacity),
            f"{_hard_or_soft(threshold)} {threshold.text()}",
            whose=whose,
        )
        for whose, thresholds in (("reclaimd", ours), ("kubelet", kubelets))
        for threshold in thresholds
        if threshold.signal in observations
    ]
    images = observations.get(Signal.IMAGEFS_AVAILABLE)
    if image_gc is not None and images is not None:
        high, low = image_gc
        for mark, what in (
            (image_gc_mark(high, images.capacity), f"image GC starts at {high}%"),
            (images.capacity * (100 - low) // 100, f"image GC frees to {low}%"),
        ):
            marks.append(LadderMark(images.signal, mark, what, whose="kubelet"))
    marks.sort(key=lambda mark: (order_of(mark.signal), -mark.mark, mark.whose, mark.what))
    return tuple(marks)


def image_gc_mark(high: int, capacity: int) -> int:
    """The most bytes that can be available while `100 - available * 100 //
    capacity >= high` holds.
    """
    return (capacity * (101 - high) - 1) // 100


def later_than_kubelet(
    ours: Sequence[Threshold],
    kubelets: Iterable[Threshold],
    observations: Mapping[Signal, SignalObservation],
) -> Iterator[str]:
    """A sentence for each of the kubelet's thresholds on which it acts before us, with both marks:
    that of our nearest threshold on the same signal, too.

    We act first if one of our thresholds has a mark that is not lower, at the observed capacity,
    and a grace period that is not longer. Signals on which we have no threshold are left out, and
    so is containerfs, whose thresholds in the kubelet's file never take effect.
    """
    for kubelet in kubelets:
        signal = kubelet.signal
        observation = observations.get(signal)
        same = [threshold for threshold in ours if threshold.signal is signal]
        if observation is None or not same or signal.filesystem is FilesystemRole.CONTAINERFS:
            continue
        capacity = observation.capacity
        as_quick = [each for each in same if each.grace_seconds <= kubelet.grace_seconds]
        nearest = max(as_quick or same, key=lambda threshold: threshold.mark(capacity))
        mark = nearest.mark(capacity)
        kubelets_mark = kubelet.mark(capacity)
        if mark < kubelets_mark or not as_quick:
            grace = "" if mark < kubelets_mark else " with its longer grace period"
            yield (
                f"{signal}: the mark of {nearest.text()} = {amount(signal, mark)}{grace} acts"
                f" later than the kubelet's of {kubelet.text()} = {amount(signal, kubelets_mark)}"
            )


def _hard_or_soft(threshold: Threshold) -> str:
    return "hard" if threshold.hard else f"soft ({threshold.grace_seconds:g} s grace)"


def unreachable_sentences(
    thresholds: Iterable[Threshold], observations: SignalObservations
) -> Iterator[str]:
    """One sentence for each threshold for which the disk is too small: in itself, with its margin,
    or with its minimum reclaim, which are then left out."""
    for threshold in thresholds:
        observation = observations.signals.get(threshold.signal)
        if observation is None or observation.stale or observation.capacity == 0:
            continue
        capacity = observation.capacity
        mark = Fraction(0)
        for name, more in (
            ("", threshold.value),
            ("margin", threshold.margin),
            ("minimum reclaim", threshold.min_reclaim),
        ):
            wanted = mark if more is None else mark + more.amount(capacity)
            if wanted < capacity:
                mark = wanted
                continue
            mark_of = threshold.text()
            so = "it is never cleared"
            if name:
                mark_of = f"{mark_of} with its {name}"
                so = f"the {name} is left out"
            signal = threshold.signal
            yield (
                f"{signal}: the mark of {mark_of} is {amount(signal, math.ceil(wanted))}, not below"
                f" the {amount(signal, capacity)} that the filesystem has, so {so}"
            )
            if not name:
                break


def no_effect_sentences(thresholds: Iterable[Threshold]) -> list[str]:
    """A warning for each configured threshold of containerfs, which the kubelet derives from others
    (`UpdateContainerFsThresholds`)."""
    return [
        f"{threshold.signal}: {threshold.text()} has no effect: its threshold follows from nodefs, "
        "or from imagefs where that is dedicated"
        for threshold in thresholds
        if threshold.signal.filesystem is FilesystemRole.CONTAINERFS
    ]


def reclaiming_sentence(threshold: Threshold, observation: SignalObservation | None) -> str:
    """The message of the event before a pass: the kubelet's message, with its names for the
    resources, and whose mark it was. `observation`: of the signal, None if there is none."""
    resource = "inodes" if threshold.signal.counts_inodes else "ephemeral-storage"
    why = "below reclaimd's own mark"
    if observation is not None and is_coming(threshold, {threshold.signal: observation}):
        why = "what is coming would reach the kubelet's mark"
    elif observation is not None and short_of_min_reclaim(threshold, observation):
        why = "short of the minimum reclaim above reclaimd's own mark"
    return f"Attempting to reclaim {resource} (ReclaimPressure: {why})"


def relief_sentence(record: Pass, acted_on: Threshold) -> str:
    """What a pass that has relieved its threshold did, and how soon the kubelet would have
    evicted."""
    left = record.seconds_to_eviction
    was = "below reclaimd's own mark"
    if left == 0:
        was = "at the kubelet's mark for eviction"
    elif left is not None and left < FORESEEN_SECONDS:
        was = f"{format_duration(round(left, 1))} from eviction"
    kinds = Counter(
        outcome.verdict.kind for outcome in record.removals if outcome.result is Result.REMOVED
    )
    things = ", ".join(
        counted(number, f"{WHICH.get(kind, '')}{kind.replace('_', ' ')}")
        for kind, number in kinds.items()
    )
    signal = acted_on.signal
    gained = record.measured.inodes if signal.counts_inodes else record.measured.bytes
    took = format_duration(record.timings.total_seconds)
    removed = f"{things}, {amount(signal, gained)}, removed in {took}"
    return f"{signal.filesystem} was {was}; {removed}{remarks_on(record)}"


def names_of_removed(outcomes: Iterable[Outcome], result: Result = Result.REMOVED) -> str:
    """What was removed, such as `image a, image b and 12 more`, with at most 32 names and 18 KiB;
    empty if nothing was. `result`: PLANNED for what a dry run would have removed."""
    removed = [outcome.verdict for outcome in outcomes if outcome.result is result]
    names = ", ".join(
        f"{verdict.kind} {shortened(escaped(verdict.name))}" for verdict in removed[:MOST_REPORTED]
    )
    more = len(removed) - MOST_REPORTED
    return f"{names} and {more} more" if more > 0 else names


def reason_in_words(reason: str) -> str:
    """A reason; a function may have its own."""
    return REASONS.get(reason, reason.replace("_", " "))


def frees_in_words(result: str | None, *, freed: int, frees: int | None, size: int | None) -> str:
    """What the disk has gained by the removal of an object, measured; or would gain: `~` where only
    the runtime's size is known, which counts shared layers for each image."""
    if result == Result.REMOVED:
        return format_bytes(freed)
    if result != Result.PLANNED or size is frees is None:
        return "-"
    return f"~{format_bytes(size or 0)}" if frees is None else format_bytes(frees)


def in_words(reason: str, result: Result | None, needed_in_seconds: float | None) -> str:
    """Why an object is removed or kept; of one that would be removed also when it is expected to be
    needed again, if that had a say in its place."""
    words = reason_in_words(reason)
    if result == Result.PLANNED and needed_in_seconds is not None:
        words += f"; expected to be needed again in {format_duration(round(needed_in_seconds))}"
    return words


def outcome_cells(outcome: Outcome) -> dict[str, str]:
    """One object of a pass or a plan, by the heads of the table."""
    verdict = outcome.verdict
    result = outcome.result
    why = in_words(verdict.reason, result, verdict.needed_in_seconds)
    return {
        "RESULT": result or verdict.action,
        "KIND": verdict.kind,
        "NAME": shortened(verdict.name),
        "SIZE": "-" if verdict.size_bytes is None else format_bytes(verdict.size_bytes),
        "AGE": "-" if verdict.age_seconds is None else format_duration(verdict.age_seconds),
        "FREES": frees_in_words(
            result, freed=outcome.freed.bytes, frees=verdict.frees_bytes, size=verdict.size_bytes
        ),
        "REASON": verdict.reason,
        "RULE": verdict.rule.words,
        "IN WORDS": f"{why}; {outcome.error}" if outcome.error else why,
    }


def outcomes_table(outcomes: Iterable[Outcome], width: int | None = None) -> list[str]:
    """Removed and kept objects, each with the reason."""
    rows = [outcome_cells(outcome) for outcome in outcomes]
    return table([[*rows[0]], *([*row.values()] for row in rows)], width) if rows else []


def counts_table(kept: Iterable[Outcome], width: int | None = None) -> list[str]:
    """How many objects of each kind are kept for each reason, the largest number first."""
    sizes_of: dict[tuple[str, ...], list[int | None]] = {}
    for outcome in kept:
        cells = outcome_cells(outcome)
        key = cells["KIND"], cells["REASON"], cells["RULE"], cells["IN WORDS"]
        sizes_of.setdefault(key, []).append(outcome.verdict.size_bytes)
    rows = [["COUNT", "KIND", "SIZE", "REASON", "RULE", "IN WORDS"]]
    for (kind, *why), sizes in sorted(sizes_of.items(), key=lambda item: -len(item[1])):
        known = [size for size in sizes if size is not None]
        rows.append([str(len(sizes)), kind, format_bytes(sum(known)) if known else "-", *why])
    return table(rows, width)


def attribution_lines(
    attributions: Iterable[Attribution], width: int | None = None
) -> Iterator[str]:
    """What uses the bytes of each filesystem, what may be freed of it and by which functions, and
    what to do about parts of which they free nothing."""
    for attribution in attributions:
        yield ""
        yield (
            f"where the bytes are: {format_bytes(attribution.used)} of"
            f" {format_bytes(attribution.capacity)} used on {escaped(attribution.path)}"
            f" ({', '.join(attribution.filesystems)})"
        )
        rows = [
            (
                share.use.words,
                "-" if share.objects is None else str(share.objects),
                f"{'>= ' if share.at_least else ''}{format_bytes(share.bytes)}",
                format_bytes(share.reclaimable) if share.reclaimable else "-",
                ", ".join(share.by) or share.remedy,
            )
            for share in attribution.shares
        ]
        yield from table([PARTS, *rows], width)
        for remark in attribution.remarks:
            yield f"note: {escaped(remark.sentence)}"


def pass_lines(record: Pass, width: int | None = None) -> list[str]:
    """A pass for people: the threshold that was acted on, what was removed and kept, the result."""
    lines: list[str] = []
    decision = record.decision
    timings = record.timings
    if decision.acted_on is not None:
        lines.append(against_its_mark(decision.acted_on, record.observations))
    if record.row:
        layout = f" (layout {decision.layout})" if decision.layout is not None else ""
        lines.append(f"row: {', '.join(map(str, record.row))}{layout}")
    lines += outcomes_table(record.removals + record.kept, width)
    lines.append(f"{record.result}: {escaped(record.reason)}")
    if record.result in (PassResult.SATISFIED, PassResult.NOT_ENOUGH):
        lines.append(
            f"took {format_duration(timings.total_seconds)} (lists"
            f" {format_duration(timings.list_seconds)}, removals"
            f" {format_duration(timings.remove_seconds)})"
        )
    return [*lines, *attribution_lines(record.attributions, width)]


# ---- tables

GAP = "  "
NARROWEST_NAME = 24
NARROWEST_TEXT = 12
LONGEST_PART = 33  # characters: the longest name of a field of the configuration

# Our mark is crossed before the kubelet's: ReclaimPressure is the normal start of a pass;
# DiskPressure means that the kubelet is about to taint the node and evict pods.
NOTHING_IS_REMOVED = "dry run (dryRun): nothing is removed, only reported"
CROSSED = "below the kubelet's own mark"
BELOW_OURS = "below our mark"
COMING = "is coming"
IS_OVER = {
    NodeCondition.RECLAIM_PRESSURE: "ReclaimPressure is over: no signal is below our mark any more",
    NodeCondition.DISK_PRESSURE: "no signal is below the kubelet's own mark any more",
}

NAMES = frozenset({"NAME"})
TEXTS = frozenset(
    {
        "BY, OR WHAT TO DO", "DEFAULT", "EXPECTED", "FIELD", "FILESYSTEM", "IN WORDS", "LAST CALL",
        "MARK", "MEASURED", "OPTIONS", "ORIGIN", "REASON", "STATE", "TIME TO THE MARK", "VALUE",
        "WHAT", "WHAT OF ITS NUMBERS CAN JUMP",
    }
)  # fmt: skip
"""`NAMES`, `TEXTS`: the heads of the columns of names and of texts."""

LEFT_OUT_FIRST = (
    "FILESYSTEM", "CAPACITY", "HEADROOM", "IN WORDS", "RULE", "AGE", "PASS", "INODES", "SECONDS",
    "CALLS", "HOW MANY", "OPTIONS", "RESERVE", "DEFAULT", "ORIGIN", "NOW", "WHOSE",
    "PER GIB FREED", "REMOVED", "FREED", "SOONEST", "SIZE", "KIND", "SIGNAL", "MARK", "REASON",
    "FREES",
)  # fmt: skip
"""The columns that a table leaves out on a narrow terminal, in this order."""


def amount(signal: str, value: int) -> str:
    """An amount of a signal as text: `1.4GiB`, `17 inodes`."""
    return counted(value, "inode") if signal.endswith(INODES_FREE) else format_bytes(value)


def distinguishable(signal: Signal, first: int, second: int) -> tuple[str, str]:
    """Two amounts as texts that differ if the amounts differ: in bytes if rounding
    would make them the same.
    """
    texts = amount(signal, first), amount(signal, second)
    return texts if texts[0] != texts[1] or first == second else (f"{first}B", f"{second}B")


def against_its_mark(threshold: Threshold, observations: SignalObservations) -> str:
    """The available amount against the mark of a threshold, such as `nodefs.available 1.0GiB <
    2.0GiB`. If it is still met above its mark, against the amount that clears it; if it is met
    because of what is coming, it says so."""
    signal = threshold.signal
    observation = observations.signals[signal]
    goal = threshold.mark(observation.capacity)
    of_mark = ""
    if is_coming(threshold, observations.signals):
        words = needed_in_words(observation.needed, _step_bytes(signal, observations))
        of_mark = f", but {words}"
    elif short_of_min_reclaim(threshold, observation):
        of_mark = f", the mark of {amount(signal, goal)} with its minimum reclaim"
        goal = threshold.mark_with_min_reclaim(observation.capacity)
    seen, wanted = distinguishable(signal, observation.available, goal)
    return f"{signal} {seen} {'<' if observation.available < goal else '>='} {wanted}{of_mark}"


def needed_in_words(needed: int, step_bytes: int = 0) -> str:
    """How much must be available for what is coming. `step_bytes`: the next step of XFS."""
    step = f" (the next step of XFS takes {format_bytes(step_bytes)})" if step_bytes else ""
    return f"{format_bytes(needed)} are needed for what is coming{step}"


def promised_in_words(signal: str, promised: int) -> str:
    """What btrfs has promised."""
    return (
        f"{signal}: {format_bytes(promised)} of what is used are promised to files by btrfs and"
        " not shown by statvfs"
    )


def table(rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """Rows as lines with aligned columns; the first row is the head. `width`: of the terminal, None
    for lines of any length."""
    cells = [[escaped(cell) for cell in row] for row in rows]
    columns = list(range(len(cells[0])))
    widest = [max(len(row[column]) for row in cells) for column in columns]
    if width is None:
        return [GAP.join(map(str.ljust, row, widest)).rstrip() for row in cells]
    heads = cells[0]
    least = [_least(heads[column], [row[column] for row in cells]) for column in columns]
    for head in LEFT_OUT_FIRST:
        if _sum(least, columns) <= width:
            break
        columns = [column for column in columns if heads[column] != head or column == 0]
    while _sum(widest, columns) > width:
        column = max(columns, key=lambda column: widest[column] - least[column])
        if widest[column] == least[column]:
            break
        widest[column] -= 1
    widths = [widest[column] for column in columns]
    lines = []
    for row in cells:
        parts = [_fitted(heads[column], row[column], widest[column]) for column in columns]
        lines += [
            GAP.join(map(str.ljust, line, widths)).rstrip()
            for line in zip_longest(*parts, fillvalue="")
        ]
    return lines


def _sum(widths: Sequence[int], columns: Sequence[int]) -> int:
    return sum(widths[column] for column in columns) + len(GAP) * (len(columns) - 1)


def _least(head: str, cells: Sequence[str]) -> int:
    """The least width of a column: for names 24 characters, for texts the longest part,
    for anything else its own.
    """
    widest = max(map(len, cells))
    if head in NAMES:
        return min(widest, NARROWEST_NAME)
    if head in TEXTS:
        longest_part = max(len(part) for cell in cells for part in _Text.wordsep_re.split(cell))
        return min(widest, max(NARROWEST_TEXT, min(longest_part, LONGEST_PART)))
    return widest


def _fitted(head: str, cell: str, width: int) -> list[str]:
    """The cell as lines of this width. Only columns other than names and texts may be wider."""
    if len(cell) <= width or head not in NAMES | TEXTS:
        return [cell]
    if head in NAMES:
        return [shortened(cell, width)]
    return _Text(width).wrap(cell)


class _Text(TextWrapper):
    """Breaks lines after spaces, and within paths, names and lists."""

    wordsep_re = re.compile(r"([^\s./,:=]*[./,:=]+|\s+)")


def signals_table(
    observations: SignalObservations, thresholds: Sequence[Threshold], width: int | None = None
) -> list[str]:
    """Each signal with its thresholds, headroom and state, then layout and filesystems."""
    met = thresholds_met(thresholds, observations.signals)
    rows = [["SIGNAL", "AVAILABLE", "CAPACITY", "MARK", "HEADROOM", "STATE", "FILESYSTEM"]]
    for signal in in_order({*observations.signals, *(each.signal for each in thresholds)}):
        observation = observations.signals.get(signal)
        mine = [threshold for threshold in thresholds if threshold.signal is signal]
        if observation is None:
            rows += [[signal, "-", "-", each.text(), "-", "unknown", "-"] for each in mine]
            continue
        filesystem = observation.filesystem
        place = f"{filesystem.type or '?'} on {filesystem.device or '?'}"
        available = observation.available
        capacity = observation.capacity
        seen = [signal, amount(signal, available), amount(signal, capacity)]
        if not mine:
            rows.append([*seen, "-", "-", "stale" if observation.stale else "no threshold", place])
        for threshold in mine:
            mark = threshold.mark(capacity)
            shown = f"{threshold.text()} = {amount(signal, mark)}"
            state = "clear"
            if threshold in met:
                state = (
                    "PRESSURE IS COMING"
                    if is_coming(threshold, observations.signals)
                    else "UNDER PRESSURE"
                )
            state = "stale" if observation.stale else _state(threshold, state)
            rows.append([*seen, shown, amount(signal, available - mark), state, place])
    roles = [*observations.filesystems, *(each.role for each in observations.unavailable)]
    return [
        *table(rows, width),
        *ahead_lines(observations),
        f"layout: {layout_in_words(observations.layout, roles)}",
        *(
            f"{role}: {escaped(identity.path)}"
            for role, (identity, _) in observations.filesystems.items()
        ),
        *not_readable(observations),
    ]


def ahead_lines(observations: SignalObservations) -> Iterator[str]:
    """What filesystems will take and statvfs does not show."""
    for signal in in_order(observations.signals):
        seen = observations.signals[signal]
        if seen.promised:
            yield promised_in_words(signal, seen.promised)
        if seen.needed:
            yield f"{signal}: {needed_in_words(seen.needed, _step_bytes(signal, observations))}"


def _step_bytes(signal: Signal, observations: SignalObservations) -> int:
    filesystem = observations.filesystems.get(signal.filesystem)
    return 0 if filesystem is None else filesystem[1].step_bytes


def not_readable(observations: SignalObservations) -> list[str]:
    """Why filesystems could not be read, each reason once, with all filesystems it applies to."""
    roles: dict[str, list[str]] = {}
    for unavailable in observations.unavailable:
        roles.setdefault(unavailable.reason, []).append(str(unavailable.role))
    return [
        f"{', '.join(named)}: not readable: {escaped(reason)}" for reason, named in roles.items()
    ]


def layout_in_words(layout: str | None, roles: Iterable[str]) -> str:
    """The layout, or why there is none. `roles`: the filesystems of the node, or their signals."""
    if layout is not None:
        return layout
    kubelets = [role.partition(".")[0] in KUBELET_ROLES for role in roles]
    return "none, as there is no runtime" if kubelets and not any(kubelets) else "not known yet"


def _state(threshold: Threshold, state: str) -> str:
    if threshold.hard:
        return state
    return f"{state} (soft, grace {format_duration(threshold.grace_seconds)})"


def disk_pressure(conditions: Iterable[str], kubelets: Thresholds | None) -> bool | None:
    """Whether the kubelet would report DiskPressure now; None if its thresholds are not known."""
    return None if kubelets is None else NodeCondition.DISK_PRESSURE in conditions


def why_met(
    met: Collection[Threshold], observations: Mapping[Signal, SignalObservation]
) -> str | None:
    """Why our thresholds are met, as `BELOW_OURS` or `COMING`; None if none is."""
    if not met:
        return None
    return COMING if all(is_coming(each, observations) for each in met) else BELOW_OURS


def conditions_in_words(conditions: Iterable[str], kubelets_known: bool, why: str | None) -> str:
    """Both conditions, such as `ReclaimPressure (below our mark), no DiskPressure`;
    without the kubelet's if its marks are not known. `why`: as of `why_met`."""
    reported = set(conditions)
    ours = "no ReclaimPressure"
    if NodeCondition.RECLAIM_PRESSURE in reported:
        ours = f"ReclaimPressure ({why or f'was {BELOW_OURS}'})"
    if NodeCondition.DISK_PRESSURE in reported:
        return f"{ours}, DiskPressure ({CROSSED})"
    return f"{ours}, no DiskPressure" if kubelets_known else ours


def condition_begins(
    condition: NodeCondition, met: Iterable[Threshold], observations: SignalObservations
) -> str:
    """The log's sentence when a condition begins, with each signal and its mark."""
    what = f"{CROSSED}, so the kubelet would report DiskPressure"
    if condition is NodeCondition.RECLAIM_PRESSURE:
        what = "ReclaimPressure"
    else:
        observations = observations._replace(signals=as_shown(observations.signals))
    return f"{what}: {', '.join(against_its_mark(threshold, observations) for threshold in met)}"
