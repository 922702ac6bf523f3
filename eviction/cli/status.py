"""`reclaimd status`: what the running daemon is doing, and its last passes.
`reclaimd top`: the same, live.

`top` draws the status again and again: on the alternate screen of a terminal, or as text with
NO_COLOR or if stdout is not a terminal. It ends with q or Ctrl-C, or after `--count` screens.
Conditions, what keeps the daemon from removing, and the signals come first: what is too high for
the terminal is left out at the end.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Any

from eviction.cli import write_out
from eviction.cli.options import (
    ASKED,
    add_output,
    answer,
    columns,
    exit_on,
    in_colour,
    mention_other_configuration,
    places_of,
    whole_number,
    wrap_lines,
)
from eviction.cli.progress import Progress
from eviction.exit_codes import EXIT_OK, EXIT_RUNTIME
from eviction.records.pass_json import shortened
from eviction.surface.control_socket import ControlUnavailable, ask
from eviction.wording.explain import lead_sentence
from eviction.wording.log import escaped
from eviction.wording.tables import (
    NOTHING_IS_REMOVED,
    amount,
    conditions_in_words,
    layout_in_words,
    table,
)
from signals.quantity import format_bytes, format_duration
from signals.types import Signal

HOME_AND_CLEAR = "\x1b[H\x1b[J"
# without the cursor, and with it
SECOND_SCREEN, FIRST_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    if parser.prog.endswith("top"):
        parser.add_argument(
            "--interval",
            type=_seconds,
            default=1.0,
            metavar="SECONDS",
            help="seconds per screen (1)",
        )
        parser.add_argument(
            "--count", type=_screens, default=0, metavar="N", help="end after N screens (0: never)"
        )
        return
    add_output(parser)
    text = "with -o json: include the last observations and decisions, for replay"
    parser.add_argument("--history", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 2 usage; 3 no daemon answers, for `top` only at the start.

    Example: reclaimd status -o json, or reclaimd top --interval 2
    """
    places = places_of(arguments, ASKED)
    path = places.control_socket
    live = "interval" in arguments
    with exit_on(EXIT_RUNTIME, ControlUnavailable), Progress("asking the daemon"):
        status = ask(path, "status" if not live and arguments.history else "brief")
    if live:
        return top(path, status, arguments)
    if not places.problem:
        mention_other_configuration(arguments, path, status)
    answer(arguments, status, lambda: lines(status, columns()))
    return EXIT_OK


def lines(status: dict[str, Any], width: int | None = None) -> list[str]:
    """The answer for people."""
    observed = {one["signal"]: one for one in status["observations"]}
    rows, below = [["SIGNAL", "AVAILABLE", "MARK", "TIME TO THE MARK"]], False
    for threshold in status["thresholds"]:
        signal, mark, left = (
            Signal(threshold["signal"]),
            threshold["effective"],
            threshold["headroom_seconds"],
        )
        available, stale = (
            observed[signal][field] if signal in observed else None
            for field in ("available", "stale")
        )
        until = "stale" if stale else "-" if left is None else format_duration(left)
        if not stale and available is not None and mark is not None and available < mark:
            until, below = "below", True
        rows.append(
            [
                signal,
                *("-" if each is None else amount(signal, each) for each in (available, mark)),
                until,
            ]
        )
    conditions = conditions_in_words(
        status["conditions"], status["disk_pressure"] is not None, below=below
    )
    layout = layout_in_words(status["layout"], observed)
    shown = [f"{conditions}; {status['doing'] or 'watching'}; layout {layout}"]
    if status["held_off"]:
        shown.append(f"held off: {status['held_off']}")
    if status["dry_run"]:
        shown.append(NOTHING_IS_REMOVED)
    shown += table(rows, width)
    # an older daemon does not report it
    if (seconds := status.get("next_look_seconds")) is not None:
        shown.append(f"next look in {format_duration(seconds)}: {status['next_look_why']}")
    shown += filter(None, [lead_sentence(status["lead_seconds"])])
    if status["paused_for_seconds"]:
        shown.append(
            "a row that was not enough is tried again in"
            f" {format_duration(status['paused_for_seconds'])}"
        )
    rejected = status.get("reload_problem")  # an older daemon does not report it
    shown += [f"warning: {sentence}" for sentence in filter(None, (rejected, *status["warnings"]))]
    for parked in status["parked"]:
        what = f"the removal of {parked['kind']} {shortened(parked['name'])}"
        shown.append(
            f"parked: {what} has not been answered for {format_duration(parked['seconds'])}"
        )
    if distrust := status["pod_directories"]["sentence"]:
        shown += ["", f"pods: {distrust}"]
    shown += function_lines(status["functions"], width)
    passes = [["STARTED", "SIGNAL", "RESULT", "REASON"]]
    for record in status["passes"]:
        acted_on = record["acted_on"]["signal"] if record["acted_on"] else "-"
        passes.append([f"{record['started'][:19]}Z", acted_on, record["result"], record["reason"]])
    return [*shown, "", *(table(passes, width) if len(passes) > 1 else ["no passes yet"])]


