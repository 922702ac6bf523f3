"""`reclaimd history`: every pass and every removal of the last weeks. Reads the file alone; needs no daemon."""

from __future__ import annotations

import argparse
from typing import Literal, TypedDict, cast

from eviction.cli.options import (
    add_configuration,
    add_output,
    answer_json,
    answer_lines,
    columns,
    configuration_of,
    exit_with,
    mention,
)
from eviction.cli.progress import Progress
from eviction.exit_codes import EXIT_OK, EXIT_USAGE
from eviction.history_file.entries import Document, documents_of
from eviction.history_file.query import QueryError, selected, since
from eviction.history_file.reading import HistoryUnusable, NoHistoryYet, read_records
from eviction.history_file.shapes import RecordJson
from eviction.history_file.table import history_lines
from eviction.types import API_VERSION
from signals.clock import SystemClock


class HistoryJson(TypedDict):
    """What the history file holds: the answer of `reclaimd history`."""

    apiVersion: Literal["reclaimd.io/v1alpha1"]
    """The version of this format. Fields may be added to it."""
    kind: Literal["History"]
    """What the document is."""
    file: str
    """The history file."""
    records: list[RecordJson]
    """The oldest first. One that an older version has written may lack a field."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--since", metavar="WHEN", help="only from then on: 2h, 7d, or a time such as 2026-11-22T10:00:00Z"
    )
    parser.add_argument(
        "--object",
        metavar="TEXT",
        help="only removals of objects whose name contains TEXT, or whose id begins with it (with or without sha256:)",
    )
    parser.add_argument("--limit", metavar="N", type=_count, help="the newest N passes and events")
    add_output(parser)
    add_configuration(parser)


def run(arguments: argparse.Namespace) -> int:
    """Exit 0, also without a file yet; 2 when there is none by the configuration, or it cannot be read."""
    configuration = configuration_of(arguments)
    path = configuration.history_file
    if not path:
        exit_with(EXIT_USAGE, "historyFile is empty, so no history is kept")
    try:
        start = "" if arguments.since is None else since(arguments.since, SystemClock().wall())
    except QueryError as error:
        exit_with(EXIT_USAGE, f"--since: {error}")
    found: list[Document] = []
    try:
        with Progress("reading the history"):
            records = documents_of(read_records(path))
            found = selected(records, start=start, about=arguments.object or "", limit=arguments.limit)
        if not found:
            mention(f"nothing of that is in the history {path}")
    except NoHistoryYet as error:
        mention(f"{error}; the daemon makes it at its start")
    except HistoryUnusable as error:
        exit_with(EXIT_USAGE, f"historyFile: {error}")
    if arguments.output == "json":
        answer: HistoryJson = {
            "apiVersion": API_VERSION,
            "kind": "History",
            "file": path,
            "records": cast("list[RecordJson]", found),
        }
        answer_json(answer)
    elif found:
        answer_lines(history_lines(found, columns()))
    return EXIT_OK


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**9):
        raise argparse.ArgumentTypeError(f"must be a number above 0, but it was {text!r}")
    return int(text)
