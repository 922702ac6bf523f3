"""A runtime that answers nonsense: wrong, doubled and shortened ids, absurd sizes and times, names from elsewhere.

As in the table of codes all of it is told at once, and the tests look at one row each.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eviction.drill.runtime.dialects import CONTAINERD_1_6, CONTAINERD_2, CRI_O_1_31, Dialect
from eviction.drill.runtime.distortions import Distortion
from eviction.drill.runtime.failpoints import Distort
from tests.faults.bench import SIDE_BY_SIDE, Findings, LivedNode, pass_under_fault
from tests.sockets.mounts import need_mounts

DIALECTS: dict[str, Dialect] = {"containerd-1.6": CONTAINERD_1_6, "containerd-2": CONTAINERD_2, "cri-o": CRI_O_1_31}
ENTRIES = ("duplicate_entries", "rotated_ids")
IDS = ("unknown_ids", "short_ids", "empty_ids")
SIZES = ("zero_sizes", "largest_sizes")
TIMES = ("zero_times", "negative_times", "largest_times")
NAMES = ("empty_names", "huge_names", "control_names")
PATHS = ("empty_paths", "hostile_paths")
# What an answer has that can be wrong. A list that leaves entries out and says that it is whole is not among it: it
# cannot be told from the truth.
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
NODES = [(name, method) for name in DIALECTS for method in WAYS if name == "containerd-2" or method in LISTS]
TABLE = [(name, method, how) for name, method in NODES for how in WAYS[method]]

Row = tuple[str, str, str]


def tell(dialect: str, method: str, directory: Path) -> dict[Row, Findings]:
    """All ways of one method on one node."""
    node = LivedNode(directory, dialect=DIALECTS[dialect])
    rows: dict[Row, Findings] = {}
    try:
        for how in WAYS[method]:
            node.populate()
            node.failpoints[method] = Distort(Distortion(how))
            rows[dialect, method, how] = pass_under_fault(node)
        node.populate()
        rows[dialect, method, "none"] = last = pass_under_fault(node)
        last.wrong += [f"{left} is left over" for left in node.leftovers()]
        return rows
    finally:
        node.close()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[Row, Findings]:
    """The table, told once."""
    need_mounts()
    base = tmp_path_factory.mktemp("wrong")
    rows: dict[Row, Findings] = {}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        going = [pool.submit(tell, name, method, base / f"{name}-{method}") for name, method in NODES]
    for future in going:
        rows |= future.result()
    return rows


@pytest.mark.parametrize("row", TABLE, ids=" ".join)
def test_a_guard_holds_whatever_an_answer_says(told: dict[Row, Findings], row: Row) -> None:
    """Nothing that must stay goes, the record says what is true, and its line of the log can be read."""
    assert told[row].wrong == []


@pytest.mark.parametrize(("dialect", "method"), NODES)
def test_the_work_goes_on_when_the_answers_are_right_again(
    told: dict[Row, Findings], dialect: str, method: str
) -> None:
    """One pass with true answers removes all that was left over."""
    assert told[dialect, method, "none"].wrong == []


def test_every_distortion_has_its_row() -> None:
    """What can be wrong is tried; only the list that looks whole is not."""
    tried = {how for ways in WAYS.values() for how in ways}
    assert tried == set(Distortion) - {Distortion.HALF_LIST}
