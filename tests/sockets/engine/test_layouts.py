"""Which functions a signal calls in which layout, checked on what was really removed from real
filesystems; and which runtime is asked where they are.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from eviction.configuration.effective import load
from eviction.drill.private_mounts import mount_tmpfs, unmount
from eviction.engine.view import NodeView
from eviction.records.passes import Trigger
from eviction.surface.check import CheckOptions, check
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from signals.types import FsLayout, Signal
from tests.nodes.small_node import MIB, SmallNode, relieve
from tests.sockets.conftest import SmallNodeFactory

CONTAINERS, IMAGES = DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
SINGLE, DEDICATED, SPLIT = FsLayout.SINGLE, FsLayout.DEDICATED_IMAGEFS, FsLayout.SPLIT

ROWS = {
    (SINGLE, "nodefs"): (CONTAINERS, IMAGES),
    (SINGLE, "imagefs"): (CONTAINERS, IMAGES),
    (DEDICATED, "nodefs"): (),
    (DEDICATED, "imagefs"): (CONTAINERS, IMAGES),
    (SPLIT, "nodefs"): (CONTAINERS,),
    (SPLIT, "imagefs"): (IMAGES,),
}
APART = {(layout, name): ROWS[SPLIT, name] for layout, name in ROWS if layout is not SPLIT}
"""With writable layers on a filesystem of their own, as for the kubelet (HasDedicatedImageFs and
HasDedicatedContainerFs), whether images are with its data or not."""


@pytest.mark.parametrize("unit", ["available", "inodesFree"])
@pytest.mark.parametrize(
    ("layout", "filesystem", "apart", "row"),
    [(*key, False, row) for key, row in ROWS.items()]
    + [(*key, True, row) for key, row in APART.items()],
)
def test_pressure_calls_its_row_and_nothing_else(
    make_small_node: SmallNodeFactory,
    layout: FsLayout,
    filesystem: str,
    apart: bool,
    row: tuple[str, ...],
    unit: str,
) -> None:
    """An old image and a dead container: only objects on the filesystem under pressure are removed,
    and it gains their space."""
    small = make_small_node(layout, containers_apart=apart)
    image = small.add_image("registry.example/old:1")
    small.run(small.run_pod("web"))
    container = small.gone_pod("gone", writes=2 * MIB)
    before = small.available(small.image_disk)
    signal = Signal(f"{filesystem}.{unit}")
    record = relieve(
        small.node(signal, above=3000 if signal.counts_inodes else 60 * MIB, extent="all")
    )
    assert (record.decision.layout, record.row) == (SPLIT if apart else layout, row)
    assert small.removed("container") == ([container] if CONTAINERS in row else [])
    assert small.removed("image") == ([image] if IMAGES in row else [])
    with_images = small.container_disk == small.image_disk and CONTAINERS in row
    gained = 4 * MIB * (IMAGES in row) + 2 * MIB * with_images
    assert 0 <= small.available(small.image_disk) - before - gained < MIB
    assert str(record.result) == "not_enough"
    if not row:
        assert "its row of the reclaim table is empty" in record.reason
        assert small.failpoints.calls["ListContainers"] == 0, "it is not asked without need"


def test_writable_layers_apart_from_the_images_have_the_thresholds_of_nodefs(
    make_small_node: SmallNodeFactory,
) -> None:
    """Images are with the kubelet's data, and half of the other filesystem is written by a dead
    container: it goes, and no image does."""
    small = make_small_node(SINGLE, containers_apart=True)
    small.add_image("registry.example/old:1")
    container = small.gone_pod("gone", writes=40 * MIB)
    record = relieve(small.node(evictionHard={"nodefs.available": "50%"}, extent="all"))
    assert record.decision.acted_on is not None
    assert record.decision.acted_on.signal is Signal.CONTAINERFS_AVAILABLE
    assert (small.removed("container"), small.removed("image")) == ([container], [])
    assert str(record.result) == "satisfied"


def test_pressure_on_imagefs_is_relieved_though_nodefs_is_full_for_ever(
    make_small_node: SmallNodeFactory,
) -> None:
    """No function relieves the kubelet's filesystem; imagefs is relieved, and by one image only."""
    small = make_small_node(DEDICATED)
    images = small.add_images(4)
    small.run(small.run_pod("web"))
    node = small.node(
        Signal.IMAGEFS_AVAILABLE, above=MIB, evictionHard={"nodefs.available": str(60 * MIB)}
    )
    small.fill(8 * MIB)
    assert node.locate() is None
    observations, decision = node.look()
    assert {str(t.signal) for t in decision.thresholds_met} == {
        "nodefs.available",
        "imagefs.available",
        "containerfs.available",  # follows imagefs here
    }
    record = node.relieve(observations, decision, Trigger.INTERVAL)
    assert small.removed("image") == images[:1]
    assert record.decision.acted_on is not None
    assert record.decision.acted_on.signal is Signal.IMAGEFS_AVAILABLE
    assert str(record.result) == "not_enough"


