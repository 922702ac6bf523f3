"""Each signal in each layout calls the functions that the kubelet calls.

Source: `pkg/kubelet/eviction/helpers.go`, buildSignalToNodeReclaimFuncs.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction.decision.reclaim_table import (
    RECLAIM_TABLE,
    row,
)
from eviction.decision.synchronize import EvictionConfig
from eviction.types import Threshold
from reclaim.functions.table import FUNCTIONS
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from signals.types import KUBELET_ROLES, KUBELET_SIGNALS, FsLayout, Signal
from tests.pure.values import observations_of, threshold

# The kubelet's table, written out once more: C = DeleteAllUnusedContainers, I = DeleteUnusedImages.
KUBELETS_TABLE = """
    signal                   single  dedicated-imagefs  split
    nodefs.available         C,I     -                  C
    nodefs.inodesFree        C,I     -                  C
    imagefs.available        C,I     C,I                I
    imagefs.inodesFree       C,I     C,I                I
    containerfs.available    C,I     C,I                C
    containerfs.inodesFree   C,I     C,I                C
"""
CELLS = {
    "-": (),
    "C": (DELETE_ALL_UNUSED_CONTAINERS,),
    "I": (DELETE_UNUSED_IMAGES,),
    "C,I": (DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES),
}


def cells() -> list[tuple[Signal, FsLayout, tuple[str, ...]]]:
    """The cells of the table above."""
    (_, *layouts), *rows = (line.split() for line in KUBELETS_TABLE.strip().splitlines())
    return [
        (Signal(name), FsLayout(layout), CELLS[cell])
        for name, *written in rows
        for layout, cell in zip(layouts, written, strict=True)
    ]


def test_the_table_has_a_cell_for_every_signal_in_every_layout() -> None:
    """6 signals in 3 layouts are 18 cells, none twice, none missing, on both sides."""
    assert [(signal, layout) for signal, layout, _ in cells()] == list(
        itertools.product(KUBELET_SIGNALS, FsLayout)
    )
    assert set(RECLAIM_TABLE) == set(FsLayout)
    assert all(set(rows) == set(KUBELET_ROLES) for rows in RECLAIM_TABLE.values())


@pytest.mark.parametrize(("signal", "layout", "functions"), cells())
def test_a_signal_calls_the_functions_of_its_row(
    signal: Signal, layout: FsLayout, functions: tuple[str, ...]
) -> None:
    """Containers before images; nothing where the kubelet calls nothing."""
    assert row(signal, layout) == functions


def test_pressure_on_a_kubelets_own_filesystem_does_not_cost_every_image() -> None:
    """With a dedicated image filesystem only the thresholds of imagefs drive
    the removal of images.
    """
    own, images = (
        threshold(Signal.NODEFS_AVAILABLE, "10%"),
        threshold(Signal.IMAGEFS_AVAILABLE, "15%"),
    )
    config = EvictionConfig((own, images))

    def relieved(layout: FsLayout) -> set[Threshold]:
        goal, waits = config.goal(DELETE_UNUSED_IMAGES, observations_of(layout=layout))
        assert not waits
        return {one for one in goal if one in (own, images)}

    assert relieved(FsLayout.DEDICATED_IMAGEFS) == {images}
    assert relieved(FsLayout.SINGLE) == {own, images}


@given(
    st.lists(
        st.builds(threshold, st.sampled_from(KUBELET_SIGNALS), st.sampled_from(["1Gi", "10%"]))
    ),
    st.sampled_from(sorted(FUNCTIONS)),
    st.sampled_from(FsLayout),
)
def test_a_goal_keeps_the_order_and_leaves_no_threshold_out(
    configured: list[Threshold], function: str, layout: FsLayout
) -> None:
    """A threshold in force is relieved exactly if the function is in its row."""
    config = EvictionConfig(tuple(configured))
    goal, _ = config.goal(function, observations_of(layout=layout))
    in_force = config.in_layout(layout)
    assert list(goal) == [one for one in in_force if function in row(one.signal, layout)]
