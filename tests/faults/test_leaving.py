"""SIGTERM during a removal: the daemon waits until the removal has finished."""

from __future__ import annotations

import signal
import subprocess

import pytest

from signals.types import Signal
from tests.nodes.faults import Hang
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon


def test_a_removal_in_flight_is_waited_for_after_sigterm(small_node: SmallNode) -> None:
    """The daemon runs until the runtime has answered, starts no other removal, and exits with 0."""
    small_node.add_images(3)
    small_node.failpoints["RemoveImage"] = Hang()
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=10 * MIB)
    with Daemon("--config", configuration) as daemon:
        small_node.wait_for("RemoveImage")
        daemon.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.process.wait(1.0)
        small_node.failpoints.clear()
        assert daemon.stop() == 0
        assert len(small_node.removed("image")) == small_node.failpoints.calls["RemoveImage"] == 1
        assert daemon.logged("stopped")
