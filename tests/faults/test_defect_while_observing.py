"""An exception while the daemon observes the node: it is logged, and a second later the daemon goes on."""

from __future__ import annotations

import io
import json
import threading

from eviction.daemon.manager import Manager
from eviction.reporting.log import Log
from signals.clock import Clock
from signals.filesystems import FilesystemPaths
from signals.probe import Probes
from signals.summary import NodeSummary
from signals.types import Signal, SignalObservations
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import came_true


class Defective(NodeSummary):
    """A summary that raises an exception until it is mended."""

    def __init__(self, paths: FilesystemPaths, probes: Probes, clock: Clock) -> None:
        super().__init__(paths, probes, clock)
        self.mended = threading.Event()
        self.attempts = 0

    def observe(self) -> SignalObservations:
        """The observations, or the exception."""
        self.attempts += 1
        if not self.mended.is_set():
            raise ZeroDivisionError("a filesystem without blocks")
        return super().observe()


def test_an_exception_while_observing_does_not_end_the_daemon(small_node: SmallNode) -> None:
    """It is logged once, the next attempt comes a second later, and as soon as an attempt succeeds the node is
    relieved."""
    images = small_node.add_images(3)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=10 * MIB, summarize=Defective)
    summary, written = node.summary, io.StringIO()
    assert isinstance(summary, Defective)
    manager = Manager(node, Log(lambda: 0.0, as_json=True, stream=written))
    loop = threading.Thread(target=manager.run)
    loop.start()
    try:
        assert came_true(lambda: summary.attempts >= 2), "the loop has ended"
        assert summary.attempts <= 4, "it does not spin"
        summary.mended.set()
        assert came_true(lambda: set(images) <= set(small_node.removed("image"))), written.getvalue()
    finally:
        manager.stop()
        loop.join(60.0)
    assert not loop.is_alive()
    messages = [json.loads(line)["message"] for line in written.getvalue().splitlines()]
    assert messages.count("observing the node: ZeroDivisionError: a filesystem without blocks") == 1
