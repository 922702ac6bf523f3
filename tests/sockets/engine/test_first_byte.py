"""What frees nothing does not go first: on a disk that fills, dead containers and
unused images go side by side.

By the ledger of the runtime, so that no clock decides. Dead containers free
nothing here unless it is said.
"""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from eviction.engine.effects import Request
from eviction.engine.node import Node
from eviction.engine.relief import TURNS
from eviction.records.listener import Listener
from eviction.records.passes import Pass, Trigger
from reclaim.types import DELETE_ALL_UNUSED_CONTAINERS, DELETE_UNUSED_IMAGES, Result
from signals.types import FsLayout, Signal
from tests.nodes.faults import Fail, Hang
from tests.nodes.small_node import AN_HOUR, MIB, SmallNode, reason_of, result_of
from tests.pure.values import filling
from tests.sockets.conftest import SmallNodeFactory

FAST, SLOW = 400 * MIB, 1  # bytes a second
COPIES = 8  # dead ones that may go; the newest stays


def fills(node: Node, rate: int) -> None:
    """From now on it is known that the disk fills by so many bytes a second."""
    rates = {
        (device, inodes): filling(fill, 0.0 if inodes else float(rate))
        for (device, inodes), fill in node.world.fill_rates.items()
    }
    node.owner.world = node.world._replace(fill_rates=rates)


def asked_by(node: Node) -> list[str]:
    """The calls of this node from now on, in order."""
    asked: list[str] = []

    class Calls(Listener):
        """Writes down which call was answered."""

        def called(self, call: str, seconds: float, failed: bool) -> None:
            """Written down."""
            asked.append(call)

    node.listeners.add(Calls())
    return asked


def passed(node: Node, rate: int, request: Request | None = None) -> Pass:
    """One pass over a disk that fills at this rate."""
    node.locate()
    observations, decision = node.look()
    fills(node, rate)
    return node.relieve(observations, decision, Trigger.INTERVAL, request=request)


def dead_copies(small: SmallNode, name: str, writes: int = 0) -> list[str]:
    """A pod whose container has exited so many times: all but the newest copy
    may go, the oldest first.
    """
    pod = small.run_pod(name)
    copies = [small.exited(pod, attempt=attempt, writes=writes) for attempt in range(COPIES + 1)]
    small.runtime.age(pod.sandbox_id, AN_HOUR)
    return copies[:-1]


def kinds(small: SmallNode) -> str:
    """What went, in the order in which the runtime removed it:

    I for an image, C for a container.
    """
    return "".join(
        each.kind[0].upper()
        for each in small.runtime.removals
        if each.kind in ("image", "container")
    )


@pytest.mark.regression
def test_on_a_disk_that_fills_images_go_beside_the_first_dead_container(
    small_node: SmallNode,
) -> None:
    """Eight dead copies would have gone before the first image; now one of them goes
    beside the two that are enough.
    """
    dead_copies(small_node, "crashed")
    images = small_node.add_images(6, MIB)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=2 * MIB)
    # as the daemon does from time to time; then what containers mount is known
    node.detection.images()
    asked = asked_by(node)
    record = passed(node, FAST)
    assert small_node.removed("image") == images[:2]
    assert len(small_node.removed("container")) == 1
    before = asked[: asked.index("RemoveImage")]
    assert before.count("ListImages") == 1
    # the check of the container may be the first to come
    of_its_pod = before.count("ContainerStatus") > 0
    assert before.count("ListContainers") - of_its_pod in (2, 3), (
        "one for each plan, one for the checks"
    )
    assert str(record.result) == "satisfied"


@pytest.mark.parametrize(
    ("rate", "fields"),
    [(SLOW, {}), (FAST, {"extent": "all"})],
    ids=["a disk that does not fill", "extent: all"],
)
def test_with_time_or_as_the_kubelet_containers_go_before_images(
    small_node: SmallNode, rate: int, fields: dict[str, Any]
) -> None:
    """The twin: all dead copies, then images."""
    copies = dead_copies(small_node, "crashed")
    images = small_node.add_images(6, MIB)
    record = passed(small_node.node(Signal.NODEFS_AVAILABLE, above=2 * MIB, **fields), rate)
    gone = len(images) if fields else 2
    assert kinds(small_node) == "C" * len(copies) + "I" * gone
    assert [function.operation for function in record.functions] == [
        DELETE_ALL_UNUSED_CONTAINERS,
        DELETE_UNUSED_IMAGES,
    ]


