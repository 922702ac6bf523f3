"""Every method of the runtime fails with the codes of gRPC, once before it acts and once after.

The suite has every method with each code that the product treats in a way of its own, and every
code with a method of each kind; the soak has every method with every code. A table is run at
once, the methods in parallel on a small node each, as a pass mostly waits for late space; each
test then checks one row.
"""

from __future__ import annotations

import gc
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tests.faults.meters import Meters, Report
from tests.faults.pass_check import (
    SIDE_BY_SIDE,
    Findings,
    PopulatedNode,
    pass_under_fault,
    pass_without_fault,
)
from tests.nodes.faults import CODES, ActThenFail, Cut, Fail, Failpoint
from tests.repository import ROOT
from tests.sockets.mounts import need_mounts

ASKED = (
    "Version",
    "Status",
    "ListContainers",
    "ContainerStatus",
    "ListPodSandbox",
    "PodSandboxStatus",
    "ListImages",
    "ImageStatus",
    "ImageFsInfo",
)
REMOVING = ("StopPodSandbox", "RemovePodSandbox", "RemoveContainer", "RemoveImage")
HOW: dict[str, type[Fail | ActThenFail | Cut]] = {"before": Fail, "after": ActThenFail, "cut": Cut}
ROWS = [(method, "before") for method in (*ASKED, *REMOVING)] + [
    (method, "after") for method in REMOVING
]
CUT_ROWS = [(method, "cut") for method in ("ListContainers", "ListPodSandbox", "ListImages")]
Row = tuple[str, str, str]

COMPLETE: list[Row] = [(method, how, code) for method, how in ROWS for code in CODES] + [
    (method, how, code)
    for method, how in CUT_ROWS
    for code in ("UNAVAILABLE", "INTERNAL", "CANCELLED")
]
# An object that is not there, a read that is repeated, and any other error. A list is
# also asked for as a stream.
TREATED_DIFFERENTLY = ("NOT_FOUND", "UNAVAILABLE", "INTERNAL")
TREATED_DIFFERENTLY_IN_LISTS = (*TREATED_DIFFERENTLY, "RESOURCE_EXHAUSTED")
KINDS = {
    "asked": (ASKED, "before"),
    "removing, before": (REMOVING, "before"),
    "removing, after": (REMOVING, "after"),
}


def rows_of_the_suite() -> list[Row]:
    """Every method with the codes that are treated differently; every other code with one method of
    each kind, the methods in turn; and every list that is cut."""
    others = [code for code in CODES if code not in TREATED_DIFFERENTLY]
    in_turn = {
        (methods[number % len(methods)], how, code)
        for methods, how in KINDS.values()
        for number, code in enumerate(others)
    }
    return [
        row
        for row in COMPLETE
        if row in in_turn
        or row[1] == "cut"
        or row[2]
        in (TREATED_DIFFERENTLY_IN_LISTS if row[0].startswith("List") else TREATED_DIFFERENTLY)
    ]


TABLE = rows_of_the_suite()


class TableResults:
    """The findings of a table by row, and by method and way what the last pass left over."""

    def __init__(self) -> None:
        self.rows: dict[Row, Findings] = {}
        self.left: dict[str, set[str]] = {}
        self.report: Report | None = None


def run_rows(
    table: list[Row], method: str, how: str, directory: Path
) -> tuple[dict[Row, Findings], set[str]]:
    """All rows of one method on one node, and what a pass without faults leaves over afterwards."""
    rows: dict[Row, Findings] = {}
    node = PopulatedNode(directory)
    try:
        for row in table:
            if row[:2] != (method, how):
                continue
            node.populate()
            failpoint: Failpoint = HOW[how](CODES[row[2]], "on purpose")
            node.failpoints[method] = failpoint
            rows[row] = pass_under_fault(node)
        node.populate()
        rows[method, how, "none"] = pass_without_fault(node)
        return rows, node.leftovers()
    finally:
        node.close()


def run_table(table: list[Row], base: Path) -> TableResults:
    """All rows of a table, under meters on this process."""
    need_mounts()
    results = TableResults()
    # what a first channel and server make for the whole process does not count
    PopulatedNode(base / "warm").close()
    gc.collect()
    with Meters(os.getpid()) as meters:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            running = {
                (method, how): pool.submit(run_rows, table, method, how, base / f"{method}-{how}")
                for method, how in ROWS + CUT_ROWS
            }
        for (method, how), future in running.items():
            rows, left = future.result()
            results.rows |= rows
            results.left[f"{method} {how}"] = left
    results.report = meters.report
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> TableResults:
    """The table of the suite, run once."""
    return run_table(TABLE, tmp_path_factory.mktemp("codes"))


