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
from reclaim.types import Result
from signals.types import Signal
from tests.nodes.faults import Fail
from tests.nodes.small_node import AN_HOUR, MIB, SmallNode, reason_of, result_of
from tests.pure.values import filling

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


def urgent(small: SmallNode, above: int, **fields: Any) -> Pass:
    """A pass over a disk that fills fast, until almost so many images of 1 MiB have gone."""
    return passed(small.node(Signal.NODEFS_AVAILABLE, above * MIB - MIB // 4, **fields), FAST)


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
    # one for each plan, one for the checks; that of the container may be the first to come
    of_its_pod = before.count("ContainerStatus") > 0
    assert before.count("ListContainers") - of_its_pod in (2, 3)
    assert str(record.result) == "satisfied"


def test_every_eighth_removal_is_a_container_until_it_is_enough(small_node: SmallNode) -> None:
    """16 images are needed: three containers go beside them, the other five stay, and each function
    has its own. A dry run before told the same images."""
    copies = dead_copies(small_node, "crashed")
    images = small_node.add_images(20, MIB)
    dry = urgent(small_node, 16, dry_run=True)
    assert small_node.removed() == []
    assert {o.verdict.id for o in dry.removals if o.verdict.kind == "image"} == set(images[:16])
    record = urgent(small_node, 16)
    assert kinds(small_node) == ("C" + "I" * (TURNS - 1)) * 2 + "CII"
    of_containers, of_images = record.functions
    for function, kind, gone in (
        (of_images, "image", images[:16]),
        (of_containers, "container", copies[:3]),
    ):
        assert small_node.removed(kind) == gone
        assert {outcome.verdict.id for outcome in function.outcomes} == set(gone)
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
    record = urgent(small_node, 6)
    went = small_node.removed()
    assert went.index(pinned) > went.index(dead)
    assert {result_of(record, each) for each in (*unused, dead, pinned)} == {str(Result.REMOVED)}
    assert str(record.result) == "satisfied"


@pytest.mark.parametrize("method", ["ListImages", "ListContainers"])
def test_what_cannot_be_listed_is_an_error_and_the_others_go(
    small_node: SmallNode, method: str
) -> None:
    """Both are read at once, but neither needs the other: more than a few containers are planned
    alone."""
    copies = dead_copies(small_node, "crashed", writes=MIB)
    images = small_node.add_images(6, MIB)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=2 * MIB - MIB // 4)
    node.detection.images()
    # side by side, with the images, and alone
    times = 3 if method == "ListContainers" else None
    small_node.failpoints[method] = Fail(grpc.StatusCode.UNKNOWN, "no list today", times=times)
    record = passed(node, FAST)
    assert small_node.removed() == (copies if method == "ListImages" else images)[:2]
    assert "no list today" in "; ".join(record.errors)
    assert str(record.result) == "satisfied"
