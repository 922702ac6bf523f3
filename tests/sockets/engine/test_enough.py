"""How much goes: until the thresholds are clear with their minimum reclaim, as the
filesystem shows; or everything.
"""

from __future__ import annotations

import pytest

from eviction.engine.effects import Request
from eviction.types import Extent
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode, outcome_of, reason_of, relieve
from tests.sockets.conftest import SmallNodeFactory


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
    images = [
        small_node.add_image(f"registry.example/sources/{n}:1", MIB, files=300) for n in range(4)
    ]
    small_node.run(small_node.run_pod("web"))
    before = small_node.inodes_free()
    record = relieve(small_node.node(Signal.NODEFS_INODES_FREE, above=400))
    assert small_node.removed() == images[:2]
    assert str(record.result) == "satisfied"
    assert record.measured.inodes == small_node.inodes_free() - before >= 600


def test_extent_all_runs_to_the_end_of_the_row(small_node: SmallNode) -> None:
    """As the kubelet does: every unused image and every dead container, although one
    image would have been enough.
    """
    images = small_node.add_images(4)
    running = small_node.run(small_node.run_pod("web"))
    dead = small_node.gone_pod("gone", writes=MIB)
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=MIB, extent="all"))
    assert small_node.removed("image") == images
    assert small_node.removed("container") == [dead]
    assert small_node.images() == {small_node.pause_id, small_node.app_id}
    assert small_node.containers() == {running}
    assert str(record.result) == "satisfied"


def test_dead_containers_that_are_enough_cost_no_image(small_node: SmallNode) -> None:
    """Containers come first in the row, and when they relieve the node the
    images are left alone.
    """
    small_node.add_images(2)
    dead = small_node.gone_pod("gone", writes=8 * MIB)
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=6 * MIB))
    assert small_node.removed("container") == [dead]
    assert small_node.removed("image") == []
    assert small_node.failpoints.calls["ListImages"] == 0, "the runtime was not asked"
    assert str(record.result) == "satisfied"


def test_measured_bytes_are_those_of_the_filesystem_and_nominal_ones_count_shared_layers_twice(
    small_node: SmallNode,
) -> None:
    """Sizes count shared layers once an image: only statvfs counts, to a
    mebibyte, and both are reported.
    """
    images = small_node.add_images(4, size_bytes=2 * MIB, shared_bytes=8 * MIB)
    small_node.run(small_node.run_pod("web"))
    before = small_node.available()
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=5 * MIB))
    gained = small_node.available() - before
    assert small_node.removed() == images[:3], (
        "10 MiB each, nominally; the layer of 8 MiB stays with the last"
    )
    assert record.nominal_bytes == 30 * MIB
    assert abs(record.measured.bytes - gained) <= MIB
    assert abs(gained - 6 * MIB) <= MIB
    assert abs(sum(outcome_of(record, each).freed.bytes for each in images[:3]) - gained) <= MIB


def test_the_last_image_of_a_shared_layer_frees_it(small_node: SmallNode) -> None:
    """When all of them go, measured and nominal differ by what was counted twice."""
    images = small_node.add_images(3, size_bytes=2 * MIB, shared_bytes=8 * MIB)
    small_node.run(small_node.run_pod("web"))
    before = small_node.available()
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=10 * MIB))
    assert small_node.removed() == images
    assert abs(record.measured.bytes - (small_node.available() - before)) <= MIB
    assert abs(record.nominal_bytes - record.measured.bytes - 16 * MIB) <= MIB


def test_what_others_write_meanwhile_is_taken_off(small_node: SmallNode) -> None:
    """A pass that frees 4 MiB while 2 MiB are written has gained 2 MiB."""
    images = small_node.add_images(1)
    small_node.run(small_node.run_pod("web"))
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    before = small_node.available()
    with small_node.relieving(node) as going:
        small_node.fill(2 * MIB)
        record = going.result()
    assert small_node.removed() == images
    assert abs(small_node.available() - before - 2 * MIB) <= MIB
    assert str(record.result) == "not_enough"


def test_an_image_in_use_frees_nothing_so_it_is_never_tried(small_node: SmallNode) -> None:
    """When everything left is in use the pass says so and does not remove what
    would free nothing.
    """
    small_node.run(small_node.run_pod("web"))
    record = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB))
    assert small_node.removed() == []
    assert str(record.result) == "not_enough"
    assert "everything else is in use or protected" in record.reason


def test_late_space_of_sandboxes_and_containers_is_seen_at_the_end(
    make_small_node: SmallNodeFactory,
) -> None:
    """Space that comes 0.03 s after the last removal still belongs to the pass."""
    small = make_small_node(container_space_delay_seconds=0.03)
    dead = small.gone_pod("gone", writes=8 * MIB)
    before = small.available()
    record = relieve(small.node(Signal.NODEFS_AVAILABLE, above=6 * MIB, imageMinimumGCAge="100h"))
    assert small.removed("container") == [dead]
    assert str(record.result) == "satisfied"
    assert abs(record.measured.bytes - (small.available() - before)) <= MIB
    assert record.measured.bytes >= 8 * MIB


def test_a_dry_run_plans_what_a_run_would_do_and_touches_nothing(small_node: SmallNode) -> None:
    """The same path minus the one call: the same objects in the same order, and nothing is gone."""
    small_node.add_images(4)
    small_node.run(small_node.run_pod("web"))
    small_node.gone_pod("gone")
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=6 * MIB, dry_run=True)
    dry = relieve(node)
    assert small_node.removed() == []
    assert {str(outcome.result) for outcome in dry.removals} == {"planned"}
    wet = relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=6 * MIB))
    assert (
        [o.verdict.id for o in dry.removals]
        == [o.verdict.id for o in wet.removals]
        == small_node.removed()
    )


def test_a_dry_run_of_everything_goes_on_as_if_containers_were_gone(small_node: SmallNode) -> None:
    """An image that only a dead container keeps would go once the container has
    gone, and the dry run says so.
    """
    image = small_node.add_image("registry.example/once:1")
    small_node.run(small_node.run_pod("web"))
    small_node.gone_pod("gone", image)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB, dry_run=True)
    dry = relieve(node, Request(extent=Extent.ALL))
    assert str(outcome_of(dry, image).result) == "planned"
    relieve(small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB, extent="all"))
    assert image in small_node.removed("image")


@pytest.mark.parametrize("full_of", ["bytes", "inodes", "both"])
def test_a_full_filesystem_is_relieved(small_node: SmallNode, full_of: str) -> None:
    """At 0 bytes or 0 inodes free no file can be made, and nothing on the way
    to the removal makes one.
    """
    image = small_node.add_image("registry.example/old:1", 4 * MIB, files=200)
    small_node.run(small_node.run_pod("web"))
    signal = Signal.NODEFS_AVAILABLE if full_of == "bytes" else Signal.NODEFS_INODES_FREE
    node = small_node.node(signal, above=0)
    if full_of in ("inodes", "both"):
        small_node.fill(inodes=small_node.inodes_free() - 1)
    if full_of in ("bytes", "both"):
        small_node.fill(small_node.available())
        assert small_node.available() == 0
    elif small_node.inodes_free():
        small_node.fill(inodes=1, directory=small_node.root_directory)
    relieve(node, Request(extent=Extent.ALL))
    assert small_node.removed("image") == [image]
    assert small_node.available() >= 4 * MIB
    assert small_node.inodes_free() >= 200
