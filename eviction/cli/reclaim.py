"""`reclaimd reclaim` without a daemon: the command itself runs one pass, or does
nothing if there is no pressure.

`ask_daemon` runs first: a running daemon does the pass faster.
"""

from __future__ import annotations

import argparse
import os
import threading

from eviction.cli.local_node import LocalNode
from eviction.cli.options import reading
from eviction.cli.output import exit_on, exit_with, print_answer
from eviction.cli.parser import OUTPUT
from eviction.cli.progress import mention
from eviction.configuration.text_forms import read_duration, within
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from eviction.surface.answer import HeldRoom
from signals.quantity import format_bytes, format_duration

OPTIONS = {
    **OUTPUT,
    "--signal SIGNAL": "run its row whatever the pressure: until it is clear, or all of it",
    "--until VALUE": "with --signal: the mark to reach, a quantity or a percentage",
    "--room AMOUNT": "make so much available, and no more",
    "--on FILESYSTEM": "with --room: nodefs, imagefs, containerfs or your own",
    "--hold": "with --room: keep it from others until this process ends, 10 minutes at most",
    "--all": "continue to the end of the row, as the kubelet does",
    "--dry-run": "show what would be removed; remove nothing",
    "--now": "do not hold off shortly after a boot",
    "--standalone": "run the pass in this process; ask no daemon",
}
HOLD_SECONDS = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--for",
        dest="seconds",
        type=reading(within(read_duration, "1s", "24h")),
        metavar="D",
        help="with --hold: at most so long, up to 24h (10m)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 relieved, nothing to do, or the room is there; 1 pressure remains, or room is missing;
    2 usage or configuration; 3 no runtime; 4 no reading; 6 paused.

    Example: reclaimd reclaim --dry-run --signal imagefs.available --until 30%
    """
    if arguments.hold and (not arguments.room or arguments.dry_run):
        exit_with(EXIT_USAGE, "--hold goes with --room, and not with --dry-run")
    if arguments.seconds is not None and not arguments.hold:
        exit_with(EXIT_USAGE, "--for goes with --hold")
    told_to_end = threading.Event()
    answer = LocalNode(arguments).reclaim(told_to_end)
    code = print_answer(answer)
    if arguments.hold and code == EXIT_OK and answer.room is not None:
        hold(answer.room, arguments.seconds or HOLD_SECONDS, told_to_end)
    return code


def hold(room: HeldRoom, seconds: float, told_to_end: threading.Event) -> None:
    """Takes what is above the marks with a file without a name, which is gone when this process
    is. Ends it with 1 if others were faster."""
    path, spare, asked = room
    what = f"{format_bytes(spare)} on {path}"
    with exit_on(EXIT_NOT_RELIEVED, OSError, f"{what} cannot be held: "):
        descriptor = os.open(path, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if spare:
            os.posix_fallocate(descriptor, 0, spare)
    less = (
        f"; {format_bytes(asked - spare)} are below the marks, and not held"
        if spare < asked
        else ""
    )
    mention(
        f"{what} are held by process {os.getpid()} until it ends, for"
        f" {format_duration(seconds)} at most{less}"
    )
    told_to_end.wait(seconds)
    os.close(descriptor)
