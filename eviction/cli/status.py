"""`reclaimd status`: what the running daemon is doing, and its last passes. `reclaimd top`: the same, live.

`top` is in colour, or plain text with NO_COLOR or if stdout is not a terminal. It ends with q or Ctrl-C, or after
`--count` screens. The screen consists of panels of lines, and is never higher than the terminal: the state of the node
and the gauges are always shown; passes and removals share the remaining rows, and if there are too few, the removals,
and then the passes, are left out. On a narrow terminal bars and sparklines are left out.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import shutil
import sys
import termios
import textwrap
import tty
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from eviction.cli.options import (
    add_output,
    answer,
    columns,
    configuration_of,
    exit_on,
    mention_other_configuration,
    whole_number,
)
from eviction.cli.progress import Progress
from eviction.control.socket import ControlUnavailable, ask
from eviction.exit_codes import EXIT_OK, EXIT_RUNTIME
from eviction.reporting.explain import lead_sentence
from eviction.reporting.log import escaped
from eviction.reporting.pass_record import shortened
from eviction.reporting.tables import GAP, amount, layout_in_words, remarks_of, status_in_words, table
from signals.quantity import format_bytes, format_duration
from signals.types import Signal

HOME_AND_CLEAR = "\x1b[H\x1b[J"
SECOND_SCREEN, FIRST_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # without the cursor, and with it
PLAIN = "\x1b[0m"
STYLES = {"plain": "", "faint": "\x1b[2m", "good": "\x1b[32m", "warning": "\x1b[33m", "bad": "\x1b[1;31m"}

BLOCKS = "▁▂▃▄▅▆▇█"
LONGEST_PAST = 240
LATEST_PASSES = 6
LATEST_REMOVALS = 8
NARROWEST = 40
SHORTEST_BAR = 8
LOWEST_PANEL = 3  # rows: the title, the column headings, an entry
BESIDE_THE_SIGNAL = 27  # columns: the widest amount, share and time, with the gaps before them
NO_MARK = {"effective": None, "headroom_seconds": None}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    if parser.prog.endswith("top"):
        parser.add_argument("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="seconds per screen (1)")
        parser.add_argument("--count", type=_screens, default=0, metavar="N", help="end after N screens (0: never)")
        return
    add_output(parser)
    text = "with -o json: include the last observations and decisions, for replay"
    parser.add_argument("--history", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 2 usage or configuration; 3 no daemon answers, for `top` only at the start.

    Example: reclaimd status -o json, or reclaimd top --interval 2
    """
    path = configuration_of(arguments).control_socket
    live = "interval" in arguments
    with exit_on(EXIT_RUNTIME, ControlUnavailable), Progress("asking the daemon"):
        status = ask(path, "status" if not live and arguments.history else "brief")
    if live:
        return top(path, status, arguments)
    mention_other_configuration(arguments, path, status)
    answer(arguments, status, lambda: lines(status, columns()))
    return EXIT_OK


def lines(status: dict[str, Any], width: int | None = None) -> list[str]:
    """The answer for people. Daemons of older versions may lack some of its fields."""
    doing = status["doing"] or "watching"
    layout = layout_in_words(status["layout"], (one["signal"] for one in status["observations"]))
    head = [f"{status_in_words(status)}; {doing}; layout {layout}"]
    head += remarks_of(status)
    head += [f"warning: {escaped(sentence)}" for sentence in status.get("warnings", ())]
    available = {observation["signal"]: observation["available"] for observation in status["observations"]}
    rows = [["SIGNAL", "AVAILABLE", "MARK", "TIME TO THE MARK"]]
    for threshold in status["thresholds"]:
        signal, left = Signal(threshold["signal"]), threshold["headroom_seconds"]
        amounts = (available.get(signal), threshold["effective"])
        until = "-" if left is None else format_duration(left) if left > 0 else "below"
        rows.append([signal, *("-" if each is None else amount(signal, each) for each in amounts), until])
    head += table(rows, width, "thresholds")
    head += filter(None, [lead_sentence(status.get("lead_seconds", 0.0))])
    for parked in status.get("parked", ()):
        what = f"the removal of {parked['kind']} {shortened(parked['name'])}"
        head.append(f"parked: {what} has not been answered for {format_duration(parked['seconds'])}")
    distrust = (status.get("pod_directories") or {}).get("sentence")
    if distrust:
        head += ["", f"pods: {escaped(distrust)}"]
    head += function_lines(status.get("functions") or {}, width)
    passes = [["STARTED", "SIGNAL", "RESULT", "REASON"]]
    for record in status["passes"]:
        acted_on = record["acted_on"]["signal"] if record["acted_on"] else "-"
        passes.append([f"{record['started'][:19]}Z", acted_on, record["result"], record["reason"]])
    return [*head, "", *(table(passes, width, "passes") if len(passes) > 1 else ["no passes yet"])]


