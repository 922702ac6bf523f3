"""The output of every drill: its lines, its log, its report files, and its progress."""

from __future__ import annotations

import argparse
import io
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

from eviction.cli.options import log_of
from eviction.cli.output import answer, answer_lines, columns
from eviction.cli.progress import Progress, print_message
from eviction.drill.judgement.judge import DrillResult
from eviction.drill.measurement.observer import Observation
from eviction.drill.report.document import DrillReportJson, report_of
from eviction.drill.report.lines import checks_table, row_lines, story_rows
from eviction.drill.report.page import junit_xml, page
from eviction.records.json_shapes import to_json
from eviction.records.passes import Pass
from eviction.wording.explain import pass_lines
from eviction.wording.log import Log
from eviction.wording.tables import amount
from signals.types import Signal


def shown_by(arguments: argparse.Namespace) -> Callable[[str], None]:
    """A function that prints a line on stdout, or on stderr if stdout gets one JSON document."""
    return print_message if arguments.output == "json" else lambda line: answer_lines([line])


def drill_log(arguments: argparse.Namespace) -> Log:
    """The log of the daemon in a drill, shown only with `-v 2`."""
    return log_of(arguments) if arguments.verbosity > 1 else Log(time.time, stream=io.StringIO())


def answer_result(result: DrillResult, arguments: argparse.Namespace) -> None:
    """Prints the document or the story of the run, writes the report, and prints the paths of its
    files, or why it cannot be written."""
    report = report_of(result)
    details = ["", *checks_table(report, columns()), ""] if arguments.verbosity else []
    answer(arguments, report, lambda: [*details, *row_lines(story_rows(report))])
    _write(files_of(report), arguments)


def files_of(report: DrillReportJson) -> dict[str, str]:
    """The files of a report by name: the page, the JSON document and JUnit XML."""
    stem = (
        f"drill-{report.scenario}"
        if report.response == "reclaimd"
        else f"drill-{report.scenario}-observed"
    )
    return {
        f"{stem}.html": page(report),
        f"{stem}.json": json.dumps(to_json(report), indent=2) + "\n",
        f"{stem}.xml": junit_xml(report),
    }


def _write(texts: Mapping[str, str], arguments: argparse.Namespace) -> None:
    """Writes files into the directory of `--report`, which is created if needed, and shows their
    paths, or says why they cannot be written."""
    paths = {os.path.join(arguments.report, name): text for name, text in texts.items()}
    try:
        os.makedirs(arguments.report, exist_ok=True)
        for path, text in paths.items():
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        print_message(f"the report could not be written: {error}")
    else:
        shown_by(arguments)(f"report: {', '.join(paths)}")


def pass_shower(arguments: argparse.Namespace) -> Callable[[Pass], None]:
    """A function that prints a pass, with `-v`."""
    if not arguments.verbosity:
        return lambda _: None
    show = shown_by(arguments)

    def show_pass(record: Pass) -> None:
        for line in ("", *pass_lines(record, columns())):
            show(line)

    return show_pass


def progress(
    signal: Signal, observation: Observation, arguments: argparse.Namespace
) -> AbstractContextManager[None]:
    """Shows what is available of a signal, on the last line of a terminal, while a `with` block
    runs. With `-v` passes are shown instead."""

    def available() -> str:
        observations = observation.measured.observations
        found = None if observations is None else observations.signals.get(signal)
        return "" if found is None else f"{amount(signal, found.available)} available"

    return nullcontext() if arguments.verbosity else Progress(str(signal), available)
