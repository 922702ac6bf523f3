"""Runs every measurement and prints one table; a JSON document holds the values.

`python -m tests.lab.bench NAME …` runs only some of them. Two are not among them: `ablate`, the engine
with and without each of its rules, and `regret`, a simulator of what removals cost later.
`RECLAIMD_BENCH=short` runs a little of each, to check that it runs. A whole run of everything
writes to `tests/lab/bench/measured`; any other to `report`.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from eviction.wording.explain import table
from tests.lab.bench import ablate
from tests.lab.bench.costs import at_rest, start_up
from tests.lab.bench.measure import Effort, Row, effort_of
from tests.lab.bench.regret import compare

MEASURED = Path(__file__).with_name("measured")
REPORT = Path("report")

Measurement = Callable[[Effort], list[Row]]

KNOWN: dict[str, Measurement] = {"rest": at_rest, "start": start_up}
WITH_OPTIONS = {"ablate": ablate.main, "regret": compare.main}


def main(names: Sequence[str]) -> int:
    """Measures, prints, writes. Returns 2 for a name that is not one of the measurements."""
    if names and names[0] in WITH_OPTIONS:
        return WITH_OPTIONS[names[0]](names[1:])
    effort = effort_of()
    if unknown := set(names) - KNOWN.keys():
        there = ", ".join((*KNOWN, *WITH_OPTIONS))
        print(f"no measurement {', '.join(sorted(unknown))}; there are {there}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    began = time.monotonic()
    for name in names or KNOWN:
        print(f"{time.monotonic() - began:.0f} s: {name}", file=sys.stderr)
        rows += KNOWN[name](effort)
    head = ["WHAT", "RUNS", "MEDIAN", "BEST", "WORST"]
    print("\n".join(table([head, *(row.cells() for row in rows)])))
    document = {
        "machine": f"{os.cpu_count()} cores, Linux {platform.release()}, Python"
        f" {platform.python_version()}{'; a short run' * effort.short}",
        "date": time.strftime("%Y-%m-%d"),
        "rows": [
            {"what": row.what, "unit": row.unit, "values": [round(v, 4) for v in row.values]}
            for row in rows
        ],
    }
    whole = not (names or effort.short)
    directory = MEASURED if whole else REPORT
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "bench.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
