"""What must stop a pass that runs stops it before its next call: a stop, a pause,
another configuration or layout.

Each comes at a moment that the runtime chooses: while it removes the first image, or while
the second is being checked.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eviction.drill.runtime.private_mounts import mount_tmpfs, unmount
from eviction.engine.effects import PauseSet, Reconfigured
from eviction.engine.node import Node
from eviction.records.passes import Pass
from signals.types import Signal
from tests.nodes.interrupting_server import InterruptingServer, Once
from tests.nodes.small_node import MIB, SmallNode, reason_of, relieve
from tests.sockets.conftest import SmallNodeFactory


@pytest.fixture
def small(make_small_node: SmallNodeFactory) -> SmallNode:
    """With a runtime that can be interrupted, and a pod that runs."""
    made = make_small_node(server=InterruptingServer)
    made.run(made.run_pod("web"))
    return made


def interrupted(
    small: SmallNode, method: str, images: list[str], meanwhile: Callable[[], object]
) -> list[int]:
    """Has something happen in the next pass, while it removes the first image or checks the second;
    how often the status of images was asked by then."""
    asked: list[int] = []

    def now() -> None:
        asked.append(small.failpoints.calls["ImageStatus"])
        meanwhile()

    assert isinstance(small.server, InterruptingServer)
    image_id = images[0 if method == "RemoveImage" else 1]
    small.server.before = Once(method, image_id, now)
    return asked


def assert_nothing_more(
    small: SmallNode, record: Pass, images: list[str], reason: str, asked: list[int]
) -> None:
    """The removal that was sent ends, and is asked after; everything after it is kept without
    another question, and the record says why."""
    assert small.removed() == images[:1]
    assert {reason_of(record, image) for image in images[1:]} == {reason}
    more = small.failpoints.calls["ImageStatus"] - asked[0]
    assert more <= 1
    assert str(record.result) == "not_enough"


def paused(node: Node) -> None:
    """An operator pauses removals."""
    node.owner.post(PauseSet(600.0))


def reconfigured(node: Node) -> None:
    """Another configuration was read."""
    node.owner.post(Reconfigured(node.configuration.model_copy(update={"dry_run": True})))


def stopped(node: Node) -> None:
    """The daemon is told to stop."""
    node.owner.stop()


BRAKES: dict[Callable[[Node], None], str] = {
    paused: "paused",
    reconfigured: "reconfigured",
    stopped: "stopping",
}


@pytest.mark.parametrize("brake", BRAKES, ids=lambda brake: brake.__name__)
@pytest.mark.parametrize("method", ["RemoveImage", "ImageStatus"])
def test_a_pass_that_runs_sends_nothing_more(
    small: SmallNode, brake: Callable[[Node], None], method: str
) -> None:
    """Whichever of them comes while it runs."""
    images = small.add_images(4)
    node = small.node(Signal.NODEFS_AVAILABLE, above=40 * MIB)
    asked = interrupted(small, method, images, lambda: brake(node))
    assert_nothing_more(small, relieve(node), images, BRAKES[brake], asked)


@pytest.mark.parametrize("extent", ["enough", "all"])
@pytest.mark.parametrize("method", ["RemoveImage", "ImageStatus"])
def test_a_mount_that_appears_costs_no_image(small: SmallNode, method: str, extent: str) -> None:
    """Over the images: what would be removed now frees nothing where the pressure is."""
    images = small.add_images(8, MIB)
    node = small.node(Signal.NODEFS_AVAILABLE, above=40 * MIB, extent=extent)
    over = str(small.images_root)
    asked = interrupted(small, method, images, lambda: mount_tmpfs(over, 16 * MIB, 1000))
    try:
        record = relieve(node)
    finally:
        unmount(over)
    assert_nothing_more(small, record, images, "layout_changed", asked)
