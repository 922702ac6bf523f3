"""Grace periods and the time during which the process of the daemon is stopped."""

from __future__ import annotations

import time

import pytest

from signals.types import Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.reclaimd_process import Daemon
from tests.stopped import stopped

GAP_SECONDS = 31.0  # more than three of the longest intervals, and more than 30 s


@pytest.mark.soak
def test_a_daemon_that_was_stopped_does_not_count_the_time_as_grace(small_node: SmallNode) -> None:
    """2 of 20 s of grace have passed when the process is stopped for 31 s.

    It does not act right after SIGCONT.
    """
    small_node.add_images(3)
    marked = str(Signal.NODEFS_AVAILABLE)
    configuration = small_node.configuration(
        evictionSoft={marked: str(small_node.available() + MIB)},
        evictionSoftGracePeriod={marked: "20s"},
    )
    with Daemon("--config", configuration) as daemon:
        daemon.wait_for(lambda event: "ReclaimPressure: nodefs.available" in event["message"])
        time.sleep(2.0)
        with stopped(daemon.process.pid):
            time.sleep(GAP_SECONDS)
        time.sleep(5.0)
        assert small_node.removed() == []
        daemon.wait_for(lambda event: event.get("result") == "satisfied")
    assert small_node.removed("image")
