"""A runtime that answers with errors, before and after it acts, and with wrong answers: wrong,
duplicate and shortened ids, absurd sizes and times, hostile names and paths.

The suite has every method with each code that the product treats in a way of its own, and each other
code with one of them; every way in which an answer can be wrong, and for two dialects what is
different in them. The soak has everything. The methods are run in parallel, on a small node each.

Whatever a runtime answers, these hold:

* the pass ends, and ends as a record, not as an exception;
* nothing that must be kept was removed (`PopulatedNode.lost`);
* the record is true: what it reports as removed is absent, and what is absent it does not
  report as kept or failed.
"""

from __future__ import annotations

import gc
import itertools
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from eviction.records.passes import Pass
from reclaim.types import Kind, Result
from signals.types import Signal
from tests.descriptors import no_descriptor_left
from tests.faults.populated import PopulatedNode
from tests.nodes.dialects import CONTAINERD_1_6, CONTAINERD_2, CRI_O_1_31
from tests.nodes.distortions import Distortion
from tests.nodes.faults import CODES
from tests.nodes.small_node import EVERYTHING, relieve
from tests.reclaimd_process import came_true
from tests.repository import ROOT
from tests.sockets.mounts import need_mounts
from tests.sockets.passes import fault

MOST_PASSES = 20
SIDE_BY_SIDE = 4  # nodes at a time: a pass mostly waits
USUAL = "containerd-2"
DIALECTS = {USUAL: CONTAINERD_2, "containerd-1.6": CONTAINERD_1_6, "cri-o": CRI_O_1_31}
LISTS = ("ListContainers", "ListPodSandbox", "ListImages")
REMOVING = ("StopPodSandbox", "RemovePodSandbox", "RemoveContainer", "RemoveImage")
WRONG: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text())
# Dialects differ in ids and in references to images, not in sizes and times.
OF_A_DIALECT = re.compile(r"\w+_(entries|ids)|empty_names")
# An object that is not there, a read that is repeated, and any other error. A list is also asked
# for as a stream.
TREATED_DIFFERENTLY = ("NOT_FOUND", "UNAVAILABLE", "INTERNAL")
CUT = ("UNAVAILABLE", "INTERNAL", "CANCELLED")
CALLS = [
    *(("Fail", method) for method in (*WRONG, *REMOVING)),
    *(("ActThenFail", method) for method in REMOVING),
]


@dataclass(slots=True)
class Findings:
    """What was wrong with one pass; empty if nothing was."""

    wrong: list[str] = field(default_factory=list)
    record: Pass | None = None


def pass_under_fault(node: PopulatedNode) -> Findings:
    """One pass under the faults that are set, by a product made for it;
    clears the faults afterwards.
    """
    findings = Findings()
    already = len(node.removed())
    product = node.node(Signal.NODEFS_AVAILABLE, above=1)  # any image relieves it
    try:
        record = findings.record = relieve(product, EVERYTHING)
    except Exception as error:  # noqa: BLE001 # any exception out of a pass is a finding
        findings.wrong.append(f"the pass raised {type(error).__name__}: {error}")
        return findings
    finally:
        node.failpoints.clear()
        product.close()
    removed = set(node.removed()[already:])
    findings.wrong += [f"{each} is gone, and must be kept" for each in node.lost()]
    findings.wrong += contradictions(record, removed, node)
    return findings


def pass_without_fault(node: PopulatedNode) -> Findings:
    """The same without a fault, after which nothing removable is left; once more, as a daemon's
    next pass, where a busy machine made a check too old to remove by it."""
    node.populate()
    findings = pass_under_fault(node)
    for _ in range(MOST_PASSES):
        if findings.record is None or all(
            each.result is not Result.UNANSWERED for each in findings.record.removals
        ):
            break
        findings = pass_under_fault(node)
    findings.wrong += [f"{left} is left over" for left in node.leftovers()]
    return findings


def contradictions(record: Pass, removed: set[str], node: PopulatedNode) -> list[str]:
    """Where the record and the node disagree."""
    wrong, nominal, there = [], 0, node.present()
    for outcome in record.removals:
        verdict, gone = outcome.verdict, outcome.verdict.id in removed
        if outcome.result is Result.REMOVED:
            if verdict.id in there:
                wrong.append(f"{verdict.id} is reported as removed and is there")
            if not gone:
                wrong.append(f"{verdict.id} is reported as removed by us, and was not removed")
            if verdict.kind is Kind.IMAGE:
                nominal += verdict.size_bytes or 0
        if outcome.result is Result.FAILED and gone:
            wrong.append(f"{verdict.id} is reported as failed and was removed: {outcome.error}")
    kept = {each.verdict.id for each in record.kept}
    reported = {each.verdict.id for each in record.removals}
    wrong += [f"{each} is reported as kept and was removed" for each in kept & removed]
    wrong += [f"{each} was removed and is not reported" for each in removed - reported]
    if record.nominal_bytes != nominal:
        wrong.append(f"{record.nominal_bytes} nominal bytes are reported, not {nominal}")
    return wrong


