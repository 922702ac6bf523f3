"""A runtime that answers with errors, before and after it acts, and with wrong answers: wrong,
duplicate and shortened ids, absurd sizes and times, hostile names and paths.

The suite has every method with each code that the product treats in a way of its own, and every
code with a method of each kind; every way in which an answer can be wrong, and for two dialects what
is different in them. The soak has everything. A table is run at once, the methods in parallel on a
small node each, as a pass mostly waits for late space; each test then checks one row.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from eviction.surface.control_client import NotAskedError, ask
from reclaim.cri import cri_pb2 as pb
from reclaim.types import Kind, Outcome, Result
from signals.types import Signal
from tests.faults.meters import MIB, Meters, control_heartbeat
from tests.faults.pass_check import (
    LONGEST_LINE_BYTES,
    Findings,
    PopulatedNode,
    contradictions,
    pass_under_fault,
    pass_without_fault,
    problems_of_the_log,
)
from tests.nodes.dialects import CONTAINERD_1_6, CONTAINERD_2, CRI_O_1_31
from tests.nodes.distortions import Distort, Distortion
from tests.nodes.faults import CODES, ActThenFail, Cut, Delay, Fail, Failpoint
from tests.nodes.full_server import METHODS
from tests.nodes.method_faults import MethodFault, When, arm
from tests.reclaimd_process import Daemon, came_true
from tests.repository import ROOT
from tests.sockets.mounts import need_mounts

SIDE_BY_SIDE = 20  # nodes at a time: most of a pass is waiting for late space
USUAL = "containerd-2"
DIALECTS = {USUAL: CONTAINERD_2, "containerd-1.6": CONTAINERD_1_6, "cri-o": CRI_O_1_31}
LISTS = ("ListContainers", "ListPodSandbox", "ListImages")
REMOVING = ("StopPodSandbox", "RemovePodSandbox", "RemoveContainer", "RemoveImage")
ENTRIES = ("duplicate_entries", "rotated_ids")
IDS = ("unknown_ids", "short_ids", "empty_ids")
SIZES = ("zero_sizes", "largest_sizes")
TIMES = ("zero_times", "negative_times", "largest_times")
NAMES = ("empty_names", "huge_names", "control_names")
PATHS = ("empty_paths", "hostile_paths")
# The distortions that apply to each method's answer. A list that leaves entries out is not among
# them: it cannot be distinguished from a complete one.
WRONG: dict[str, tuple[str, ...]] = {
    "Version": (),
    "Status": (),
    "ListContainers": (*ENTRIES, *IDS, *TIMES, *NAMES),
    "ListPodSandbox": (*ENTRIES, *IDS, *TIMES, *NAMES),
    "ListImages": (*ENTRIES, *IDS, *SIZES, *NAMES),
    "ContainerStatus": (*IDS, *TIMES, *NAMES, *PATHS),
    "PodSandboxStatus": (*IDS, *TIMES, *NAMES),
    "ImageStatus": (*IDS, *SIZES, *NAMES),
    "ImageFsInfo": ("duplicate_entries", *SIZES, *TIMES, *PATHS),
}
# Dialects differ in ids and in references to images, not in sizes and times.
OF_A_DIALECT = (*ENTRIES, *IDS, "empty_names")
CODED = {"before": Fail, "after": ActThenFail, "cut": Cut}
# An object that is not there, a read that is repeated, and any other error. A list is also asked
# for as a stream.
TREATED_DIFFERENTLY = ("NOT_FOUND", "UNAVAILABLE", "INTERNAL")
CUT = ("UNAVAILABLE", "INTERNAL", "CANCELLED")
KINDS = {"asked": (*WRONG,), "before": REMOVING, "after": REMOVING}


class Row(NamedTuple):
    """`how`: a distortion, or when a call fails, and its code."""

    dialect: str
    method: str
    how: str

    @property
    def failpoint(self) -> Failpoint:
        """What the method does."""
        way, _, code = self.how.partition(" ")
        return CODED[way](CODES[code], "on purpose") if code else Distort(Distortion(way))


def rows(*, complete: bool) -> Iterator[Row]:
    """All rows, or those of the suite: every other code has a method of each kind, in turn."""
    others = [code for code in CODES if code not in TREATED_DIFFERENTLY]
    for kind, methods in KINDS.items():
        way = "after" if kind == "after" else "before"
        for at, method in enumerate(methods):
            treated = {*TREATED_DIFFERENTLY, *others[at :: len(methods)]}
            if method.startswith("List"):
                treated.add("RESOURCE_EXHAUSTED")
            for code in CODES:
                if complete or code in treated:
                    yield Row(USUAL, method, f"{way} {code}")
    for method, ways in WRONG.items():
        if method in LISTS:
            yield from (Row(USUAL, method, f"cut {code}") for code in CUT)
        for way in ways:
            yield Row(USUAL, method, way)
            if method in ("ListContainers", "ListImages") and (complete or way in OF_A_DIALECT):
                yield from (Row(dialect, method, way) for dialect in DIALECTS if dialect != USUAL)


TABLE, COMPLETE = list(rows(complete=False)), list(rows(complete=True))
NODES = list(dict.fromkeys(row[:2] for row in TABLE))
Results = dict[Row, Findings]


def run_rows(table: list[Row], dialect: str, method: str, directory: Path) -> Results:
    """All rows of one method on one node, then a pass without a fault."""
    node = PopulatedNode(directory, dialect=DIALECTS[dialect])
    found: Results = {}
    try:
        for row in table:
            if row[:2] == (dialect, method):
                node.populate()
                node.failpoints[method] = row.failpoint
                found[row] = pass_under_fault(node)
        found[Row(dialect, method, "none")] = pass_without_fault(node)
        return found
    finally:
        node.close()


def run_table(table: list[Row], base: Path) -> Results:
    """All rows of a table. They leave no descriptor and no thread in this process."""
    need_mounts()
    # what a first channel and server make for the whole process does not count
    PopulatedNode(base / "warm").close()
    gc.collect()
    found: Results = {}
    with Meters(os.getpid()) as meters:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            running = [pool.submit(run_rows, table, *node, base / "-".join(node)) for node in NODES]
        for future in running:
            found |= future.result()
    held = (meters.report.descriptors_more, meters.report.threads_more)
    assert max(held) <= 0, str(meters.report)
    assert len(found) == len(table) + len(NODES)
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The table of the suite, run once."""
    return run_table(TABLE, tmp_path_factory.mktemp("answers"))


