"""A runtime with wrong answers: wrong, duplicate and shortened ids, absurd sizes and
times, hostile names and paths.

As in `test_every_code` the whole table is run at once, and each test checks one row. Two of the
dialects are asked only for what is different in them; the soak asks every dialect for everything.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.pass_check import (
    SIDE_BY_SIDE,
    Findings,
    PopulatedNode,
    pass_under_fault,
    pass_without_fault,
)
from tests.nodes.dialects import CONTAINERD_1_6, CONTAINERD_2, CRI_O_1_31, Dialect
from tests.nodes.distortions import Distort, Distortion
from tests.sockets.mounts import need_mounts

DIALECTS: dict[str, Dialect] = {
    "containerd-1.6": CONTAINERD_1_6,
    "containerd-2": CONTAINERD_2,
    "cri-o": CRI_O_1_31,
}
ENTRIES = ("duplicate_entries", "rotated_ids")
IDS = ("unknown_ids", "short_ids", "empty_ids")
SIZES = ("zero_sizes", "largest_sizes")
TIMES = ("zero_times", "negative_times", "largest_times")
NAMES = ("empty_names", "huge_names", "control_names")
PATHS = ("empty_paths", "hostile_paths")
# The distortions that apply to each method's answer. A list that leaves entries out is not among
# them: it cannot be distinguished from a complete one.
WAYS = {
    "ListContainers": (*ENTRIES, *IDS, *TIMES, *NAMES),
    "ListPodSandbox": (*ENTRIES, *IDS, *TIMES, *NAMES),
    "ListImages": (*ENTRIES, *IDS, *SIZES, *NAMES),
    "ContainerStatus": (*IDS, *TIMES, *NAMES, *PATHS),
    "PodSandboxStatus": (*IDS, *TIMES, *NAMES),
    "ImageStatus": (*IDS, *SIZES, *NAMES),
    "ImageFsInfo": ("duplicate_entries", *SIZES, *TIMES, *PATHS),
}
LISTS = ("ListContainers", "ListImages")
# The other answers do not differ between dialects.
NODES = [
    (name, method)
    for name in DIALECTS
    for method in WAYS
    if name == "containerd-2" or method in LISTS
]
# Dialects differ in ids and in references to images, not in sizes and times.
IN_EVERY_DIALECT = (*ENTRIES, *IDS, "empty_names")

Row = tuple[str, str, str]

COMPLETE: list[Row] = [(name, method, how) for name, method in NODES for how in WAYS[method]]
TABLE = [row for row in COMPLETE if row[0] == "containerd-2" or row[2] in IN_EVERY_DIALECT]


def run_rows(table: list[Row], dialect: str, method: str, directory: Path) -> dict[Row, Findings]:
    """All distortions of one method on one node, then a pass without any."""
    node = PopulatedNode(directory, dialect=DIALECTS[dialect])
    rows: dict[Row, Findings] = {}
    try:
        for row in table:
            if row[:2] != (dialect, method):
                continue
            node.populate()
            node.failpoints[method] = Distort(Distortion(row[2]))
            rows[row] = pass_under_fault(node)
        node.populate()
        rows[dialect, method, "none"] = last = pass_without_fault(node)
        last.wrong += [f"{left} is left over" for left in node.leftovers()]
        return rows
    finally:
        node.close()


def run_table(table: list[Row], base: Path) -> dict[Row, Findings]:
    """All rows of a table."""
    need_mounts()
    rows: dict[Row, Findings] = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        running = [
            pool.submit(run_rows, table, name, method, base / f"{name}-{method}")
            for name, method in NODES
        ]
    for future in running:
        rows |= future.result()
    return rows


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[Row, Findings]:
    """The table of the suite, run once."""
    return run_table(TABLE, tmp_path_factory.mktemp("wrong"))


@pytest.mark.parametrize("row", TABLE, ids=" ".join)
def test_a_wrong_answer_removes_nothing_that_must_be_kept(
    results: dict[Row, Findings], row: Row
) -> None:
    """Nothing that must be kept is removed, the record is true, and its log line can be read."""
    assert results[row].wrong == []


@pytest.mark.parametrize(("dialect", "method"), NODES)
def test_the_pass_after_the_wrong_answers_removes_all_that_is_left(
    results: dict[Row, Findings], dialect: str, method: str
) -> None:
    """One pass with right answers removes everything removable."""
    assert results[dialect, method, "none"].wrong == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_wrong_answer_of_every_dialect_removes_nothing_that_must_be_kept(
    tmp_path: Path,
) -> None:
    """The complete table holds what the tests of the suite hold of theirs."""
    results = run_table(COMPLETE, tmp_path)
    assert results.keys() >= set(COMPLETE)
    assert {row: findings.wrong for row, findings in results.items() if findings.wrong} == {}


def test_every_distortion_has_its_row() -> None:
    """Every distortion of every method is used, except the list that leaves entries out."""
    assert {row[1:] for row in TABLE} == {
        (method, how) for method, ways in WAYS.items() for how in ways
    }
    tried = {how for ways in WAYS.values() for how in ways}
    assert tried == set(Distortion) - {Distortion.HALF_LIST}
