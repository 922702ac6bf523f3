"""Amounts, aligned tables, the table of signals and the conditions in words,
for people. Decides nothing.

In a pipe, a table has all columns, and lines of any length. On a terminal, it fits the width:

* Texts wrap within their column. Names are cut in the middle, as their ends tell them apart.
* If the columns at their narrowest are still too wide together, some are left out, in the order of
  `LEFT_OUT_FIRST`, until the rest fits. The first column is always kept.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from textwrap import TextWrapper

from eviction.decision.thresholds import (
    as_shown,
    is_coming,
    short_of_min_reclaim,
    thresholds_met,
    usable,
)
from eviction.printable import escaped
from eviction.records.json_shapes import shortened
from eviction.types import NodeCondition, Threshold
from signals.quantity import counted, format_bytes, format_duration
from signals.types import (
    INODES_FREE,
    KUBELET_ROLES,
    Signal,
    SignalObservation,
    SignalObservations,
    in_order,
)

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
    what = "of what is used are promised to files by btrfs and not shown by statvfs"
    return f"{signal}: {format_bytes(promised)} {what}"


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
    met = thresholds_met(thresholds, usable(observations.signals), enforce_min_reclaim=False)
    rows = [["SIGNAL", "AVAILABLE", "CAPACITY", "MARK", "HEADROOM", "STATE", "FILESYSTEM"]]
    for signal in in_order({*observations.signals, *(each.signal for each in thresholds)}):
        observation = observations.signals.get(signal)
        mine = [threshold for threshold in thresholds if threshold.signal is signal]
        if observation is None:
            rows += [[signal, "-", "-", each.text(), "-", "unknown", "-"] for each in mine]
            continue
        filesystem = observation.filesystem
        place = f"{filesystem.type or '?'} on {filesystem.device or '?'}" if filesystem else "-"
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
                coming = is_coming(threshold, observations.signals)
                state = "PRESSURE IS COMING" if coming else "UNDER PRESSURE"
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


def disk_pressure(conditions: Iterable[str], kubelets: tuple[Threshold, ...] | None) -> bool | None:
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
