"""`reclaimd ballast`: makes the file that `ReleaseBallast` gives up when the disk is full, shows it, removes it."""

from __future__ import annotations

import argparse
import signal
from contextlib import closing
from dataclasses import replace

from eviction.ballast import Ballast, create_ballast, read_ballast
from eviction.cli.options import add_configuration, add_output, answer, configuration_of, exit_with
from eviction.cli.progress import Progress
from eviction.configuration.effective import Configuration
from eviction.configuration.functions import FunctionKind, ballast_path, ballast_size
from eviction.decision.thresholds import highest_mark
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from eviction.node.view import NodeView
from reclaim.ballast import BallastRefused, BallastSettings, remove_ballast
from signals.quantity import format_bytes
from signals.types import FilesystemRole

CREATE, STATUS, REMOVE = "create", "status", "remove"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "action",
        choices=(CREATE, STATUS, REMOVE),
        help="create: make it, where twice its size is available; status: is it there and whole; remove: unlink it",
    )
    parser.add_argument("--file", metavar="FILE", help="the absolute path of the ballast; else as configured")
    parser.add_argument("--size", metavar="QUANTITY", help="its size, for example 1Gi; else as configured")
    add_output(parser)
    add_configuration(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0; 1: refused or failed, and for `status` also where it is not there; 2: file or size are not allowed."""
    if (arguments.file is None) != (arguments.size is None):
        exit_with(EXIT_USAGE, "--file and --size go together; without both they are those of the configuration")
    action, mark_bytes, made = arguments.action, 0, True
    if arguments.file is not None:
        settings = _settings(arguments.file, arguments.size)
    else:
        configuration = configuration_of(arguments)
        settings, role = _configured(configuration)
        mark_bytes = _mark_bytes(configuration, role) if action == CREATE else 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what is half made is removed
    absent = Ballast(file=settings.path, size_bytes=settings.size_bytes, there=False, whole=False)
    try:
        with Progress(f"{action} of {settings.path}"):
            if action == CREATE:
                ballast, made = create_ballast(settings, mark_bytes)
            elif action == REMOVE:
                ballast = replace(absent, removed_bytes=remove_ballast(settings))
            else:
                ballast = read_ballast(settings) or absent
    except BallastRefused as error:
        exit_with(EXIT_NOT_RELIEVED, str(error))
    answer(arguments, ballast, [_words(ballast) + ("" if made else "; it was there already")])
    return EXIT_OK if ballast.whole or action == REMOVE else EXIT_NOT_RELIEVED


def _settings(path: str, size: str) -> BallastSettings:
    field = "--file"
    try:
        path, field = ballast_path(path), "--size"
        return BallastSettings(path, ballast_size(size))
    except ValueError as error:
        exit_with(EXIT_USAGE, f"{field}: {error}")


def _configured(configuration: Configuration) -> tuple[BallastSettings, FilesystemRole]:
    """The ballast of the configuration, and the filesystem that it is on. Exits with 2 if there is none."""
    kind = FunctionKind.BALLAST
    ballast = next((function for function in configuration.functions if function.kind is kind), None)
    if ballast is None:
        exit_with(EXIT_USAGE, f"reclaimFunctions has no {kind}; name it there, or give --file and --size")
    return BallastSettings(ballast.path, ballast.size_bytes), ballast.frees


def _mark_bytes(configuration: Configuration, role: FilesystemRole) -> int:
    """What has to stay available on the ballast's filesystem by the thresholds of the configuration, in bytes."""
    with closing(NodeView(configuration)) as node:
        node.locate()
        observations = node.summary.observe()
        return highest_mark(node.thresholds(observations.layout), observations, role)


def _words(ballast: Ballast) -> str:
    if isinstance(ballast.removed_bytes, int):
        return f"{ballast.file}: removed, {format_bytes(ballast.removed_bytes)} were allocated"
    if not ballast.there:
        return f"{ballast.file}: it is not there"
    pieces = {None: "", 1: " in 1 extent"}.get(ballast.extents, f" in {ballast.extents} extents")
    problem = f"; {ballast.problem}" if ballast.problem else ""
    size = f"{ballast.size_bytes} bytes ({format_bytes(ballast.size_bytes)})"
    return f"{ballast.file}: {size}, {ballast.allocated_bytes} allocated{pieces}{problem}"
