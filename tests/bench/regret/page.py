"""The table and the picture, from the file of a run.

A cell of the table: GiB pulled again for each GiB freed; GiB pulled again; times of DiskPressure; removals of images
that cannot be pulled again. All nodes of a workload together. `-`: not measured, and the line below says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from tests.bench.measure import figure
from tests.bench.regret.node import Figures
from tests.bench.regret.policies import POLICIES
from tests.bench.regret.workloads import GIB, WORKLOADS
from tests.repository import ROOT

MEASURED = ROOT / "tests" / "bench" / "measured" / "regret.json"
PAGE = ROOT / "tests" / "README.md"
HEAD = "| Order |" + "".join(f" {name} |" for name in WORKLOADS)
NAMES = {
    "kubelet": "the kubelet alone",
    "prune": "`crictl rmi --prune` daily",
    "docuum": "docuum's",
    "lru": "ours, `lru`",
    "cost": "ours, `cost`",
    "GDSF": "GDSF (libCacheSim)",
    "LHD": "LHD (libCacheSim)",
    "offline": "offline (heuristic)",
}
BOUND = "bound, GiB"
OF_THE_KUBELET, OF_OFFLINE = 0.5, 1.3
WIDTH, LABELS, BAR, GROUP, TOP = 900, 190, 15, 34, 30
INK, OTHERS, OURS, REFERENCE = "#57606a", "#9ec1e8", "#0b5cad", "#c9d1d9"


class Results:
    """What a run has found: `figures[workload][order]` of all its nodes together, `bounds[workload]` in bytes."""

    def __init__(self, document: Mapping[str, Any]):
        self.machine: str = document["machine"]
        self.missing: str = document["missing"]
        self.figures: dict[str, dict[str, Figures]] = {}
        self.bounds: dict[str, int] = {name: sum(of) for name, of in document["bounds"].items()}
        for row in document["rows"]:
            together = sum((Figures(**each) for each in row["nodes"]), Figures())
            self.figures.setdefault(row["workload"], {})[row["order"]] = together

    @classmethod
    def read(cls, file: Path) -> Results:
        """A whole file."""
        return cls(json.loads(file.read_text()))

    def ratio(self, workload: str, order: str, to: str) -> float | None:
        """Bytes pulled again under one order as a multiple of those under another; None if one is not there or 0."""
        found = self.figures.get(workload, {})
        if order not in found or to not in found or not found[to].again_bytes:
            return None
        return found[order].again_bytes / found[to].again_bytes


def table(results: Results) -> str:
    """The table, in Markdown, and a line about each order that is missing."""
    lines = [HEAD, "|" + "---|" * (len(WORKLOADS) + 1)]
    for order in POLICIES:
        lines.append(_line(NAMES[order], (_cell(results.figures.get(name, {}).get(order)) for name in WORKLOADS)))
    lines.append(_line(BOUND, (_gib(results.bounds[name]) if name in results.bounds else "-" for name in WORKLOADS)))
    for to, most in (("kubelet", OF_THE_KUBELET), ("offline", OF_OFFLINE)):
        ratios = (results.ratio(name, "cost", to) for name in WORKLOADS)
        cells = ("-" if ratio is None else f"{ratio:.2f}" + ", **above**" * (ratio > most) for ratio in ratios)
        lines.append(_line(f"`cost` ÷ {to} (aim {most:g})", cells))
    return "\n".join(lines) + "\n" + (f"\n{results.missing}\n" if results.missing else "")


def picture(results: Results) -> str:
    """GiB pulled again for each workload and order, as a part of the kubelet's. No style sheet, so that it shows in a
    README as it is."""
    parts, y = [f'<text x="8" y="18">bytes pulled again; {escape(results.machine)}</text>'], TOP
    for name, found in results.figures.items():
        most = max((each.again_bytes for each in found.values()), default=0)
        parts.append(f'<text x="8" y="{y + 14}" font-weight="bold">{escape(name)}</text>')
        for order, figures in found.items():
            length = (WIDTH - LABELS - 90) * figures.again_bytes / max(most, 1)
            colour = OURS if order in ("lru", "cost") else REFERENCE if order == "offline" else OTHERS
            parts += [
                f'<text x="{LABELS - 8}" y="{y + 12}" text-anchor="end">{escape(order)}</text>',
                f'<rect x="{LABELS}" y="{y + 2}" width="{max(length, 1):.1f}" height="{BAR - 3}" fill="{colour}"/>',
                f'<text x="{LABELS + length + 6:.1f}" y="{y + 12}">{_gib(figures.again_bytes)} GiB</text>',
            ]
            y += BAR
        y += GROUP - BAR
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" font-family="sans-serif" '
    return "\n".join([f'{head}font-size="12" fill="{INK}">', *parts, "</svg>"]) + "\n"


def write_page(file: Path) -> None:
    """Puts the table into the tests' page in place of the one that is there, and writes the picture beside the file.
    ValueError if the page has no such table."""
    results = Results.read(file)
    page, replaced = re.subn(shown_in(re.escape(HEAD)), lambda _: table(results), PAGE.read_text(), count=1)
    if not replaced:
        raise ValueError(f"{PAGE}: no table whose head is {HEAD!r}")
    PAGE.write_text(page)
    file.with_suffix(".svg").write_text(picture(results))


def shown_in(head: str) -> str:
    """A pattern of the table in a page, with the line about what is missing."""
    return head + r"\n(?:\|.*\n)*(?:\nLeft out: .*\n)?"


def _cell(figures: Figures | None) -> str:
    if figures is None:
        return "-"
    counts = (figures.again_per_gib, figures.again_bytes / GIB, figures.pressures, figures.lost)
    return ", ".join([f"{counts[0]:.2f}", *(figure(count) for count in counts[1:])])


def _gib(size_bytes: int) -> str:
    return figure(size_bytes / GIB)


def _line(name: str, cells: Iterable[str]) -> str:
    return f"| {name} |" + "".join(f" {cell} |" for cell in cells)