@pytest.mark.parametrize("row", TABLE, ids=" ".join)
def test_a_wrong_answer_removes_nothing_that_must_be_kept(results: Results, row: Row) -> None:
    """Nor does an error. The pass ends, its record is true, its log line can be read."""
    assert results[row].wrong == []


@pytest.mark.parametrize("node", NODES, ids=" ".join)
def test_the_pass_after_the_faults_removes_all_that_is_left(
    results: Results, node: tuple[str, str]
) -> None:
    """One pass with right answers removes everything removable."""
    assert results[Row(*node, "none")].wrong == []


def removed_by_failed_lists(results: Results) -> list[Row]:
    """The rows in which a list failed, and something went that depends on it, or the pass did not
    say that it failed. NOT_FOUND of a list is not an empty list."""
    wrong = []
    for row, findings in results.items():
        if row.method in LISTS and row.how.startswith(("before", "cut")):
            assert findings.record is not None
            removed = [
                each.verdict.kind
                for each in findings.record.removals
                if each.result is Result.REMOVED
                and (row.method != "ListImages" or each.verdict.kind is Kind.IMAGE)
            ]
            if removed or str(findings.record.result) not in ("failed", "not_enough"):
                wrong.append(row)
    return wrong


def test_nothing_is_removed_by_a_list_that_fails(results: Results) -> None:
    """Under any code, and if it is cut."""
    assert removed_by_failed_lists(results) == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_method_with_every_code_and_wrong_answer(tmp_path: Path) -> None:
    """The complete table holds what the tests of the suite hold of theirs."""
    results = run_table(COMPLETE, tmp_path)
    assert {row: findings.wrong for row, findings in results.items() if findings.wrong} == {}
    assert removed_by_failed_lists(results) == []


def test_the_tables_have_every_code_method_and_distortion() -> None:
    """All 16 error codes, every method that the product calls, every distortion of a method's
    answer; in the suite every code with a method of each kind."""
    assert len(CODES) == len(list(grpc.StatusCode)) - 1
    # CRI names its messages after its calls
    source = (ROOT / "reclaim" / "cri" / "client.py").read_text()
    called = set(re.findall(r"pb\.(\w+)Request\(", source))
    # StopContainer is called only with the kubelet's own state; ListContainerStats after a pass, on
    # a connection of its own, to explain the pass.
    assert called - {"StopContainer", "ListContainerStats"} == {row.method for row in TABLE}
    for way, methods in (("before", WRONG), ("before", REMOVING), ("after", REMOVING)):
        hows = {row.how for row in TABLE if row.method in methods}
        assert hows >= {f"{way} {code}" for code in CODES}
    distortions = {way for ways in WRONG.values() for way in ways}
    assert distortions == set(Distortion) - {Distortion.HALF_LIST}
    assert set(COMPLETE) > set(TABLE)


