"""Right before its removal an image is checked against a fresh list of containers."""

from __future__ import annotations

import pytest

from reclaim.execution.removals import Ready, Refused, Wait
from reclaim.images.plan import ImageGCPolicy
from reclaim.types import Action, ContainerState, Kind, PodSandboxState, Reason, Result, RuntimeUnavailable, Verdict
from reclaim.unused_images import UnusedImages
from tests.pure.contexts import context_of, images_stage
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import SteppedClock, container, image, image_id, sandbox

UNUSED = Verdict(Kind.IMAGE, image_id(1), image_id(1), Action.REMOVE, Reason.UNUSED)


class Node:
    """A runtime in memory with two images and a dead sandbox."""

    def __init__(self) -> None:
        self.clock = SteppedClock(at=50.0)
        self.runtime = MemoryRuntime(self.clock)
        self.pods = MemoryPods()
        self.runtime.hold(sandbox("s"), image(1, "app:1"), image(2, "other:1"))

    def images(self, pod_start_seconds: float = 0.0) -> UnusedImages:
        """The stage over images, with the lists of this moment."""
        policy = ImageGCPolicy(pod_start_seconds=pod_start_seconds)
        return images_stage(context_of(self.runtime, self.clock, self.pods, images=policy))


def test_an_image_that_nothing_uses_may_go() -> None:
    """As of a list of containers that was asked for at 50 s."""
    ready = Node().images().check(UNUSED)
    assert isinstance(ready, Ready)
    assert (ready.checked_at, ready.holds()) == (50.0, True)


def test_an_image_that_the_spec_of_a_new_pod_names_is_kept() -> None:
    """The pod came between plan and removal, and has no container yet; of another image nothing is known."""
    node = Node()
    remover = node.images()
    node.pods.named = frozenset({"app:1", "not-pulled-yet:1"})
    assert remover.check(UNUSED) == Refused(Reason.IN_USE, Result.IN_USE)
    assert isinstance(remover.check(UNUSED._replace(id=image_id(2))), Ready)


def test_an_image_that_has_got_the_name_in_a_spec_is_kept() -> None:
    """The kubelet pulls by a new name what is there already: only its status tells, the list is from before."""
    node = Node()
    node.pods.named = frozenset({"renamed:1"})
    remover = node.images()
    assert isinstance(remover.check(UNUSED), Ready)
    node.runtime.hold(image(1, "app:1", "renamed:1"))
    assert remover.check(UNUSED) == Refused(Reason.IN_USE)


@pytest.mark.parametrize("state", ContainerState)
def test_an_image_that_a_new_container_uses_is_kept(state: ContainerState) -> None:
    """The container started between plan and removal."""
    node = Node()
    remover = node.images()
    node.runtime.hold(container("c", state=state, references=("app:1",)))
    assert remover.check(UNUSED) == Refused(Reason.IN_USE, Result.IN_USE)


def test_a_new_container_whose_image_cannot_be_told_stops_every_image() -> None:
    """It says nothing about its image at all."""
    node = Node()
    remover = node.images()
    node.runtime.hold(container("c"))
    assert remover.check(UNUSED) == Refused(Reason.UNRESOLVED_IMAGE)


def test_no_image_may_go_while_a_pod_is_being_made() -> None:
    """Its sandbox came up 0.25 s ago; what it is about to use cannot be known. When that is over it may go."""
    node = Node()
    node.runtime.containers.clear()
    remover = node.images(pod_start_seconds=1.0)
    began_ns = int((node.clock.wall() - 0.25) * 1e9)
    node.runtime.hold(sandbox("new", state=PodSandboxState.READY)._replace(created_at_ns=began_ns))
    answer = remover.check(UNUSED)
    assert isinstance(answer, Wait)
    assert answer.seconds == pytest.approx(0.75, abs=1e-3)
    node.clock.step(answer.seconds + 1e-3)
    assert isinstance(remover.check(UNUSED), Wait), "the sandbox has no container yet"
    node.runtime.hold(container("app", sandbox_id="new", attempt=1, references=(image_id(2),)))
    node.clock.step(0.2)
    assert isinstance(remover.check(UNUSED), Ready)


def test_the_list_of_containers_is_at_most_a_quarter_of_a_second_old() -> None:
    """A list that took 0.05 s is used for 0.2 s more, then read anew."""
    node = Node()
    remover = node.images()
    node.runtime.call_seconds = 0.05
    remover.check(UNUSED)
    node.runtime.calls.clear()
    for seconds, lists in ((0.05, 0), (0.15, 1)):
        node.clock.step(seconds)
        remover.check(UNUSED)
        assert node.runtime.calls.count("list_containers") == lists


def test_an_image_is_removed_by_one_call_with_the_whole_id_and_is_absent_then() -> None:
    """Never by name: by name one runtime drops all tags and another only one."""
    node = Node()
    images = node.images()
    assert images.present(UNUSED)
    images.check(UNUSED)
    node.runtime.calls.clear()
    images.remove(UNUSED)
    assert node.runtime.calls == [f"remove_image {image_id(1)}"]
    assert not images.present(UNUSED)


def test_without_an_answer_of_the_runtime_no_image_is_ready() -> None:
    """A check that could not be made permits nothing."""
    node = Node()
    images = node.images()
    node.runtime.away = True
    with pytest.raises(RuntimeUnavailable):
        images.check(UNUSED)
