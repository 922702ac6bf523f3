"""A pod begins beside a pass: what its containers use stays, between any two calls of the pass and
while images go as fast as they can, however slow the lists are.

The pod is made in the kubelet's order: its directory, its sandbox, and 60 ms later one container
after the other, each of an image that nobody else uses. Or it has run for an hour, and only its
containers begin. An image that has gone before its container is made is no harm: the kubelet looks
whether it is there, and pulls it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.embedded_node import age_directories
from eviction.drill.runtime import Image
from reclaim.types import RuntimeUnavailable
from signals.types import FsLayout, Signal
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.interrupting_server import BetweenReadings, InterruptingServer
from tests.nodes.later import Ahead
from tests.nodes.small_node import AN_HOUR, IMAGES, MIB, Pod, SmallNode, relieve
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.passes import FAST, AnswerChange, Dialect, passed

CONTAINERS = 15
IDLE_IMAGES = 50
REMOVAL_SECONDS = 0.1
SANDBOX_SECONDS = 0.06  # from the sandbox to the first container
BEGINS_WITHIN_SECONDS = 0.5  # of the first removal
LIST_SECONDS = (0.05, 0.15, 0.3)


class JudgingRuntime(FullRuntime):
    """A runtime that knows which images were removed while a container used them: `harmed`."""

    def __init__(self, images_root: str, **options: Any) -> None:
        super().__init__(images_root, **options)
        self.harmed: list[str] = []

    def _drop_image(self, image: Image) -> None:
        users = [each for each in self._containers.values() if each.image_id == image.id]
        if users:
            self.harmed.append(f"{list(image.repo_tags)}, which {len(users)} containers used")
        super()._drop_image(image)


def old_pod(small: SmallNode, name: str) -> Pod:
    """A pod that has run for an hour, with a container that has ended."""
    pod = small.run_pod(name)
    container = small.exited(pod, name="init")
    for made in (pod.sandbox_id, container):
        small.runtime.age(made, AN_HOUR)
    then = time.time() - 2 * AN_HOUR
    age_directories(str(small.root_directory / "pods" / pod.uid), then)
    return pod


class LateNode:
    """A node that judges what goes, with unused images and an old pod; and the product, asking for
    lists of containers that are so old when they come, below a mark that all images together do not
    reach. Pods are waited for."""

    def __init__(self, stack: ExitStack, directory: Path, late: float):
        directory.mkdir()
        node = SmallNode(directory, FsLayout.SINGLE, 96 * MIB, JudgingRuntime)
        self.small = stack.enter_context(closing(node))
        self.old = old_pod(self.small, "old")
        self.small.add_images(IDLE_IMAGES, MIB // 4)
        answers: dict[str, AnswerChange] = {
            "ListContainers": lambda _: time.sleep(late),
            "RemoveImage": lambda _: time.sleep(REMOVAL_SECONDS),
        }
        dialect = Dialect(self.small.server.target, str(directory / "late.sock"), answers)
        self.product = self.small.node(
            Signal.NODEFS_AVAILABLE,
            above=90 * MIB,
            containerRuntimeEndpoint=stack.enter_context(dialect).endpoint,
            parallelRemovals=2,
            holdOffForNewPods="1s",
        )
        self.product.detection.images()


def harmed(small: SmallNode) -> list[str]:
    """What has gone although a container used it."""
    assert isinstance(small.runtime, JudgingRuntime)
    return small.runtime.harmed


def begin_containers(small: SmallNode, old: Pod | None) -> int:
    """A pod, a new one or the old one, begins containers of the images that would go last; how many
    of them were made."""
    made = 0
    pod = old or small.run_pod("new")
    time.sleep(0.0 if old else SANDBOX_SECONDS)
    for number in range(CONTAINERS):
        with suppress(RuntimeUnavailable):  # its image has gone already
            image = f"registry.example/old/{IDLE_IMAGES - 1 - number}:1"
            small.run(pod, image, f"container-{number}")
            made += 1
    return made


BEGINNINGS = pytest.mark.parametrize("old", [False, True], ids=["a new pod", "an old pod"])


@pytest.mark.regression
@pytest.mark.timeout(0)
@BEGINNINGS
@pytest.mark.parametrize(
    ("late", "runs"),
    [(0.15, 1), *(pytest.param(each, 100, marks=pytest.mark.soak) for each in LIST_SECONDS)],
)
def test_no_image_of_a_pod_that_begins_beside_a_hurry_goes(
    tmp_path: Path, late: float, runs: int, *, old: bool
) -> None:
    """Of a pass over a disk that fills fast: the directories of pod and container are there before
    the list that clears an image begins, or it is read anew. Each begins at another moment after the
    first removal."""
    moments, containers = random.Random(late), 0  # noqa: S311 # repeatable on purpose
    for number in range(runs):
        with ExitStack() as stack:
            node = LateNode(stack, tmp_path / str(number), late)
            moment = moments.uniform(0, BEGINS_WITHIN_SECONDS)
            with node.small.meanwhile(partial(passed, node.product, FAST)) as going:
                node.small.wait_for("RemoveImage")
                time.sleep(moment)
                containers += begin_containers(node.small, node.old if old else None)
                going.result()
            assert harmed(node.small) == [], f"{late} s late, a pod after {moment:.3f} s"
    assert containers >= runs, "hardly any container was made beside a pass"


# ---- between two calls of a pass

UNUSED = 4
FIRST_CHECK, CALLS = 9, 16  # of the calls that only ask: that of the first image, and all of a pass


class Begins:
    """What begins, of the image that would go next.

    `image`: which it was; empty: nothing has begun.
    """

    def __init__(self, small: SmallNode, *, old: bool) -> None:
        self._small = small
        self._old = old_pod(small, "old") if old else None
        old_pod(small, "standing")
        self._unused = small.add_images(UNUSED, MIB // 4)
        self.image = ""

    def __call__(self) -> None:
        there = self._small.images()
        number = next((number for number, each in enumerate(self._unused) if each in there), 0)
        name = f"registry.example/old/{number}:1"
        if self._unused[number] not in there:
            self._small.add_image(name, MIB // 4)
        pod = self._old or self._small.run_pod("new")
        self._small.run(pod, name, "next")
        self.image = self._unused[number]


@pytest.mark.regression
@pytest.mark.parametrize("call", range(1, CALLS + 1))
@pytest.mark.parametrize("begin", ["a new pod", "an old pod", "a call of 30 s"])
def test_what_begins_between_two_calls_of_a_pass_keeps_its_image(
    make_small_node: SmallNodeFactory, call: int, begin: str
) -> None:
    """Only the last look tells; of an old pod, only the directory of that container. Or the pod
    begins in the middle of a pass, and that call takes 30 s: no image goes by an old list, and
    others go."""
    small = make_small_node(runtime=JudgingRuntime, server=InterruptingServer)
    clock, begins = Ahead(), Begins(small, old=begin == "an old pod")
    slow = begin == "a call of 30 s"
    steps: dict[int, Callable[[], object]] = {call: begins}
    if slow:

        def takes_long() -> None:
            clock.step(30.0)
            if call == FIRST_CHECK:
                begins()

        steps = {FIRST_CHECK: begins, call: takes_long}
    node = small.node(clock=clock)
    assert isinstance(small.server, InterruptingServer)
    small.server.before = between = BetweenReadings(steps)
    relieve(node, IMAGES)
    assert begins.image in small.images()
    assert harmed(small) == []
    assert slow or between.asked >= CALLS
    assert not slow or small.removed("image")
