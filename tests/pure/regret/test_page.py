"""The table and the picture of `python -m tests.bench regret`, and that the page
shows what the file says.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import pytest

from tests.bench.regret.node import Figures
from tests.bench.regret.page import HEAD, MEASURED, PAGE, Results, picture, shown_in, table
from tests.bench.regret.workloads import GIB

pytestmark = pytest.mark.house("tests/README.md", "tests/bench")


def document(missing: str = "", **again: int | tuple[int, ...]) -> dict[str, Any]:
    """Nodes of the first workload; `again`:

    GiB pulled again by order, of 10 GiB freed on each node.
    """
    rows = []
    for order, gib in again.items():
        of_nodes = gib if isinstance(gib, tuple) else (gib,)
        nodes = [
            asdict(Figures(again_bytes=each * GIB, freed_bytes=10 * GIB, lost=1))
            for each in of_nodes
        ]
        rows.append({"workload": "ci", "order": order, "nodes": nodes})
    return {"machine": "a test", "missing": missing, "bounds": {"ci": [2 * GIB]}, "rows": rows}


def test_the_table_has_a_row_for_each_order_and_says_what_is_above_its_aim() -> None:
    """Half of the kubelet's is enough; 1.3 times the offline order's is exceeded."""
    lines = table(Results(document(kubelet=8, cost=4, offline=3))).splitlines()
    assert lines[0] == HEAD
    assert "| the kubelet alone | 0.80, 8, 0, 1 | - | - | - |" in lines
    assert "| bound, GiB | 2 | - | - | - |" in lines
    assert "| `cost` ÷ kubelet (aim 0.5) | 0.50 (0.50) | - | - | - |" in lines
    assert "| `cost` ÷ offline (aim 1.3) | 1.33 (1.33), **above** | - | - | - |" in lines
    assert "| `cost` ÷ bound | 2.00 (2.00) | - | - | - |" in lines


def test_of_several_nodes_there_are_medians_sums_and_the_worst_ratio() -> None:
    """Bytes are medians, counts are sums.

    A node on which neither has pulled anything again has no ratio.
    """
    lines = table(Results(document(kubelet=(8, 10, 0), cost=(4, 9, 0)))).splitlines()
    assert "| ours, `cost` | 0.40, 4, 0, 3 | - | - | - |" in lines
    assert "| `cost` ÷ kubelet (aim 0.5) | 0.70 (0.90), **above** | - | - | - |" in lines


def test_what_is_missing_is_said_below() -> None:
    """An order of a library that is not installed."""
    why = "Left out: GDSF: No module named 'libcachesim'"
    text = table(Results(document(why, kubelet=8)))
    assert text.endswith(f"|\n\n{why}\n")
    assert re.fullmatch(shown_in(re.escape(HEAD)), text)


def test_the_picture_has_a_bar_for_each_order() -> None:
    """The longest is the one that pulls most again; the text beside it says how much."""
    svg = picture(Results(document(kubelet=8, cost=4)))
    assert svg.count("<rect") == 2
    assert ">8 GiB</text>" in svg
    assert "a test" in svg


@pytest.mark.skipif(not MEASURED.exists(), reason="no run is published")
def test_the_page_shows_what_was_measured() -> None:
    """`python -m tests.bench regret --page` makes both."""
    results = Results.read(MEASURED)
    (shown,) = re.findall(shown_in(re.escape(HEAD)), PAGE.read_text())
    assert shown == table(results)
    assert MEASURED.with_suffix(".svg").read_text() == picture(results)
