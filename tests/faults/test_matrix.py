"""The fault matrix: what each row promises holds, every cell has one, and its judge finds each
broken promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from reclaim.cri import client
from tests.expected import expect
from tests.faults.matrix.bench import Run, run_row
from tests.faults.matrix.injectors import INJECTORS
from tests.faults.matrix.judge import broken_promises
from tests.faults.matrix.node import Cycle
from tests.faults.matrix.program import RESTART_SECONDS, Answer
from tests.faults.matrix.table import (
    DOCUMENT,
    RESOURCES,
    TABLE,
    Fault,
    Kind,
    Livez,
    Row,
    When,
)
from tests.nodes.full_server import METHODS
from tests.repository import ROOT
from tests.sockets.mounts import need_mounts

HOUSE = pytest.mark.house("tests/faults/matrix")
ROWS = [
    pytest.param(row, id=row.id, marks=() if row.in_suite else pytest.mark.soak) for row in TABLE
]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_matrix_holds(row: Row, tmp_path: Path) -> None:
    """What the table says of it; else all that did not hold, and the end of the daemon's log."""
    need_mounts()
    run = run_row(row, tmp_path)
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


def answers(told: list[list[Any]]) -> list[Answer]:
    """Answers of `/livez`, each within 0.1 s."""
    return [Answer(at, at + 0.1, status) for at, status in told]


GOES_ON = Run(
    Row("x", Fault.ABSENT),
    began=10.0,
    ended=13.0,
    terminated=14.0,
    cycles=[Cycle(9.0, 9.1), Cycle(10.5, 10.7), Cycle(11.0, 11.3), Cycle(13.1, 13.2)],
    removed_at={Kind.IMAGE: [9.1, 10.7, 11.3, 13.2], Kind.CONTAINER: [], Kind.SANDBOX: []},
    answers=answers([[9.0, 200], [10.5, 200], [12.5, 200], [13.5, 200]]),
    exit_code=0,
)
HELD = {
    "goes on": GOES_ON,
    "comes back": replace(
        GOES_ON,
        row=Row("x", Fault.ABSENT, relief=When.COMES_BACK, meanwhile=frozenset({Kind.CONTAINER})),
        cycles=[Cycle(9.0, 9.1), Cycle(9.4, 13.5)],
        removed_at={**GOES_ON.removed_at, Kind.CONTAINER: [10.4]},
    ),
    "not expected": replace(
        GOES_ON,
        row=Row("x", Fault.HANGS, relief=When.NOT_EXPECTED, reason="…"),
        ended=None,
        cycles=[Cycle(9.0, 9.1)],
        removed_at={**GOES_ON.removed_at, Kind.IMAGE: [9.1]},
    ),
}


def changed(of: str, livez: str = "200", *, restarts: bool = False, **changes: Any) -> Run:
    """A run that held, with one thing changed, as `judged.yaml` has it."""
    run = HELD[of]
    changes["row"] = replace(run.row, livez=Livez(livez), restarts=restarts)
    changes["answers"] = answers(changes["answers"]) if "answers" in changes else run.answers
    if "cycles" in changes:
        changes["cycles"] = [Cycle(*each) for each in changes["cycles"]]
    return replace(run, **changes)


@HOUSE
def test_each_broken_promise_is_told() -> None:
    """Runs that held, with one thing changed at a time; one sentence says it, none if it holds."""
    here = Path(__file__).parent / "matrix"
    rows = yaml.safe_load((here / "judged.yaml").read_text())
    stories = ["\n  ".join([name, *broken_promises(changed(**row))]) for name, row in rows.items()]
    expect(here / "judged.txt", "\n".join([*stories, ""]))
