"""Images that the kubelet did not pull go after everything else of the row, and only
where that is not enough.
"""

from __future__ import annotations

import time
from dataclasses import replace

import grpc
import pytest

from eviction.engine.effects import Request
from eviction.engine.node import Node
from eviction.types import Extent
from reclaim.images.records import ImageRecords
from reclaim.types import ImageRecord
from signals.types import Signal
from tests.nodes.faults import Fail, Hang
from tests.nodes.small_node import (
    EVERYTHING,
    MIB,
    SmallNode,
    outcome_of,
    reason_of,
    relieve,
    result_of,
)
from tests.sockets.conftest import SmallNodeFactory

WENT = "; nothing else was enough, so 1 image went that the kubelet had not pulled"


def node_with(small: SmallNode, side_loaded: str, above: int, **options: object) -> Node:
    """Relieved when so many bytes more are free. The side-loaded image was used longest ago."""
    known = {each: ImageRecord(first, first + 2.0) for each, first in small.first_detected.items()}
    known[side_loaded] = replace(
        known[side_loaded], last_used=time.monotonic() - 3700.0, pulled=False
    )
    return small.node(
        Signal.NODEFS_AVAILABLE, above=above, records=ImageRecords(seed=known), **options
    )


def test_it_stays_while_something_else_is_enough(small_node: SmallNode) -> None:
    """Although it was used longest ago."""
    first, side, last = small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    record = relieve(node_with(small_node, side, 7 * MIB))
    assert small_node.removed() == [first, last]
    assert (str(record.result), reason_of(record, side)) == ("satisfied", "not_pulled")
    assert WENT not in record.reason


def test_it_goes_last_where_nothing_else_is_enough(small_node: SmallNode) -> None:
    """After the other images, and each object has one outcome."""
    first, side, last = small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    record = relieve(node_with(small_node, side, 10 * MIB))
    assert small_node.removed() == [first, last, side]
    assert (str(record.result), reason_of(record, side)) == ("satisfied", "not_pulled")
    assert record.reason.endswith(WENT)
    ids = [outcome.verdict.id for outcome in (*record.removals, *record.kept)]
    assert len(ids) == len(set(ids))


def test_it_goes_after_the_functions_that_follow_in_the_row(small_node: SmallNode) -> None:
    """A ballast is given up before it."""
    (side,) = small_node.add_images(1)
    small_node.run(small_node.run_pod("web"))
    ballast = small_node.disk / "ballast"
    ballast.write_bytes(b"x" * 8 * MIB)
    node = node_with(
        small_node,
        side,
        6 * MIB,
        reclaimFunctions=[{"name": "ReleaseBallast", "file": str(ballast), "size": "8Mi"}],
        reclaimTable={"nodefs.available": ["DeleteUnusedImages", "ReleaseBallast"]},
    )
    record = relieve(node)
    assert (small_node.removed(), ballast.exists()) == ([], False)
    assert str(record.result) == "satisfied"


@pytest.mark.parametrize(("keep", "goes"), [(True, False), (False, True)])
def test_it_is_kept_always_or_treated_like_others(
    small_node: SmallNode, keep: bool, goes: bool
) -> None:
    """By keepImagesNotPulled, even on request; like others it is the first,
    as it was used longest ago.
    """
    side, other = small_node.add_images(2)
    small_node.run(small_node.run_pod("web"))
    record = relieve(node_with(small_node, side, 1, keepImagesNotPulled=keep), EVERYTHING)
    assert small_node.removed() == ([side, other] if goes else [other])
    assert reason_of(record, side) == ("unused" if goes else "not_pulled")
    assert str(outcome_of(record, side).verdict.rule) == ("kubelet" if goes else "guard")


def test_a_dry_run_plans_it_last_and_forgets_no_age(small_node: SmallNode) -> None:
    """What it has planned to remove is listed once more for it, and is still there."""
    first, side, last = small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    node = node_with(small_node, side, 10 * MIB, dry_run=True)
    ages = {each: node.records.records[each].first_detected for each in (first, side, last)}
    record = relieve(node, Request(extent=Extent.ALL))
    assert [outcome.verdict.id for outcome in record.removals] == [first, last, side]
    assert {each: node.records.records[each].first_detected for each in ages} == ages
    assert small_node.removed() == []


def test_it_stays_if_the_runtime_was_away_for_a_moment(make_small_node: SmallNodeFactory) -> None:
    """It is not known that nothing else is enough: other images are still there."""
    small = make_small_node()
    first, side, last = small.add_images(3)
    small.run(small.run_pod("web"))
    small.failpoints["ImageStatus"] = Fail(grpc.StatusCode.UNAVAILABLE, "restarting", times=1)
    record = relieve(node_with(small, side, 10 * MIB))
    assert small.removed() == []
    assert (reason_of(record, side), WENT in record.reason) == ("not_pulled", False)
    again = relieve(node_with(small, side, 10 * MIB))
    assert small.removed() == [first, last, side], again.reason


@pytest.mark.parametrize("method", ["ImageStatus", "RemoveImage"])
def test_it_stays_while_another_image_may_still_go(
    make_small_node: SmallNodeFactory, method: str
) -> None:
    """The check or the removal of one failed: it is there, and nobody uses it."""
    small = make_small_node()
    first, side, last = small.add_images(3)
    small.run(small.run_pod("web"))
    small.failpoints[method] = Fail(grpc.StatusCode.UNKNOWN, "the snapshot is busy", times=1)
    record = relieve(node_with(small, side, 10 * MIB))
    assert small.removed() == [last]
    assert (result_of(record, first), reason_of(record, side)) == ("failed", "not_pulled")


def test_it_stays_while_a_removal_is_not_answered(small_node: SmallNode) -> None:
    """It was parked: what it frees may be enough."""
    first, side, last = small_node.add_images(3)
    small_node.run(small_node.run_pod("web"))
    node = node_with(small_node, side, 10 * MIB, removalPatience="1s")
    small_node.failpoints["RemoveImage"] = Hang(times=1)
    with small_node.relieving(node) as going:
        record = going.result()
        assert small_node.removed() == [last]
        assert (result_of(record, first), reason_of(record, side)) == ("parked", "not_pulled")
