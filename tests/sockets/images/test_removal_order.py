"""A disk that fills faster than small old images make room: then the image that brings most goes first.

A process writes on the filesystem all the while; each removal takes the runtime 0.2 s.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from eviction.cli.plan import plan_lines
from eviction.types import Extent
from eviction.drill.runtime.failpoints import Delay
from eviction.node.node import Node
from eviction.node.responder import Request
from eviction.record import Pass, Trigger
from eviction.reporting.pass_record import pass_json
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.pure.values import GIB, filling

REMOVAL_SECONDS = 0.05
SMALL, SMALL_BYTES = 40, MIB // 4
STEP_BYTES = MIB // 4
FAST, SLOW = 20 * MIB, MIB  # bytes a second


@dataclass
class Writer:
    """Fills a directory's filesystem at a rate until it is full or `stopped` is set; `lowest` is its lowest reading."""

    directory: Path
    rate: int
    lowest: int = 2**63
    stopped: threading.Event = field(default_factory=threading.Event)

    def write(self) -> None:
        """Writes until `stopped` is set or the disk is full."""
        began, written = time.monotonic(), 0
        with open(self.directory / "written", "wb", buffering=0) as file:
            while not self.stopped.wait(max(written / self.rate - (time.monotonic() - began), 0.0)):
                try:
                    written += file.write(b"x" * STEP_BYTES)
                except OSError:
                    self.lowest = 0
                    return
                found = os.statvfs(self.directory)
                self.lowest = min(self.lowest, found.f_bavail * found.f_frsize)


@contextmanager
def writing(small: SmallNode, rate: int) -> Iterator[Writer]:
    """A running writer."""
    writer = Writer(small.disk, rate)
    thread = threading.Thread(target=writer.write)
    thread.start()
    try:
        yield writer
    finally:
        writer.stopped.set()
        thread.join()


@pytest.fixture
def crowd(small_node: SmallNode) -> tuple[SmallNode, list[str], str]:
    """Forty old images of 256 KiB and a young one of 20 MiB, all unused; the node has 31 MiB left."""
    small = small_node
    old = small.add_images(SMALL, SMALL_BYTES)
    large = small.add_image("registry.example/large:1", 20 * MIB)
    small.run(small.run_pod("web"))
    small.failpoints["RemoveImage"] = Delay(REMOVAL_SECONDS)
    return small, old, large


def crossed(node: Node) -> Pass:
    """Synchronizes, as the daemon does, until the mark is crossed, then reclaims."""
    node.locate()
    while True:
        observations, decision = node.responder.synchronize()
        if decision.row:
            return node.responder.reclaim(observations, decision, Trigger.INTERVAL)
        time.sleep(0.05)


def node_on(small: SmallNode, left: int, **fields: Any) -> Node:
    """The product with its mark at so many bytes available."""
    return small.node(evictionHard={"nodefs.available": str(left)}, **fields)


def test_the_largest_is_removed_next_where_the_old_ones_would_come_too_late(
    crowd: tuple[SmallNode, list[str], str],
) -> None:
    """20 MiB/s, 16 MiB left, and 256 KiB in 0.05 s by last use: full in 0.8 s. The first removal shows
    how long one takes; the large one goes next, nothing ever stood still, and most old images are still there."""
    small, old, large = crowd
    with writing(small, FAST) as writer:
        record = crossed(node_on(small, 16 * MIB))
        assert writer.lowest > 0
    assert large in small.removed()[:10]
    assert set(old[10:]) <= small.images()
    assert str(record.result) == "satisfied"
    order = pass_json(record)["order"]
    assert order is not None
    assert (order["by"], order["short"]) == ("yield", "bytes")
    assert 0 < (order["seconds_to_full"] or 0) < 15.0
    assert "largest yield of bytes first: the disk is full in " in record.reason


def test_the_order_by_last_use_would_have_let_the_disk_run_full(crowd: tuple[SmallNode, list[str], str]) -> None:
    """The twin: the same node and the same fill with `extent: all`, where the order is the kubelet's."""
    small, old, large = crowd
    with writing(small, FAST) as writer:
        record = crossed(node_on(small, 16 * MIB, extent="all"))
    assert writer.lowest == 0
    assert small.removed() == [*old, large]
    assert pass_json(record)["order"] is None


def test_where_there_is_time_the_least_recently_used_go_in_their_order(
    crowd: tuple[SmallNode, list[str], str],
) -> None:
    """The twin: 1 MiB/s leaves half a minute, so about ten old ones go, without a hole, and the large one stays."""
    small, old, large = crowd
    with writing(small, SLOW) as writer:
        record = crossed(node_on(small, small.available() - MIB, evictionMinimumReclaim={"nodefs.available": "1Mi"}))
        assert writer.lowest > 16 * MIB
    gone = small.removed()
    assert 4 <= len(gone) < SMALL
    assert gone == old[: len(gone)]
    assert large in small.images()
    order = pass_json(record)["order"]
    assert order is not None
    assert (str(record.result), order["by"]) == ("satisfied", "last_use")


def test_the_plan_shows_the_order_of_the_hurry(crowd: tuple[SmallNode, list[str], str]) -> None:
    """What `reclaimd plan` does where 1 GiB/s was seen lately: the large one stands first, the others in the order of
    their last use, and the sentence says why."""
    small, old, large = crowd
    node = small.node(Signal.NODEFS_AVAILABLE, above=15 * MIB, dry_run=True)
    node.locate()
    observations, decision = node.responder.synchronize()
    node.responder.fill_rates = {key: filling(fill, GIB) for key, fill in node.responder.fill_rates.items()}
    record = node.responder.reclaim(observations, decision, Trigger.REQUEST, Request(extent=Extent.ALL))
    assert [outcome.verdict.id for outcome in record.removals] == [large, *old]
    assert small.removed() == []
    assert record.order is not None
    assert record.order.sentence in plan_lines(record)
