"""How much goes: until the thresholds are clear with their minimum reclaim, as the
filesystem shows; or everything.
"""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from eviction.engine.effects import Request
from eviction.types import Extent
from signals.types import Signal
from tests.nodes.faults import Fail
from tests.nodes.small_node import MIB, SmallNode, outcome_of, reason_of, relieve
from tests.reclaimd_process import reclaimd
from tests.sockets.conftest import SmallNodeFactory

ALL = Request(extent=Extent.ALL)


@pytest.mark.parametrize(
    ("above_mib", "reclaim_mib", "goes"), [(1, 0, 1), (4, 0, 1), (5, 0, 2), (1, 4, 2), (3, 8, 3)]
)
def test_it_stops_when_the_mark_and_the_minimum_reclaim_are_reached(
    small_node: SmallNode, above_mib: int, reclaim_mib: int, goes: int
) -> None:
    """Purging everything is the kubelet's way; here just as many images of 4 MiB go as are
    needed, the oldest first.
    """
    images = small_node.add_images(6)
    small_node.run(small_node.run_pod("web"))
    node = small_node.node(
        Signal.NODEFS_AVAILABLE,
        above=above_mib * MIB,
        evictionMinimumReclaim={"nodefs.available": f"{reclaim_mib}Mi", "imagefs.available": "0"},
    )
    record = relieve(node)
    assert small_node.removed() == images[:goes]
    assert str(record.result) == "satisfied"
    assert {reason_of(record, each) for each in images[goes:]} == {"relieved"}


def test_inodes_are_relieved_as_bytes_are(small_node: SmallNode) -> None:
    """Many small files use the inodes up while bytes are plenty; images go
    until enough inodes are free.
    """
    images = [small_node.add_image(f"registry.example/{n}:1", MIB, files=300) for n in range(4)]
    small_node.run(small_node.run_pod("web"))
    before = small_node.inodes_free()
    record = relieve(small_node.node(Signal.NODEFS_INODES_FREE, above=400))
    assert small_node.removed() == images[:2]
    assert str(record.result) == "satisfied"
    assert record.measured.inodes == small_node.inodes_free() - before >= 600


@pytest.mark.parametrize("delay", [0.0, 0.03])
def test_dead_containers_that_are_enough_cost_no_image(
    make_small_node: SmallNodeFactory, delay: float
) -> None:
    """They come first in the row. Space that comes 0.03 s after the last removal still belongs to
    the pass."""
    small = make_small_node(container_space_delay_seconds=delay)
    small.add_images(2)
    small.run(small.run_pod("web"))
    dead = small.gone_pod("gone", writes=8 * MIB)
    before = small.available()
    record = relieve(small.node(Signal.NODEFS_AVAILABLE, above=6 * MIB))
    assert (small.removed("container"), small.removed("image")) == ([dead], [])
    assert small.failpoints.calls["ListImages"] == 0, "the runtime was not asked"
    assert str(record.result) == "satisfied"
    assert 8 * MIB <= record.measured.bytes <= small.available() - before + MIB


def test_extent_all_runs_to_the_end_of_the_row(small_node: SmallNode) -> None:
    """As the kubelet does: every unused image and every dead container, although one image would
    have been enough. What is then left is in use, and the next pass does not try it."""
    images = small_node.add_images(4)
    running = small_node.run(small_node.run_pod("web"))
    dead = small_node.gone_pod("gone", writes=MIB)
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=MIB, extent="all"))
    assert (small_node.removed("container"), small_node.removed("image")) == ([dead], images)
    assert small_node.images() == {small_node.pause_id, small_node.app_id}
    assert small_node.containers() == {running}
    assert str(record.result) == "satisfied"
    again = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB))
    assert (again.removals, str(again.result)) == ((), "not_enough")
    assert "everything else is in use or protected" in again.reason


@pytest.mark.parametrize(("there", "above_mib", "mib"), [(4, 5, 6), (3, 10, 14)])
def test_measured_bytes_are_those_of_the_filesystem_and_nominal_ones_count_shared_layers_twice(
    small_node: SmallNode, there: int, above_mib: int, mib: int
) -> None:
    """Of three images with 2 MiB of their own and a layer of 8 MiB, which goes with the last: only
    statvfs counts, to a mebibyte, and both are reported."""
    images = small_node.add_images(there, size_bytes=2 * MIB, shared_bytes=8 * MIB)
    small_node.run(small_node.run_pod("web"))
    before = small_node.available()
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=above_mib * MIB))
    assert small_node.removed() == images[:3]
    assert record.nominal_bytes == 30 * MIB
    freed = sum(outcome_of(record, each).freed.bytes for each in images[:3])
    for gained in (small_node.available() - before, record.measured.bytes, freed):
        assert abs(gained - mib * MIB) <= MIB


@pytest.mark.parametrize("request_", [None, ALL], ids=["enough", "everything"])
def test_a_dry_run_plans_what_a_run_would_do_and_touches_nothing(
    small_node: SmallNode, request_: Request | None
) -> None:
    """The same objects in the same order: also an image that only a dead container keeps."""
    once = small_node.add_image("registry.example/once:1")
    small_node.add_images(4)
    small_node.run(small_node.run_pod("web"))
    small_node.gone_pod("gone", once)
    pressure: dict[str, Any] = {"signal": Signal.NODEFS_AVAILABLE, "above": 6 * MIB}
    dry = relieve(small_node.node(dry_run=True, **pressure), request_)
    assert small_node.removed() == []
    assert {str(outcome.result) for outcome in dry.removals} == {"planned"}
    relieve(small_node.node(**pressure), request_)
    assert [outcome.verdict.id for outcome in dry.removals] == small_node.removed()
    assert once in small_node.removed()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--signal", "imagefs.available"), 3, "the metadata store is closed"),
        ((), 4, "/nowhere"),
    ],
    ids=["nothing can be listed", "nothing can be measured"],
)
def test_a_request_of_which_nothing_is_known_is_no_success(
    small_node: SmallNode, options: tuple[str, ...], code: int, words: str
) -> None:
    """No threshold is met, but none is clear, or nothing was done."""
    small_node.add_images(1)
    fields: dict[str, Any] = {} if options else {"rootDirectory": "/nowhere"}
    configuration = small_node.configuration(evictionHard={"nodefs.available": "10%"}, **fields)
    small_node.failpoints["ListImages"] = Fail(
        grpc.StatusCode.INTERNAL, "the metadata store is closed"
    )
    process = reclaimd("reclaim", "--config", configuration, *options)
    assert (process.returncode, words in process.stdout + process.stderr) == (code, True)
