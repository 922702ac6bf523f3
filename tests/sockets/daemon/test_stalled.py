"""A pass that does not go forward, as health sees it."""

from __future__ import annotations

from pathlib import Path

from eviction.control.socket import ask
from eviction.drill.runtime.faults import Hang
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, came_true

STALLED_SECONDS = 0.3


def test_a_daemon_knows_how_long_its_pass_has_not_gone_forward(small_node: SmallNode, tmp_path: Path) -> None:
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
