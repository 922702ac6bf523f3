"""The screen of `reclaimd top`, from an answer of the control socket: panels of lines, each line in one style.

The screen is never higher than the terminal. The state of the node and the gauges come first and stay; passes and
removals share the rows that are left, and where those are too few, a panel is left out, the removals first. Where a
terminal is too narrow for bars and sparklines, they are left out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eviction.reporting.conditions import remarks_of, status_in_words
from eviction.reporting.log import escaped
from eviction.reporting.tables import GAP, layout_in_words, table
from signals.quantity import format_bytes, format_duration
from signals.types import Signal

BLOCKS = "▁▂▃▄▅▆▇█"
LATEST_PASSES = 6
LATEST_REMOVALS = 8
NARROWEST = 40
SHORTEST_BAR = 8
LOWEST_PANEL = 3  # rows: the title, the heads of its columns, an entry
BESIDE_THE_SIGNAL = 27  # columns: the widest amount, share and time, with the gaps before them
NO_MARK = {"effective": None, "headroom_seconds": None}


class Line(NamedTuple):
    """A line in a style: `plain`, `faint`, `good`, `warning` or `bad`."""

    text: str
    style: str = "plain"


Panel = list[Line]  # the first line is its title


def panel(title: str, lines: Sequence[Line], width: int) -> Panel:
    """A part of the screen; what does not fit in a line is left out."""
    return [
        Line(f"-- {title} ".ljust(width, "-"), "faint"),
        *(Line(escaped(line.text)[:width], line.style) for line in lines),
    ]


def panels(
    status: Mapping[str, Any], past: Mapping[str, Sequence[int]], width: int, height: int | None = None
) -> list[Panel]:
    """The whole screen. `past`: the available amounts of each signal in earlier answers, the oldest first.

    `width`: columns; less than 40 counts as 40. `height`: rows; None: as many as it takes.
    """
    width = max(width, NARROWEST)
    node, gauges = _node(status, width, 2), _gauges(status, past, width)
    passes, removals = _passes(status, width), _removals(status, width)
    if height is not None:
        if len(node) + len(gauges) > height:
            node = _node(status, width, 1)
        if (room := max(height - len(node), LOWEST_PANEL)) < len(gauges):
            gauges = [*gauges[: room - 1], Line(f"and {len(gauges) - room + 1} more", "faint")]
        left = height - len(node) - len(gauges)
        for_passes = left if left < 2 * LOWEST_PANEL else max(left - len(removals), (left + 1) // 2)
        passes = _as_high_as(for_passes, passes)
        removals = _as_high_as(left - len(passes), removals)
    return [each for each in (node, gauges, passes, removals) if each]


def _as_high_as(rows: int, shown: Panel) -> Panel:
    """The panel in so many rows, or nothing where they are too few."""
    return shown[:rows] if rows >= min(len(shown), LOWEST_PANEL) else []


def plain(shown: Sequence[Panel]) -> list[str]:
    """The panels as lines of text."""
    return [line.text for each in shown for line in each]


def sparkline(amounts: Sequence[int], capacity: int, length: int) -> str:
    """Available amounts as blocks of up to the height of the capacity, the newest on the right."""
    latest = list(amounts)[-length:] if length > 0 else []
    if not latest or capacity <= 0:
        return ""
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[min(max(a * top // capacity, 0), top)] for a in latest)


def bar(available: int, mark: int | None, capacity: int, length: int) -> str:
    """A filesystem as `#` for used, `.` for available and `|` for the mark, `length` characters long."""
    if capacity <= 0 or length <= 0:
        return ""
    used = min(max((capacity - available) * length // capacity, 0), length)
    cells = ["#"] * used + ["."] * (length - used)
    if mark is not None:
        cells[min(max((capacity - mark) * length // capacity, 0), length - 1)] = "|"
    return "".join(cells)


def _node(status: Mapping[str, Any], width: int, lines_a_remark: int) -> Panel:
    """The conditions, what the daemon does, and each reason for which it removes nothing."""
    conditions = status_in_words(status)
    if len(conditions) > width:
        conditions = re.sub(r" \([^)]*\)", "", conditions)
    doing = str(status["doing"] or "watching")
    if (paused := status["paused_for_seconds"]) > 0:
        doing += f", next try in {format_duration(paused)}"
    layout = layout_in_words(status["layout"], (observation["signal"] for observation in status["observations"]))
    age = status["heartbeat_age_seconds"]
    lines = [
        Line(conditions, "bad" if status["conditions"] else "good"),
        Line(f"{doing}  layout {layout}  last observation {age:.1f} s ago"),
    ]
    for remark in remarks_of(status):
        wrapped = textwrap.wrap(remark, width, max_lines=lines_a_remark, placeholder=" …", subsequent_indent="  ")
        lines += [Line(text, "warning") for text in wrapped]
    return panel("node", lines, width)


def _gauges(status: Mapping[str, Any], past: Mapping[str, Sequence[int]], width: int) -> Panel:
    """Each signal with what is available, as a bar too, the time until its highest mark, and its past."""
    by_mark = sorted(status["thresholds"], key=lambda threshold: threshold["effective"] or 0)
    marks = {threshold["signal"]: threshold for threshold in by_mark}
    rows, styles, bars, sparks = [["SIGNAL", "AVAILABLE", "FREE", "TO MARK"]], ["faint"], [""], ["PAST"]
    for observation in status["observations"]:
        signal, available, capacity = Signal(observation["signal"]), observation["available"], observation["capacity"]
        mark = marks.get(signal, NO_MARK)["effective"]
        below = mark is not None and available < mark
        until = "no mark" if mark is None else "below" if below else _until(marks[signal]["headroom_seconds"])
        if observation["stale"]:
            until = "stale"
        shown = str(available) if signal.counts_inodes else format_bytes(available)
        share = f"{100 * available // capacity if capacity else 0}%"
        rows.append([signal[: width - BESIDE_THE_SIGNAL], f"{shown:>9}", share, until])
        styles.append("warning" if observation["stale"] else "bad" if below else "good")
    if len(rows) == 1:
        return panel("filesystems", [Line("no filesystem was read yet", "warning")], width)
    room = width - max(map(len, table(rows))) - len(GAP)
    length = (room - len(GAP)) // 2 if room - len(GAP) >= 2 * SHORTEST_BAR else room
    if length >= SHORTEST_BAR:
        bars[0] = "USED | MARK" if length >= len("USED | MARK") else "USED"
        for observation in status["observations"]:
            signal, available, capacity = observation["signal"], observation["available"], observation["capacity"]
            bars.append(bar(available, marks.get(signal, NO_MARK)["effective"], capacity, length))
            sparks.append(sparkline(past.get(signal, ()), capacity, length if length < room else 0))
        rows = [[*row[:3], drawn, row[3], spark] for row, drawn, spark in zip(rows, bars, sparks, strict=True)]
    return panel("filesystems", list(map(Line, table(rows), styles)), width)


def _until(seconds: float | None) -> str:
    """The time until the threshold could be met; more than a day is shown as `> 1 day`."""
    if seconds is None or seconds > 86400:
        return "> 1 day"
    return format_duration(float(round(seconds))) if seconds >= 1 else "< 1s"


def _passes(status: Mapping[str, Any], width: int) -> Panel:
    colours = {"satisfied": "good", "not_enough": "warning", "failed": "bad"}
    rows, styles = [["TIME", "SIGNAL", "RESULT", "REASON"]], ["faint"]
    for record in reversed(status["passes"][-LATEST_PASSES:]):
        signal = record["acted_on"]["signal"] if record["acted_on"] else "request"
        rows.append([record["started"][11:19], signal, record["result"], record["reason"]])
        styles.append(colours.get(record["result"], "plain"))
    lines = list(map(Line, table(rows), styles)) if len(rows) > 1 else [Line("none yet", "faint")]
    return panel("last passes", lines, width)


def _removals(status: Mapping[str, Any], width: int) -> Panel:
    outcomes = [outcome for record in status["passes"] for outcome in record["removals"]]
    removed = [outcome for outcome in outcomes if outcome["result"] == "removed"]
    latest = reversed(removed[-LATEST_REMOVALS:])
    rows = [[format_bytes(each["freed"]["bytes"]), each["kind"], each["name"]] for each in latest]
    lines = list(map(Line, table([["FREED", "KIND", "NAME"], *rows]))) if rows else [Line("nothing yet", "faint")]
    return panel("removed last", lines, width)