class Row(NamedTuple):
    """`how`: the words of a fault of the method."""

    dialect: str
    method: str
    how: str


def rows(*, complete: bool) -> Iterator[Row]:
    """All rows, or those of the suite: one other code each."""
    others = [code for code in CODES if code not in TREATED_DIFFERENTLY]
    for at, (way, method) in enumerate(CALLS):
        treated = {*TREATED_DIFFERENTLY, *others[at : at + 1]}
        if method in LISTS:
            treated.add("RESOURCE_EXHAUSTED")
        for code in CODES:
            if complete or code in treated:
                yield Row(USUAL, method, f"{way} {code}")
    for method, ways in WRONG.items():
        if method in LISTS:
            yield from (Row(USUAL, method, f"Cut {code}") for code in CUT)
        for way in ways:
            yield Row(USUAL, method, f"Distort {way}")
            if method in ("ListContainers", "ListImages") and (
                complete or OF_A_DIALECT.fullmatch(way)
            ):
                yield from (
                    Row(dialect, method, f"Distort {way}")
                    for dialect in DIALECTS
                    if dialect != USUAL
                )


Results = dict[Row, Findings]


def run_rows(rows_of_it: list[Row], directory: Path) -> Results:
    """All rows of one method of one dialect on one node, then a pass without a fault."""
    dialect, method, _ = rows_of_it[0]
    node = PopulatedNode(directory, dialect=DIALECTS[dialect])
    found: Results = {}
    try:
        for row in rows_of_it:
            node.populate()
            node.failpoints[method] = fault(row.how)
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
    of_nodes = dict[tuple[str, str], list[Row]]()
    for row in table:
        of_nodes.setdefault(row[:2], []).append(row)
    found: Results = {}
    threads = len(os.listdir("/proc/self/task"))
    with no_descriptor_left(), ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        directories = (base / str(number) for number in itertools.count())
        for results in pool.map(run_rows, of_nodes.values(), directories):
            found |= results
    assert came_true(lambda: len(os.listdir("/proc/self/task")) <= threads)
    assert len(found) == len(table) + len(of_nodes)
    return found


def believed(row: Row, findings: Findings) -> bool:
    """Whether a list failed, and something went that depends on it, or the pass did not say that it
    failed. NOT_FOUND of a list is not an empty list."""
    if row.method not in LISTS or not row.how.startswith(("Fail", "Cut")):
        return False
    assert findings.record is not None
    depends = set(Kind) if row.method != "ListImages" else {Kind.IMAGE}
    removed = [
        each
        for each in findings.record.removals
        if each.result is Result.REMOVED and each.verdict.kind in depends
    ]
    return bool(removed) or str(findings.record.result) not in ("failed", "not_enough")


@pytest.mark.timeout(1800)  # all rows are one test
@pytest.mark.parametrize("complete", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_wrong_answer_removes_nothing_that_must_be_kept(tmp_path: Path, complete: bool) -> None:
    """Nor does an error, and nothing goes by a list that fails or is cut. Each pass ends, and its
    record is true; one pass with right answers removes all that is left."""
    table = list(rows(complete=complete))
    # CRI names its messages after its calls
    source = (ROOT / "reclaim" / "cri" / "client.py").read_text()
    called = set(re.findall(r"pb\.(\w+)Request\(", source))
    # StopContainer is called only with the kubelet's own state; ListContainerStats after a pass, on
    # a connection of its own, to explain the pass.
    assert called - {"StopContainer", "ListContainerStats"} == {row.method for row in table}
    results = run_table(table, tmp_path)
    assert {row: found.wrong for row, found in results.items() if found.wrong} == {}
    assert [row for row, found in results.items() if believed(row, found)] == []


@pytest.mark.house("tests/faults/populated.py", "tests/nodes/distortions.py")
def test_a_false_record_is_found(tmp_path: Path) -> None:
    """So that no finding means no fault: what is reported as failed but removed, removed but
    there, removed but not reported. Every way in which an answer can be wrong is in the table."""
    ways = {way for ways in WRONG.values() for way in ways}
    assert ways == set(Distortion) - {Distortion.HALF_LIST}
    need_mounts()
    node = PopulatedNode(tmp_path / "node")
    removable = node.populate()
    findings = pass_under_fault(node)
    record, removed = findings.record, set(node.removed())
    assert record is not None
    assert (findings.wrong, removed, node.leftovers()) == ([], removable, set())
    function, *others = (each for each in record.functions if each.outcomes)
    first, *rest = function.outcomes
    invented = first._replace(verdict=first.verdict._replace(id=node.running))
    for outcomes, said in (
        ([first._replace(result=Result.FAILED)], "reported as failed and was removed"),
        ([], "is not reported"),
        ([first, invented], "reported as removed and is there"),
    ):
        changed = replace(function, outcomes=(*outcomes, *rest))
        made = replace(record, functions=(changed, *others))
        assert said in "\n".join(contradictions(made, removed, node))
    node.close()
