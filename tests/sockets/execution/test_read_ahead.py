"""What was read ahead of a pass: it is planned on once, while it is young, and justifies no removal by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import grpc
import pytest

from eviction.decision.reclaim_table import DELETE_ALL_UNUSED_CONTAINERS
from eviction.drill.runtime.failpoints import Fail
from eviction.node.node import Node
from eviction.node.responder import Request
from reclaim.execution.stages import FEW
from reclaim.functions import READ_AHEAD_SECONDS
from reclaim.types import RuntimeUnavailable
from signals.types import Signal
from tests.nodes.small_node import AN_HOUR, MIB, SmallNode, reason_of
from tests.sockets.execution.test_first_byte import FAST, SLOW, asked_by, dead_copies, passed


def read_ahead(node: Node) -> None:
    """As the daemon does when a mark is near."""
    node.locate()
    node.collector.keep_read_ahead(node.collector.read_ahead())


def test_the_next_pass_plans_on_it_and_the_one_after_lists_anew(small_node: SmallNode) -> None:
    """Before the first removal the one list that every removal is checked by is asked for, and no other."""
    dead_copies(small_node, "crashed")
    images = small_node.add_images(6, MIB)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=2 * MIB)
    read_ahead(node)
    asked = asked_by(node)
    record = passed(node, FAST)
    assert small_node.removed() == images[:2]
    before = asked[: asked.index("RemoveImage")]
    assert [method for method in before if method.startswith("List")] == ["ListContainers"]
    assert str(record.result) == "satisfied"
    small_node.fill(4 * MIB)
    asked.clear()
    passed(node, FAST)
    assert "ListImages" in asked[: asked.index("RemoveImage")]


def too_old(node: Node) -> None:
    """It is older than what a pass may begin with."""
    observed = node.collector.read_ahead()
    node.collector.keep_read_ahead(replace(observed, at=observed.at - READ_AHEAD_SECONDS))


def after_a_call(node: Node) -> None:
    """Something may have been removed since it was read."""
    read_ahead(node)
    passed(node, SLOW, Request(row=(DELETE_ALL_UNUSED_CONTAINERS,)))


def after_a_periodic_collection(node: Node) -> None:
    """The same, on the periodic loop."""
    read_ahead(node)
    node.collector.garbage_collect_containers()


@pytest.mark.parametrize("reading", [too_old, after_a_call, after_a_periodic_collection])
def test_what_is_too_old_or_of_before_another_call_is_not_planned_on(
    small_node: SmallNode, reading: Callable[[Node], None]
) -> None:
    """The twin: the pass lists for itself."""
    images = small_node.add_images(6, MIB)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=2 * MIB)
    reading(node)
    dead_copies(small_node, "crashed")
    asked = asked_by(node)
    passed(node, FAST)
    assert small_node.removed() == images[:2]
    assert "ListImages" in asked


def test_with_time_the_kubelets_order_lists_for_itself(small_node: SmallNode) -> None:
    """A disk that does not fill after all: containers go before images, each by lists of their own."""
    copies = dead_copies(small_node, "crashed")
    images = small_node.add_images(6, MIB)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=2 * MIB)
    read_ahead(node)
    asked = asked_by(node)
    passed(node, SLOW)
    assert small_node.removed() == [*copies, *images[:2]]
    assert "ListContainers" in asked[: asked.index("RemoveContainer")]
    assert "ListImages" in asked


def test_after_a_few_containers_that_went_alone_images_are_listed_anew(small_node: SmallNode) -> None:
    """What pinned an image may be gone by then."""
    pinned = small_node.add_image("registry.example/job:1", 4 * MIB)
    small_node.first_detected[pinned] -= AN_HOUR
    dead = [small_node.gone_pod(f"gone-{number}", image="registry.example/job:1") for number in range(FEW - 1)]
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=3 * MIB)
    read_ahead(node)
    record = passed(node, FAST)
    assert small_node.removed() == [*dead, pinned]
    assert str(record.result) == "satisfied"


def test_an_image_that_a_container_has_taken_since_is_kept(small_node: SmallNode) -> None:
    """The list from which each removal is checked is never the one that was read ahead."""
    dead_copies(small_node, "crashed")
    taken, *others = small_node.add_images(4, MIB)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=2 * MIB)
    read_ahead(node)
    small_node.run(small_node.run_pod("web"), image="registry.example/old/0:1")
    record = passed(node, FAST)
    assert small_node.removed() == others[:2]
    assert reason_of(record, taken) == "in_use"


def test_the_containers_of_a_pod_that_came_back_are_kept(small_node: SmallNode) -> None:
    """The kubelet's directories are read again when the plan is made, and before each removal."""
    dead = [small_node.gone_pod(f"gone-{number}") for number in range(FEW + 1)]
    small_node.add_images(6, MIB)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=100 * MIB)
    read_ahead(node)
    small_node.admit("uid-gone-0")
    passed(node, FAST)
    assert set(small_node.removed("container")) == set(dead[1:])


def test_a_pod_that_has_ended_since_is_no_doubt_about_the_directories(small_node: SmallNode) -> None:
    """The lists say that it runs, and its directory is gone: it was there when they were read."""
    copies = dead_copies(small_node, "crashed")
    dead = [small_node.gone_pod(f"gone-{number}") for number in range(FEW)]
    pod = small_node.run_pod("ended")
    container = small_node.run(pod)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=100 * MIB)
    read_ahead(node)
    small_node.runtime.exit_container(container, 0)
    small_node.vanish(pod)
    asked = asked_by(node)
    passed(node, FAST)
    assert node.pods_doubt is None
    assert set(small_node.removed("container")) == {*copies, *dead}
    until_the_last = "".join(asked).rpartition("RemoveContainer")[0]
    assert "ListPodSandbox" not in until_the_last, "what was read ahead has sufficed"


def test_a_runtime_that_answers_nothing_leaves_nothing_to_plan_on(small_node: SmallNode) -> None:
    """Half a reading is none: the pass asks again, and is told what is wrong by its own error."""
    dead_copies(small_node, "crashed")
    images = small_node.add_images(6, MIB)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=2 * MIB)
    node.locate()
    small_node.failpoints["ListPodSandbox"] = Fail(grpc.StatusCode.UNKNOWN, "no sandboxes today")
    with pytest.raises(RuntimeUnavailable, match="no sandboxes today"):
        node.collector.read_ahead()
    small_node.failpoints.clear()
    passed(node, FAST)
    assert small_node.removed() == images[:2]
