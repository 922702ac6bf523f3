"""What a drill prints on a terminal: its lines, a progress bar, its verdict, and the paths of the report."""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from eviction.cli.options import answer_json, answer_lines, columns, log_of, print_words, wrap_lines
from eviction.cli.progress import StatusLine
from eviction.reporting.log import Log
from signals.quantity import counted, format_bytes
from signals.types import FilesystemRole, SignalObservations

if TYPE_CHECKING:
    from eviction.drill.judgement.judge import DrillResult
    from eviction.record import Pass

BAR = 40


def print_line(line: str) -> None:
    """Prints a line on stdout, wrapped: the lines of a drill are its output, in order with the tables."""
    for part in wrap_lines([line], columns()):
        print(part, flush=True)  # noqa: T201 # data on stdout


def shown_by(arguments: argparse.Namespace) -> Callable[[str], None]:
    """What shows a line: on stdout, or on stderr if the answer there is one JSON document."""
    return print_words if arguments.output == "json" else print_line


def drill_log(arguments: argparse.Namespace) -> Log:
    """The log of the daemon in a drill, shown with `-v` only."""
    return log_of(arguments) if arguments.verbosity else Log(time.time, stream=io.StringIO())


def answer_result(result: DrillResult, lines: Sequence[str], arguments: argparse.Namespace) -> None:
    """Prints the document or the lines, writes the report, and shows the paths of its files. If it cannot be written, a
    message on stderr says so."""
    from eviction.drill.report.document import result_json
    from eviction.drill.report.write import write_reports

    document = result_json(result)
    if arguments.output == "json":
        answer_json(document)
    else:
        answer_lines(lines)
    try:
        shown_by(arguments)(f"report: {', '.join(write_reports(document, arguments.report))}")
    except OSError as error:
        print_words(f"the report could not be written: {error}")


class ProgressDisplay:
    """A progress bar on one line of a terminal, and lines that stay. `role`: the filesystem whose bar is shown."""

    def __init__(self, role: FilesystemRole, show: Callable[[str], None], *, inodes: bool):
        self._show = show
        self._line = StatusLine()
        self._inodes = inodes
        self._role = role

    def progress(self, seconds: float, observations: SignalObservations) -> None:
        """Redraws the bar with what is available now. Does nothing without a terminal."""
        found = observations.filesystems.get(self._role) or observations.filesystems.get(FilesystemRole.NODEFS)
        if found is None:
            return
        stats = found[1]
        free, total = (
            (stats.inodes_free, stats.inodes_total) if self._inodes else (stats.available_bytes, stats.capacity_bytes)
        )
        full = BAR - free * BAR // max(total, 1)
        shown = counted(free, "inode") if self._inodes else format_bytes(free)
        self._line.rewrite(f"{seconds:5.1f} s  [{'█' * full}{'·' * (BAR - full)}]  {shown} available")

    def show_pass(self, record: Pass) -> None:
        """Shows a pass, in lines that stay."""
        from eviction.reporting.explain import pass_lines

        self.end()
        for line in ("", *pass_lines(record, with_kept=False, width=columns())):
            self._show(line)

    def end(self) -> None:
        """Removes the progress bar."""
        self._line.erase()
