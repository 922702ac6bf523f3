"""`reclaimd ballast`: creates, shows or removes the file that `ReleaseBallast` removes when the disk is full."""

from __future__ import annotations

import argparse
import signal
from contextlib import closing
from dataclasses import replace

from eviction.ballast import Ballast, create_ballast, read_ballast
from eviction.cli.options import add_configuration, add_output, answer, configuration_of, exit_on, exit_with
from eviction.cli.progress import Progress
from eviction.configuration.file import FunctionKind, ballast_path, ballast_size
from eviction.decision.thresholds import highest_mark
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from eviction.node.view import NodeView
from reclaim.ballast import BallastRefused, BallastSettings, remove_ballast
from signals.quantity import format_bytes

CREATE, STATUS, REMOVE = "create", "status", "remove"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=(CREATE, STATUS, REMOVE),
        help="create: needs twice its size; status: whether it exists and is fully allocated; remove: unlink it",
    )
    parser.add_argument("--file", metavar="FILE", help="the absolute path of the ballast; default: as configured")
    parser.add_argument("--size", metavar="QUANTITY", help="its size, for example 1Gi; default: as configured")
    add_output(parser)
    add_configuration(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 1: refused or failed, and for `status` also if it does not exist or is not whole; 2: file or size are not
    allowed."""
    if (arguments.file is None) != (arguments.size is None):
        exit_with(EXIT_USAGE, "--file and --size go together; without them the configuration's are used")
    action, made = arguments.action, True
    settings, mark_bytes = _configured(arguments) if arguments.file is None else (_named(arguments), 0)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: a half-made file is removed
    ballast = Ballast(file=settings.path, size_bytes=settings.size_bytes, there=False, whole=False)
    with exit_on(EXIT_NOT_RELIEVED, BallastRefused), Progress(f"{action} of {settings.path}"):
        if action == CREATE:
            ballast, made = create_ballast(settings, mark_bytes)
        elif action == REMOVE:
            ballast = replace(ballast, removed_bytes=remove_ballast(settings))
        else:
            ballast = read_ballast(settings) or ballast
    answer(arguments, ballast, lambda: [_sentence(ballast) + ("" if made else "; it already existed")])
    return EXIT_OK if ballast.whole or action == REMOVE else EXIT_NOT_RELIEVED


def _named(arguments: argparse.Namespace) -> BallastSettings:
    """The ballast that the options name. Exits with 2 if they are not allowed."""
    with exit_on(EXIT_USAGE, ValueError, "--file: "):
        path = ballast_path(arguments.file)
    with exit_on(EXIT_USAGE, ValueError, "--size: "):
        return BallastSettings(path, ballast_size(arguments.size))


def _configured(arguments: argparse.Namespace) -> tuple[BallastSettings, int]:
    """The ballast of the configuration; and for `create` the highest mark of its filesystem, in bytes. Exits with 2 if
    there is none."""
    configuration = configuration_of(arguments)
    found = configuration.ballast
    if found is None:
        why = f"reclaimFunctions has no {FunctionKind.BALLAST}; add it there, or give --file and --size"
        exit_with(EXIT_USAGE, why)
    settings = BallastSettings(found.path, found.size_bytes)
    if arguments.action != CREATE:
        return settings, 0
    with closing(NodeView(configuration)) as node:
        node.locate()
        observations = node.summary.observe()
        return settings, highest_mark(node.thresholds(observations.layout), observations, found.frees)


def _sentence(ballast: Ballast) -> str:
    if isinstance(ballast.removed_bytes, int):
        return f"{ballast.file}: removed, {format_bytes(ballast.removed_bytes)} were allocated"
    if not ballast.there:
        return f"{ballast.file}: does not exist"
    pieces = {None: "", 1: " in 1 extent"}.get(ballast.extents, f" in {ballast.extents} extents")
    problem = f"; {ballast.problem}" if ballast.problem else ""
    size = f"{ballast.size_bytes} bytes ({format_bytes(ballast.size_bytes)})"
    return f"{ballast.file}: {size}, {ballast.allocated_bytes} allocated{pieces}{problem}"
