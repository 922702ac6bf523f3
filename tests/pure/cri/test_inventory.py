"""What a runtime is asked once, by several who read at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest

from reclaim.cri.inventory import GivenUp, Inventory
from reclaim.services import ContainerStatus, RuntimeVersion
from reclaim.types import AnsweredLate
from reclaim.workers import Workers
from tests.pure.memory_runtime import MemoryPods, MemoryRuntime
from tests.pure.values import SteppedClock, container

VOLUMES = (("volume:1",),)


class Mounting(MemoryRuntime):
    """Its containers may mount images, which it reports or not."""

    says_volumes = True
    minor = 1

    def version(self) -> RuntimeVersion:
        return RuntimeVersion("containerd", f"2.{self.minor}.0")

    def container_status(self, container_id: str) -> ContainerStatus | None:
        """As it is when the answer leaves."""
        volumes = VOLUMES if self.says_volumes else ()
        status = super().container_status(container_id)
        return None if status is None else status._replace(image_volumes=volumes)

    def once(self, happens: Callable[[], object]) -> None:
        """This happens while the next status is on its way."""

        def then() -> None:
            del self.on_call["container_status"]
            happens()

        self.on_call["container_status"] = then

    def asked(self) -> int:
        """How often a status was asked for."""
        return self.calls.count("container_status")


def node(
    workers: Workers | None = None, names: Iterable[str] = "abc"
) -> tuple[Mounting, Inventory, SteppedClock]:
    """Containers of these names."""
    clock = SteppedClock(at=50.0)
    runtime = Mounting(clock)
    runtime.hold(*map(container, names))
    return runtime, Inventory(runtime, MemoryPods(), clock=clock, workers=workers), clock


@pytest.mark.regression
def test_statuses_are_asked_for_side_by_side() -> None:
    """Four at once, and no fewer because a thread is missing: then the caller asks alone."""
    runtime, inventory, clock = node(Workers("statuses", 3), [f"c{number}" for number in range(8)])
    together = threading.Barrier(4)
    runtime.on_call["container_status"] = lambda: together.wait(60.0)
    assert len(inventory.snapshot(clock.monotonic()).listing.image_volumes) == 8
    del runtime.on_call["container_status"]
    runtime, inventory, clock = node(Workers("statuses", 0))
    assert len(inventory.snapshot(clock.monotonic()).listing.image_volumes) == 3


@pytest.mark.regression
def test_a_status_that_fails_beside_others_fails_the_reading() -> None:
    """Whoever has asked for it."""
    runtime, inventory, clock = node(Workers("statuses", 3), [f"c{number}" for number in range(8)])

    def fails() -> None:
        if runtime.asked() == 5:
            raise AnsweredLate("it did not answer in time")

    runtime.on_call["container_status"] = fails
    with pytest.raises(AnsweredLate):
        inventory.snapshot(clock.monotonic())


def test_what_two_readings_ask_at_once_is_not_asked_again() -> None:
    """Whoever begins, ends, or is given up in between."""
    runtime, inventory, clock = node()
    runtime.once(lambda: inventory.snapshot(clock.monotonic()))
    assert len(inventory.snapshot(clock.monotonic()).listing.image_volumes) == 3
    asked = runtime.asked()
    assert len(inventory.snapshot(clock.monotonic()).listing.image_volumes) == 3
    assert runtime.asked() == asked


def test_answers_so_far_are_kept_when_a_reading_is_given_up() -> None:
    """The next one goes on from there."""
    runtime, inventory, clock = node()
    with suppress(GivenUp):
        inventory.snapshot(clock.monotonic(), lambda: runtime.asked() < 2)
    inventory.snapshot(clock.monotonic())
    assert runtime.asked() == 3


def test_what_a_runtime_does_not_report_is_not_kept_for_the_one_that_replaces_it() -> None:
    """Nor if somebody else has noticed the other one first: an image that is
    mounted would look unused.
    """
    runtime, inventory, clock = node()
    runtime.says_volumes = False

    def replaced() -> None:
        runtime.minor, runtime.says_volumes = 2, True
        runtime.connections_made += 1
        with suppress(GivenUp):
            inventory.snapshot(clock.monotonic(), lambda: False)

    runtime.once(replaced)
    volumes = inventory.snapshot(clock.monotonic()).listing.image_volumes
    assert volumes == dict.fromkeys(("a", "b", "c"), VOLUMES)
