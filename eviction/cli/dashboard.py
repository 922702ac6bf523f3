"""The screen of `reclaimd top` as panels of text, bars and sparklines, from an answer of the control socket.

A panel has a title and lines; a line is pieces of text, each with the name of a style. `top` draws the same panels as
plain text or in colour.

The screen is never higher than the terminal. The state of the node and the gauges come first and stay; passes and
removals share the rows that are left, and where those are too few, a panel is left out, the removals first. Where a
terminal is too narrow for bars and sparklines, they are left out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eviction.reporting.conditions import status_in_words
from eviction.reporting.explain import NOTHING_IS_REMOVED
from eviction.reporting.log import escaped
from eviction.reporting.tables import amount, layout_in_words
from signals.quantity import format_bytes, format_duration
from signals.types import Signal

BLOCKS = "▁▂▃▄▅▆▇█"
LATEST_PASSES = 6
LATEST_REMOVALS = 8
NARROWEST = 40
SHORTEST_BAR = 8
FURNITURE = 2  # rows of a panel beside its entries: the title, and the head of its columns
LINES_OF_A_REMARK = 2  # or one, where the gauges have no room otherwise
AVAILABLE, SHARE, UNTIL = 10, 6, 10  # widths of columns, with the space before them


@dataclass(frozen=True, slots=True)
class Piece:
    """A text in a style: `plain`, `faint`, `good`, `warning`, `bad` or `title`."""

    text: str
    style: str = "plain"


Line = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the screen."""

    title: str
    lines: tuple[Line, ...]

    @property
    def rows(self) -> int:
        """Its height with its title."""
        return 1 + len(self.lines)


def panels(
    status: Mapping[str, Any], past: Mapping[str, Sequence[int]], width: int, height: int | None = None
) -> tuple[Panel, ...]:
    """The whole screen. `past`: the available amounts of each signal in earlier answers, the oldest first.

    `width`: columns; less than 40 counts as 40. `height`: rows; None: as many as it takes.
    """
    width = max(width, NARROWEST)
    gauges = tuple(_filesystems(status, past, width))
    node = Panel("node", tuple(_head(status, width, LINES_OF_A_REMARK)))
    if height is not None and node.rows + 1 + len(gauges) > height:
        node = Panel("node", tuple(_head(status, width, 1)))
    if height is not None and (least := max(height - node.rows - 1, FURNITURE)) < len(gauges):
        gauges = (*gauges[: least - 1], (Piece(f"and {len(gauges) - least + 1} more", "faint"),))
    shown = [node, Panel("filesystems", gauges)]
    latest = [
        Panel("last passes", tuple(_passes(status, width))),
        Panel("removed last", tuple(_removals(status, width))),
    ]
    if height is None:
        return (*shown, *latest)
    shares = _shares(height - sum(panel.rows for panel in shown), latest[0].rows, latest[1].rows)
    return (*shown, *(Panel(p.title, p.lines[: rows - 1]) for p, rows in zip(latest, shares, strict=True) if rows))