def function_lines(functions: dict[str, Any], width: int | None = None) -> list[str]:
    """What each reclaim function has done since the daemon started; empty before the first call."""
    rows = [["FUNCTION", "CALLS", "REMOVED", "FREED", "INODES", "SECONDS", "LAST CALL"]]
    for name, total in functions.items():
        last, measured = total["last"], total["measured"]
        numbers = (total["calls"], total["removed"], format_bytes(measured["bytes"]), measured["inodes"])
        last_call = last["error"] or last["skipped"] or f"{last['started'][:19]}Z"
        rows.append([name, *map(str, numbers), f"{total['seconds']:.1f}", last_call])
    return ["", *table(rows, width, "functions")] if functions else []


# ---- top


def top(path: str, status: Any, arguments: argparse.Namespace) -> int:
    """Draws the status of the daemon until it is told to end. `status`: the daemon's first answer."""
    past: dict[str, deque[int]] = {}
    screens = 0
    with _terminal() as (draw, wait_for_quit):
        while True:
            if isinstance(status, ControlUnavailable):
                draw([panel("no daemon", [Line(str(status), "bad")], _size()[0])])
            else:
                for observation in status["observations"]:
                    amounts = past.setdefault(observation["signal"], deque(maxlen=LONGEST_PAST))
                    amounts.append(observation["available"])
                draw(panels(status, past, *_size()))
            screens += 1
            if screens == arguments.count or wait_for_quit(arguments.interval):
                return EXIT_OK
            try:
                status = ask(path, "brief")
            except ControlUnavailable as error:  # it may be restarting
                status = error


def _size() -> tuple[int, int | None]:
    """Columns and rows of the terminal; None for unlimited rows if stdout is not a terminal. The last row is for the
    cursor."""
    columns, rows = shutil.get_terminal_size()
    return columns, rows - 1 if sys.stdout.isatty() else None


@contextmanager
def _terminal() -> Iterator[tuple[Callable[[Sequence[Panel]], None], Callable[[float], bool]]]:
    """Yields a function that draws panels, in colour on a terminal's alternate screen, else as text; and one that waits
    for some seconds and returns whether q was pressed. Restores the terminal at the end."""
    live = sys.stdout.isatty()
    coloured = live and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None

    def draw(shown: Sequence[Panel]) -> None:
        lines = [
            f"{STYLES[line.style]}{line.text}{PLAIN}" if coloured else line.text for each in shown for line in each
        ]
        sys.stdout.write((HOME_AND_CLEAR if live else "") + "\n".join(lines) + "\n")
        sys.stdout.flush()

    def wait_for_quit(seconds: float) -> bool:
        ready, _, _ = select.select([] if before is None else [sys.stdin], [], [], seconds)
        return bool(ready) and os.read(sys.stdin.fileno(), 64).lower().startswith(b"q")

    if coloured:
        sys.stdout.write(SECOND_SCREEN)
    try:
        if before is not None:
            tty.setcbreak(sys.stdin)
        yield draw, wait_for_quit
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        if coloured:
            sys.stdout.write(FIRST_SCREEN)
            sys.stdout.flush()


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"must be a number of seconds between 0.05 and 3600, but it was {text!r}")
    return seconds


def _screens(text: str) -> int:
    if (screens := whole_number(text)) < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, but it was {text!r}")
    return screens