def function_lines(functions: dict[str, Any], width: int | None = None) -> list[str]:
    """What each reclaim function has done since the daemon started; empty before the first call."""
    rows = [["FUNCTION", "CALLS", "REMOVED", "FREED", "INODES", "SECONDS", "LAST CALL"]]
    for name, total in functions.items():
        last, measured = total["last"], total["measured"]
        numbers = (
            total["calls"],
            total["removed"],
            format_bytes(measured["bytes"]),
            measured["inodes"],
        )
        last_call = last["error"] or last["skipped"] or f"{last['started'][:19]}Z"
        rows.append([name, *map(str, numbers), f"{total['seconds']:.1f}", last_call])
    return ["", *table(rows, width)] if functions else []


# ---- top


def top(path: str, status: Any, arguments: argparse.Namespace) -> int:
    """Draws the status of the daemon until it is told to end.

    `status`: the daemon's first answer.
    """
    live = in_colour()
    with _terminal(live) as wait_for_quit:
        for screens in count(1):
            shown = (
                [str(status)]
                if isinstance(status, ControlUnavailable)
                else lines(status, columns())
            )
            fitting = screen(shown, columns(), shutil.get_terminal_size().lines)
            write_out(HOME_AND_CLEAR * live + "\n".join([*fitting, ""]))
            if screens == arguments.count or wait_for_quit(arguments.interval):
                break
            try:
                status = ask(path, "brief")
            except ControlUnavailable as error:  # it may be restarting
                status = error
    return EXIT_OK


def screen(shown: Iterable[str], width: int | None, height: int) -> list[str]:
    """The lines as they fit a terminal; without a width, in full.

    The last row is for the cursor.
    """
    wrapped = wrap_lines(map(escaped, shown), width)
    return (
        list(wrapped) if width is None else [line[:width] for line in islice(wrapped, height - 1)]
    )


@contextmanager
def _terminal(live: bool) -> Iterator[Callable[[float], bool]]:
    """Yields a function that waits for some seconds and returns whether q was pressed. Restores the
    terminal at the end. `live`: shows its alternate screen."""
    before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None

    def wait_for_quit(seconds: float) -> bool:
        ready, _, _ = select.select([] if before is None else [sys.stdin], [], [], seconds)
        return bool(ready) and os.read(sys.stdin.fileno(), 64).lower().startswith(b"q")

    write_out(SECOND_SCREEN * live, flush=False)
    try:
        if before is not None:
            tty.setcbreak(sys.stdin)
        yield wait_for_quit
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        write_out(FIRST_SCREEN * live)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(
            f"must be a number of seconds between 0.05 and 3600, but it was {text!r}"
        )
    return seconds


def _screens(text: str) -> int:
    if (screens := whole_number(text)) < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, but it was {text!r}")
    return screens
