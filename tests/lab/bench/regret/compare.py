"""Compares orders of removal by what is pulled again: `python -m tests.lab.bench regret`.

The figures go to `tests/lab/bench/measured` and the table into the tests' page; with
`RECLAIMD_BENCH=short`, which simulates one node of each workload, the figures to `report` alone.
The same seeds give the same figures on every machine. GDSF and LHD need `pip install
'.[test,bench]'`, in an environment without `dev`: libcachesim's botocore and kubernetes want
different versions of python-dateutil.

A cell of the table: bytes pulled again for each byte freed and GiB pulled again (medians of
the nodes); times of DiskPressure and removals of images that cannot be pulled again (of all
nodes together). Ratios are medians of the nodes', the worst in brackets.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.lab.bench.measure import effort_of, figure, markdown_line, put
from tests.lab.bench.regret.bound import least_bytes_again
from tests.lab.bench.regret.node import Figures, Node
from tests.lab.bench.regret.policies import LIBRARY, POLICIES
from tests.lab.bench.regret.workloads import GIB, WORKLOADS
from tests.repository import ROOT

NODES, FIRST_SEED = 9, 100  # on smaller seeds the order was made, so they are no test of it
REPORT = Path("report/regret.json")
MEASURED = ROOT / "tests" / "lab" / "bench" / "measured" / "regret.json"
PAGE = ROOT / "tests" / "README.md"
HEAD = markdown_line(("Order", *WORKLOADS))
SHOWN = re.escape(HEAD) + r"\n(?:\|.*\n)*"
"""A pattern of the table in a page."""
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


def main(_: Sequence[str]) -> int:
    """Simulates, prints, writes. Returns 1 without the library of two orders."""
    if find_spec(LIBRARY) is None:
        print("no libcachesim: pip install '.[test,bench]'", file=sys.stderr)
        return 1
    short = effort_of().short
    document = compare(1 if short else NODES)
    to = REPORT if short else MEASURED
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(document, indent=1) + "\n")
    print(table(document))
    if not short:
        put(PAGE, SHOWN, table(document))
    return 0


def compare(nodes: int) -> dict[str, Any]:
    """The document of a run: for each workload and order the figures of each node, and the bounds."""
    starts = 0
    found: dict[tuple[str, str], list[Figures]] = {
        (name, order): [] for name in WORKLOADS for order in POLICIES
    }
    bounds: dict[str, list[int]] = {name: [] for name in WORKLOADS}
    for name, workload in WORKLOADS.items():
        for seed in range(FIRST_SEED, FIRST_SEED + nodes):
            trace = workload(seed)
            for order, policy in POLICIES.items():
                found[name, order].append(Node(trace, policy(trace)).run())
                starts += len(trace.starts)
            bounds[name].append(least_bytes_again(trace))
        print(f"simulated: {name}", file=sys.stderr)
    return {
        "machine": f"{nodes} nodes of each workload, {starts} starts, simulated",
        "date": time.strftime("%Y-%m-%d"),
        "bounds": bounds,
        "rows": [
            {"workload": name, "order": order, "nodes": [asdict(each) for each in figures]}
            for (name, order), figures in found.items()
        ],
    }


# ---- the table


def table(document: Mapping[str, Any]) -> str:
    """The table, in Markdown."""
    nodes = {
        (row["workload"], row["order"]): [Figures(**each) for each in row["nodes"]]
        for row in document["rows"]
    }
    bounds: dict[str, list[int]] = document["bounds"]
    again = {key: [each.again_bytes for each in of] for key, of in nodes.items()}
    again |= {(name, BOUND): bounds[name] for name in WORKLOADS}
    lines = [HEAD, "|" + "---|" * (len(WORKLOADS) + 1)]
    lines += [
        markdown_line((NAMES[order], *(_cell(nodes[name, order]) for name in WORKLOADS)))
        for order in POLICIES
    ]
    medians = (_gib(statistics.median(bounds[name])) for name in WORKLOADS)
    lines.append(markdown_line((BOUND, *medians)))
    for to, most in (("kubelet", OF_THE_KUBELET), ("offline", OF_OFFLINE), (BOUND, math.inf)):
        aim = f" (aim {most:g})" if most < math.inf else ""
        ratios = (_ratio(again[name, "cost"], again[name, to], most) for name in WORKLOADS)
        lines.append(markdown_line((f"`cost` ÷ {to.removesuffix(', GiB')}{aim}", *ratios)))
    return "\n".join(lines) + "\n"


def _cell(nodes: Sequence[Figures]) -> str:
    ratio = statistics.median(each.again_per_byte for each in nodes)
    again = statistics.median(each.again_bytes for each in nodes)
    pressures, lost = sum(each.pressures for each in nodes), sum(each.lost for each in nodes)
    return f"{ratio:.2f}, {_gib(again)}, {pressures}, {lost}"


def _ratio(ours: Sequence[int], others: Sequence[int], most: float) -> str:
    """By node: bytes pulled again by ours as a multiple of the others'. Nodes where neither pulls
    any are left out; where only the others do not, the ratio is no number."""
    both = zip(ours, others, strict=True)
    ratios = sorted(one / other if other else math.inf for one, other in both if one or other)
    median = statistics.median(ratios)
    return f"{median:.2f} ({ratios[-1]:.2f})".replace("inf", "∞") + ", **above**" * (median > most)


def _gib(size_bytes: float) -> str:
    return figure(size_bytes / GIB)
