"""`reclaimd ballast`: creates, shows or removes the file that `ReleaseBallast`
removes when the disk is full.
"""

from __future__ import annotations

import argparse
import signal
from contextlib import closing
from dataclasses import replace

from eviction.cli.options import add_output, answer, configuration_of, exit_on, exit_with, reading
from eviction.cli.progress import Progress
from eviction.configuration.file import FunctionKind, ballast_path, ballast_size
from eviction.decision.thresholds import highest_mark
from eviction.engine.ballast import Ballast, create_ballast, read_ballast
from eviction.engine.view import NodeView
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from reclaim.functions.ballast import BallastRefused, BallastSettings, remove_ballast
from signals.quantity import format_bytes

CREATE, STATUS, REMOVE = "create", "status", "remove"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = (
        "create: needs twice its size; status: whether it exists and is fully allocated; remove:"
        " unlink it"
    )
    parser.add_argument("action", choices=(CREATE, STATUS, REMOVE), help=what)
    file, size = reading(ballast_path), reading(ballast_size)
    parser.add_argument(
        "--file", metavar="FILE", type=file, help="its absolute path; default: as configured"
    )
    parser.add_argument(
        "--size", metavar="QUANTITY", type=size, help="its size, like 1Gi; default: as configured"
    )
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 1 refused or failed, and for `status` also if it does not exist or is not whole; 2
    usage or configuration, or file or size are not allowed.

    Example: reclaimd ballast create --file /var/lib/kubelet/ballast --size 1Gi
    """
    if (arguments.file is None) != (arguments.size is None):
        exit_with(
            EXIT_USAGE, "--file and --size go together; without them the configuration's are used"
        )
    action, made = arguments.action, True
    settings, mark_bytes = BallastSettings(arguments.file, arguments.size), 0
    if arguments.file is None:
        settings, mark_bytes = _configured(arguments)
    # like Ctrl-C: a half-made file is removed
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ballast = Ballast(file=settings.path, size_bytes=settings.size_bytes, there=False, whole=False)
    with exit_on(EXIT_NOT_RELIEVED, BallastRefused), Progress(f"{action} of {settings.path}"):
        if action == CREATE:
            ballast, made = create_ballast(settings, mark_bytes)
        elif action == REMOVE:
            ballast = replace(ballast, removed_bytes=remove_ballast(settings))
        else:
            ballast = read_ballast(settings) or ballast
    answer(
        arguments, ballast, lambda: [_sentence(ballast) + ("" if made else "; it already existed")]
    )
    return EXIT_OK if ballast.whole or action == REMOVE else EXIT_NOT_RELIEVED


def _configured(arguments: argparse.Namespace) -> tuple[BallastSettings, int]:
    """The ballast of the configuration; and for `create` the highest mark of its filesystem, in
    bytes. Exits with 2 if there is none."""
    configuration = configuration_of(arguments)
    found = configuration.ballast
    if found is None:
        why = (
            f"reclaimFunctions has no {FunctionKind.BALLAST}; add it there, or give --file and"
            " --size"
        )
        exit_with(EXIT_USAGE, why)
    settings = BallastSettings(found.path, found.size_bytes)
    if arguments.action != CREATE:
        return settings, 0
    with closing(NodeView(configuration)) as node:
        node.locate()
        observations = node.summary.observe()
        return settings, highest_mark(
            node.thresholds(observations.layout), observations, found.frees
        )


def _sentence(ballast: Ballast) -> str:
    if isinstance(ballast.removed_bytes, int):
        return f"{ballast.file}: removed, {format_bytes(ballast.removed_bytes)} were allocated"
    if not ballast.there:
        return f"{ballast.file}: does not exist"
    problem = f"; {ballast.problem}" if ballast.problem else ""
    size = f"{ballast.size_bytes} bytes ({format_bytes(ballast.size_bytes)})"
    return f"{ballast.file}: {size}, {ballast.allocated_bytes} allocated{problem}"
