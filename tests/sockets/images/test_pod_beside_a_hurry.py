"""A pod begins while images go as fast as they can: what its containers use stays, however slow the lists are.

The pod is made in the kubelet's order: its directory, its sandbox, and 60 ms later one container after the other, each
of an image that nobody else uses. An image that has gone before its container is made is no harm: the kubelet looks
whether it is there, and pulls it.
"""

from __future__ import annotations

import random
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from eviction.drill.runtime.runtime import EmbeddedRuntime, Image
from eviction.node.node import Node
from eviction.record import Pass
from reclaim.types import RuntimeUnavailable
from signals.types import FsLayout, Signal
from tests.nodes.small_node import AN_HOUR, MIB, SmallNode
from tests.sockets.dialect import AnswerChange, Dialect
from tests.sockets.execution.test_first_byte import FAST, passed

CONTAINERS = 15
IMAGES = 50
REMOVAL_SECONDS = 0.1
SANDBOX_SECONDS = 0.06  # from the sandbox to the first container
BEGINS_WITHIN_SECONDS = 0.5  # of the first removal
LIST_SECONDS = (0.05, 0.15, 0.3)


class JudgingRuntime(EmbeddedRuntime):
    """A runtime that knows which images were removed while a container used them: `harmed`."""

    def __init__(self, images_root: str, **options: Any) -> None:
        super().__init__(images_root, **options)
        self.harmed: list[str] = []

    def _drop_image(self, image: Image) -> None:
        users = [each for each in self._containers.values() if each.image_id == image.id]
        self.harmed += [f"{image.tags}, which {len(users)} containers used"] * bool(users)
        super()._drop_image(image)


def beside_a_pod(small: SmallNode, node: Node, moment: float) -> tuple[Pass, int]:
    """A pass over a disk that fills fast. So many seconds after its first removal was sent a pod begins that uses the
    images that would go last; how many containers of it were made."""
    made = 0
    with small.meanwhile(lambda: passed(node, FAST)) as going:
        small.wait_for("RemoveImage")
        time.sleep(moment)
        pod = small.run_pod("new")
        time.sleep(SANDBOX_SECONDS)
        for number in range(CONTAINERS):
            with suppress(RuntimeUnavailable):  # its image has gone already
                small.run(pod, f"registry.example/old/{IMAGES - 1 - number}:1", f"container-{number}")
                made += 1
        return going.result(), made


def harmed(directory: Path, late: float, moment: float) -> tuple[list[str], int]:
    """What one pass has removed under a container's feet, and how many containers the pod beside it had."""
    directory.mkdir()
    answers: dict[str, AnswerChange] = {
        "ListContainers": lambda _: time.sleep(late),  # so old is what it says
        "RemoveImage": lambda _: time.sleep(REMOVAL_SECONDS),
    }
    with closing(SmallNode(directory, FsLayout.SINGLE, 96 * MIB, JudgingRuntime)) as small:
        small.runtime.age(small.run_pod("old").sandbox_id, AN_HOUR)
        small.add_images(IMAGES, MIB // 4)
        with Dialect(small.server.target, str(directory / "late.sock"), answers) as dialect:
            node = small.node(
                Signal.NODEFS_AVAILABLE,
                above=90 * MIB,
                containerRuntimeEndpoint=dialect.endpoint,
                parallelRemovals=2,
                holdOffForNewPods="1s",
            )
            node.detect_images()
            _, made = beside_a_pod(small, node, moment)
        assert isinstance(small.runtime, JudgingRuntime)
        return small.runtime.harmed, made


def harmed_in(directory: Path, late: float, runs: int) -> list[str]:
    """The same over so many passes, each with a pod that begins at another moment."""
    moments, found, containers = random.Random(late), [], 0  # noqa: S311 # repeatable on purpose
    for number in range(runs):
        moment = moments.uniform(0, BEGINS_WITHIN_SECONDS)
        gone, made = harmed(directory / str(number), late, moment)
        containers += made
        found += [f"{late} s late, a pod after {moment:.3f} s: {each}" for each in gone]
    assert containers > runs, "hardly any container was made beside a pass"
    return found


@pytest.mark.regression
@pytest.mark.parametrize("late", LIST_SECONDS)
def test_no_image_of_a_pod_that_begins_beside_a_hurry_goes(tmp_path: Path, late: float) -> None:
    """Its directory is there before the list that clears an image begins, or that list is read anew."""
    assert harmed_in(tmp_path, late, 3) == []


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("late", LIST_SECONDS)
def test_no_image_of_a_hundred_pods_that_begin_beside_a_hurry_goes(tmp_path: Path, late: float) -> None:
    """The same, a hundred times."""
    assert harmed_in(tmp_path, late, 100) == []
