"""What a drill prints on a terminal: its lines, a progress bar, and the paths of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eviction.cli.options import columns, print_words, wrap_lines
from eviction.cli.progress import StatusLine
from signals.quantity import counted, format_bytes
from signals.types import FilesystemRole, SignalObservations

BAR = 40


def print_line(line: str) -> None:
    """Prints a line on stdout, wrapped: the lines of a drill are its output, in order with the tables."""
    for part in wrap_lines([line], columns()):
        print(part, flush=True)  # noqa: T201 # data on stdout


def write_report(document: Mapping[str, Any], directory: str, show: Callable[[str], None]) -> None:
    """Writes the report and shows the paths of its files. If it cannot be written, a message on stderr says so."""
    from eviction.drill.report.write import write_reports

    try:
        show(f"report: {', '.join(write_reports(document, directory))}")
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

    def lines(self, lines: list[str]) -> None:
        """Prints lines that stay."""
        self.end()
        for line in lines:
            self._show(line)

    def end(self) -> None:
        """Removes the progress bar."""
        self._line.erase()
