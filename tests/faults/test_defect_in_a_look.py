"""A defect in the daemon's own look at the node: said, waited out, and not the end of it."""

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
    """A summary whose looks all raise until it is mended."""

    def __init__(self, paths: FilesystemPaths, probes: Probes, clock: Clock) -> None:
        super().__init__(paths, probes, clock)
        self.mended = threading.Event()
        self.looks = 0

    def observe(self) -> SignalObservations:
        """The look, or the defect."""
        self.looks += 1
        if not self.mended.is_set():
            raise ZeroDivisionError("a filesystem without blocks")
        return super().observe()


def test_an_unexpected_exception_in_a_look_ended_the_daemon(small_node: SmallNode) -> None:
    """It is said once, the next look comes a second later and not at once, and when the looks are well again the
    node is relieved."""
    images = small_node.add_images(3)
    node = small_node.node(Signal.NODEFS_AVAILABLE, above=10 * MIB, summarize=Defective)
    summary, written = node.summary, io.StringIO()
    assert isinstance(summary, Defective)
    manager = Manager(node, Log(lambda: 0.0, as_json=True, stream=written))
    loop = threading.Thread(target=manager.run)
    loop.start()
    try:
        assert came_true(lambda: summary.looks >= 2), "the loop has ended"
        assert summary.looks <= 4, "it does not spin"
        summary.mended.set()
        assert came_true(lambda: set(images) <= set(small_node.removed("image"))), written.getvalue()
    finally:
        manager.stop()
        loop.join(60.0)
    assert not loop.is_alive()
    said = [json.loads(line)["message"] for line in written.getvalue().splitlines()]
    assert said.count("looking at the node: ZeroDivisionError: a filesystem without blocks") == 1