# ---- all at once

STORM_SECONDS = 4.0
LONGEST_STALL_SECONDS = 20.0  # no deadline of ours is longer than 10 s
MADE_BY_KUBELET = ("RunPodSandbox", "CreateContainer", "StartContainer")


def storm(seed: int) -> Iterator[MethodFault]:
    """Five faults for every method, each with probability 0.1: an error before or after acting, a
    delay, a cut answer, and duplicate entries."""
    methods = [each for each in METHODS if each not in MADE_BY_KUBELET]
    for number, method in enumerate(methods):
        code = CODES[("UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN")[number % 3]]
        double = Distort(Distortion.DUPLICATE_ENTRIES)
        for at, action in enumerate((Fail(code), ActThenFail(code), Delay(0.1), Cut(code), double)):
            when = When(probability=0.1, seed=seed * 1000 + number * 10 + at)
            yield MethodFault(method, action, when)


def test_a_daemon_survives_random_faults_of_every_method(tmp_path: Path) -> None:
    """It removes nothing that must be kept, its heartbeat continues, nothing leaks, every log line
    is one JSON object. When the faults are cleared it removes everything removable."""
    need_mounts()
    node = PopulatedNode(tmp_path / "node", size_bytes=128 * MIB)
    control = str(tmp_path / "control.sock")
    file = node.configuration(Signal.NODEFS_AVAILABLE, above=64 * MIB, controlSocket=control)

    def answers() -> bool:
        try:
            return bool(ask(control, "status"))
        except NotAskedError:
            return False

    with Daemon("--config", file, cold=True) as daemon:
        assert came_true(answers)
        for fault in storm(seed=7):
            arm(node.failpoints, fault)
        with Meters(daemon.process.pid, control_heartbeat(control)) as meters:
            until = time.monotonic() + STORM_SECONDS
            while time.monotonic() < until:
                node.populate()
                time.sleep(0.2)
        assert daemon.process.poll() is None
        node.failpoints.clear()
        assert came_true(lambda: not node.leftovers()), node.leftovers()
        assert daemon.stop() == 0
    assert node.protected <= node.present()
    report = meters.report
    assert report.longest_stall_seconds is not None
    assert report.longest_stall_seconds < LONGEST_STALL_SECONDS, str(report)
    # a pass with its removals, and clients of the control socket
    assert report.threads_more <= 6, str(report)
    assert report.descriptors_more <= 4, str(report)
    assert not daemon.logged("NOT AN EVENT"), "every line is one JSON object"
    removals = [each for record in daemon.passes for each in record["removals"]]
    reported = [each["id"] for each in removals if each["result"] == "removed"]
    assert len(reported) == len(set(reported)), "nothing is counted twice"
    assert set(reported) <= set(node.removed()), "removed is what is absent"
    node.close()


@pytest.mark.house("tests/faults/pass_check.py")
def test_a_false_record_is_found(tmp_path: Path) -> None:
    """So that no finding means no fault: what is reported as failed but removed, removed but
    there, removed but not reported, a log line longer than journald keeps. A removal of what must
    be kept shows among the objects that are there."""
    need_mounts()
    node = PopulatedNode(tmp_path / "node")
    removable = node.populate()
    findings = pass_under_fault(node)
    record, removed = findings.record, set(node.removed())
    assert record is not None
    assert (findings.wrong, removed, node.leftovers()) == ([], removable, set())
    function, *others = (each for each in record.functions if each.outcomes)
    first = function.outcomes[0]

    def found(*outcomes: Outcome) -> str:
        changed = replace(function, outcomes=(*outcomes, *function.outcomes[1:]))
        made = replace(record, functions=(changed, *others))
        return "\n".join(contradictions(made, removed, node))

    assert found(first) == ""
    assert "reported as failed and was removed" in found(first._replace(result=Result.FAILED))
    assert "is not reported" in found()
    invented = first._replace(verdict=first.verdict._replace(id=node.running))
    assert "reported as removed and is there" in found(first, invented)
    (problem,) = problems_of_the_log(replace(record, reason="x" * LONGEST_LINE_BYTES))
    assert "bytes" in problem
    assert node.protected <= node.present()
    node.runtime.answer(pb.RemoveContainerRequest(container_id=node.running))
    assert node.protected - node.present() == {node.running}
    node.close()
