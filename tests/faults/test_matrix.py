"""The fault matrix: what each row promises holds, every cell has one, and its judge finds each
broken promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reclaim.cri import client
from reclaim.types import Kind
from tests.expected import expect
from tests.faults.matrix.bench import Run, run_row
from tests.faults.matrix.injectors import INJECTORS
from tests.faults.matrix.judge import broken_promises
from tests.faults.matrix.node import RESTART_SECONDS, Answer, Cycle
from tests.faults.matrix.table import (
    DOCUMENT,
    RESOURCES,
    TABLE,
    Fault,
    Livez,
    Row,
    When,
)
from tests.nodes.full_server import METHODS
from tests.repository import ROOT
from tests.sockets.mounts import tmpfs

HOUSE = pytest.mark.house("tests/faults/matrix")
ROWS = [
    pytest.param(row, id=row.id, marks=() if row.in_suite else pytest.mark.soak) for row in TABLE
]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_matrix_holds(row: Row, tmp_path: Path) -> None:
    """What the table says of it; else all that did not hold, and the end of the daemon's log."""
    with tmpfs(tmp_path / "bench", 1 << 28, 10_000) as directory:
        run = run_row(row, directory)
    broken = broken_promises(run)
    assert not broken, "\n  ".join([f"{row.id}:", *broken]) + f"\nthe end of the log:\n{run.log}"


@HOUSE
def test_every_cell_has_a_row_or_a_reason_why_it_cannot_exist() -> None:
    """All methods that the client asks are resources, each resource has what makes it fail. No two
    rows have the same id; the suite has rows of every resource and every fault."""
    source = Path(client.__file__).read_text()
    asked = {method for method in METHODS if f"pb.{method}Request(" in source}
    assert {name for name in RESOURCES if name[0].isupper()} == asked
    assert INJECTORS.keys() == set(RESOURCES)
    for resource, cells in DOCUMENT["rows"].items():
        assert {cell.split()[0] for cell in cells} == set(Fault), resource
        assert all(each["impossible"] for each in cells.values() if "impossible" in each)
    assert len({row.id for row in TABLE}) == len(TABLE) >= 177
    suite = [row for row in TABLE if row.in_suite]
    assert {row.resource for row in suite} == set(RESOURCES)
    assert {row.fault for row in suite} == set(Fault)


@HOUSE
def test_what_a_row_does_not_promise_has_its_reason() -> None:
    """No relief, a later one than 2 s, and a process that may end: each says why. It is started
    again after the seconds of the unit, else the rows promise what nobody gets."""
    for row in TABLE:
        if row.relief is When.NOT_EXPECTED or row.within_seconds > 2.0 or row.restarts:
            assert row.reason, row.id
        assert Kind.IMAGE not in row.meanwhile, f"{row.id}: images are the relief itself"
        if row.relief is When.GOES_ON and row.fault is not Fault.ABSENT_AT_START:
            assert row.livez is not Livez.NOBODY, row.id
    unit = (ROOT / "config" / "systemd" / "reclaimd.service").read_text()
    assert f"\nRestartSec={RESTART_SECONDS:g}\n" in unit


def run_of(**given: Any) -> Run:
    """A run, as `judged.yaml` has it."""
    row = Row(
        "x",
        Fault(given.pop("fault")),
        relief=When(given.pop("relief")),
        meanwhile=frozenset(map(Kind, given.pop("meanwhile", ()))),
        livez=Livez(given.pop("livez", "200")),
        restarts=given.pop("restarts", False),
    )
    given["cycles"] = [Cycle(*each) for each in given["cycles"]]
    given["removed_at"] = {Kind(kind): times for kind, times in given["removed_at"].items()}
    given["answers"] = [Answer(at, at + 0.1, status) for at, status in given["answers"]]
    return Run(row, **given)


@HOUSE
def test_each_broken_promise_is_told() -> None:
    """Runs that held, with one thing changed at a time; one sentence says it, none if it holds."""
    here = Path(__file__).parent / "matrix"
    judged = yaml.safe_load((here / "judged.yaml").read_text())
    stories = []
    for name, row in judged["changed"].items():
        run = run_of(**{**judged["held"][row.pop("of")], **row})
        stories.append("\n  ".join([name, *broken_promises(run)]))
    expect(here / "judged.txt", "\n".join([*stories, ""]))
