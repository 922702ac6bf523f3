"""A pod begins beside a pass: what its containers use stays, between any two calls of the pass and
while images go as fast as they can, however slow the lists are.

The pod is made in the kubelet's order: its directory, its sandbox, and 60 ms later one container
after the other, each of an image that nobody else uses. Or it has run for an hour, and only its
containers begin. An image that has gone before its container is made is no harm: the kubelet looks
whether it is there, and pulls it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.embedded_node import age_directories
from eviction.drill.runtime import Image
from eviction.engine.node import Node
from reclaim.cri import cri_pb2 as pb
from reclaim.types import RuntimeUnavailable
from signals.types import FsLayout, Signal
from tests.nodes.faults import Delay
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.interrupting_server import BetweenReadings, InterruptingServer
from tests.nodes.later import Ahead
from tests.nodes.small_node import AN_HOUR, IMAGES, MIB, Pod, SmallNode, relieve, result_of
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.dialect import AnswerChange, Dialect
from tests.sockets.engine.test_first_byte import FAST, passed

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
        self.harmed += [f"{list(image.repo_tags)}, which {len(users)} containers used"] * bool(
            users
        )
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


def never_relieved_node(small: SmallNode, dialect: Dialect) -> Node:
    """The product, asking the dialect, below a mark that all images together do not reach; pods are
    waited for."""
    return small.node(
        Signal.NODEFS_AVAILABLE,
        above=90 * MIB,
        containerRuntimeEndpoint=dialect.endpoint,
        parallelRemovals=2,
        holdOffForNewPods="1s",
    )


class LateNode:
    """A node that judges what goes, with so many unused images and an old pod; and the product over
    its late answers."""

    def __init__(self, stack: ExitStack, directory: Path, images: int, **answers: AnswerChange):
        directory.mkdir(exist_ok=True)
        node = SmallNode(directory, FsLayout.SINGLE, 96 * MIB, JudgingRuntime)
        self.small = stack.enter_context(closing(node))
        self.old = old_pod(self.small, "old")
        self.images = self.small.add_images(images, MIB // 4)
        late = Dialect(self.small.server.target, str(directory / "late.sock"), answers)
        self.product = never_relieved_node(self.small, stack.enter_context(late))
        self.product.detection.images()

    @property
    def harmed(self) -> list[str]:
        """What has gone although a container used it."""
        assert isinstance(self.small.runtime, JudgingRuntime)
        return self.small.runtime.harmed


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


def assert_none_is_harmed(directory: Path, late: float, runs: int, *, old: bool) -> None:
    """No pass over a disk that fills fast removes an image under a container's feet, of so many
    beside which a pod or its containers begin at another moment after the first removal."""
    moments, containers = random.Random(late), 0  # noqa: S311 # repeatable on purpose
    for number in range(runs):
        with ExitStack() as stack:
            node = LateNode(
                stack,
                directory / str(number),
                IDLE_IMAGES,
                ListContainers=lambda _: time.sleep(late),  # so old is what it says
                RemoveImage=lambda _: time.sleep(REMOVAL_SECONDS),
            )
            moment = moments.uniform(0, BEGINS_WITHIN_SECONDS)
            with node.small.meanwhile(partial(passed, node.product, FAST)) as going:
                node.small.wait_for("RemoveImage")
                time.sleep(moment)
                containers += begin_containers(node.small, node.old if old else None)
                going.result()
            assert node.harmed == [], f"{late} s late, a pod after {moment:.3f} s"
    assert containers >= runs, "hardly any container was made beside a pass"


BEGINNINGS = pytest.mark.parametrize("old", [False, True], ids=["a new pod", "an old pod"])


@pytest.mark.regression
@BEGINNINGS
@pytest.mark.parametrize("late", LIST_SECONDS)
def test_no_image_of_a_pod_that_begins_beside_a_hurry_goes(
    tmp_path: Path, late: float, *, old: bool
) -> None:
    """The directories of pod and container are there before the list that clears an image begins,
    or it is read anew."""
    assert_none_is_harmed(tmp_path, late, 1, old=old)


@pytest.mark.soak
@pytest.mark.timeout(0)
@BEGINNINGS
@pytest.mark.parametrize("late", LIST_SECONDS)
def test_no_image_of_a_hundred_pods_that_begin_beside_a_hurry_goes(
    tmp_path: Path, late: float, *, old: bool
) -> None:
    """The same, a hundred times."""
    assert_none_is_harmed(tmp_path, late, 100, old=old)


@contextmanager
def pods_keep_beginning(small: SmallNode, seconds: float) -> Iterator[None]:
    """A new pod begins and runs every so many seconds while the block lasts."""
    ended = threading.Event()

    def begin() -> None:
        number = 0
        while not ended.wait(seconds):
            small.run(small.run_pod(f"new-{number}"))
            number += 1

    with ThreadPoolExecutor(1) as pool:
        beginning = pool.submit(begin)
        try:
            yield
        finally:
            ended.set()
        beginning.result()


@pytest.mark.regression
@pytest.mark.parametrize("rate", [FAST, 1], ids=["urgent", "not urgent"])
def test_images_go_where_eight_pods_a_second_begin(tmp_path: Path, rate: int) -> None:
    """A list takes 0.3 s, so that none is ever younger than the youngest pod: all
    unused images go all the same.
    """
    with ExitStack() as stack:
        node = LateNode(stack, tmp_path, 6, ListContainers=lambda _: time.sleep(0.3))
        with pods_keep_beginning(node.small, 0.125):
            record = passed(node.product, rate)
        assert set(node.small.removed("image")) == set(node.images)
        assert {result_of(record, image) for image in node.images} == {"removed"}
        assert node.harmed == []


@pytest.mark.regression
def test_an_image_waits_for_a_sandbox_that_takes_3_seconds(small_node: SmallNode) -> None:
    """The patience of a pass is used up by then; with minutes left nothing is given up."""
    old_pod(small_node, "old")
    used, unused = small_node.add_images(2)
    node = small_node.node(holdOffForNewPods="1s")
    small_node.admit("uid-slow")
    small_node.failpoints["RunPodSandbox"] = Delay(3.0, times=1)
    with small_node.relieving(node, IMAGES) as going:
        running = small_node.run(small_node.run_pod("slow"), used)
        record = going.result()
    assert small_node.state(running) == pb.CONTAINER_RUNNING
    assert small_node.removed("image") == [unused]
    assert result_of(record, used) == "in_use"


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


def asked_in_a_pass(
    small: SmallNode, clock: Ahead, steps: Mapping[int, Callable[[], object]]
) -> int:
    """A pass in which these steps come; how much it has asked."""
    node = small.node(clock=clock)
    assert isinstance(small.server, InterruptingServer)
    small.server.before = between = BetweenReadings(steps)
    relieve(node, IMAGES)
    return between.asked


def assert_unharmed(small: SmallNode, image: str) -> None:
    """The image is used by now, and no image has gone that was."""
    assert image
    assert image in small.images()
    assert isinstance(small.runtime, JudgingRuntime)
    assert small.runtime.harmed == []


@pytest.fixture
def small(make_small_node: SmallNodeFactory) -> SmallNode:
    """A node that judges what goes, and is interrupted."""
    return make_small_node(runtime=JudgingRuntime, server=InterruptingServer)


@pytest.mark.regression
@BEGINNINGS
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_what_begins_between_two_calls_of_a_pass_keeps_its_image(
    small: SmallNode, call: int, *, old: bool
) -> None:
    """Only the last look tells; of an old pod, only the directory of that container."""
    begins = Begins(small, old=old)
    assert asked_in_a_pass(small, Ahead(), {call: begins}) >= CALLS
    assert_unharmed(small, begins.image)


@pytest.mark.regression
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_one_call_of_a_pass_takes_30_seconds(small: SmallNode, call: int) -> None:
    """Whichever it is, of a pass in the middle of which a pod begins: no image goes by
    an old list, and others go.
    """
    clock, begins = Ahead(), Begins(small, old=False)

    def take_long() -> None:
        clock.step(30.0)
        if call == FIRST_CHECK:
            begins()

    asked_in_a_pass(small, clock, {FIRST_CHECK: begins, call: take_long})
    assert_unharmed(small, begins.image)
    assert small.removed("image")
