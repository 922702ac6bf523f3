"""`reclaimd check` without a daemon: signals, thresholds, headroom and layout, read by the
command itself. Read-only.

`ask_daemon` runs first: a running daemon answers in an eighth of the time and
with a third of the memory.
"""

from argparse import Namespace

from eviction.cli.local_files import LocalFiles
from eviction.cli.output import print_answer
from eviction.cli.parser import OUTPUT

OPTIONS = {
    **OUTPUT,
    "--npd": "one line of at most 80 characters, for node-problem-detector",
    "--standalone": "observe in this process; ask no daemon",
}


def run(arguments: Namespace) -> int:
    """Exit 0 clear; 1 a threshold is met; 2 usage or configuration; 4 a signal with a
    threshold could not be read.

    Example: reclaimd check -o json
    """
    return print_answer(LocalFiles(arguments).check(), arguments.output)
