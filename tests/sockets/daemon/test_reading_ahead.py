"""The daemon reads the runtime's lists shortly before a mark, so that a pass need not wait for them."""

from __future__ import annotations

from datetime import datetime

from eviction.drill.runtime.failpoints import Delay, Hang
from reclaim.cri.client import READ_DEADLINE_SECONDS
from signals.types import FsLayout, Signal
from tests.nodes.small_node import MIB, SmallNode
from tests.real_node.fill import fill_bytes
from tests.reclaimd_process import Daemon
from tests.sockets.conftest import SmallNodeFactory

LIST_SECONDS = 0.15  # of the slow runtime; a pass that lists for itself takes longer
RATE = 16 * MIB  # bytes a second
RELIEF_BYTES = 8 * MIB  # of one pass, so the next mark is half a second away


def crowded(make_small_node: SmallNodeFactory) -> SmallNode:
    """A node with a pod and 240 MiB of unused images."""
    small = make_small_node(FsLayout.SINGLE, 512 * MIB)
    small.add_images(60, 4 * MIB)
    small.run(small.run_pod("web"))
    return small


def configuration_of(small: SmallNode) -> str:
    """A mark that a fill reaches after a second, and again and again."""
    return small.configuration(
        Signal.NODEFS_AVAILABLE, above=-16 * MIB, evictionMinimumReclaim={"nodefs.available": str(RELIEF_BYTES)}
    )


def test_of_a_fill_that_goes_on_a_pass_finds_its_lists_read(make_small_node: SmallNodeFactory) -> None:
    """The runtime takes 150 ms to list its images: in some pass nobody waits for that any more."""
    small = crowded(make_small_node)
    configuration = configuration_of(small)
    small.failpoints["ListImages"] = Delay(LIST_SECONDS)
    with Daemon("--config", configuration) as daemon:
        small.wait_for("ListImages")
        fill = fill_bytes(small.disk / "fill", 0, RATE, most_bytes=224 * MIB)
        daemon.wait_for(lambda event: "record" in event and event["record"]["timings"]["list_seconds"] < LIST_SECONDS)
        fill.stop()
    assert small.removed("image")


def test_a_runtime_that_hangs_holds_a_pass_up_for_half_a_second_and_no_longer(
    make_small_node: SmallNodeFactory,
) -> None:
    """The reading ahead is left to itself; the pass begins, asks for itself, and is answered."""
    small = crowded(make_small_node)
    configuration = configuration_of(small)
    with Daemon("--config", configuration) as daemon:
        small.wait_for("ListImages")
        small.failpoints["ListImages"] = Hang(times=1)
        fill = fill_bytes(small.disk / "fill", 0, RATE, most_bytes=40 * MIB)
        crossed = daemon.wait_for(lambda event: event["message"].startswith("ReclaimPressure"))
        relieved = daemon.wait_for(lambda event: event.get("result") == "satisfied")
        fill.stop()
        small.failpoints.clear()
    waited = datetime.fromisoformat(relieved["time"]) - datetime.fromisoformat(crossed["time"])
    assert waited.total_seconds() < READ_DEADLINE_SECONDS / 2
    assert small.removed("image")
