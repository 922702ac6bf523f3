"""SIGTERM while a removal is on its way: it is waited for, and it finishes."""

from __future__ import annotations

import signal
import time

from eviction.drill.runtime.failpoints import Delay
from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon

LATE_SECONDS = 4.0


def test_a_removal_in_flight_is_waited_for_after_sigterm(small_node: SmallNode) -> None:
    """The runtime needs 4 s for it: the daemon stays for those, starts nothing new, and ends with 0."""
    small_node.add_images(3)
    small_node.failpoints["RemoveImage"] = Delay(LATE_SECONDS)
    configuration = small_node.configuration(Signal.NODEFS_AVAILABLE, above=10 * MIB)
    with Daemon("--config", configuration) as daemon:
        small_node.wait_for("RemoveImage")
        began = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.stop() == 0
        assert LATE_SECONDS / 2 <= time.monotonic() - began <= LATE_SECONDS + 4.0
        assert len(small_node.removed("image")) == small_node.failpoints.calls["RemoveImage"] == 1
        assert daemon.said("stopped")
