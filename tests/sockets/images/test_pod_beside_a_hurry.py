"""A pod begins while images go as fast as they can: what its containers use stays,
however slow the lists are.

The pod is made in the kubelet's order: its directory, its sandbox, and 60 ms later one container
after the other, each of an image that nobody else uses. Or it has run for an hour, and only its
containers begin. An image that has gone before its container is made is no harm: the kubelet looks
whether it is there, and pulls it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.node.pod_directories import age_directories
from eviction.drill.runtime.runtime import Image
from eviction.engine.node import Node
from eviction.records.passes import Pass
from reclaim.cri import cri_pb2 as pb
from reclaim.types import RuntimeUnavailable
from signals.types import FsLayout, Signal
from tests.nodes.faults import Delay
from tests.nodes.full_runtime import FullRuntime
from tests.nodes.small_node import AN_HOUR, IMAGES, MIB, Pod, SmallNode, result_of
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
        self.harmed += [f"{image.tags}, which {len(users)} containers used"] * bool(users)
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


def beside_a_pod(small: SmallNode, node: Node, moment: float, old: Pod | None) -> tuple[Pass, int]:
    """A pass over a disk that fills fast. So many seconds after its first removal was sent a
    pod, a new one or the old one, begins containers of the images that would go last; how
    many of them were made."""
    made = 0
    with small.meanwhile(lambda: passed(node, FAST)) as going:
        small.wait_for("RemoveImage")
        time.sleep(moment)
        pod = old or small.run_pod("new")
        time.sleep(0.0 if old else SANDBOX_SECONDS)
        for number in range(CONTAINERS):
            with suppress(RuntimeUnavailable):  # its image has gone already
                small.run(
                    pod, f"registry.example/old/{IDLE_IMAGES - 1 - number}:1", f"container-{number}"
                )
                made += 1
        return going.result(), made


def never_relieved_node(small: SmallNode, dialect: Dialect) -> Node:
    """The product, asking the dialect, below a mark that all images together do not
    reach; pods are waited for.
    """
    return small.node(
        Signal.NODEFS_AVAILABLE,
        above=90 * MIB,
        containerRuntimeEndpoint=dialect.endpoint,
        parallelRemovals=2,
        holdOffForNewPods="1s",
    )


def harmed(directory: Path, late: float, moment: float, *, old: bool) -> tuple[list[str], int]:
    """What one pass has removed under a container's feet, and how many
    containers the pod beside it began.
    """
    directory.mkdir()
    answers: dict[str, AnswerChange] = {
        "ListContainers": lambda _: time.sleep(late),  # so old is what it says
        "RemoveImage": lambda _: time.sleep(REMOVAL_SECONDS),
    }
    with closing(SmallNode(directory, FsLayout.SINGLE, 96 * MIB, JudgingRuntime)) as small:
        pod = old_pod(small, "old")
        small.add_images(IDLE_IMAGES, MIB // 4)
        with Dialect(small.server.target, str(directory / "late.sock"), answers) as dialect:
            node = never_relieved_node(small, dialect)
            node.detection.images()
            _, made = beside_a_pod(small, node, moment, pod if old else None)
        assert isinstance(small.runtime, JudgingRuntime)
        return small.runtime.harmed, made


def harmed_in(directory: Path, late: float, runs: int, *, old: bool) -> list[str]:
    """The same over so many passes, each with a pod or containers that begin at another moment."""
    moments, found, containers = random.Random(late), [], 0  # noqa: S311 # repeatable on purpose
    for number in range(runs):
        moment = moments.uniform(0, BEGINS_WITHIN_SECONDS)
        gone, made = harmed(directory / str(number), late, moment, old=old)
        containers += made
        found += [f"{late} s late, a pod after {moment:.3f} s: {each}" for each in gone]
    assert containers > runs, "hardly any container was made beside a pass"
    return found


@pytest.mark.regression
@pytest.mark.parametrize("old", [False, True], ids=["a new pod", "an old pod"])
@pytest.mark.parametrize("late", LIST_SECONDS)
def test_no_image_of_a_pod_that_begins_beside_a_hurry_goes(
    tmp_path: Path, late: float, *, old: bool
) -> None:
    """The directories of pod and container are there before the list that clears an image
    begins, or it is read anew."""
    assert harmed_in(tmp_path, late, 2, old=old) == []


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("old", [False, True], ids=["a new pod", "an old pod"])
@pytest.mark.parametrize("late", LIST_SECONDS)
def test_no_image_of_a_hundred_pods_that_begin_beside_a_hurry_goes(
    tmp_path: Path, late: float, *, old: bool
) -> None:
    """The same, a hundred times."""
    assert harmed_in(tmp_path, late, 100, old=old) == []


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
    answers: dict[str, AnswerChange] = {"ListContainers": lambda _: time.sleep(0.3)}
    with closing(SmallNode(tmp_path, FsLayout.SINGLE, 96 * MIB, JudgingRuntime)) as small:
        old_pod(small, "old")
        images = small.add_images(6, MIB // 4)
        with Dialect(small.server.target, str(tmp_path / "late.sock"), answers) as dialect:
            node = never_relieved_node(small, dialect)
            with pods_keep_beginning(small, 0.125):
                record = passed(node, rate)
        assert set(small.removed("image")) == set(images)
        assert {result_of(record, image) for image in images} == {"removed"}
        assert isinstance(small.runtime, JudgingRuntime)
        assert small.runtime.harmed == []


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
