"""Runs every measurement and prints one table; a JSON document holds the
values, an SVG shows the times.

`python -m tests.bench NAME …` runs only some of them. Two are not among them: `ablate`, the engine
with and without each of its rules, and `regret`, a simulator of what removals cost later.
`RECLAIMD_BENCH=short` runs a little of each, to check that it runs. A whole run of everything
writes to `tests/bench/measured`; any other to `report`.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from eviction.wording.explain import table
from signals.clock import SystemClock
from signals.filesystems import FilesystemPaths, read_statvfs
from signals.samplers import Samplers
from signals.summary import NodeSummary
from tests.bench import ablate
from tests.bench.beside import beside
from tests.bench.chart import chart
from tests.bench.containerd_first_byte import containerd_first_byte
from tests.bench.effort import Effort, effort_of
from tests.bench.filesystems import filesystems
from tests.bench.first_byte import first_byte
from tests.bench.growth import growth
from tests.bench.hook import asking, hooks, real_hooks
from tests.bench.measure import Row, command_milliseconds, seconds_of
from tests.bench.ratios import ratios
from tests.bench.regret import compare
from tests.bench.removals import removals
from tests.bench.rest import at_rest, storm
from tests.bench.side_by_side import side_by_side
from tests.pure.values import on_new_thread
from tests.real_node.conftest import what_is_missing
from tests.reclaimd_process import PROGRAM, reclaimd

MEASURED = Path(__file__).with_name("measured")
REPORT = Path("report")
CHARTED = ("crossing to", "hook, exec")  # of the times, those of responses


def observations(effort: Effort) -> list[Row]:
    """The cost of one observation of a node with two paths, beside the bare system call."""
    summary = NodeSummary(
        FilesystemPaths("/", "/tmp", "/tmp"),
        Samplers(SystemClock(), read_statvfs, on_new_thread),
        SystemClock(),
    )
    summary.observe()
    many = 2000
    bare = [
        seconds_of(lambda: [os.statvfs("/") for _ in range(many)]) / many * 1e6
        for _ in range(effort.runs)
    ]
    full = [
        seconds_of(lambda: [summary.observe() for _ in range(many)]) / many * 1e6
        for _ in range(effort.runs)
    ]
    return [
        Row("os.statvfs, bare", "µs", bare),
        Row("one observation of two filesystems", "µs", full),
    ]


def start_up(effort: Effort) -> list[Row]:
    """The times of whole processes, from exec to exit."""
    with tempfile.TemporaryDirectory() as root:
        check = [
            PROGRAM,
            "check",
            "--root-dir",
            root,
            "--container-runtime-endpoint",
            f"unix://{root}/no.sock",
        ]
        return [
            Row(
                "python -c pass",
                "ms",
                command_milliseconds([sys.executable, "-c", "pass"], effort.runs),
            ),
            Row("reclaimd --help", "ms", command_milliseconds([PROGRAM, "--help"], effort.runs)),
            Row("reclaimd check, standalone", "ms", command_milliseconds(check, effort.runs)),
            *asking(effort),
        ]


def drills(effort: Effort) -> list[Row]:
    """The built-in drill, with the times of its own observer."""
    first, relief = [], []
    for _ in range(effort.runs):
        with tempfile.TemporaryDirectory() as directory:
            document = json.loads(reclaimd("drill", "-o", "json", "--report", directory).stdout)
        first.append(document["from_crossing_to_first_removal_seconds"] * 1000)
        relief.append(document["from_crossing_to_relief_seconds"] * 1000)
    return [
        Row("embedded node: crossing to first removal", "ms", first),
        Row("embedded node: crossing to minimum reclaim", "ms", relief),
    ]


Measurement = Callable[[Effort], list[Row]]

EVERYWHERE: dict[str, Measurement] = {
    "observations": observations,
    "rest": at_rest,
    "storm": storm,
    "start": start_up,
    "hooks": hooks,
    "drills": drills,
    "growth": growth,
    "first-byte": first_byte,
}
ON_A_REAL_NODE: dict[str, Measurement] = {
    "side-by-side": side_by_side,
    "real-hooks": real_hooks,
    "filesystems": filesystems,
    "removals": removals,
    "containerd-first-byte": containerd_first_byte,
    "beside": beside,
}


def main(names: Sequence[str]) -> int:
    """Measures, prints, writes. Returns 2 for a name that is not one of the measurements."""
    if names[:1] == ["ablate"]:
        return ablate.main(names[1:])
    if names[:1] == ["regret"]:
        return compare.main(names[1:])
    known, effort = EVERYWHERE | ON_A_REAL_NODE, effort_of()
    if unknown := set(names) - known.keys():
        print(
            f"no measurement {', '.join(sorted(unknown))}; there are {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    missing = what_is_missing()
    rows: list[Row] = []
    began = time.monotonic()
    for name in names or known:
        if missing is None or name in EVERYWHERE:
            print(f"{time.monotonic() - began:.0f} s: {name}", file=sys.stderr)
            rows += known[name](effort)
    rows += ratios(rows)
    print(
        "\n".join(
            table(
                [["WHAT", "RUNS", "MEDIAN", "P99", "BEST", "WORST"], *(row.cells() for row in rows)]
            )
        )
    )
    if missing is not None:
        print(f"left out: {missing}")
    machine = (
        f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )
    machine += "; a short run" * effort.short
    print(f"{machine}, {time.strftime('%Y-%m-%d')}; took {time.monotonic() - began:.0f} s")
    whole = not names and not effort.short and missing is None
    write(rows, machine, MEASURED if whole else REPORT)
    return 0


def write(rows: Sequence[Row], machine: str, directory: Path) -> None:
    """The values as `bench.json`, the times as `bench.svg`."""
    directory.mkdir(parents=True, exist_ok=True)
    document = {
        "machine": machine,
        "date": time.strftime("%Y-%m-%d"),
        "rows": [
            {"what": row.what, "unit": row.unit, "values": [round(v, 4) for v in row.values]}
            for row in rows
        ],
    }
    (directory / "bench.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    shown = [row for row in rows if row.unit == "ms" and any(word in row.what for word in CHARTED)]
    (directory / "bench.svg").write_text(chart(shown, machine))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
