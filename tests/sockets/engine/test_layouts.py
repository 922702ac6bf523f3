"""Which functions a signal calls in which layout, checked on what was really removed
from two real filesystems.
"""

from __future__ import annotations

import pytest

from eviction.drill.runtime.private_mounts import mount_tmpfs, unmount
from eviction.records.passes import Trigger
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES
from signals.types import FsLayout, Signal
from tests.nodes.small_node import MIB, SmallNode, relieve
from tests.reclaimd_process import came_true
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


def crowd(small: SmallNode) -> tuple[str, str]:
    """An old image, a running pod, and a dead container of a pod that is gone."""
    image = small.add_image("registry.example/old:1")
    small.run(small.run_pod("web"))
    return image, small.gone_pod("gone", writes=2 * MIB)


@pytest.mark.parametrize("unit", ["available", "inodesFree"])
@pytest.mark.parametrize(("layout", "filesystem"), ROWS)
def test_pressure_calls_its_row_and_nothing_else(
    make_small_node: SmallNodeFactory, layout: FsLayout, filesystem: str, unit: str
) -> None:
    """Only objects on the filesystem under pressure are removed."""
    small = make_small_node(layout)
    image, container = crowd(small)
    signal = Signal(f"{filesystem}.{unit}")
    record = relieve(
        small.node(signal, above=3000 if signal.counts_inodes else 60 * MIB, extent="all")
    )
    row = ROWS[layout, filesystem]
    assert record.decision.layout is layout
    assert record.row == row
    assert small.removed("container") == ([container] if CONTAINERS in row else [])
    assert small.removed("image") == ([image] if IMAGES in row else [])
    assert str(record.result) == "not_enough"
    if not row:
        assert "its row of the reclaim table is empty" in record.reason
        assert small.failpoints.calls["ListContainers"] == 0, (
            "the runtime is not asked without need"
        )


@pytest.mark.regression
@pytest.mark.parametrize(
    "kubelets", [SINGLE, DEDICATED], ids=["images with the kubelet's data", "each on its own"]
)
@pytest.mark.parametrize("filesystem", ["nodefs", "imagefs"])
def test_writable_layers_on_a_filesystem_of_their_own_are_the_split_layout(
    make_small_node: SmallNodeFactory, kubelets: FsLayout, filesystem: str
) -> None:
    """As for the kubelet (HasDedicatedImageFs and HasDedicatedContainerFs): each
    signal calls its row of split.
    """
    small = make_small_node(kubelets, containers_apart=True)
    image, container = crowd(small)
    record = relieve(small.node(Signal(f"{filesystem}.available"), above=60 * MIB, extent="all"))
    assert record.decision.layout is SPLIT
    assert record.row == ROWS[SPLIT, filesystem]
    assert small.removed("container") == ([container] if CONTAINERS in record.row else [])
    assert small.removed("image") == ([image] if IMAGES in record.row else [])


@pytest.mark.regression
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
    assert record.row == (CONTAINERS,)
    assert (small.removed("container"), small.removed("image")) == ([container], [])
    assert str(record.result) == "satisfied"


def test_pressure_on_imagefs_is_relieved_though_nodefs_is_full_for_ever(
    make_small_node: SmallNodeFactory,
) -> None:
    """No function relieves the kubelet's filesystem; imagefs is relieved, and by one image only."""
    small = make_small_node(DEDICATED)
    images = [small.add_image(f"registry.example/old/{n}:1") for n in range(4)]
    small.run(small.run_pod("web"))
    node = small.node(
        Signal.IMAGEFS_AVAILABLE, above=MIB, evictionHard={"nodefs.available": str(60 * MIB)}
    )
    small.fill(8 * MIB)
    assert node.locate() is None
    _, decision = node.look()
    met = {str(t.signal) for t in decision.thresholds_met}
    assert met == {"nodefs.available", "imagefs.available", "containerfs.available"}, (
        "containerfs follows imagefs here"
    )
    before = small.available(small.image_disk)
    record = node.relieve(*node.look(), Trigger.INTERVAL)
    assert small.removed("image") == images[:1]
    assert small.available(small.image_disk) - before >= 4 * MIB
    assert record.decision.acted_on is not None
    assert record.decision.acted_on.signal is Signal.IMAGEFS_AVAILABLE
    assert str(record.result) == "not_enough"


def test_in_the_split_layout_the_writable_layers_free_nodefs(
    make_small_node: SmallNodeFactory,
) -> None:
    """Dead containers free the filesystem that the kubelet is on, and the images are on another."""
    small = make_small_node(SPLIT)
    _, container = crowd(small)
    nodefs, imagefs = small.available(small.disk), small.available(small.image_disk)
    record = relieve(small.node(Signal.NODEFS_AVAILABLE, above=MIB))
    assert small.removed("container") == [container]
    assert str(record.result) == "satisfied"
    assert small.available(small.disk) - nodefs >= 2 * MIB
    assert small.available(small.image_disk) == imagefs


def test_in_the_dedicated_layout_both_functions_free_imagefs(
    make_small_node: SmallNodeFactory,
) -> None:
    """Containers first; with 3 MiB needed, their 2 MiB are not enough and one
    image is removed as well.
    """
    small = make_small_node(DEDICATED)
    image, container = crowd(small)
    nodefs, imagefs = small.available(small.disk), small.available(small.image_disk)
    record = relieve(small.node(Signal.IMAGEFS_AVAILABLE, above=3 * MIB))
    assert (small.removed("container"), small.removed("image")) == ([container], [image])
    assert str(record.result) == "satisfied"
    assert small.available(small.image_disk) - imagefs >= 6 * MIB
    assert small.available(small.disk) == nodefs


def test_a_filesystem_mounted_over_the_images_while_running_changes_the_layout(
    make_small_node: SmallNodeFactory,
) -> None:
    """The layout is derived from the mounts at each observation."""
    small = make_small_node(SINGLE)
    crowd(small)
    node = small.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    assert node.locate() is None
    assert node.look()[1].layout is SINGLE
    mount_tmpfs(str(small.images_root), 16 * MIB, 1000)
    try:
        observations, decision = node.look()
        assert decision.layout is DEDICATED
        assert decision.row == ()
        assert observations.signals[Signal.IMAGEFS_AVAILABLE].capacity == 16 * MIB
        assert observations.signals[Signal.NODEFS_AVAILABLE].capacity == 64 * MIB
    finally:
        unmount(str(small.images_root))
    decision = node.look()[1]
    assert (decision.layout, decision.row) == (SINGLE, (CONTAINERS, IMAGES))


def test_until_the_runtime_has_reported_where_its_images_are_no_function_is_called(
    small_node: SmallNode,
) -> None:
    """Without a layout there is no row: pressure is reported, and nothing is removed."""
    crowd(small_node)
    small_node.server.stop()
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=MIB)
    assert "ImageFsInfo" in (node.locate() or "")
    observations, decision = node.look()
    assert [str(t.signal) for t in decision.thresholds_met] == ["nodefs.available"]
    assert "ReclaimPressure" in decision.conditions
    assert (decision.layout, decision.acted_on, decision.row) == (None, None, ())
    assert {str(each.role) for each in observations.unavailable} == {"imagefs", "containerfs"}
    small_node.server.start()
    assert came_true(lambda: node.locate() is None)
    assert node.look()[1].layout is SINGLE
