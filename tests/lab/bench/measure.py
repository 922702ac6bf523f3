"""How much is measured: the whole run, or a short one that shows that everything
runs from beginning to end; and how what was measured is written.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.repository import ROOT

MIB = 1 << 20
PRODUCT = ("signals", "reclaim", "eviction")


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, of how many runs, in which unit, and the values."""

    what: str
    unit: str
    values: Sequence[float]

    def cells(self) -> list[str]:
        """Median and extremes, for the table."""
        figures = (statistics.median(self.values), min(self.values), max(self.values))
        shown = (f"{figure(value)} {self.unit}" for value in figures)
        return [self.what, str(len(self.values)), *shown]


def figure(value: float) -> str:
    """Three significant digits, without powers of ten."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def markdown_line(cells: Iterable[object]) -> str:
    """A line of a table in Markdown."""
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in map(str, cells))


def put(page: Path, pattern: str, text: str) -> None:
    """Writes this into a page, in place of what is there now. ValueError if nothing there matches
    the pattern."""
    whole, replaced = re.subn(pattern, lambda _: text, page.read_text(), count=1)
    if not replaced:
        raise ValueError(f"{page}: nothing in it is like {pattern!r}")
    page.write_text(whole)


def commit() -> str:
    """The last commit that has changed the product, with `-changed` if what runs differs from that;
    empty without git."""
    asked = ("log -1 --format=%h --abbrev=8", "status --porcelain")
    commands = [["git", "-C", str(ROOT), *words.split(), "--", *PRODUCT] for words in asked]
    head, changed = (
        subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
        for command in commands
    )
    return f"{head}-changed" if changed else head


@dataclass(frozen=True)
class Effort:
    """Numbers of runs, seconds and sizes. `rates`: MiB a second; `images`: unused ones, of
    `image_bytes` each (twice that on the disk); `dead`: containers that may be removed."""

    short: bool = False
    hooks: int = 12
    rest_seconds: float = 5.0
    stretches: int = 2
    memory_seconds: float = 10.0
    rates: tuple[int, ...] = (100, 400)
    images: int = 300
    image_bytes: int = 5 * MIB
    dead: int = 500


SHORT = Effort(
    short=True,
    hooks=2,
    rest_seconds=1.0,
    stretches=1,
    memory_seconds=0.5,
    rates=(400,),
    images=24,
    dead=50,
)


def effort_of() -> Effort:
    """The whole run, unless `RECLAIMD_BENCH=short`."""
    return SHORT if os.environ.get("RECLAIMD_BENCH") == "short" else Effort()
