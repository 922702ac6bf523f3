"""`reclaimd reclaim` without a daemon: the command itself runs one pass, or does
nothing if there is no pressure.

`ask_daemon` runs first: a running daemon does the pass faster.
"""

import threading
from argparse import Namespace

from eviction.cli.local_node import LocalNode
from eviction.cli.output import exit_with, print_answer
from eviction.cli.parser import OBJECTS
from eviction.configuration.text_forms import read_duration, within
from eviction.exit_codes import EXIT_OK, EXIT_USAGE

OPTIONS = {
    "--for D": (
        "with --hold: at most so long, up to 24h (10m)",
        within(read_duration, "1s", "24h"),
    ),
    **OBJECTS,
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


def run(arguments: Namespace) -> int:
    """Exit 0 relieved, nothing to do, or the room is there; 1 pressure remains, or room is missing;
    2 usage or configuration; 3 no runtime; 4 no reading; 6 paused.

    Example: reclaimd reclaim --dry-run --signal imagefs.available --until 30%
    """
    if arguments.hold and (not arguments.room or arguments.dry_run):
        exit_with(EXIT_USAGE, "--hold goes with --room, and not with --dry-run")
    seconds = vars(arguments)["for"]
    if seconds is not None and not arguments.hold:
        exit_with(EXIT_USAGE, "--for goes with --hold")
    told_to_end = threading.Event()
    node = LocalNode(arguments)
    answer = node.reclaim(told_to_end)
    code = print_answer(answer, arguments.output)
    if arguments.hold and code == EXIT_OK and answer.room is not None:
        node.hold(answer.room, seconds or HOLD_SECONDS, told_to_end)
    return code
