"""Compares orders of removal by what is pulled again.

    python -m tests.lab.bench regret [--workload ci …] [--order cost …] [--nodes 9] [--to FILE] [--page]

A run of everything goes to `tests/lab/bench/measured` and, with `--page`, into the tests' page; any
other to `report`. The same seeds give the same figures on every machine. GDSF and LHD need `pip
install '.[test,bench]'`, in an environment without `dev`: libcachesim's botocore and kubernetes
want different versions of python-dateutil.

A cell of the table: bytes pulled again for each byte freed and GiB pulled again (medians of
the nodes); times of DiskPressure and removals of images that cannot be pulled again (of all
nodes together). Ratios are medians of the nodes', the worst in brackets. `-`: not measured,
and the line below says why.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.lab.bench.measure import effort_of, figure, markdown_line, put
from tests.lab.bench.regret.bound import least_bytes_again
from tests.lab.bench.regret.node import Figures, Node
from tests.lab.bench.regret.policies import POLICIES
from tests.lab.bench.regret.workloads import GIB, WORKLOADS
from tests.repository import ROOT

NODES, FIRST_SEED = 9, 100  # on smaller seeds the order was made, so they are no test of it
REPORT = Path("report/regret.json")
MEASURED = ROOT / "tests" / "lab" / "bench" / "measured" / "regret.json"
PAGE = ROOT / "tests" / "README.md"
HEAD = markdown_line(("Order", *WORKLOADS))
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


def main(arguments: Sequence[str]) -> int:
    """Simulates, prints, writes. Returns 0."""
    asked = _parser(1 if effort_of().short else NODES).parse_args(arguments)
    whole = not asked.workload and not asked.order and asked.nodes == NODES
    document = compare(
        asked.workload or list(WORKLOADS), asked.order or list(POLICIES), asked.nodes
    )
    to: Path = asked.to or (MEASURED if whole else REPORT)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(document, indent=1) + "\n")
    print(table(Results(document)))
    if asked.page:
        write_page(to)
    return 0


def _parser(nodes: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.bench regret", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--workload", action="append", choices=WORKLOADS)
    parser.add_argument("--order", action="append", choices=POLICIES)
    parser.add_argument(
        "--nodes",
        type=int,
        default=nodes,
        help=f"how many nodes of each workload, seeds from {FIRST_SEED} on",
    )
    parser.add_argument("--to", type=Path, help="the file for the figures")
    parser.add_argument(
        "--page", action="store_true", help="also puts the table into tests/README.md"
    )
    return parser


def compare(workloads: Sequence[str], orders: Sequence[str], nodes: int) -> dict[str, Any]:
    """The document of a run: for each workload and order the figures of each node, and the bounds."""
    began, starts = time.monotonic(), 0
    found: dict[tuple[str, str], list[Figures]] = {
        (name, order): [] for name in workloads for order in orders
    }
    bounds: dict[str, list[int]] = {name: [] for name in workloads}
    missing: dict[str, str] = {}
    for name in workloads:
        for seed in range(FIRST_SEED, FIRST_SEED + nodes):
            trace = WORKLOADS[name](seed)
            bounds[name].append(least_bytes_again(trace))
            for order in orders:
                try:
                    policy = POLICIES[order](trace)
                except ImportError as error:
                    missing[order] = str(error)
                    continue
                found[name, order].append(Node(trace, policy).run())
                starts += len(trace.starts)
        print(f"{time.monotonic() - began:.0f} s: {name}", file=sys.stderr)
    seconds = time.monotonic() - began
    print(f"{starts} starts of containers in {seconds:.0f} s", file=sys.stderr)
    return {
        "machine": f"{nodes} nodes of each workload, {starts} starts, simulated",
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "missing": (
            "Left out: " + "; ".join(f"{order}: {why}" for order, why in missing.items())
            if missing
            else ""
        ),
        "bounds": bounds,
        "rows": [
            {"workload": name, "order": order, "nodes": [asdict(each) for each in figures]}
            for (name, order), figures in found.items()
            if figures
        ],
    }


# ---- the table


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
        cells = (_cell(results.figures.get(name, {}).get(order, [])) for name in WORKLOADS)
        lines.append(markdown_line((NAMES[order], *cells)))
    bounds = (results.bounds.get(name) for name in WORKLOADS)
    medians = (_gib(statistics.median(of)) if of else "-" for of in bounds)
    lines.append(markdown_line((BOUND, *medians)))
    for to, most in (("kubelet", OF_THE_KUBELET), ("offline", OF_OFFLINE), (BOUND, math.inf)):
        aim = f" (aim {most:g})" if most < math.inf else ""
        ratios = (_ratio(results.ratios(name, "cost", to), most) for name in WORKLOADS)
        lines.append(markdown_line((f"`cost` ÷ {to.removesuffix(', GiB')}{aim}", *ratios)))
    return "\n".join(lines) + "\n" + (f"\n{results.missing}\n" if results.missing else "")


def write_page(file: Path) -> None:
    """Puts the table into the tests' page in place of the one that is there. ValueError if the page
    has no such table."""
    put(PAGE, shown_in(re.escape(HEAD)), table(Results.read(file)))


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
