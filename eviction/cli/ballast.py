"""`reclaimd ballast`: makes the file that `ReleaseBallast` gives up when the disk is full, shows it, removes it."""

from __future__ import annotations

import argparse
import signal
from contextlib import closing
from typing import Literal, NotRequired, TypedDict

from eviction.ballast import Ballast, create_ballast, read_ballast
from eviction.cli import EXIT_NOT_RELIEVED, EXIT_OK, EXIT_USAGE
from eviction.cli.options import (
    add_configuration,
    add_output,
    answer_json,
    answer_lines,
    configuration_of,
    exit_with,
)
from eviction.cli.progress import Progress
from eviction.configuration.effective import Configuration
from eviction.configuration.functions import FunctionKind, ballast_path, ballast_size
from eviction.decision.thresholds import highest_mark
from eviction.node.view import NodeView
from eviction.reporting.json_shapes import Count
from eviction.types import API_VERSION
from reclaim.ballast import BallastRefused, BallastSettings, remove_ballast
from signals.quantity import format_bytes
from signals.types import FilesystemRole

CREATE, STATUS, REMOVE = "create", "status", "remove"


class BallastJson(TypedDict):
    """The file that is given up when the disk is full: the answer of `reclaimd ballast`."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]
    """The version of this format. Fields may be added to it."""
    kind: Literal["Ballast"]
    """What the document is."""
    file: str
    """Its path."""
    size_bytes: Count
    """Its size as configured."""
    there: bool
    """Whether it is there."""
    whole: bool
    """Whether it is as it should be."""
    allocated_bytes: Count
    """What it takes on the disk."""
    extents: Count | None
    """In how many pieces; null where the filesystem does not tell."""
    problem: str
    """What is wrong with it; empty if nothing is."""
    removed_bytes: NotRequired[Count | None]
    """After `remove`: what it took; null: it was not there."""


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
    mark_bytes = 0
    if arguments.file is not None:
        settings = _settings(arguments.file, arguments.size)
    else:
        configuration = configuration_of(arguments)
        settings, role = configured_ballast(configuration)
        mark_bytes = _mark_bytes(configuration, role) if arguments.action == CREATE else 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what is half made is removed
    return act(arguments.action, settings, as_json=arguments.output == "json", mark_bytes=mark_bytes)


def _settings(path: str, size: str) -> BallastSettings:
    field = "--file"
    try:
        path, field = ballast_path(path), "--size"
        return BallastSettings(path, ballast_size(size))
    except ValueError as error:
        exit_with(EXIT_USAGE, f"{field}: {error}")


def configured_ballast(configuration: Configuration) -> tuple[BallastSettings, FilesystemRole]:
    """The ballast of the configuration, and the filesystem that it is on. Exits with 2 if there is none."""
    named = [function for function in configuration.functions if function.kind is FunctionKind.BALLAST]
    if not named:
        name = FunctionKind.BALLAST
        exit_with(EXIT_USAGE, f"reclaimFunctions has no {name}; name it there, or give --file and --size")
    return BallastSettings(named[0].path, named[0].size_bytes), named[0].frees


def _mark_bytes(configuration: Configuration, role: FilesystemRole) -> int:
    """What has to stay available on the ballast's filesystem by the thresholds of the configuration, in bytes."""
    with closing(NodeView(configuration)) as node:
        node.locate()
        observations = node.summary.observe()
        return highest_mark(node.thresholds(observations.layout), observations, role)


def act(action: str, settings: BallastSettings, *, as_json: bool, mark_bytes: int = 0) -> int:
    """Does it, and prints what there is then. `mark_bytes`: what `create` leaves besides twice the size."""
    with Progress(f"{action} of {settings.path}"):
        code, document, sentence = _done(action, settings, mark_bytes)
    if as_json:
        answer_json(document)
    else:
        answer_lines([sentence])
    return code


def _done(action: str, settings: BallastSettings, mark_bytes: int) -> tuple[int, BallastJson, str]:
    """Exit code, document and sentence. Exits with 1 for what is refused or fails."""
    try:
        if action == CREATE:
            ballast, made = create_ballast(settings, mark_bytes)
            return EXIT_OK, _document(settings, ballast), f"{_words(ballast)}{'' if made else '; it was there already'}"
        if action == REMOVE:
            freed = remove_ballast(settings)
            words = f"removed, {format_bytes(freed)} were allocated" if freed is not None else "it is not there"
            return EXIT_OK, {**_document(settings, None), "removed_bytes": freed}, f"{settings.path}: {words}"
        there = read_ballast(settings)
    except BallastRefused as error:
        exit_with(EXIT_NOT_RELIEVED, str(error))
    if there is None:
        return EXIT_NOT_RELIEVED, _document(settings, None), f"{settings.path}: it is not there"
    return EXIT_NOT_RELIEVED if there.problem else EXIT_OK, _document(settings, there), _words(there)


def _words(ballast: Ballast) -> str:
    pieces = {None: "", 1: " in 1 extent"}.get(ballast.extents, f" in {ballast.extents} extents")
    problem = f"; {ballast.problem}" if ballast.problem else ""
    size = f"{ballast.size_bytes} bytes ({format_bytes(ballast.size_bytes)})"
    return f"{ballast.path}: {size}, {ballast.allocated_bytes} allocated{pieces}{problem}"


def _document(settings: BallastSettings, ballast: Ballast | None) -> BallastJson:
    """`extents`: null where the filesystem does not tell."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Ballast",
        "file": settings.path,
        "size_bytes": settings.size_bytes,
        "there": ballast is not None,
        "whole": ballast is not None and not ballast.problem,
        "allocated_bytes": ballast.allocated_bytes if ballast else 0,
        "extents": ballast.extents if ballast else None,
        "problem": ballast.problem if ballast else "",
    }
