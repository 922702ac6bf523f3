"""A file that is allocated at once takes the disk below its mark: what the mark needs goes, in order, and not more."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from eviction.node.node import Node
from eviction.record import Pass, Trigger
from eviction.reporting.pass_record import pass_json
from signals.types import FsLayout
from tests.nodes.small_node import MIB, SmallNode
from tests.sockets.conftest import SmallNodeFactory

SMALL_BYTES, LARGE_BYTES = MIB // 4, 20 * MIB
JUMP_BYTES = 60 * MIB
MARK_ABOVE, MINIMUM = 4 * MIB - SMALL_BYTES // 2, MIB  # the mark is so far above what is left after the jump
NEEDED = 20  # small images


@pytest.fixture
def crowd(make_small_node: SmallNodeFactory) -> tuple[SmallNode, list[str], str]:
    """A disk of 128 MiB with forty old images of 256 KiB and a young one of 20 MiB, all unused; about 95 MiB are
    left."""
    small = make_small_node(FsLayout.SINGLE, 128 * MIB)
    old = small.add_images(40, SMALL_BYTES)
    large = small.add_image("registry.example/large:1", LARGE_BYTES)
    small.run(small.run_pod("web"))
    return small, old, large


def allocate(disk: Path, size_bytes: int = JUMP_BYTES) -> Path:
    """A file of so many bytes, at once."""
    file = disk / "allocated"
    with open(file, "wb") as opened:
        os.posix_fallocate(opened.fileno(), 0, size_bytes)
    return file


def fields(small: SmallNode, **more: Any) -> dict[str, Any]:
    """The mark is crossed by the jump alone, and what is needed then is 20 small images."""
    return {
        "evictionHard": {"nodefs.available": str(small.available() - JUMP_BYTES + MARK_ABOVE)},
        "evictionMinimumReclaim": {"nodefs.available": str(MINIMUM), "imagefs.available": "0"},
        "parallelRemovals": 4,
        **more,
    }


def at_rest(small: SmallNode, **more: Any) -> Node:
    """The product, after some observations of a disk that stands still."""
    node = small.node(**fields(small, **more))
    node.locate()
    for _ in range(5):
        _, decision = node.responder.synchronize()
        assert decision.acted_on is None
        time.sleep(0.01)
    return node


def crossed(node: Node) -> Pass:
    """The pass on the crossing, as the daemon does it."""
    observations, decision = node.responder.synchronize()
    assert decision.acted_on is not None
    return node.responder.reclaim(observations, decision, Trigger.INTERVAL)


@pytest.mark.regression
def test_a_pass_leaves_the_fill_rates_to_the_loop_that_observes(crowd: tuple[SmallNode, list[str], str]) -> None:
    """It reads the disk again after a jump, and between removals, for itself."""
    small, _, _ = crowd
    node = at_rest(small)
    allocate(small.disk)
    observations, decision = node.responder.synchronize()
    known = dict(node.responder.fill_rates)
    node.responder.reclaim(observations, decision, Trigger.INTERVAL)
    assert dict(node.responder.fill_rates) == known


@pytest.mark.regression
def test_a_jump_across_the_mark_takes_exactly_what_the_mark_needs_one_at_a_time_in_the_kubelets_order(
    crowd: tuple[SmallNode, list[str], str],
) -> None:
    """As a rate the disk would be full within a second: the large young image went first, and others beside it."""
    small, old, large = crowd
    node = at_rest(small)
    allocate(small.disk)
    record = crossed(node)
    assert small.removed() == old[:NEEDED]
    assert large in small.images()
    assert str(record.result) == "satisfied"
    order = pass_json(record)["order"]
    assert order is not None
    assert order["by"] == "last_use"
    assert pass_json(record)["jumped"]["bytes"] == JUMP_BYTES
    assert "a jump: 60.0MiB went at once, which is no fill, so there was no hurry" in record.reason


def test_a_jump_that_comes_back_takes_nothing(crowd: tuple[SmallNode, list[str], str]) -> None:
    """The file is gone again when the pass begins."""
    small, _, _ = crowd
    node = at_rest(small)
    file = allocate(small.disk)
    observations, decision = node.responder.synchronize()
    file.unlink()
    record = node.responder.reclaim(observations, decision, Trigger.INTERVAL)
    assert small.removed() == []
    assert str(record.result) == "satisfied"
    assert "a jump: 60.0MiB went at once" in record.reason


def test_with_extent_all_a_jump_changes_nothing(crowd: tuple[SmallNode, list[str], str]) -> None:
    """The row goes to its end, as in the kubelet, and nothing is said of a jump."""
    small, old, large = crowd
    node = at_rest(small, extent="all", parallelRemovals=1)
    allocate(small.disk)
    record = crossed(node)
    assert small.removed() == [*old, large]
    assert (record.jumped_bytes, record.jump) == (0, "")
