"""The fault matrix: what each row promises holds, every cell has one, and its judge finds each
broken promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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
    SLACK_SECONDS,
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
    asked = {method.name for method in METHODS if f"pb.{method.name}Request(" in source}
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


def answers(*statuses: tuple[float, int | None]) -> dict[str, Any]:
    """Answers of `/livez` at these times, each within 0.1 s."""
    return {"answers": [Answer(at, at + 0.1, status) for at, status in statuses]}


LATE = 2.0 + SLACK_SECONDS + 1.0
GOES_ON = Run(
    Row("x", Fault.ABSENT),
    began=10.0,
    ended=13.0,
    terminated=14.0,
    cycles=[Cycle(9.0, 9.1), Cycle(10.5, 10.7), Cycle(11.0, 11.3), Cycle(13.1, 13.2)],
    removed_at={Kind.IMAGE: [9.1, 10.7, 11.3, 13.2], Kind.CONTAINER: [], Kind.SANDBOX: []},
    **answers((9.0, 200), (10.5, 200), (12.5, 200), (13.5, 200)),
    exit_code=0,
)
COMES_BACK = replace(
    GOES_ON,
    row=Row("x", Fault.ABSENT, relief=When.COMES_BACK, meanwhile=frozenset({Kind.CONTAINER})),
    cycles=[Cycle(9.0, 9.1), Cycle(9.4, 13.5)],
    removed_at={Kind.IMAGE: [9.1, 13.5], Kind.CONTAINER: [10.4], Kind.SANDBOX: []},
)
NONE = replace(
    GOES_ON,
    row=Row("x", Fault.HANGS, relief=When.NOT_EXPECTED, reason="…"),
    ended=None,
    cycles=[Cycle(9.0, 9.1)],
    removed_at={Kind.IMAGE: [9.1], Kind.CONTAINER: [], Kind.SANDBOX: []},
)
TRUTH, UNHEARD, NOBODY = (
    {"row": replace(NONE.row, livez=livez)} for livez in (Livez.TRUTH, Livez.UNHEARD, Livez.NOBODY)
)
CHANGES: dict[str, tuple[Run, dict[str, Any]]] = {
    "relief went on": (GOES_ON, {}),
    "it came back": (COMES_BACK, {}),
    "none was expected": (NONE, {}),
    "none under the fault": (GOES_ON, {"cycles": GOES_ON.cycles[::3]}),
    "one under the fault": (
        GOES_ON,
        {"ended": None, "cycles": [Cycle(10.5, 10.6), Cycle(11.0, 11.0 + LATE)]},
    ),
    "a late one under the fault": (
        GOES_ON,
        {"ended": None, "terminated": 30.0, "cycles": [Cycle(10.5, 10.6), Cycle(11, 11 + LATE)]},
    ),
    "none after the fault": (GOES_ON, {"cycles": GOES_ON.cycles[:3]}),
    "it does not come back": (COMES_BACK, {"cycles": COMES_BACK.cycles[:1]}),
    "it comes back late": (COMES_BACK, {"cycles": [Cycle(9.4, 13.0 + LATE)]}),
    "nothing meanwhile": (COMES_BACK, {"removed_at": {kind: [] for kind in Kind}}),
    "an image in use goes": (NONE, {"lost": ["image sha256:1"]}),
    "it ends by itself": (NONE, {"ended_by_itself": [1]}),
    "it ends by itself and may": (
        NONE,
        {"row": replace(NONE.row, restarts=True), "ended_by_itself": [1], "exit_code": 1},
    ),
    "it does not end": (NONE, {"exit_code": None}),
    "it is killed": (NONE, {"exit_code": -9}),
    "it never relieves": (NONE, {"was_healthy": False}),
    "what the injector found": (NONE, {"problems": ["x was never asked"]}),
    "/livez never answers": (NONE, answers()),
    "/livez never answers, which is not expected": (NONE, {**UNHEARD, **answers()}),
    "/livez is silent": (NONE, answers((9.0, 200), (11.0, None))),
    "/livez lies although nothing moves": (NONE, answers((9.0, 200), (15.0, 503))),
    "/livez says the truth": (NONE, {**TRUTH, **answers((9.0, 200), (15.0, 503))}),
    "/livez does not say the truth, an image went at 9.1 s": (
        NONE,
        {**TRUTH, **answers((9.0, 200), (10.4, 503))},
    ),
    "/livez says something else": (NONE, {**TRUTH, **answers((9.0, 200), (15.0, 500))}),
    "/livez is silent when it should say the truth": (
        NONE,
        {**TRUTH, **answers((9.0, 200), (15.0, None))},
    ),
    "/livez is silent as it may be": (NONE, {**UNHEARD, **answers((9.0, 200), (15.0, None))}),
    "/livez is nobody's": (NONE, {**NOBODY, **answers()}),
    "/livez does not recover": (
        COMES_BACK,
        {
            "row": replace(COMES_BACK.row, livez=Livez.TRUTH),
            **answers((9.0, 200), (30.0, 503)),
        },
    ),
}


@HOUSE
def test_each_broken_promise_is_told() -> None:
    """Runs that held, with one thing changed at a time; one sentence says it, none if it holds."""
    stories = [
        "\n  ".join([name, *broken_promises(replace(run, **changes))])
        for name, (run, changes) in CHANGES.items()
    ]
    expect(Path(__file__).parent / "matrix" / "judged.txt", "\n".join([*stories, ""]))
