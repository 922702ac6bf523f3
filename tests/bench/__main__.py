"""Runs every measurement and prints one table; `report/bench.json` holds the values, `report/bench.svg` the times.

`python -m tests.bench NAME …` runs some of them only: looks, rest, start, hooks, drills, growth, node, removals.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from eviction.explain import table
from signals.clock import SystemClock
from signals.filesystems import FilesystemPaths
from signals.statvfs import Probes
from signals.summary import NodeSummary
from tests.bench.chart import chart
from tests.bench.growth import growth
from tests.bench.hook import hooks, real_hooks
from tests.bench.measure import Observer, Row, command_milliseconds, seconds_of
from tests.bench.removals import removals
from tests.bench.rest import at_rest
from tests.real_node.conftest import what_is_missing
from tests.real_node.fill import fill_bytes
from tests.real_node.node import GIB, Node, running_node
from tests.real_node.oci import Image, random_layer
from tests.real_node.test_relief import configure
from tests.reclaimd_process import PROGRAM, Daemon, came_true, reclaimd

MIB = 1 << 20
RATES = (20, 100, 400)
RUNS = 5


def looks() -> list[Row]:
    """What one look at a node with two paths costs, beside the bare system call."""
    summary = NodeSummary(FilesystemPaths("/", "/tmp", "/tmp"), Probes(SystemClock()), SystemClock())
    summary.observe()
    many = 2000
    bare = [seconds_of(lambda: [os.statvfs("/") for _ in range(many)]) / many * 1e6 for _ in range(RUNS)]
    full = [seconds_of(lambda: [summary.observe() for _ in range(many)]) / many * 1e6 for _ in range(RUNS)]
    return [Row("os.statvfs, bare", "µs", bare), Row("one look at two filesystems", "µs", full)]


def start_up() -> list[Row]:
    """Whole processes."""
    with tempfile.TemporaryDirectory() as root:
        check = [PROGRAM, "check", "--root-dir", root, "--container-runtime-endpoint", f"unix://{root}/no.sock"]
        return [
            Row("python -c pass", "ms", command_milliseconds([sys.executable, "-c", "pass"], RUNS)),
            Row("reclaimd --help", "ms", command_milliseconds([PROGRAM, "--help"], RUNS)),
            Row("reclaimd check", "ms", command_milliseconds(check, RUNS)),
        ]


def drills() -> list[Row]:
    """The built-in drill: its own observer's times."""
    first, relief = [], []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as directory:
            document = json.loads(reclaimd("drill", "-o", "json", "--report", directory).stdout)
        first.append(document["from_crossing_to_first_removal_seconds"] * 1000)
        relief.append(document["from_crossing_to_relief_seconds"] * 1000)
    return [
        Row("embedded node: crossing to first removal", "ms", first),
        Row("embedded node: crossing to minimum reclaim", "ms", relief),
    ]


def real_node() -> list[Row]:
    """A real containerd on a loop-mounted ext4: 40 MiB on disk an image, a fill of 150 MiB across the mark."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, running_node(Path(directory), 4 * GIB) as node:
        for rate in RATES:
            gain, relief, below = [], [], []
            for _ in range(RUNS):
                observer = _one_fill(node, Path(directory), rate)
                if observer.crossed_at is None or observer.first_gain_at is None or observer.relieved_at is None:
                    raise RuntimeError(f"a fill of {rate} MiB/s was not relieved")
                gain.append((observer.first_gain_at - observer.crossed_at) * 1000)
                relief.append((observer.relieved_at - observer.crossed_at) * 1000)
                below.append((observer.mark - observer.lowest) / MIB)
            rows += [
                Row(f"containerd, {rate} MiB/s: crossing to the first byte freed", "ms", gain),
                Row(f"containerd, {rate} MiB/s: crossing to above the mark again", "ms", relief),
                Row(f"containerd, {rate} MiB/s: deepest below the mark", "MiB", below),
            ]
    return rows


def _one_fill(node: Node, directory: Path, rate: int) -> Observer:
    for number in range(10):
        node.import_image(Image(f"reclaimd.test/bench/{number}:1", (random_layer(number, 20 * MIB),)))
    time.sleep(1.1)
    mark = node.filesystem.available_bytes() - 75 * MIB
    configuration = configure(directory, node, evictionHard={"imagefs.available": str(mark)})
    with Daemon("--config", configuration) as daemon, Observer(str(node.mountpoint), mark) as observer:
        time.sleep(1.0)
        fill = fill_bytes(node.mountpoint / "fill", MIB, rate_bytes_per_second=rate * MIB)
        came_true(lambda: fill.amount() >= 150 * MIB, 30.0)
        fill.stop()
        came_true(lambda: observer.relieved_at is not None and bool(daemon.passes), 10.0)
    fill.remove()
    return observer


EVERYWHERE = {
    "looks": looks,
    "rest": at_rest,
    "start": start_up,
    "hooks": hooks,
    "drills": drills,
    "growth": growth,
}
ON_A_REAL_NODE = {"node": real_node, "real-hooks": real_hooks, "removals": removals}


def main(names: Sequence[str]) -> int:
    """Measures, prints, writes. Returns 2 for a name that is not one of the measurements."""
    known = EVERYWHERE | ON_A_REAL_NODE
    if unknown := set(names) - known.keys():
        print(f"no measurement {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    missing = what_is_missing()
    chosen = [name for name in names or known if missing is None or name in EVERYWHERE]
    rows = [row for name in chosen for row in known[name]()]
    print("\n".join(table([["WHAT", "RUNS", "MEDIAN", "P99", "BEST", "WORST"], *(row.cells() for row in rows)])))
    if missing is not None:
        print(f"left out: {missing}")
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    print(f"{machine}, {time.strftime('%Y-%m-%d')}")
    os.makedirs("report", exist_ok=True)
    document = {"machine": machine, "rows": [{"what": r.what, "unit": r.unit, "values": list(r.values)} for r in rows]}
    Path("report/bench.json").write_text(json.dumps(document, indent=2) + "\n")
    Path("report/bench.svg").write_text(chart([row for row in rows if row.unit == "ms"], machine))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