def assert_failed_list_removes_nothing(results: TableResults, method: str) -> None:
    """Under any code of this list no object is removed, or for images no image, and the
    pass says that it failed.
    """
    for (failed, _, code), findings in results.rows.items():
        if failed == method and code != "none":
            assert findings.record is not None
            removed = [
                outcome for outcome in findings.record.removals if str(outcome.result) == "removed"
            ]
            if method == "ListImages":
                removed = [outcome for outcome in removed if outcome.verdict.kind == "image"]
            assert removed == [], code
            assert str(findings.record.result) in ("failed", "not_enough"), code


def assert_nothing_is_held(results: TableResults) -> None:
    """After the table the process has no descriptor and no thread more than before."""
    assert results.report is not None
    assert results.report.descriptors_more <= 0, str(results.report)
    assert results.report.threads_more <= 0, str(results.report)


@pytest.mark.parametrize("row", TABLE, ids=" ".join)
def test_a_pass_under_any_error_code_removes_and_reports_only_what_is_right(
    results: TableResults, row: Row
) -> None:
    """It ends, removes nothing that must be kept, reports what is true, and
    its log line can be read.
    """
    assert results.rows[row].wrong == []


@pytest.mark.parametrize(("method", "how"), ROWS + CUT_ROWS)
def test_the_pass_after_the_faults_removes_all_that_is_left(
    results: TableResults, method: str, how: str
) -> None:
    """After the faulty passes one without a fault removes everything removable."""
    assert results.rows[method, how, "none"].wrong == []
    assert results.left[f"{method} {how}"] == set()


@pytest.mark.parametrize("method", ["ListContainers", "ListImages", "ListPodSandbox"])
def test_nothing_is_removed_by_a_list_that_fails(results: TableResults, method: str) -> None:
    """No object is removed under any code; NOT_FOUND of a list is not an empty list."""
    assert_failed_list_removes_nothing(results, method)


def test_after_the_whole_table_no_descriptor_and_no_thread_is_left(results: TableResults) -> None:
    """More than 100 passes by as many clients leave no descriptor and no thread
    once each client is closed.
    """
    assert len(results.rows) > 100
    assert_nothing_is_held(results)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_method_under_every_code_removes_and_reports_only_what_is_right(
    tmp_path: Path,
) -> None:
    """The complete table of about 300 passes holds what the tests of the suite hold of theirs."""
    results = run_table(COMPLETE, tmp_path)
    assert results.rows.keys() >= set(COMPLETE)
    assert {row: findings.wrong for row, findings in results.rows.items() if findings.wrong} == {}
    assert {name: left for name, left in results.left.items() if left} == {}
    for method in ("ListContainers", "ListImages", "ListPodSandbox"):
        assert_failed_list_removes_nothing(results, method)
    assert_nothing_is_held(results)


def test_the_table_of_the_suite_has_every_code_in_every_kind_of_call() -> None:
    """Every code with a method of each kind, and every method with each code
    that is treated differently.
    """
    for methods, how in KINDS.values():
        assert {
            code for method, its_way, code in TABLE if method in methods and its_way == how
        } == set(CODES)
    for method, how in ROWS:
        treated = TREATED_DIFFERENTLY_IN_LISTS if method.startswith("List") else TREATED_DIFFERENTLY
        assert {code for *row, code in TABLE if row == [method, how]} >= set(treated)


def test_the_table_has_every_code_and_every_method() -> None:
    """It has all 16 error codes, and every method that the product calls."""
    assert len(CODES) == len(list(grpc.StatusCode)) - 1
    source = ROOT / "reclaim" / "cri" / "client.py"
    # CRI names its messages after its calls
    called = set(re.findall(r"pb\.(\w+)Request\(", source.read_text()))
    # StopContainer is called only with the kubelet's own state; ListContainerStats after a pass, on
    # a connection of its own, to explain the pass.
    assert called - {"StopContainer", "ListContainerStats"} == {*ASKED, *REMOVING}
