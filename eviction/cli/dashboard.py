"""The screen of `reclaimd top` as panels of text, bars and sparklines, from an answer of the control socket.

A panel has a title and lines; a line is pieces of text, each with the name of a style. `top` draws the same panels as
plain text or in colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eviction.reporting.conditions import status_in_words
from eviction.reporting.log import escaped
from eviction.reporting.tables import amount, layout_in_words
from signals.quantity import format_bytes, format_duration
from signals.types import Signal

BLOCKS = "▁▂▃▄▅▆▇█"
LATEST_PASSES = 6
LATEST_REMOVALS = 8
NARROWEST = 40
SHORTEST_BAR = 8


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


def panels(status: Mapping[str, Any], past: Mapping[str, Sequence[int]], width: int) -> tuple[Panel, ...]:
    """The whole screen. `past`: the available amounts of each signal in earlier answers, the oldest first.

    `width`: columns; less than 40 counts as 40.
    """
    width = max(width, NARROWEST)
    return (
        Panel("node", (_head(status),)),
        Panel("filesystems", tuple(_filesystems(status, past, width))),
        Panel("last passes", tuple(_passes(status, width))),
        Panel("removed last", tuple(_removals(status, width))),
    )


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


def _head(status: Mapping[str, Any]) -> Line:
    state = Piece(status_in_words(status), "bad" if status["conditions"] else "good")
    doing = str(status["doing"] or "watching")
    paused = status["paused_for_seconds"]
    pause = (Piece(f"  paused for {format_duration(paused)}", "warning"),) if paused > 0 else ()
    seen = (observation["signal"] for observation in status["observations"])
    layout = f"  layout {layout_in_words(status['layout'], seen)}"
    age = status["heartbeat_age_seconds"]
    beat = Piece(f"  last observation {age:.1f} s ago", "faint")
    return (state, Piece(f"  {escaped(doing)}"), *pause, Piece(layout, "faint"), beat)


def _filesystems(status: Mapping[str, Any], past: Mapping[str, Sequence[int]], width: int) -> list[Line]:
    found = []
    marks: dict[str, dict[str, Any]] = {}
    for threshold in status["thresholds"]:
        known = marks.get(threshold["signal"])
        if known is None or (threshold["effective"] or 0) > (known["effective"] or 0):
            marks[threshold["signal"]] = threshold
    for observation in status["observations"]:
        signal, available, capacity = Signal(observation["signal"]), observation["available"], observation["capacity"]
        threshold = marks.get(observation["signal"], {"effective": None, "headroom_seconds": None})
        mark, seconds = threshold["effective"], threshold["headroom_seconds"]
        below = mark is not None and available < mark
        style = "warning" if observation["stale"] else "bad" if below else "good"
        name = f"{signal:<24}"
        share = f"{100 * available // capacity if capacity else 0:>3}%"
        left = _short(signal, available).rjust(10)
        until = (
            "stale" if observation["stale"] else "below" if below else "no mark" if mark is None else _until(seconds)
        )
        room = width - len(name) - len(share) - len(left) - 14
        length = max(room // 2 - 1, SHORTEST_BAR)
        line = [Piece(name), Piece(f"{left} {share} ", style), Piece(bar(available, mark, capacity, length), style)]
        line.append(Piece(f" {until:<9}", style if below else "plain"))
        if room >= 3 * SHORTEST_BAR:
            line.append(
                Piece(" " + sparkline(past.get(observation["signal"], ()), capacity, room - length - 2), "faint")
            )
        found.append(tuple(line))
    return found or [(Piece("no filesystem was read yet", "warning"),)]


def _short(signal: Signal, value: int) -> str:
    return f"{value}" if signal.counts_inodes else format_bytes(value)


def _until(seconds: float | None) -> str:
    """The time until the threshold could be met; more than a day is shown as `> 1 day`."""
    if seconds is None or seconds > 86400:
        return "> 1 day"
    return format_duration(float(round(seconds))) if seconds >= 1 else "< 1s"


def _passes(status: Mapping[str, Any], width: int) -> list[Line]:
    styles = {"satisfied": "good", "not_enough": "warning", "failed": "bad"}
    found: list[Line] = []
    for record in reversed(status["passes"][-LATEST_PASSES:]):
        signal = record["acted_on"]["signal"] if record["acted_on"] else "request"
        head = f"{record['started'][11:19]} {signal} "
        result = record["result"]
        reason = f" {escaped(record['reason'])}"[: max(width - len(head) - len(result), 0)]
        found.append((Piece(head, "faint"), Piece(result, styles.get(result, "plain")), Piece(reason)))
    return found or [(Piece("none yet", "faint"),)]


def _removals(status: Mapping[str, Any], width: int) -> list[Line]:
    removed = [o for record in status["passes"] for o in record["removals"] if o["result"] == "removed"]
    found: list[Line] = []
    for outcome in reversed(removed[-LATEST_REMOVALS:]):
        freed = amount(Signal.NODEFS_AVAILABLE, outcome["freed"]["bytes"])
        head = f"{freed:>10} {outcome['kind']:<10} "
        found.append((Piece(head), Piece(escaped(outcome["name"])[: max(width - len(head), 0)])))
    return found or [(Piece("nothing yet", "faint"),)]
