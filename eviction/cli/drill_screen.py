"""What a drill shows on a terminal: its story, a bar that moves, and where the report is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eviction.cli.options import columns, print_words, wrap_lines
from eviction.cli.progress import StatusLine
from signals.quantity import format_bytes
from signals.types import FilesystemRole, SignalObservations

BAR = 40


def tell(line: str) -> None:
    """The story of a drill is its data: on stdout, in order with the tables."""
    for part in wrap_lines([line], columns()):
        print(part, flush=True)  # noqa: T201 # data on stdout


def write_report(document: dict[str, Any], directory: str, tell: Callable[[str], None]) -> None:
    """Writes the report and names its files; that it cannot be written is said, and no more."""
    from eviction.drill.report.write import write_reports

    try:
        tell(f"report: {', '.join(write_reports(document, directory))}")
    except OSError as error:
        print_words(f"the report could not be written: {error}")


class Screen:
    """Progress on one line of a terminal; lines that stay everywhere. `role`: the filesystem that is shown."""

    def __init__(self, role: FilesystemRole, tell: Callable[[str], None], *, inodes: bool):
        self._tell = tell
        self._line = StatusLine()
        self._inodes = inodes
        self._role = role

    def progress(self, seconds: float, observations: SignalObservations) -> None:
        """What is available now; nothing where no terminal is."""
        found = observations.filesystems.get(self._role) or observations.filesystems.get(FilesystemRole.NODEFS)
        if found is None:
            return
        stats = found[1]
        free, total = (
            (stats.inodes_free, stats.inodes_total) if self._inodes else (stats.available_bytes, stats.capacity_bytes)
        )
        full = BAR - free * BAR // max(total, 1)
        shown = f"{free} inodes" if self._inodes else format_bytes(free)
        self._line.rewrite(f"{seconds:5.1f} s  [{'█' * full}{'·' * (BAR - full)}]  {shown} available")

    def lines(self, lines: list[str]) -> None:
        """Lines that stay."""
        self.end()
        for line in lines:
            self._tell(line)

    def end(self) -> None:
        """Clears the progress."""
        self._line.erase()
