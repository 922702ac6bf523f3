"""A pass that the lead began, before its mark is reached."""

from __future__ import annotations

import io
import os
from pathlib import Path

from eviction.engine.effects import KubeletHealthy, LookWanted
from eviction.records.listener import Listener
from eviction.records.passes import Pass, Trigger
from eviction.surface.daemon import Daemon
from eviction.wording.log import Log
from tests.nodes.small_node import AN_HOUR, MIB, SmallNode
from tests.nodes.stepped import turn
from tests.pure.values import SteppedClock
from tests.reclaimd_process import PATIENCE_SECONDS


class Passes(Listener):
    """Keeps the passes."""

    def __init__(self) -> None:
        self.all: list[Pass] = []

    def passed(self, record: Pass) -> None:
        """Keeps it."""
        self.all.append(record)


def test_a_lead_that_was_held_off_is_not_used_up(small_node: SmallNode, tmp_path: Path) -> None:
    """A fill comes within a second of the kubelet's mark while passes are held off, and stops. So
    does the next one, when nothing is held off any more: the pass begins before the mark."""
    small_node.run(small_node.run_pod("web"))
    small_node.add_images(8)
    ours = small_node.available() - 20 * MIB
    kubelets = tmp_path / "kubelet.yaml"
    kubelets.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        f'evictionHard: {{nodefs.available: "{ours - MIB // 16}e0"}}\n'
    )
    clock, passes = SteppedClock(), Passes()
    marks = {"nodefs.available": str(ours)}
    node = small_node.node(
        clock=clock, kubeletConfig=str(kubelets), evictionHard=marks, imageMinimumGCAge="0s"
    )
    node.locate()
    node.listeners.add(passes)
    daemon = Daemon(node, Log(clock.wall, stream=io.StringIO()), hold_off_seconds=AN_HOUR)

    def turns(count: int, written: int) -> None:
        """Observations, one a second, with so much written before each, and the
        passes that follow.
        """
        for _ in range(count):
            small_node.fill(written)
            ends = clock.monotonic() + 1.0
            node.owner.post(LookWanted(urgent=True))
            while clock.monotonic() < ends or node.world.passes:
                turn(node, clock, ends)
        assert node.listeners.done(PATIENCE_SECONDS)

    small_node.fill(small_node.available() - ours - 10 * MIB - MIB // 2)
    turns(10, MIB)
    turns(60, 0)
    assert not passes.all
    node.owner.post(KubeletHealthy())
    grown = small_node.disk / "grown"
    os.truncate(grown, grown.stat().st_size - 4 * MIB)
    turns(4, MIB)
    assert [record.trigger for record in passes.all] == [Trigger.LEAD]
    assert small_node.available() > ours
    daemon.stop()
    daemon.run()  # ends its threads
