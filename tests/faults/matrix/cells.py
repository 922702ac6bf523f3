"""Runs a row as a test, and keeps its result for the printed matrix."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.faults.matrix.bench import run_row
from tests.faults.matrix.judge import broken_promises, seconds_until_relief
from tests.faults.matrix.rows import Fault, Row
from tests.faults.matrix.table import IMPOSSIBLE, RESOURCES, TABLE

RESULTS: dict[str, str] = {}
"""By the row's id: seconds until relief, or `FAILED`. Of this process."""


def rows_of(resources: Iterable[str]) -> list[object]:
    """The rows of these resources as parameters of a test; those that are not in
    the suite are marked `soak`.
    """
    wanted = frozenset(resources)
    marks = {True: (), False: (pytest.mark.soak,)}
    return [
        pytest.param(row, id=row.id, marks=marks[row.in_suite])
        for row in TABLE
        if row.resource in wanted
    ]


def check(row: Row, directory: Path) -> None:
    """Runs a row. Fails with everything that did not hold, and the end of the daemon's log."""
    RESULTS[row.id] = "FAILED"
    run = run_row(row, directory)
    broken = broken_promises(run)
    assert not broken, f"{row.id}:\n  " + "\n  ".join(broken) + f"\nthe end of the log:\n{run.log}"
    seconds = seconds_until_relief(run)
    RESULTS[row.id] = "held" if seconds is None else f"{seconds:.1f} s"


def matrix() -> str:
    """The results so far as a table, resource by fault: held, seconds until relief, FAILED, `-` for
    a cell that cannot exist, `.` for one that did not run. Of several rows of a cell the first one
    that failed, or the first."""
    lines = [f"{'':20}" + "".join(f"{fault:>17}" for fault in Fault)]
    for resource in RESOURCES:
        cells = []
        for fault in Fault:
            found = [
                RESULTS.get(row.id, ".")
                for row in TABLE
                if (row.resource, row.fault) == (resource, fault)
            ]
            cells.append(
                "-"
                if (resource, fault) in IMPOSSIBLE
                else min(found, key=lambda cell: cell != "FAILED")
            )
        lines.append(f"{resource:20}" + "".join(f"{cell:>17}" for cell in cells))
    return "\n".join(lines)
