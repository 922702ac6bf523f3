"""Time that passes while nobody looks."""

from __future__ import annotations

import signal
import time

import pytest

from signals.types import Signal

from ..reclaimd_process import Daemon
from .small_node import MIB, SmallNode

GAP_SECONDS = 31.0  # more than three of the longest intervals, and more than 30 s


@pytest.mark.soak
def test_a_daemon_that_was_stopped_does_not_count_the_time_as_grace(small_node: SmallNode) -> None:
    """Of 20 s of grace 2 were seen; then the process stands still for 31 s. It does not act when it goes on."""
    small_node.add_images(3)
    marked = str(Signal.NODEFS_AVAILABLE)
    configuration = small_node.configuration(
        evictionSoft={marked: str(small_node.available() + MIB)}, evictionSoftGracePeriod={marked: "20s"}
    )
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: "DiskPressure: nodefs.available" in event["message"])
        time.sleep(2.0)
        daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(GAP_SECONDS)
        daemon.process.send_signal(signal.SIGCONT)
        time.sleep(5.0)
        assert small_node.removed() == []
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
    assert small_node.removed("image")