def test_a_filesystem_mounted_over_the_images_while_running_changes_the_layout(
    small_node: SmallNode,
) -> None:
    """The layout is derived from the mounts at each observation."""
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    assert node.locate() is None
    assert node.look()[1].layout is SINGLE
    mount_tmpfs(str(small_node.images_root), 16 * MIB, 1000)
    try:
        observations, decision = node.look()
        assert (decision.layout, decision.row) == (DEDICATED, ())
        assert observations.signals[Signal.IMAGEFS_AVAILABLE].capacity == 16 * MIB
        assert observations.signals[Signal.NODEFS_AVAILABLE].capacity == 64 * MIB
    finally:
        unmount(str(small_node.images_root))
    decision = node.look()[1]
    assert (decision.layout, decision.row) == (SINGLE, (CONTAINERS, IMAGES))


# ---- where no endpoint is configured


def test_a_socket_that_comes_after_the_start_is_found_and_then_kept(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """At the start there is none, so the first usual place is named; the runtime then listens at
    the second one. Later that of another runtime is at the first: lists of two would be mixed."""
    places = [tmp_path / "first.sock", tmp_path / "second.sock"]
    first, second = (f"unix://{place}" for place in places)
    node = small_node.node(containerRuntimeEndpoint="", usual_endpoints=(first, second))
    node.prepare()
    assert (node.locate() or "").startswith(f"{first}: ImageFsInfo failed with UNAVAILABLE")
    places[1].symlink_to(small_node.server.socket_path)
    assert node.locate() is None
    assert node.summary.paths.imagefs is not None
    places[1].rename(places[0])
    node.locate()
    assert node.endpoint.runtime == second


@pytest.mark.parametrize("there", [False, True])
def test_only_a_socket_that_exists_was_found(tmp_path: Path, there: bool) -> None:
    """The first in the usual order; a file of that name is none. Where none is found, it is said
    which were tried, once for all filesystems."""
    first, second = f"unix://{tmp_path}/first.sock", f"unix://{tmp_path}/second.sock"
    (tmp_path / "first.sock").write_text("")
    with socket.socket(socket.AF_UNIX) as listening:
        if there:
            listening.bind(str(tmp_path / "second.sock"))
        configuration = load(None, {}, {"kubeletConfig": "", "rootDirectory": str(tmp_path)})
        node = NodeView(configuration, usual_endpoints=[first, second])
        remark = f"no endpoint configured, and no socket found; tried {first}, {second}"
        if there:
            remark = f"no endpoint configured; using {second}"
        else:
            node.locate()
        assert (node.endpoint.found, node.endpoint.remark) == (there, remark)
        *lines, last = check(node, CheckOptions()).lines
        assert last == f"runtime: {remark}"
        told = [line for line in lines if line.endswith(f"({remark})")]
        assert [line.partition(":")[0] for line in told] == ["imagefs, containerfs"] * (not there)
        node.close()