# ---- the screen of top


class Line(NamedTuple):
    """A line in a style: `plain`, `faint`, `good`, `warning` or `bad`."""

    text: str
    style: str = "plain"


Panel = list[Line]  # the first line is its title


def panel(title: str, lines: Sequence[Line], width: int) -> Panel:
    """A part of the screen. Lines are cut at `width`."""
    return [
        Line(f"-- {title} ".ljust(width, "-"), "faint"),
        *(Line(escaped(line.text)[:width], line.style) for line in lines),
    ]


def panels(
    status: Mapping[str, Any], past: Mapping[str, Sequence[int]], width: int, height: int | None = None
) -> list[Panel]:
    """The whole screen. `past`: the available amounts of each signal in earlier answers, the oldest first. `width`:
    columns, at least 40. `height`: rows; None: unlimited."""
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
    """The panel cut to this number of rows, or empty if they are too few."""
    return shown[:rows] if rows >= min(len(shown), LOWEST_PANEL) else []


def sparkline(amounts: Sequence[int], capacity: int, length: int) -> str:
    """Available amounts as blocks, the highest for the whole capacity, the newest on the right."""
    latest = list(amounts)[-length:] if length > 0 else []
    if not latest or capacity <= 0:
        return ""
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[min(max(a * top // capacity, 0), top)] for a in latest)


def bar(available: int, mark: int | None, capacity: int, length: int) -> str:
    """A filesystem in `length` characters: `#` is used, `.` is available, `|` is the mark."""
    if capacity <= 0 or length <= 0:
        return ""
    used = min(max((capacity - available) * length // capacity, 0), length)
    cells = ["#"] * used + ["."] * (length - used)
    if mark is not None:
        cells[min(max((capacity - mark) * length // capacity, 0), length - 1)] = "|"
    return "".join(cells)


def _node(status: Mapping[str, Any], width: int, lines_a_remark: int) -> Panel:
    """The conditions, what the daemon is doing, and each reason why it removes nothing."""
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
    """Each signal with its available amount, also as a bar, the time until its highest mark, and its past."""
    by_mark = sorted(status["thresholds"], key=lambda threshold: threshold["effective"] or 0)
    marks = {threshold["signal"]: threshold for threshold in by_mark}
    rows, styles, drawn = [["SIGNAL", "AVAILABLE", "FREE", "TO MARK"]], ["faint"], []
    for observation in status["observations"]:
        signal, available, capacity = Signal(observation["signal"]), observation["available"], observation["capacity"]
        threshold = marks.get(signal, NO_MARK)
        mark = threshold["effective"]
        below = mark is not None and available < mark
        until = "no mark" if mark is None else "below" if below else _until(threshold["headroom_seconds"])
        if observation["stale"]:
            until = "stale"
        share = f"{100 * available // capacity if capacity else 0}%"
        shown = str(available) if signal.counts_inodes else format_bytes(available)
        rows.append([signal[: width - BESIDE_THE_SIGNAL], f"{shown:>9}", share, until])
        styles.append("warning" if observation["stale"] else "bad" if below else "good")
        drawn.append((available, mark, capacity, past.get(signal, ())))
    if not drawn:
        return panel("filesystems", [Line("no filesystem has been read yet", "warning")], width)
    room = width - max(map(len, table(rows))) - len(GAP)
    length = (room - len(GAP)) // 2 if room - len(GAP) >= 2 * SHORTEST_BAR else room
    if length >= SHORTEST_BAR:
        bars, sparks = ["USED | MARK" if length >= len("USED | MARK") else "USED"], ["PAST"]
        for available, mark, capacity, amounts in drawn:
            bars.append(bar(available, mark, capacity, length))
            sparks.append(sparkline(amounts, capacity, length if length < room else 0))
        rows = [[*row[:3], used, row[3], spark] for row, used, spark in zip(rows, bars, sparks, strict=True)]
    return panel("filesystems", list(map(Line, table(rows), styles)), width)


def _until(seconds: float | None) -> str:
    """The time until the threshold could be met."""
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
