"""What an operator says while a pass runs is in force at once: `pause`, and a reload.

The pass hangs in a removal.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from signals.types import Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon, answer, came_true, reclaimd_here, write_configuration


@contextmanager
def removing(small: SmallNode, file: str) -> Iterator[Daemon]:
    """A daemon in the middle of a pass that needs three images: the first removal was
    sent and is not answered.
    """
    with Daemon("--config", file) as daemon:
        small.failpoints["RemoveImage"] = Hang(times=1)
        small.fill(12 * MIB)
        small.wait_for("RemoveImage")
        yield daemon
        assert daemon.stop() == 0


def status_of(file: str) -> Any:
    """What the daemon says of itself."""
    return answer(reclaimd_here("status", "--config", file, "-o", "json"))


def test_a_pause_stops_the_pass_that_runs(small_node: SmallNode) -> None:
    """Once the client has its answer only what had been sent ends."""
    images = small_node.add_images(4)
    small_node.run(small_node.run_pod("web"))
    control = str(small_node.disk.parent / "control.sock")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, -2 * MIB, controlSocket=control)
    with removing(small_node, file) as daemon:
        paused = reclaimd_here("pause", "--config", file)
        assert (
            paused.returncode,
            paused.stdout.endswith("; 1 removal sent before it will still end\n"),
        ) == (0, True)
        small_node.failpoints.clear()
        record = daemon.wait_for(lambda event: event.get("result") == "not_enough")["record"]
        assert small_node.removed() == images[:1]
        assert "removals were paused" in record["reason"]


@pytest.mark.parametrize(
    "field",
    [{"dryRun": True}, {"keepImages": ["*"]}, {"evictionHard": {"nodefs.available": "0%"}}],
    ids=str,
)
def test_a_reload_stops_the_pass_that_runs(small_node: SmallNode, field: dict[str, Any]) -> None:
    """It is in force while the pass still waits for what it has sent; what the pass had planned
    stays. A client whose own file says the same is served by what is in force."""
    images = small_node.add_images(4)
    small_node.run(small_node.run_pod("web"))
    control = str(small_node.disk.parent / "control.sock")
    file = small_node.configuration(Signal.NODEFS_AVAILABLE, -2 * MIB, controlSocket=control)
    fields = small_node.fields(
        Signal.NODEFS_AVAILABLE, -2 * MIB, controlSocket=control, imageMinimumGCAge="0s", **field
    )
    with removing(small_node, file) as daemon:
        write_configuration(Path(file), **fields)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(lambda event: event["message"] == "the configuration was reloaded")
        assert small_node.removed() == []
        small_node.failpoints.clear()
        assert came_true(lambda: small_node.removed() == images[:1])
        asked = reclaimd_here("reclaim", "--config", file)
        assert "another configuration" not in asked.stderr
        assert came_true(lambda: status_of(file)["doing"] is None)
        assert small_node.removed() == images[:1]
