"""Compares orders of removal by what is pulled again.

    python -m tests.bench regret [--workload ci …] [--order cost …] [--nodes 9] [--to FILE] [--page]

A run of everything goes to `tests/bench/measured` and, with `--page`, into the tests' page; any
other to `report`. The same seeds give the same figures on every machine. GDSF and LHD need `pip
install '.[test,bench]'`, in an environment without `dev`: libcachesim's botocore and kubernetes
want different versions of python-dateutil.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.effort import effort_of
from tests.bench.regret.bound import least_bytes_again
from tests.bench.regret.node import Figures, Node
from tests.bench.regret.page import MEASURED, Results, table, write_page
from tests.bench.regret.policies import POLICIES
from tests.bench.regret.workloads import WORKLOADS

NODES, FIRST_SEED = 9, 100  # on smaller seeds the order was made, so they are no test of it
REPORT = Path("report/regret.json")


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
        prog="python -m tests.bench regret", description=__doc__.partition("\n")[0]
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
        "--page", action="store_true", help="also puts the table into tests/README.md, and draws"
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