def test_every_eighth_removal_is_a_container_until_it_is_enough(small_node: SmallNode) -> None:
    """16 images are needed: three containers go beside them, the other five stay, and
    each function has its own.
    """
    copies = dead_copies(small_node, "crashed")
    images = small_node.add_images(20, MIB)
    record = passed(small_node.node(Signal.NODEFS_AVAILABLE, above=16 * MIB - MIB // 4), FAST)
    assert kinds(small_node) == ("C" + "I" * (TURNS - 1)) * 2 + "CII"
    assert small_node.removed("image") == images[:16]
    assert small_node.removed("container") == copies[:3]
    of_containers, of_images = record.functions
    assert {outcome.verdict.id for outcome in of_images.outcomes} == set(images[:16])
    assert {outcome.verdict.id for outcome in of_containers.outcomes} == set(copies[:3])
    assert {reason_of(record, each) for each in copies[3:]} == {"relieved"}
    assert of_images.nominal_bytes == 16 * MIB


def test_an_image_that_a_dead_container_pins_goes_after_it_in_the_same_pass(
    small_node: SmallNode,
) -> None:
    """All are needed; the pinned image goes only after its container, when lists were read anew.

    Whether the last of the unused images goes before it or after it depends on which answer comes
    first: the lists read anew name the pinned image as the longest unused.
    """
    dead_copies(small_node, "crashed")
    pinned = small_node.add_image("registry.example/job:1", 4 * MIB)
    small_node.first_detected[pinned] -= AN_HOUR
    unused = small_node.add_images(2, MIB)
    dead = small_node.gone_pod("job", image="registry.example/job:1")
    record = passed(small_node.node(Signal.NODEFS_AVAILABLE, above=6 * MIB - MIB // 4), FAST)
    went = small_node.removed()
    assert went.index(pinned) > went.index(dead)
    assert {result_of(record, each) for each in (*unused, dead, pinned)} == {str(Result.REMOVED)}
    assert str(record.result) == "satisfied"


def test_where_side_by_side_is_not_enough_the_rest_of_the_row_follows(
    small_node: SmallNode,
) -> None:
    """Sandboxes and logs of vanished pods go after containers and images, and
    each object has one outcome.
    """
    gone = small_node.gone_pod("gone")
    copies, images = dead_copies(small_node, "crashed"), small_node.add_images(3, MIB)
    record = passed(small_node.node(Signal.NODEFS_AVAILABLE, above=200 * MIB), FAST)
    assert set(small_node.removed("container")) == {gone, *copies}
    assert small_node.removed("image") == images
    assert len(small_node.removed("sandbox")) == 1
    tried = [outcome.verdict.id for outcome in record.removals]
    assert len(tried) == len(set(tried))
    assert str(record.result) == "not_enough"


def test_a_dry_run_and_the_plan_tell_the_same_order(small_node: SmallNode) -> None:
    """What a dry run on the filling disk would remove is what the pass then
    removes; the plan says why.
    """
    dead_copies(small_node, "crashed")
    small_node.add_images(12, MIB)
    pressed: dict[str, Any] = {"signal": Signal.NODEFS_AVAILABLE, "above": 10 * MIB - MIB // 4}
    dry = small_node.node(dry_run=True, **pressed)
    would = {outcome.verdict.id for outcome in passed(dry, FAST).removals}
    assert small_node.removed() == []
    passed(small_node.node(**pressed), FAST)
    assert set(small_node.removed()) == would


def test_a_container_whose_removal_hangs_is_parked_and_images_go_on(small_node: SmallNode) -> None:
    """It holds one of the removals in flight, and nothing else."""
    copies = dead_copies(small_node, "crashed")
    images = small_node.add_images(9, MIB)
    small_node.failpoints["RemoveContainer"] = Hang(times=1)
    node = small_node.node(
        Signal.NODEFS_AVAILABLE,
        above=9 * MIB - MIB // 4,
        parallelRemovals=2,
        removalPatience="0.5s",
    )
    record = passed(node, FAST)
    assert set(small_node.removed("image")) == set(images)
    # two may have gone at once
    parked = [each for each in copies if result_of(record, each) == str(Result.PARKED)]
    assert len(parked) == 1
    small_node.failpoints.clear()


def test_where_images_have_a_disk_of_their_own_nothing_is_side_by_side(
    make_small_node: SmallNodeFactory,
) -> None:
    """Split: its row has images only, and no container is touched for them."""
    small = make_small_node(FsLayout.SPLIT)
    dead_copies(small, "crashed")
    images = small.add_images(3, MIB)
    record = passed(small.node(Signal.IMAGEFS_AVAILABLE, above=2 * MIB), FAST)
    assert small.removed() == images[:2]
    assert record.row == (DELETE_UNUSED_IMAGES,)


def test_images_that_cannot_be_listed_are_an_error_and_containers_go(small_node: SmallNode) -> None:
    """Both are read at once, but the containers do not need the images: more than a few
    of them are planned alone.
    """
    copies = dead_copies(small_node, "crashed", writes=MIB)
    small_node.add_images(6, MIB)
    small_node.failpoints["ListImages"] = Fail(grpc.StatusCode.UNKNOWN, "no images today")
    record = passed(small_node.node(Signal.NODEFS_AVAILABLE, above=3 * MIB - MIB // 4), FAST)
    assert small_node.removed() == copies[:3]
    assert "no images today" in "; ".join(record.errors)
    assert str(record.result) == "satisfied"


def test_containers_that_cannot_be_listed_are_an_error_and_images_go(small_node: SmallNode) -> None:
    """Their list fails, that of the images does not: the pass goes on, and is told of both."""
    dead_copies(small_node, "crashed")
    images = small_node.add_images(6, MIB)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=2 * MIB)
    node.detection.images()
    small_node.failpoints["ListContainers"] = Fail(
        grpc.StatusCode.UNKNOWN, "no list today", times=3
    )  # side by side, with the images, and alone
    record = passed(node, FAST)
    assert small_node.removed("image") == images[:2]
    assert "no list today" in "; ".join(record.errors)
    assert str(record.result) == "satisfied"
