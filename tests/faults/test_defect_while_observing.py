"""An exception while the daemon observes the node: it is logged, and a second later the daemon goes on. A thread that
ends all the same is seen."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from eviction.daemon.daemon import Daemon
from eviction.listener import Listener
from eviction.reporting.log import Log
from eviction.types import Decision
from signals.filesystems import Reading, read_statvfs
from signals.types import Signal, SignalObservations
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import came_true

IMAGES = {"imagefs.available": "1%"}  # so that a capacity counts


class Defective:
    """A reader whose numbers nothing can be concluded from until `mended` is set."""

    def __init__(self, path: Path) -> None:
        self.mended = threading.Event()
        self.attempts = 0
        self._path = str(path)

    def __call__(self, path: str, now: float) -> Reading:
        """The capacity is no number until `mended` is set."""
        self.attempts += path == self._path
        reading = read_statvfs(path, now)
        if self.mended.is_set():
            return reading
        return replace(reading, stats=replace(reading.stats, capacity_bytes=cast(int, None)))


def test_an_exception_while_observing_does_not_end_the_daemon(small_node: SmallNode) -> None:
    """It is logged once, the next attempt comes a second later, and as soon as an attempt succeeds the node is
    relieved."""
    images = small_node.add_images(3)
    defective, written = Defective(small_node.root_directory), io.StringIO()
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=10 * MIB, evictionHard=IMAGES, reader=defective)
    daemon = Daemon(node, Log(lambda: 0.0, as_json=True, stream=written))
    loop = threading.Thread(target=daemon.run)
    loop.start()
    try:
        assert came_true(lambda: defective.attempts >= 3), "the loop has ended"
        assert defective.attempts <= 5, "it does not spin"
        defective.mended.set()
        assert came_true(lambda: set(images) <= set(small_node.removed("image"))), written.getvalue()
    finally:
        daemon.stop()
        loop.join(60.0)
    assert not loop.is_alive()
    messages = [json.loads(line)["message"] for line in written.getvalue().splitlines()]
    assert sum(message.startswith("observing the node: TypeError: ") for message in messages) == 1


class Raises(Listener):
    """A listener that raises after each observation."""

    def __init__(self) -> None:
        self.told = 0

    def observed(self, observations: SignalObservations, decision: Decision) -> None:
        """Raises."""
        self.told += 1
        raise ZeroDivisionError("a filesystem without blocks")


def test_a_listener_that_raises_holds_no_relief_up(small_node: SmallNode) -> None:
    """It loses its own lines, which is counted; others are told."""
    images = small_node.add_images(3)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=10 * MIB)
    raises, written = Raises(), io.StringIO()
    node.listeners.add(raises)
    daemon = Daemon(node, Log(lambda: 0.0, as_json=True, stream=written))
    loop = threading.Thread(target=daemon.run)
    loop.start()
    try:
        assert came_true(lambda: set(images) <= set(small_node.removed("image")))
    finally:
        daemon.stop()
        loop.join(60.0)
    assert raises.told == node.listeners.failed > 0
    assert any("result" in json.loads(line) for line in written.getvalue().splitlines()), "the log has the pass"


@pytest.mark.regression
def test_a_thread_of_the_daemon_that_has_ended_makes_it_not_alive(small_node: SmallNode) -> None:
    """Such as that of a periodic loop; after a stop each may end."""
    node, goes_on = small_node.node(), threading.Event()
    daemon = Daemon(node, Log(lambda: 0.0, stream=io.StringIO()))
    thread = threading.Thread(target=goes_on.wait, name="image GC")
    thread.start()
    daemon.beside = (thread,)
    assert daemon.why_not_alive() is None
    goes_on.set()
    thread.join(60.0)
    assert daemon.why_not_alive() == "the thread of image GC has ended"
    daemon.stop()
    assert daemon.why_not_alive() is None
