"""A pass that does not go forward, as health sees it."""

from __future__ import annotations

import threading
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from eviction.engine.effects import Request
from eviction.engine.node import Node
from eviction.engine.step import new_pass
from eviction.records.passes import Trigger
from eviction.surface import daemon
from eviction.surface.control_client import ask
from eviction.wording.log import Log
from signals.types import Signal
from tests.inline import configured
from tests.nodes.faults import Hang
from tests.nodes.small_node import MIB, SmallNode
from tests.pure.values import SteppedClock
from tests.reclaimd_process import Daemon, came_true, reclaimd
from tests.sockets.dialect import Dialect

STALLED_SECONDS = 0.3


def test_a_daemon_knows_how_long_its_pass_has_not_gone_forward(
    small_node: SmallNode, tmp_path: Path
) -> None:
    """While a list hangs the time grows; when it is answered there is none."""
    control = str(tmp_path / "control" / "socket")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, above=-2 * MIB, controlSocket=control)

    def stalled() -> float:
        return float(ask(control, "status")["stalled_seconds"])

    with Daemon("--config", file):
        small_node.wait_for("ListPodSandbox")
        assert came_true(lambda: stalled() == 0.0)
        small_node.failpoints["ListContainers"] = Hang()
        small_node.fill(4 * MIB)
        assert came_true(lambda: stalled() > STALLED_SECONDS)
        small_node.failpoints.clear()
        assert came_true(lambda: stalled() == 0.0)


@pytest.mark.regression
def test_a_pass_that_goes_forward_hides_none_that_is_stuck() -> None:
    """Two passes began 200 s ago; one has just removed something."""
    clock = SteppedClock()
    node = Node(configured(), clock=clock)
    world, stuck = new_pass(node.world, Trigger.WATCH, Request(), decision=node.world.decision)
    world, other = new_pass(world, Trigger.WATCH, Request(), decision=node.world.decision)
    clock.step(200.0)
    goes_on = other._replace(progress_at=clock.monotonic())
    node.owner.world = world._replace(passes={stuck.id: stuck, goes_on.id: goes_on})
    here = daemon.Daemon(node, Log(clock.wall, stream=StringIO()))
    assert here.stalled_seconds() == 200.0
    node.stopping.set()  # no look is late then
    node.owner.due_at = clock.monotonic()
    assert here.why_not_alive() == "the pass has made no progress for 200 s"


@pytest.mark.regression
def test_what_a_request_has_removed_is_progress(small_node: SmallNode, tmp_path: Path) -> None:
    """Each removal of a command's pass ends when the test says so. At the second, the time without
    progress is that since the end of the first."""
    control, began, goes_on = (
        str(tmp_path / "control" / "socket"),
        list[float](),
        threading.Semaphore(0),
    )

    def hold(_: Any) -> None:
        began.append(time.monotonic())
        goes_on.acquire(timeout=60.0)

    small_node.add_images(3)
    held = Dialect(small_node.server.target, str(tmp_path / "held.sock"), {"RemoveImage": hold})
    file = small_node.configuration(
        Signal.NODEFS_AVAILABLE,
        above=20 * MIB,
        controlSocket=control,
        containerRuntimeEndpoint=held.endpoint,
        holdOffAfterStart="1h",
        parallelRemovals=1,
    )

    def stalled() -> float:
        return float(ask(control, "status")["stalled_seconds"])

    with held, Daemon("--config", file):
        small_node.wait_for("ImageFsInfo")
        assert came_true(lambda: ask(control, "status")["layout"] is not None)
        request = threading.Thread(target=reclaimd, args=("reclaim", "--now", "--config", file))
        request.start()
        assert came_true(lambda: len(began) == 1)
        assert came_true(lambda: stalled() > STALLED_SECONDS)
        released = time.monotonic()
        goes_on.release()
        assert came_true(lambda: len(began) == 2)
        assert stalled() < time.monotonic() - released
        goes_on.release(10)
        request.join(60.0)
