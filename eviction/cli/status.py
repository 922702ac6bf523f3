"""`reclaimd status`: what the running daemon is doing, and its last passes."""

from __future__ import annotations

import argparse
from typing import Any

from eviction.cli.daemon_configuration import mention_other_configuration
from eviction.cli.options import (
    add_configuration,
    add_output,
    answer_json,
    answer_lines,
    columns,
    configuration_of,
    exit_with,
)
from eviction.cli.progress import Progress
from eviction.control.socket import ControlUnavailable, ask
from eviction.exit_codes import EXIT_OK, EXIT_RUNTIME
from eviction.reporting.conditions import remarks_of, status_in_words
from eviction.reporting.explain import lead_sentence
from eviction.reporting.log import escaped
from eviction.reporting.pass_record import shortened
from eviction.reporting.tables import amount, layout_in_words, table
from signals.quantity import format_bytes, format_duration
from signals.types import Signal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_configuration(parser)
    add_output(parser)
    parser.add_argument(
        "--history", action="store_true", help="with -o json: the last observations and decisions too, to be replayed"
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 3 when no daemon answers."""
    path = configuration_of(arguments).control_socket
    try:
        with Progress("asking the daemon"):
            status = ask(path, "status")
    except ControlUnavailable as error:
        exit_with(EXIT_RUNTIME, str(error))
    mention_other_configuration(arguments, path, status)
    if not arguments.history:
        status.pop("history", None)
    if arguments.output == "json":
        answer_json(status)
    else:
        answer_lines(lines(status, columns()))
    return EXIT_OK


def lines(status: dict[str, Any], width: int | None = None) -> list[str]:
    """The answer for people."""
    doing = status["doing"] or "watching"
    layout = layout_in_words(status["layout"], (one["signal"] for one in status["observations"]))
    head = [f"{status_in_words(status)}; {doing}; layout {layout}"]
    head += remarks_of(status)
    head += [f"warning: {escaped(sentence)}" for sentence in status.get("warnings", ())]  # an older daemon says none
    available = {observation["signal"]: observation["available"] for observation in status["observations"]}
    rows = [["SIGNAL", "AVAILABLE", "MARK", "TIME TO THE MARK"]]
    for threshold in status["thresholds"]:
        signal, mark, left = Signal(threshold["signal"]), threshold["effective"], threshold["headroom_seconds"]
        seen = available.get(threshold["signal"])
        rows.append(
            [
                threshold["signal"],
                "-" if seen is None else amount(signal, seen),
                "-" if mark is None else amount(signal, mark),
                "-" if left is None else format_duration(left) if left > 0 else "below",
            ]
        )
    head += table(rows, width, "thresholds")
    head += filter(None, [lead_sentence(status.get("lead_seconds", 0.0))])  # an older daemon does not say it
    for parked in status.get("parked", ()):  # an older daemon does not say it
        since = format_duration(parked["seconds"])
        head.append(f"parked: the removal of {parked['kind']} {shortened(parked['name'])} is not answered for {since}")
    doubt = (status.get("pod_directories") or {}).get("sentence")  # an older daemon does not say it
    if doubt:
        head += ["", f"pods: {escaped(doubt)}"]
    head += function_lines(status.get("functions") or {}, width)  # an older daemon does not say it
    passes = [["STARTED", "SIGNAL", "RESULT", "REASON"]]
    for record in status["passes"]:
        acted_on = record["acted_on"]["signal"] if record["acted_on"] else "-"
        passes.append([f"{record['started'][:19]}Z", acted_on, record["result"], record["reason"]])
    return [*head, "", *(table(passes, width, "passes") if len(passes) > 1 else ["no passes yet"])]


def function_lines(functions: dict[str, Any], width: int | None = None) -> list[str]:
    """What each reclaim function has done since the start; nothing before the first call."""
    rows = [["FUNCTION", "CALLS", "REMOVED", "FREED", "INODES", "SECONDS", "LAST CALL"]]
    for name, total in functions.items():
        last, measured = total["last"], total["measured"]
        rows.append(
            [
                name,
                str(total["calls"]),
                str(total["removed"]),
                format_bytes(measured["bytes"]),
                str(measured["inodes"]),
                f"{total['seconds']:.1f}",
                last["error"] or last["skipped"] or f"{last['started'][:19]}Z",
            ]
        )
    return ["", *table(rows, width, "functions")] if functions else []
