"""Every method of the runtime fails with every code of gRPC, once before it acts and once after.

The whole table is told at once, one small node a method side by side, as most of a pass is waiting for late space; the
tests then look at one row each.
"""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from eviction.drill.runtime.failpoints import ActThenFail, Cut, Fail, Failpoint
from eviction.drill.runtime.faults import CODES
from tests.faults.bench import SIDE_BY_SIDE, Findings, LivedNode, pass_under_fault
from tests.faults.meters import Meters, Report
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
ROWS = [(method, "before") for method in (*ASKED, *REMOVING)] + [(method, "after") for method in REMOVING]
CUT_ROWS = [(method, "cut") for method in ("ListContainers", "ListPodSandbox", "ListImages")]
TABLE = [(method, how, code) for method, how in ROWS for code in CODES] + [
    (method, how, code) for method, how in CUT_ROWS for code in ("UNAVAILABLE", "INTERNAL", "CANCELLED")
]

Row = tuple[str, str, str]


class Told:
    """What came of the whole table."""

    def __init__(self) -> None:
        self.rows: dict[Row, Findings] = {}
        self.left: dict[str, set[str]] = {}
        self.report: Report | None = None


def tell(method: str, how: str, directory: Path) -> tuple[dict[Row, Findings], set[str]]:
    """All rows of one method on one node, and what a pass without faults left over afterwards."""
    rows: dict[Row, Findings] = {}
    node = LivedNode(directory)
    try:
        for row in TABLE:
            if row[:2] != (method, how):
                continue
            node.populate()
            failpoint: Failpoint = HOW[how](CODES[row[2]], "on purpose")
            node.failpoints[method] = failpoint
            rows[row] = pass_under_fault(node)
        node.populate()
        rows[method, how, "none"] = pass_under_fault(node)
        return rows, node.leftovers()
    finally:
        node.close()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The table, told once."""
    need_mounts()
    told = Told()
    base = tmp_path_factory.mktemp("codes")
    LivedNode(base / "warm").close()  # what a first channel and server make for the whole process does not count
    gc.collect()
    with Meters(os.getpid()) as meters:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            going = {
                (method, how): pool.submit(tell, method, how, base / f"{method}-{how}")
                for method, how in ROWS + CUT_ROWS
            }
        for (method, how), future in going.items():
            rows, left = future.result()
            told.rows |= rows
            told.left[f"{method} {how}"] = left
    told.report = meters.report
    return told


@pytest.mark.parametrize("row", TABLE, ids=" ".join)
def test_a_pass_keeps_its_promises_whatever_fails_how(told: Told, row: Row) -> None:
    """It ends, nothing that must stay goes, the record says what is true, and its line of the log can be read."""
    assert told.rows[row].wrong == []


@pytest.mark.parametrize(("method", "how"), ROWS + CUT_ROWS)
def test_the_work_goes_on_when_the_fault_is_over(told: Told, method: str, how: str) -> None:
    """After 16 faulty passes one without a fault removes all that the faults had left over."""
    assert told.rows[method, how, "none"].wrong == []
    assert told.left[f"{method} {how}"] == set()


@pytest.mark.parametrize("method", ["ListContainers", "ListImages", "ListPodSandbox"])
def test_a_list_that_fails_licenses_nothing(told: Told, method: str) -> None:
    """Not one object was removed under any code; NOT_FOUND of a list is no empty list."""
    for (failed, _, code), findings in told.rows.items():
        if failed == method and code != "none":
            assert findings.record is not None
            removed = [outcome for outcome in findings.record.removals if str(outcome.result) == "removed"]
            if method == "ListImages":
                removed = [outcome for outcome in removed if outcome.verdict.kind == "image"]
            assert removed == [], code
            assert str(findings.record.result) in ("failed", "not_enough"), code


def test_after_the_whole_table_no_descriptor_and_no_thread_is_left(told: Told) -> None:
    """About 300 passes by as many clients, of which each was closed: what they opened is closed too."""
    assert told.report is not None
    assert told.report.descriptors_more <= 0, str(told.report)
    assert told.report.threads_more <= 0, str(told.report)


def test_the_table_is_whole() -> None:
    """All 16 codes that an error can have, and every method that the product calls."""
    assert len(CODES) == len(list(grpc.StatusCode)) - 1
    source = ROOT / "reclaim" / "cri" / "client.py"
    called = {part.split('"')[0] for part in source.read_text().split('RUNTIME_SERVICE + "')[1:]}
    called |= {part.split('"')[0] for part in source.read_text().split('IMAGE_SERVICE + "')[1:]}
    # only with the kubelet's own state is anything stopped; statistics are asked for after a pass, on a connection of
    # their own, to explain it
    assert called - {"StopContainer", "ListContainerStats"} == {*ASKED, *REMOVING}
