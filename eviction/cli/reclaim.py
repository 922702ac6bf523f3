"""`reclaimd reclaim` without a daemon: the command itself runs one pass, or does
nothing if there is no pressure.

`ask_daemon` runs first: a running daemon does the pass faster.
"""

from __future__ import annotations

import argparse

from eviction.cli.local_node import LocalNode
from eviction.cli.output import print_answer
from eviction.cli.parser import OUTPUT

OPTIONS = {
    **OUTPUT,
    "--signal SIGNAL": "run its row whatever the pressure: until it is clear, or all of it",
    "--until VALUE": "with --signal: the mark to reach, a quantity or a percentage",
    "--room AMOUNT": "make so much available, and no more",
    "--on FILESYSTEM": "with --room: nodefs, imagefs, containerfs or your own",
    "--all": "continue to the end of the row, as the kubelet does",
    "--dry-run": "show what would be removed; remove nothing",
    "--now": "do not hold off shortly after a boot",
    "--standalone": "run the pass in this process; ask no daemon",
}


def run(arguments: argparse.Namespace) -> int:
    """Exit 0 relieved, nothing to do, or the room is there; 1 pressure remains, or room is missing;
    2 usage or configuration; 3 no runtime; 4 no reading; 6 paused.

    Example: reclaimd reclaim --dry-run --signal imagefs.available --until 30%
    """
    return print_answer(LocalNode(arguments).reclaim())