def _shares(left: int, first: int, second: int) -> tuple[int, int]:
    """How many of the rows that are left two panels get that want so many. Of too few the first gets all, or nobody."""
    least_of_first, least_of_second = min(first, FURNITURE + 1), min(second, FURNITURE + 1)
    if left < least_of_first:
        return 0, 0
    if left < least_of_first + least_of_second:
        return min(first, left), 0
    half = min((left + 1) // 2, left - least_of_second)
    share = min(first, max(left - second, least_of_first, half))
    return share, min(second, left - share)


def plain(shown: Sequence[Panel], width: int) -> list[str]:
    """The panels as lines of text."""
    lines: list[str] = []
    for panel in shown:
        lines += [f"-- {panel.title} ".ljust(width, "-"), *("".join(p.text for p in line) for line in panel.lines)]
    return lines


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


def _head(status: Mapping[str, Any], width: int, lines_a_remark: int) -> list[Line]:
    """The conditions, what the daemon does, and each reason for which it removes nothing."""
    conditions = status_in_words(status)
    if len(conditions) > width:
        conditions = re.sub(r" \([^)]*\)", "", conditions)
    seen = (observation["signal"] for observation in status["observations"])
    doing = str(status["doing"] or "watching")
    if (paused := status["paused_for_seconds"]) > 0:
        doing += f", next try in {format_duration(paused)}"
    layout = f"  layout {layout_in_words(status['layout'], seen)}"
    age = f"  last observation {status['heartbeat_age_seconds']:.1f} s ago"
    remarks = [f"held off: {status['held_off']}"] if status.get("held_off") else []  # an older daemon does not say it
    remarks += [NOTHING_IS_REMOVED] if status.get("dry_run") else []
    return [
        (Piece(conditions, "bad" if status["conditions"] else "good"),),
        _cut((Piece(escaped(doing)), Piece(layout, "faint"), Piece(age, "faint")), width),
        *((Piece(line, "warning"),) for remark in remarks for line in _wrapped(remark, width, lines_a_remark)),
    ]


def _wrapped(sentence: str, width: int, lines: int) -> list[str]:
    return textwrap.wrap(escaped(sentence), width, max_lines=lines, placeholder=" …", subsequent_indent="  ")


def _cut(line: Line, width: int) -> Line:
    """The line with what does not fit left out at its end."""
    pieces, left = [], width
    for piece in line:
        pieces.append(Piece(piece.text[:left], piece.style))
        left -= len(pieces[-1].text)
    return tuple(pieces)


def _heads(*cells: str) -> Line:
    return (Piece("".join(cells).rstrip(), "faint"),)


def _filesystems(status: Mapping[str, Any], past: Mapping[str, Sequence[int]], width: int) -> list[Line]:
    found: list[Line] = []
    marks: dict[str, dict[str, Any]] = {}
    for threshold in status["thresholds"]:
        known = marks.get(threshold["signal"])
        if known is None or (threshold["effective"] or 0) > (known["effective"] or 0):
            marks[threshold["signal"]] = threshold
    name_width = max([len(one["signal"]) for one in status["observations"]], default=0)
    name_width = min(max(name_width, len("SIGNAL")) + 1, width - AVAILABLE - SHARE - UNTIL)
    room = width - name_width - AVAILABLE - SHARE - UNTIL
    length = room if room < 2 * SHORTEST_BAR else room // 2
    length = 0 if length < SHORTEST_BAR else length
    spark = room - length - 1 if room >= 2 * SHORTEST_BAR else 0
    for observation in status["observations"]:
        signal, available, capacity = Signal(observation["signal"]), observation["available"], observation["capacity"]
        threshold = marks.get(observation["signal"], {"effective": None, "headroom_seconds": None})
        mark, seconds = threshold["effective"], threshold["headroom_seconds"]
        below = mark is not None and available < mark
        style = "warning" if observation["stale"] else "bad" if below else "good"
        share = f"{100 * available // capacity if capacity else 0:>3}%"
        until = (
            "stale" if observation["stale"] else "below" if below else "no mark" if mark is None else _until(seconds)
        )
        found.append(
            (
                Piece(f"{str(signal)[: name_width - 1]:<{name_width}}"),
                Piece(f"{_short(signal, available):>{AVAILABLE}} {share} ", style),
                Piece(bar(available, mark, capacity, length), style),
                Piece(f" {until:<{UNTIL - 1}}", style if below else "plain"),
                Piece(" " * bool(spark) + sparkline(past.get(observation["signal"], ()), capacity, spark), "faint"),
            )
        )
    if not found:
        return [(Piece("no filesystem was read yet", "warning"),)]
    used = ("USED | MARK" if length >= len("USED | MARK") else "USED").ljust(length) if length else ""
    head = (f"{'SIGNAL':<{name_width}}", f"{'AVAILABLE':>{AVAILABLE}}", " FREE ", used, f" {'TO MARK':<{UNTIL - 1}}")
    return [_heads(*head, " PAST" if spark else ""), *found]


def _short(signal: Signal, value: int) -> str:
    return f"{value}" if signal.counts_inodes else format_bytes(value)


def _until(seconds: float | None) -> str:
    """The time until the threshold could be met; more than a day is shown as `> 1 day`."""
    if seconds is None or seconds > 86400:
        return "> 1 day"
    return format_duration(float(round(seconds))) if seconds >= 1 else "< 1s"


def _passes(status: Mapping[str, Any], width: int) -> list[Line]:
    styles = {"satisfied": "good", "not_enough": "warning", "failed": "bad"}
    latest = list(reversed(status["passes"][-LATEST_PASSES:]))
    if not latest:
        return [(Piece("none yet", "faint"),)]
    signals = [record["acted_on"]["signal"] if record["acted_on"] else "request" for record in latest]
    wide = max(len("SIGNAL"), *map(len, signals))
    result_width = max(len("RESULT"), *(len(record["result"]) for record in latest))
    head = _heads("TIME".ljust(9), "SIGNAL".ljust(wide), " ", "RESULT".ljust(result_width), " REASON")
    found = [_cut(head, width)]
    for record, signal in zip(latest, signals, strict=True):
        result = record["result"].ljust(result_width)
        line = (
            Piece(f"{record['started'][11:19]} {signal:<{wide}} ", "faint"),
            Piece(result, styles.get(record["result"], "plain")),
            Piece(f" {escaped(record['reason'])}"),
        )
        found.append(_cut(line, width))
    return found


def _removals(status: Mapping[str, Any], width: int) -> list[Line]:
    removed = [o for record in status["passes"] for o in record["removals"] if o["result"] == "removed"]
    if not removed:
        return [(Piece("nothing yet", "faint"),)]
    found = [_heads("FREED".rjust(10), " ", "KIND".ljust(10), " NAME")]
    for outcome in reversed(removed[-LATEST_REMOVALS:]):
        freed = amount(Signal.NODEFS_AVAILABLE, outcome["freed"]["bytes"])
        found.append(_cut((Piece(f"{freed:>10} {outcome['kind']:<10} "), Piece(escaped(outcome["name"]))), width))
    return found
