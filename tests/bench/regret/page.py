"""The table and the picture, from the file of a run.

A cell of the table: bytes pulled again for each byte freed and GiB pulled again (medians of
the nodes); times of DiskPressure and removals of images that cannot be pulled again (of all
nodes together). Ratios are medians of the nodes', the worst in brackets. `-`: not measured,
and the line below says why.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
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
    """What a run has found:

    `figures[workload][order]` of each node, `bounds[workload]` in bytes.
    """

    def __init__(self, document: Mapping[str, Any]):
        self.machine: str = document["machine"]
        self.missing: str = document["missing"]
        self.figures: dict[str, dict[str, list[Figures]]] = {}
        self.bounds: dict[str, list[int]] = document["bounds"]
        for row in document["rows"]:
            self.figures.setdefault(row["workload"], {})[row["order"]] = [
                Figures(**each) for each in row["nodes"]
            ]

    @classmethod
    def read(cls, file: Path) -> Results:
        """A whole file."""
        return cls(json.loads(file.read_text()))

    def ratios(self, workload: str, order: str, to: str) -> list[float]:
        """By node: bytes pulled again under one order as a multiple of those under another, or
        of the bound. Of nodes where the other one has none, and so the ratio is no number,
        those are left out where both have none."""
        pulled = {
            name: [each.again_bytes for each in nodes]
            for name, nodes in self.figures.get(workload, {}).items()
        }
        pulled[BOUND] = self.bounds.get(workload, [])
        of_bytes = list(zip(pulled.get(order, []), pulled.get(to, []), strict=False))
        return sorted(one / other if other else math.inf for one, other in of_bytes if one or other)


def table(results: Results) -> str:
    """The table, in Markdown, and a line about each order that is missing."""
    lines = [HEAD, "|" + "---|" * (len(WORKLOADS) + 1)]
    for order in POLICIES:
        lines.append(
            _line(
                NAMES[order],
                (_cell(results.figures.get(name, {}).get(order, [])) for name in WORKLOADS),
            )
        )
    bounds = (results.bounds.get(name) for name in WORKLOADS)
    lines.append(_line(BOUND, (_gib(statistics.median(of)) if of else "-" for of in bounds)))
    for to, most in (("kubelet", OF_THE_KUBELET), ("offline", OF_OFFLINE), (BOUND, math.inf)):
        aim = f" (aim {most:g})" if most < math.inf else ""
        ratios = (results.ratios(name, "cost", to) for name in WORKLOADS)
        lines.append(
            _line(
                f"`cost` ÷ {to.removesuffix(', GiB')}{aim}", (_ratio(each, most) for each in ratios)
            )
        )
    return "\n".join(lines) + "\n" + (f"\n{results.missing}\n" if results.missing else "")


def picture(results: Results) -> str:
    """GiB pulled again for each workload and order: medians of the nodes. No style sheet, so that
    it shows in a README as it is."""
    parts, y = (
        [f'<text x="8" y="18">bytes pulled again, medians of {escape(results.machine)}</text>'],
        TOP,
    )
    for name, found in results.figures.items():
        medians = {
            order: statistics.median(each.again_bytes for each in nodes)
            for order, nodes in found.items()
        }
        most = max(medians.values(), default=0)
        parts.append(f'<text x="8" y="{y + 14}" font-weight="bold">{escape(name)}</text>')
        for order, again in medians.items():
            length = (WIDTH - LABELS - 90) * again / max(most, 1)
            colour = (
                OURS if order in ("lru", "cost") else REFERENCE if order == "offline" else OTHERS
            )
            parts += [
                f'<text x="{LABELS - 8}" y="{y + 12}" text-anchor="end">{escape(order)}</text>',
                (
                    f'<rect x="{LABELS}" y="{y + 2}" width="{max(length, 1):.1f}"'
                    f' height="{BAR - 3}" fill="{colour}"/>'
                ),
                f'<text x="{LABELS + length + 6:.1f}" y="{y + 12}">{_gib(again)} GiB</text>',
            ]
            y += BAR
        y += GROUP - BAR
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}"'
        ' font-family="sans-serif" '
    )
    return "\n".join([f'{head}font-size="12" fill="{INK}">', *parts, "</svg>"]) + "\n"


def write_page(file: Path) -> None:
    """Puts the table into the tests' page in place of the one that is there, and writes the picture
    beside the file. ValueError if the page has no such table."""
    results = Results.read(file)
    page, replaced = re.subn(
        shown_in(re.escape(HEAD)), lambda _: table(results), PAGE.read_text(), count=1
    )
    if not replaced:
        raise ValueError(f"{PAGE}: no table whose head is {HEAD!r}")
    PAGE.write_text(page)
    file.with_suffix(".svg").write_text(picture(results))


def shown_in(head: str) -> str:
    """A pattern of the table in a page, with the line about what is missing."""
    return head + r"\n(?:\|.*\n)*(?:\nLeft out: .*\n)?"


def _cell(nodes: Sequence[Figures]) -> str:
    if not nodes:
        return "-"
    ratio = statistics.median(each.again_per_byte for each in nodes)
    counts = (sum(each.pressures for each in nodes), sum(each.lost for each in nodes))
    return ", ".join(
        [
            f"{ratio:.2f}",
            _gib(statistics.median(each.again_bytes for each in nodes)),
            *map(str, counts),
        ]
    )


def _ratio(ratios: Sequence[float], most: float) -> str:
    if not ratios:
        return "-"
    median = statistics.median(ratios)
    return f"{median:.2f} ({ratios[-1]:.2f})".replace("inf", "∞") + ", **above**" * (median > most)


def _gib(size_bytes: float) -> str:
    return figure(size_bytes / GIB)


def _line(name: str, cells: Iterable[str]) -> str:
    return f"| {name} |" + "".join(f" {cell} |" for cell in cells)
