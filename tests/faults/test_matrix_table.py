"""The table of the fault matrix is whole: every cell, every resource that the product
has, every row with its test.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from reclaim.cri import client
from tests.faults import test_matrix_cri, test_matrix_process, test_matrix_removals
from tests.faults.matrix.cells import RESULTS, matrix
from tests.faults.matrix.injectors.injector import Injector
from tests.faults.matrix.injectors.registry import INJECTORS
from tests.faults.matrix.program import RESTART_SECONDS
from tests.faults.matrix.rows import Fault, Kind, Livez, When
from tests.faults.matrix.table import (
    IMPOSSIBLE,
    IN_SUITE,
    NEEDED_FOR,
    REMOVALS,
    RESOURCES,
    TABLE,
    WRONG,
)
from tests.nodes.full_server import METHODS
from tests.repository import ROOT

pytestmark = pytest.mark.house("tests/faults/matrix")

LEAST_ROWS = 60
CELLS = [(resource, fault) for resource in RESOURCES for fault in Fault]
TESTS = (test_matrix_cri, test_matrix_process, test_matrix_removals)


def test_every_cell_has_a_row_or_a_reason_why_it_cannot_exist() -> None:
    """One of both, and no reason for a cell or resource that is not in the table."""
    rows = {(row.resource, row.fault) for row in TABLE}
    assert [cell for cell in CELLS if (cell in rows) == (cell in IMPOSSIBLE)] == []
    assert rows | IMPOSSIBLE.keys() == set(CELLS)
    assert all(IMPOSSIBLE.values())


def test_there_are_sixty_rows_at_least_and_each_is_one() -> None:
    """158 when this was written; no two have the same id."""
    assert len(TABLE) >= LEAST_ROWS
    assert [name for name, times in Counter(row.id for row in TABLE).items() if times > 1] == []


def test_a_process_that_ended_is_started_again_after_the_seconds_of_the_unit() -> None:
    """Else the rows promise what nobody gets."""
    unit = (ROOT / "config" / "systemd" / "reclaimd.service").read_text()
    assert f"\nRestartSec={RESTART_SECONDS:g}\n" in unit


def test_every_method_that_the_client_asks_is_a_resource() -> None:
    """All of the client's source that are methods of the runtime, streams of
    the same lists aside.
    """
    source = Path(client.__file__).read_text()
    asked = {method.name for method in METHODS if f"pb.{method.name}Request(" in source}
    assert asked == NEEDED_FOR.keys() == WRONG.keys()
    assert asked > set(REMOVALS)


def test_every_row_has_an_injector_and_exactly_one_test() -> None:
    """The injectors are those of the resources, each of them can begin and end, and
    each row is a parameter once.
    """
    assert INJECTORS.keys() == set(RESOURCES)
    for made in INJECTORS.values():
        assert made.begin is not Injector.begin
        assert made.end is not Injector.end
    tests = [
        vars(module)[name] for module in TESTS for name in vars(module) if name.startswith("test_")
    ]
    parameters = [
        each
        for test in tests
        for mark in test.pytestmark
        if mark.name == "parametrize"
        for each in mark.args[1]
    ]
    assert Counter(each.id for each in parameters) == Counter(row.id for row in TABLE)
    soak = {each.id for each in parameters if any(mark.name == "soak" for mark in each.marks)}
    assert soak == {row.id for row in TABLE if not row.in_suite}


def test_the_rows_of_the_suite_are_of_every_resource_and_every_fault() -> None:
    """Each name of `IN_SUITE` is a row; each resource and each fault is among them."""
    chosen = [row for row in TABLE if row.in_suite]
    assert {row.id for row in chosen} == IN_SUITE
    assert {row.resource for row in chosen} == set(RESOURCES)
    assert {row.fault for row in chosen} == set(Fault)


def test_what_a_row_does_not_promise_has_its_reason() -> None:
    """No relief, a later one than 2 s, and a process that may end: each says why."""
    for row in TABLE:
        relief = row.relief
        if relief.when is When.NOT_EXPECTED or relief.within_seconds > 2.0 or row.restarts:
            assert relief.reason, row.id
        assert Kind.IMAGE not in relief.meanwhile, f"{row.id}: images are the relief itself"
        if relief.when is When.GOES_ON and row.fault is not Fault.ABSENT_AT_START:
            assert row.livez is not Livez.NOBODY, row.id


def test_the_command_prints_every_row() -> None:
    """`python -m tests.faults.matrix`: a line for each row and each cell that
    cannot exist, then the sums.
    """
    printed = subprocess.run(
        [sys.executable, "-m", "tests.faults.matrix"], capture_output=True, text=True, check=True
    )
    lines = printed.stdout.splitlines()
    assert [line.split()[0] for line in lines[: len(TABLE)]] == [row.id for row in TABLE]
    assert len(lines) == len(TABLE) + len(IMPOSSIBLE) + 1


@pytest.mark.soak
def test_the_soak_prints_the_matrix() -> None:
    """Resource by fault: seconds until relief, held, FAILED; `.` for what ran in
    another process or not at all.
    """
    print(f"\n{matrix()}\n{len(RESULTS)} of {len(TABLE)} rows in this run")
