"""A pod, or the next container of an old one, begins and runs between two calls of a
pass, whichever they are.

Its image is the one that would go next: it stays, or has gone and is pulled again.
Nothing is waited for here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.nodes.interrupting_server import BetweenReadings, InterruptingServer
from tests.nodes.later import Ahead
from tests.nodes.small_node import IMAGES, MIB, SmallNode, relieve
from tests.sockets.conftest import SmallNodeFactory
from tests.sockets.images.test_pod_beside_a_hurry import JudgingRuntime, old_pod

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


def passed(small: SmallNode, clock: Ahead, steps: Mapping[int, Callable[[], object]]) -> int:
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
@pytest.mark.parametrize("old", [False, True], ids=["a new pod", "an old pod"])
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_what_begins_between_two_calls_of_a_pass_keeps_its_image(
    small: SmallNode, call: int, *, old: bool
) -> None:
    """Only the last look tells; of an old pod, only the directory of that container."""
    begins = Begins(small, old=old)
    assert passed(small, Ahead(), {call: begins}) >= CALLS
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

    passed(small, clock, {FIRST_CHECK: begins, call: take_long})
    assert_unharmed(small, begins.image)
    assert small.removed("image")
