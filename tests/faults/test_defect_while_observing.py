"""An exception while the daemon observes the node: it is logged, and a second later the daemon goes on. A thread that
ends all the same is seen."""

from __future__ import annotations

import io
import json
import threading

import pytest

from eviction.daemon.manager import Manager
from eviction.listener import Listener
from eviction.reporting.log import Log
from eviction.types import Decision
from signals.types import Signal, SignalObservations
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import came_true


class Defective(Listener):
    """A listener that raises after each observation until `mended` is set."""

    def __init__(self) -> None:
        self.mended = threading.Event()
        self.attempts = 0

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """ZeroDivisionError until `mended` is set."""
        self.attempts += 1
        if not self.mended.is_set():
            raise ZeroDivisionError("a filesystem without blocks")


def test_an_exception_while_observing_does_not_end_the_daemon(small_node: SmallNode) -> None:
    """It is logged once, the next attempt comes a second later, and as soon as an attempt succeeds the node is
    relieved."""
    images = small_node.add_images(3)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=10 * MIB)
    defective, written = Defective(), io.StringIO()
    node.listeners.add(defective)
    manager = Manager(node, Log(lambda: 0.0, as_json=True, stream=written))
    loop = threading.Thread(target=manager.run)
    loop.start()
    try:
        assert came_true(lambda: defective.attempts >= 2), "the loop has ended"
        assert defective.attempts <= 4, "it does not spin"
        defective.mended.set()
        assert came_true(lambda: set(images) <= set(small_node.removed("image"))), written.getvalue()
    finally:
        manager.stop()
        loop.join(60.0)
    assert not loop.is_alive()
    messages = [json.loads(line)["message"] for line in written.getvalue().splitlines()]
    assert messages.count("observing the node: ZeroDivisionError: a filesystem without blocks") == 1


@pytest.mark.regression
def test_a_thread_of_the_daemon_that_has_ended_makes_it_not_alive(small_node: SmallNode) -> None:
    """Such as that of a periodic loop; after a stop each may end."""
    node, goes_on = small_node.node(), threading.Event()
    manager = Manager(node, Log(lambda: 0.0, stream=io.StringIO()))
    thread = threading.Thread(target=goes_on.wait, name="image GC")
    thread.start()
    manager.beside = (thread,)
    assert manager.why_not_alive() is None
    goes_on.set()
    thread.join(60.0)
    assert manager.why_not_alive() == "the thread of image GC has ended"
    manager.stop()
    assert manager.why_not_alive() is None
