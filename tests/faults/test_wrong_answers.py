"""A runtime that answers nonsense: wrong, doubled and shortened ids, absurd sizes and times, names from elsewhere.

As in the table of codes all of it is told at once, and the tests look at one row each.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reclaim.embedded.dialects import CONTAINERD_1_6, CONTAINERD_2, CRI_O_1_31, Dialect
from reclaim.embedded.distortions import Distortion
from reclaim.embedded.failpoints import Distort
from tests.faults.bench import Findings, LivedNode, pass_under_fault
from tests.sockets.mounts import need_mounts

DIALECTS: dict[str, Dialect] = {"containerd-1.6": CONTAINERD_1_6, "containerd-2": CONTAINERD_2, "cri-o": CRI_O_1_31}
METHODS = ("ListContainers", "ListPodSandbox", "ListImages", "ContainerStatus", "ImageStatus", "ImageFsInfo")
# A list that leaves entries out and says that it is whole cannot be told from the truth.
WAYS = [how for how in Distortion if how is not Distortion.HALF_LIST]
TABLE = [(name, method, str(how)) for name in DIALECTS for method in METHODS for how in WAYS]
PRETENDED = ("StopPodSandbox", "RemovePodSandbox", "RemoveContainer", "RemoveImage")

Row = tuple[str, str, str]


def tell(dialect: str, method: str, directory: Path) -> dict[Row, Findings]:
    """All ways of one method on one node."""
    node = LivedNode(directory, dialect=DIALECTS[dialect])
    rows: dict[Row, Findings] = {}
    try:
        for how in WAYS:
            node.populate()
            node.failpoints[method] = Distort(how)
            rows[dialect, method, str(how)] = pass_under_fault(node)
        node.populate()
        last = rows[dialect, method, "none"] = pass_under_fault(node)
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
    with ThreadPoolExecutor(len(DIALECTS) * len(METHODS)) as pool:
        going = [pool.submit(tell, name, method, base / f"{name}-{method}") for name in DIALECTS for method in METHODS]
    for future in going:
        rows |= future.result()
    return rows


@pytest.mark.parametrize("row", TABLE, ids=" ".join)
def test_a_guard_holds_whatever_an_answer_says(told: dict[Row, Findings], row: Row) -> None:
    """Nothing that must stay goes, the record says what is true, and its line of the log can be read."""
    assert told[row].wrong == []
